//! fio's job files, as far as `farlane bench` supports their parameters: `farlane bench --job
//! FILE`.
//!
//! Each parameter becomes an option of the command line, where the same parser reads it. Options of
//! the command line come first.

mod section;
mod units;
mod words;

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use clap::FromArgMatches;

use super::Planned;
use crate::args::{BenchArgs, Cli, Command, names};
use crate::error::Error;
use crate::whole_file;
use crate::workload::Scope;
use section::{Section, sections};
use words::{Means, meaning};

/// The option that names the file.
const OPTION: &str = "--job";
/// The time of a job that its bytes alone end.
const WITHOUT_END: Duration = Duration::from_secs(365 * 86_400);
/// Options that exclude each other, or have two names: one of the command line stands for all.
const SAME: [&[&str]; 10] = [
    &["--bs", "--blocksize", "--bssplit", "--bsrange"],
    &["--rw", "--readwrite"],
    &["--seed", "--randseed"],
    &["--fsync", "--fdatasync"],
    &["--blockalign", "--ba"],
    &["--steadystate", "--ss"],
    &["--steadystate_duration", "--ss_dur"],
    &["--steadystate_ramp_time", "--ss_ramp"],
    &["--steadystate_check_interval", "--ss_interval"],
    &["--io_size", "--io-size"],
];

/// The jobs of the file at `path`, in their order, and the parameters of the file that change
/// nothing.
pub(super) fn plan(path: &Path) -> Result<(Vec<Planned>, Vec<String>), Error> {
    let text = whole_file::read(path, texts::FILE_MAX)?;
    let given = without_option(names::given().into_iter());
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let planned = sections(&text, variable).and_then(|sections| jobs(&given, &sections));
    planned.map_err(|why| Error::JobFile { path: path.to_owned(), why })
}

/// The jobs of `sections`. A file whose last job is wrong runs none, and the error lists all faults
/// at once.
fn jobs(given: &[OsString], sections: &[Section]) -> Result<(Vec<Planned>, Vec<String>), String> {
    let (mut jobs, mut faults, mut without) = (Vec::new(), Vec::new(), Vec::new());
    let (mut phase, mut group) = (0, 0);
    for (index, section) in sections.iter().enumerate() {
        phase += usize::from(index > 0 && section.is_on("stonewall"));
        group += usize::from(index > 0 && (section.is_on("stonewall") || section.is_on("new_group")));
        match arguments(given, section, &mut without) {
            Ok(args) => match order(sections, index) {
                Ok((after, ends)) => jobs.push(Planned { args, phase, group, after, ends }),
                Err(why) => faults.push(why),
            },
            Err(why) => faults.extend(why),
        }
    }
    // A wrong parameter of [global] is wrong in each job, and listed once.
    let mut once = Vec::new();
    for fault in faults {
        if !once.contains(&fault) {
            once.push(fault);
        }
    }
    if once.is_empty() { Ok((jobs, without)) } else { Err(once.join("\n")) }
}

/// The jobs that end before the job at `index` begins, and the jobs that end with it.
fn order(sections: &[Section], index: usize) -> Result<(Vec<usize>, Option<Scope>), String> {
    let section = &sections[index];
    let mut after = Vec::new();
    if let Some((line, name)) = section.value("wait_for") {
        let is_named =
            |other: &&Section| other.name == name || other.value("name").is_some_and(|(_, own)| own == name);
        match sections[..index].iter().rposition(|other| is_named(&other)) {
            Some(at) => after.push(at),
            None => return Err(format!("line {line}, wait_for: there is no job '{name}' before this one")),
        }
    }
    let scope = match section.value("exit_what") {
        None | Some((_, "group")) => Scope::Group,
        Some((_, "stonewall")) => Scope::Phase,
        Some((_, "all")) => Scope::All,
        Some((line, other)) => {
            return Err(format!("line {line}, exit_what: '{other}': expected group, stonewall or all"));
        }
    };
    Ok((after, section.is_on("exitall").then_some(scope)))
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

/// Whether the command line has an option, or another option in its place.
fn is_given(given: &[OsString], option: &str) -> bool {
    let same = SAME.iter().find(|same| same.contains(&option));
    let one = |option: &str, word: &OsString| {
        let word = word.to_string_lossy();
        word == option || word.strip_prefix(option).is_some_and(|rest| rest.starts_with('='))
    };
    let has = |option: &str| given.iter().any(|word| one(option, word));
    same.map_or_else(|| has(option), |same| same.iter().any(|option| has(option)))
}

/// The arguments for one job. Parameters without effect are added to `without`.
///
/// # Errors
/// Everything that is wrong with the job.
fn arguments(
    given: &[OsString],
    section: &Section,
    without: &mut Vec<String>,
) -> Result<BenchArgs, Vec<String>> {
    let (mut options, mut faults) = (Vec::new(), Vec::new());
    let mut note = |word: &str| {
        if !without.iter().any(|other| other == word) {
            without.push(word.to_owned());
        }
    };
    for (line, key, value) in &section.parameters {
        match option(section, key, value) {
            Ok(None) if meaning(key) == Some(Means::Nothing) => note(key),
            Ok(None) => {}
            Ok(Some((option, value))) if !is_given(given, option) => {
                options.push((*line, key, format!("{option}={value}")))
            }
            Ok(Some(_)) => {}
            Err(why) => faults.push(format!("line {line}, {key}: {why}")),
        }
    }
    let parsed = parse(given, options.iter().map(|(_, _, option)| option));
    let mut args = match parsed {
        Ok(args) if faults.is_empty() => args,
        Ok(_) => return Err(faults),
        Err(together) => {
            // Each option that is wrong by itself is named.
            let before = faults.len();
            for (line, key, option) in &options {
                if let Err(why) = parse(given, std::iter::once(option)) {
                    faults.push(format!("line {line}, {key}: {why}"));
                }
            }
            if faults.len() == before {
                faults.push(format!("[{}]: {together}", section.name));
            }
            return Err(faults);
        }
    };
    args.name = args.name.or_else(|| Some(section.shown_name().to_owned()));
    args.load.time_based |= section.is_on("time_based");
    let has_runtime = section.runtime().is_some() || is_given(given, "--runtime");
    if args.load.time_based && !has_runtime {
        // As in fio, which logs it as well.
        args.load.time_based = false;
        note("time_based (there is no runtime)");
    }
    // As in fio, the job ends with its last byte, or when its time is over.
    args.ends_with_size = !args.load.time_based && args.io_size.is_none();
    if !has_runtime {
        args.runtime = WITHOUT_END;
    }
    Ok(args)
}

/// The arguments of the command line with `options`.
fn parse<'a>(given: &[OsString], options: impl Iterator<Item = &'a String>) -> Result<BenchArgs, String> {
    let words = given.iter().cloned().chain(options.map(OsString::from));
    let matches = crate::command_line().try_get_matches_from(words);
    let cli = matches.and_then(|matches| Cli::from_arg_matches(&matches)).map_err(|error| {
        let text = error.render().to_string();
        let first = text.split("\n\n").next().unwrap_or_default();
        first.strip_prefix("error: ").unwrap_or(first).trim_end().replace('\n', " ")
    })?;
    match cli.command {
        Command::Bench(args) => Ok(*args),
        _ => Err("expected farlane bench --job FILE URL".to_owned()),
    }
}

