//! Scenarios beside captures: their values, and the effect of changing some.
//!
//! Each simulation is a process of its own, since a changed value may make it long, and may meet
//! a fault.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use scenarios::file::sweep::{Axis, apply};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::api::query::Refusal;
use crate::commands::sim::explain::{self, Operation};
use crate::commands::sim::play::{self, Task};
use crate::commands::sim::streams::Stream;
use crate::error::Error;
use crate::whole_file;

/// How long a simulation may take.
const LONGEST: Duration = Duration::from_secs(20);
/// How often it is looked whether one has ended.
const PAUSE: Duration = Duration::from_millis(2);
/// The most bytes of a simulation's answer.
const ANSWER_MAX: u64 = 16 << 20;
/// The most values that are changed at once.
const CHANGES_MAX: usize = 64;

/// Scenarios that are a part of the program, by name.
const OWN: [(&str, &str); 6] = [
    ("tcp-1g", include_str!("../../../../../scenarios/tcp-1g.toml")),
    ("direct", include_str!("../../../../../scenarios/direct.toml")),
    ("tsn-1g", include_str!("../../../../../scenarios/tsn-1g.toml")),
    ("5g", include_str!("../../../../../scenarios/5g.toml")),
    ("nvme-tcp", include_str!("../../../../../scenarios/fabrics/nvme-tcp.toml")),
    ("nvme-roce", include_str!("../../../../../scenarios/fabrics/nvme-roce.toml")),
];

/// Scenarios, and the values that each has.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Scenarios<'a> {
    scenarios: Vec<Described<'a>>,
}

/// A scenario.
#[derive(Serialize, JsonSchema)]
struct Described<'a> {
    name: &'a str,
    /// The comment at the beginning of its file.
    about: String,
    /// Its file.
    text: &'a str,
    values: Vec<Leaf>,
}

/// A value that may be changed.
#[derive(Serialize, JsonSchema)]
struct Leaf {
    /// The keys that lead to it, joined by dots.
    path: String,
    value: LeafValue,
}

/// A value of a file.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum LeafValue {
    Text(String),
    Whole(i64),
    Number(f64),
    Switch(bool),
}

/// The prediction of a scenario with changed values: the results of farlane model sim and farlane
/// model explain.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Played {
    tasks: Vec<Task>,
    streams: Vec<Stream>,
    /// How long the host took to bring the device up.
    boot_ns: u64,
    /// The number of events of the simulated world.
    events: u64,
    /// Where the time of each operation goes; none where there are no operations.
    operations: Option<Vec<Operation>>,
    /// The scenario's file with the changed values.
    text: String,
}

/// A scenario with values that may be changed.
#[derive(Debug)]
struct Known {
    name: String,
    text: String,
    /// Where the files are that it names.
    folder: PathBuf,
}

/// Plays scenarios, one at a time. A new request ends the one under way: a moved slider needs the
/// result of its last place.
#[derive(Debug)]
pub(super) struct Simulator {
    known: Vec<Known>,
    busy: Mutex<()>,
    /// The number of the newest question.
    newest: AtomicU64,
}

/// The request to play.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Wanted {
    /// New values by the keys that lead to them, joined by dots.
    set: Map<String, Value>,
    /// Which operation of each task is explained, in percent.
    percentile: Option<f64>,
}

impl Simulator {
    /// A simulator with the scenarios in `files`, and those of the program.
    ///
    /// # Errors
    /// When a file can't be read.
    pub(super) fn new(files: &[PathBuf]) -> Result<Self, Error> {
        let mut known = Vec::new();
        for path in files {
            let text = whole_file::read(path, texts::FILE_MAX)?;
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            known.push(Known { name, text, folder: folder.unwrap_or(Path::new(".")).to_owned() });
        }
        let own = OWN.iter().map(|(name, text)| Known {
            name: (*name).to_owned(),
            text: (*text).to_owned(),
            folder: ".".into(),
        });
        known.extend(own);
        Ok(Self { known, busy: Mutex::new(()), newest: AtomicU64::new(0) })
    }

    /// The scenarios with their values.
    pub(super) fn list<'a>(&'a self) -> Scenarios<'a> {
        let one = |known: &'a Known| {
            let mut values = Vec::new();
            if let Ok(file) = texts::parse::<toml::Table>(&known.text) {
                leaves("", &toml::Value::Table(file), &mut values);
            }
            let about = known.text.lines().take_while(|line| line.starts_with('#'));
            let about: Vec<_> = about.map(|line| line.trim_start_matches(['#', ' '])).collect();
            Described { name: &known.name, about: about.join(" "), text: &known.text, values }
        };
        Scenarios { scenarios: self.known.iter().map(one).collect() }
    }

    /// Plays the scenario `number` with the values that `body` changes.
    pub(super) fn play(&self, number: u64, body: &[u8]) -> Result<Played, Refusal> {
        let known = usize::try_from(number).ok().and_then(|number| self.known.get(number));
        let known = known.ok_or_else(|| Refusal::nothing(&format!("scenario {number}")))?;
        let wanted: Wanted = serde_json::from_slice(body).map_err(Refusal::malformed)?;
        let percentile = wanted.percentile.unwrap_or(50.0);
        if !(0.0..=100.0).contains(&percentile) {
            return Err(Refusal::value("percentile", &percentile.to_string(), "0 to 100"));
        }
        let text = changed(&known.text, &wanted.set)?;
        let own = self.newest.fetch_add(1, Ordering::Relaxed) + 1;
        let _one_at_a_time = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let is_newest = || self.newest.load(Ordering::Relaxed) == own;
        let until = Instant::now() + LONGEST;
        let percentile = format!("{percentile:.1}");
        let played = Running::start(&["model", "sim", "-", "--json"], known, &text)?;
        let explained = ["model", "explain", "-", "--json", "--percentile", &percentile];
        let explained = Running::start(&explained, known, &text)?;
        let played: play::Json = played.answer(until, is_newest)?;
        // A scenario without single operations has none to explain.
        let explained = explained.answer::<explain::Json>(until, is_newest).ok();
        let play::Json { tasks, streams, boot_ns, events, .. } = played;
        let operations = explained.map(|explained| explained.operations);
        Ok(Played { tasks, streams, boot_ns, events, operations, text })
    }
}

