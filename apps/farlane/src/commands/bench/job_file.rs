//! fio's job files, as far as they say what `farlane bench` can do: `farlane bench --job FILE`.
//!
//! Each parameter becomes an option of the command line, where the same parser reads it. What the
//! command line says comes first.

use std::ffi::OsString;
use std::path::Path;

use clap::FromArgMatches;

use crate::args::{BenchArgs, Cli, Command};
use crate::error::Error;
use crate::whole_file;

/// The option that names the file.
const OPTION: &str = "--job";
/// Parameters that change nothing here: the URL is the file, access is direct, one process carries
/// out all jobs, and offsets may repeat.
const WITHOUT_MEANING: [&str; 12] = [
    "ioengine",
    "filename",
    "direct",
    "group_reporting",
    "thread",
    "name",
    "description",
    "stonewall",
    "wait_for_previous",
    "norandommap",
    "randrepeat",
    "time_based",
];

/// One job of a file.
#[derive(Debug, PartialEq, Eq)]
struct Section {
    name: String,
    /// Parameters in their order, each with the line where it is.
    parameters: Vec<(usize, String, String)>,
}

/// Runs each job of the file at `path`, one after the other.
pub(super) fn run(path: &Path, each: impl FnMut(&BenchArgs) -> Result<(), Error>) -> Result<(), Error> {
    let text = whole_file::read(path, texts::FILE_MAX)?;
    let wrong = |why| Error::JobFile { path: path.to_owned(), why };
    let given = without_option(std::env::args_os());
    // A file whose last job is wrong runs none.
    let jobs = sections(&text).and_then(|sections| {
        let job = |section: &Section| arguments(&given, section);
        sections.iter().map(job).collect::<Result<Vec<_>, _>>()
    });
    let jobs = jobs.map_err(wrong)?;
    one_capture(&jobs).map_err(wrong)?;
    jobs.iter().try_for_each(each)
}

/// Checks that no job begins the capture of another one anew: each job attaches for itself.
fn one_capture(jobs: &[BenchArgs]) -> Result<(), String> {
    match jobs.iter().filter(|job| job.target.trace.is_some()).count() {
        0 | 1 => Ok(()),
        jobs => {
            Err(format!("{jobs} jobs would write the same --trace file; expected one job, or no --trace"))
        }
    }
}

/// The command line without the name of the file.
fn without_option(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut left = Vec::new();
    let mut is_next = false;
    for word in words {
        let text = word.to_string_lossy();
        if std::mem::take(&mut is_next) || text.starts_with("--job=") {
            continue;
        }
        match text == OPTION {
            true => is_next = true,
            false => left.push(word),
        }
    }
    left
}

/// The jobs of a file. Parameters of `[global]` are those of every later job that has no own.
fn sections(text: &str) -> Result<Vec<Section>, String> {
    let mut global: Vec<(usize, String, String)> = Vec::new();
    let mut sections: Vec<Section> = Vec::new();
    let mut is_global = true;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            is_global = name == "global";
            if !is_global {
                sections.push(Section { name: name.to_owned(), parameters: global.clone() });
            }
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, "1"));
        let parameter = (number, key.trim().to_lowercase(), value.trim().to_owned());
        let parameters = match sections.last_mut() {
            Some(section) if !is_global => &mut section.parameters,
            _ => &mut global,
        };
        parameters.retain(|(_, other, _)| *other != parameter.1);
        parameters.push(parameter);
    }
    check(&sections)?;
    Ok(sections)
}

/// Checks that the file has jobs, which run one after the other.
fn check(sections: &[Section]) -> Result<(), String> {
    if sections.is_empty() {
        return Err("there is no job; expected a line such as [job]".to_owned());
    }
    let has = |section: &Section, name: &str| section.parameters.iter().any(|(_, key, _)| key == name);
    let waits = |section: &&Section| has(section, "stonewall") || has(section, "wait_for_previous");
    if let Some(section) = sections.iter().skip(1).find(|section| !waits(section)) {
        let name = &section.name;
        return Err(format!(
            "[{name}] is to run beside the job before it; expected stonewall in it, for one job runs after the other, and numjobs for several that do the same"
        ));
    }
    Ok(())
}

/// The arguments for one job.
fn arguments(given: &[OsString], section: &Section) -> Result<BenchArgs, String> {
    let Section { name, parameters } = section;
    let (mut words, mut wants_time) = (given.to_vec(), false);
    let is_given = |option: &str| {
        let one = |word: &OsString| {
            let word = word.to_string_lossy();
            word == option || word.strip_prefix(option).is_some_and(|rest| rest.starts_with('='))
        };
        given.iter().any(one)
    };
    let has = |key: &str| parameters.iter().any(|(_, other, _)| other == key);
    for (line, key, value) in parameters {
        let Some(option) = option(key, value).map_err(|why| format!("line {line}, {key}: {why}"))? else {
            continue;
        };
        wants_time |= key == "runtime";
        let (option, value) = option;
        if is_given(option) || (option == "--bs" && has("bssplit")) {
            continue;
        }
        words.push(option.into());
        words.extend(value.map(OsString::from));
    }
    if wants_time != has("time_based") {
        return Err(format!(
            "[{name}]: a job here ends when its time is over, whatever size= says; expected time_based and runtime= together"
        ));
    }
    words.extend(["--name".into(), name.into()]);
    let matches = crate::command_line().try_get_matches_from(words);
    let cli = matches.and_then(|matches| Cli::from_arg_matches(&matches)).map_err(|error| {
        let text = error.render().to_string();
        let first = text.split("\n\n").next().unwrap_or_default();
        format!("[{name}]: {}", first.strip_prefix("error: ").unwrap_or(first))
    })?;
    match cli.command {
        Command::Bench(args) => Ok(args),
        _ => Err("expected farlane bench --job FILE URL".to_owned()),
    }
}