/// The option for a parameter, with its value; none for a parameter without an option.
fn option(section: &Section, key: &str, value: &str) -> Result<Option<(&'static str, String)>, String> {
    let means =
        meaning(key).ok_or_else(|| format!("farlane bench has no such parameter (value '{value}')"))?;
    let micros = |time: Duration| format!("{}us", time.as_micros());
    Ok(match means {
        Means::Nothing if key == "ioengine" => match words::refusal_of_engine(value) {
            None => None,
            Some(why) => return Err(why),
        },
        Means::Nothing => None,
        Means::Plain(option) => Some((option, value.to_owned())),
        // With shares, one length counts for nothing.
        Means::Sizes("--bs" | "--bsrange") if section.value("bssplit").is_some() => None,
        Means::Sizes(option) => Some((option, units::sizes(value, section.kb_base()?)?)),
        Means::Seconds(option) => Some((option, micros(units::time(value, Duration::from_secs(1))?))),
        Means::Micros(option) => Some((option, micros(units::time(value, Duration::from_micros(1))?))),
        Means::Switch(option) => Some((option, value.to_owned())),
        Means::Refused(_) if value == "0" => None,
        Means::Refused(why) => return Err(format!("{why} (value '{value}')")),
        Means::Own => own(section, key, value)?,
    })
}

/// The option of a parameter that needs more than its value.
fn own(section: &Section, key: &str, value: &str) -> Result<Option<(&'static str, String)>, String> {
    let sizes = |text: &str| units::sizes(text, section.kb_base()?);
    let rest = |what: &str| {
        let percent = what.parse::<u8>().ok().filter(|percent| *percent <= 100);
        percent
            .map(|percent| (100 - percent).to_string())
            .ok_or_else(|| format!("'{what}': expected 0 to 100"))
    };
    Ok(match key {
        "rw" => match value.split_once(':') {
            None => Some(("--rw", value.to_owned())),
            Some((name, number)) => Some(("--rw", format!("{name}:{}", sizes(number)?))),
        },
        "rwmixwrite" => Some(("--rwmixread", rest(value)?)),
        "percentage_sequential" => Some(("--percentage_random", rest(value)?)),
        // The file is the part of the namespace; the other one is how much of it.
        "size" if section.value("filesize").is_some() => match section.value("io_size") {
            Some(_) => None,
            None => Some(("--io_size", sizes(value)?)),
        },
        "size" => Some(("--size", sizes(value)?)),
        "io_size" => Some(("--io_size", sizes(value)?)),
        "filesize" => {
            let bytes = sizes(value)?.parse::<u64>().map_err(|_| format!("'{value}': expected one size"))?;
            let files = section.value("nrfiles").map_or(Some(1), |(_, files)| files.parse::<u64>().ok());
            let bytes = files.and_then(|files| files.checked_mul(bytes));
            Some((
                "--size",
                bytes.ok_or_else(|| format!("'{value}' of nrfiles: expected fewer"))?.to_string(),
            ))
        }
        "runtime" => {
            section.runtime().transpose()?.map(|time| ("--runtime", format!("{}us", time.as_micros())))
        }
        "percentile_list" => Some(("--percentile_list", value.replace(',', ":"))),
        "randrepeat" if value == "0" && section.value("randseed").is_none() => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            Some(("--seed", u64::from(now.subsec_nanos()).wrapping_add(now.as_secs()).to_string()))
        }
        "sync" => match value {
            "0" | "none" => None,
            "1" | "sync" | "dsync" => Some(("--writefua", "1".to_owned())),
            _ => return Err(format!("'{value}': expected none, sync or dsync")),
        },
        "verify" if matches!(value, "0" | "null") => None,
        "verify" => Some(("--verify", value.to_owned())),
        "write_mode" | "sg_write_mode" if value == "write" => None,
        "write_mode" | "sg_write_mode" => {
            return Err(format!(
                "'{value}': expected write, for writes are the only commands of a write load"
            ));
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests;