/// The file `text` with other values.
fn changed(text: &str, set: &Map<String, Value>) -> Result<String, Refusal> {
    if set.len() > CHANGES_MAX {
        return Err(Refusal::value("set", &set.len().to_string(), "64 values at most"));
    }
    let (mut axes, mut point) = (Vec::new(), Vec::new());
    for (path, value) in set {
        let value = match value {
            Value::String(text) => text.clone(),
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            other => return Err(Refusal::value(path, &other.to_string(), "a text, a number, true or false")),
        };
        axes.push(Axis { path: path.clone(), values: vec![value.clone()] });
        point.push(value);
    }
    apply(text, &axes, &point).map_err(Refusal::malformed)
}

/// The places of `value` that hold one thing, with the keys that lead to them.
fn leaves(path: &str, value: &toml::Value, found: &mut Vec<Leaf>) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    let leaf = match value {
        toml::Value::Table(table) => {
            return table.iter().for_each(|(key, value)| leaves(&below(key), value, found));
        }
        toml::Value::Array(list) => {
            // A place in a list can be changed where it is a table, or a list again.
            let inner = list.iter().enumerate().filter(|(_, value)| value.is_table() || value.is_array());
            return inner.for_each(|(at, value)| leaves(&below(&at.to_string()), value, found));
        }
        toml::Value::String(text) => LeafValue::Text(text.clone()),
        toml::Value::Integer(number) => LeafValue::Whole(*number),
        toml::Value::Float(number) => LeafValue::Number(*number),
        toml::Value::Boolean(is_so) => LeafValue::Switch(*is_so),
        toml::Value::Datetime(_) => return,
    };
    found.push(Leaf { path: path.to_owned(), value: leaf });
}

/// A process that simulates. It is killed when it is dropped.
struct Running(Child);

impl Running {
    fn start(arguments: &[&str], known: &Known, text: &str) -> Result<Self, Refusal> {
        let program = std::env::current_exe().map_err(Refusal::malformed)?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&known.folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(Refusal::malformed)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A process that has ended says why by its standard error.
            let _ = stdin.write_all(text.as_bytes());
        }
        Ok(Self(child))
    }

    /// Waits for the answer, as long as it `is_wanted`.
    fn answer<T: DeserializeOwned>(
        mut self,
        until: Instant,
        is_wanted: impl Fn() -> bool,
    ) -> Result<T, Refusal> {
        // A process whose output is not read would wait with a long answer.
        let read = |stream: Option<Box<dyn Read + Send>>| {
            std::thread::spawn(move || {
                let mut text = String::new();
                stream.map(|stream| stream.take(ANSWER_MAX).read_to_string(&mut text));
                text
            })
        };
        let out = read(self.0.stdout.take().map(|out| Box::new(out) as _));
        let errors = read(self.0.stderr.take().map(|errors| Box::new(errors) as _));
        loop {
            match self.0.try_wait().map_err(Refusal::malformed)? {
                Some(status) if status.success() => break,
                Some(_) => {
                    let errors = errors.join().unwrap_or_default();
                    let error: Value = serde_json::from_str(errors.trim()).unwrap_or_default();
                    let message = error.pointer("/error/message").and_then(Value::as_str);
                    let message = message.unwrap_or("the simulation met a fault").trim_start_matches("-: ");
                    return Err(Refusal::malformed(message));
                }
                None if Instant::now() >= until => {
                    let words = "the simulation takes longer than 20 s: set a smaller count, runtime or size";
                    return Err(Refusal::conflict(words.to_owned()));
                }
                None if !is_wanted() => {
                    return Err(Refusal::conflict("another simulation was asked for meanwhile".to_owned()));
                }
                None => std::thread::sleep(PAUSE),
            }
        }
        let out = out.join().unwrap_or_default();
        serde_json::from_str(&out).map_err(Refusal::malformed)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A process that has ended can't be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_scenario_of_the_program_has_a_description_and_values_that_can_be_changed() {
        let simulator = Simulator::new(&[]).unwrap();
        let list = serde_json::to_value(simulator.list()).unwrap();
        for (scenario, known) in list["scenarios"].as_array().unwrap().iter().zip(&simulator.known) {
            assert!(!scenario["about"].as_str().unwrap().is_empty(), "{scenario}");
            let values = scenario["values"].as_array().unwrap();
            assert!(!values.is_empty(), "{scenario}");
            for value in values {
                let set = [(value["path"].as_str().unwrap().to_owned(), value["value"].clone())];
                let text = changed(&known.text, &set.into_iter().collect()).unwrap();
                assert_eq!(text.parse::<toml::Table>().unwrap(), known.text.parse::<toml::Table>().unwrap());
            }
        }
        let wrong = [("link.hop.9.rate".to_owned(), json!("1Gbit/s"))].into_iter().collect();
        assert!(changed(OWN[0].1, &wrong).is_err());
        let wrong = [("link.tcp".to_owned(), json!([1]))].into_iter().collect();
        assert!(changed(OWN[0].1, &wrong).is_err());
    }
}