/// The option that a parameter is, with its value; none for one that changes nothing.
fn option(key: &str, value: &str) -> Result<Option<(&'static str, Option<String>)>, String> {
    let with = |option, value: &str| Ok(Some((option, Some(value.to_owned()))));
    match key {
        _ if WITHOUT_MEANING.contains(&key) => Ok(None),
        "rw" | "readwrite" if value == "readwrite" => with("--rw", "rw"),
        "rw" | "readwrite" => with("--rw", value),
        "bs" | "blocksize" => with("--bs", value),
        "bssplit" => with("--bssplit", value),
        "iodepth" => with("--iodepth", value),
        "numjobs" => with("--numjobs", value),
        "rwmixread" => with("--rwmixread", value),
        "rwmixwrite" => {
            let writes = value.parse::<u8>().ok().filter(|percent| *percent <= 100);
            let writes = writes.ok_or_else(|| format!("'{value}': expected 0 to 100"))?;
            with("--rwmixread", &(100 - writes).to_string())
        }
        "rate_iops" => with("--rate", value),
        "randseed" => with("--seed", value),
        "size" => with("--size", value),
        "percentile_list" => with("--percentile_list", value),
        // A number alone is seconds.
        "runtime" if value.bytes().all(|byte| byte.is_ascii_digit()) => {
            with("--runtime", &format!("{value}s"))
        }
        "runtime" => with("--runtime", value),
        "verify" if value == "0" => Ok(None),
        // Marks of our own, whatever the method is called.
        "verify" => Ok(Some(("--verify", None))),
        _ => Err(format!("farlane bench has no such parameter (value '{value}')")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "; two jobs\n[global]\nioengine=libaio\nbs=4k\ntime_based\nruntime=2\n\n\
                        [first]\nrw=randread\niodepth=8\n[second]\nstonewall\nrw=randrw\nbssplit=4k/50:64k/50\nrwmixwrite=30\n";

    fn given() -> Vec<OsString> {
        ["farlane", "bench", "tcp://far:1", "--iodepth", "2"].map(OsString::from).to_vec()
    }

    #[test]
    fn a_job_has_its_parameters_those_of_all_jobs_and_what_the_command_line_says() {
        let sections = sections(FILE).unwrap();
        let first = arguments(&given(), &sections[0]).unwrap();
        assert_eq!((first.bs, first.iodepth, first.runtime.as_secs()), (4096, 2, 2));
        assert_eq!(first.name.as_deref(), Some("first"));
        let second = arguments(&given(), &sections[1]).unwrap();
        assert_eq!((second.rwmixread, second.bssplit.map(|sizes| sizes.longest())), (70, Some(65_536)));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (text, words) in [
            ("bs=4k", "there is no job"),
            ("[a]\nzonemode=zbd", "line 2, zonemode"),
            ("[a]\nrw=trim", "[a]"),
            ("[a]\nruntime=3", "time_based"),
            ("[a]\nrw=read\n[b]\nrw=write", "[b]"),
            ("[a]\nrwmixwrite=200", "rwmixwrite"),
        ] {
            let found = sections(text).and_then(|sections| {
                sections.iter().try_for_each(|section| arguments(&given(), section).map(|_| ()))
            });
            let why = found.unwrap_err();
            assert!(why.contains(words), "{text}: {why}");
        }
    }

    #[test]
    fn only_one_job_has_a_capture() {
        let given = [given(), ["--trace", "a.pcapng"].map(OsString::from).to_vec()].concat();
        let sections = sections(FILE).unwrap();
        let jobs = sections.iter().map(|section| arguments(&given, section)).collect::<Result<Vec<_>, _>>();
        let jobs = jobs.unwrap();
        assert_eq!(one_capture(&jobs[..1]), Ok(()));
        let why = one_capture(&jobs).unwrap_err();
        assert!(why.starts_with("2 jobs") && why.contains("--trace"), "{why}");
    }

    #[test]
    fn the_name_of_the_file_leaves_the_command_line() {
        for words in [&["farlane", "bench", "--job", "a", "u"][..], &["farlane", "bench", "--job=a", "u"]] {
            let left = without_option(words.iter().map(OsString::from));
            assert_eq!(left, ["farlane", "bench", "u"]);
        }
    }
}
