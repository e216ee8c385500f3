//! fio's job files, as far as they say what `farlane bench` can do: `farlane bench --job FILE`.
//!
//! Each parameter becomes an option of the command line, where the same parser reads it. What the
//! command line says comes first.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

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

/// The time of a job that its bytes alone end.
const WITHOUT_END: Duration = Duration::from_secs(365 * 86_400);

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
    // A file whose last job is wrong runs none, and all that is wrong is said at once.
    let jobs = sections(&text).and_then(|sections| {
        let (mut jobs, mut faults) = (Vec::new(), Vec::new());
        faults.extend(check(&sections).err());
        for section in &sections {
            match arguments(&given, section) {
                Ok(job) => jobs.push(job),
                Err(why) => faults.push(why),
            }
        }
        // A parameter of [global] is wrong in each job, and said once.
        faults.dedup();
        if faults.is_empty() { Ok(jobs) } else { Err(faults.join("\n")) }
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
        // fio takes what follows either sign for a comment, behind a value too.
        let line = line.split(['#', ';']).next().unwrap_or_default().trim();
        if line.is_empty() {
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
        // Both say the same: the later one counts.
        let is_mix = |key: &str| matches!(key, "rwmixread" | "rwmixwrite");
        let parameters = match sections.last_mut() {
            Some(section) if !is_global => &mut section.parameters,
            _ => &mut global,
        };
        parameters.retain(|(_, other, _)| *other != parameter.1 && !(is_mix(other) && is_mix(&parameter.1)));
        parameters.push(parameter);
    }
    if sections.is_empty() {
        return Err("there is no job; expected a line such as [job]".to_owned());
    }
    Ok(sections)
}

/// Checks that the jobs run one after the other.
fn check(sections: &[Section]) -> Result<(), String> {
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
    let (mut words, mut faults) = (given.to_vec(), Vec::new());
    let is_given = |option: &str| {
        let one = |word: &OsString| {
            let word = word.to_string_lossy();
            word == option || word.strip_prefix(option).is_some_and(|rest| rest.starts_with('='))
        };
        given.iter().any(one)
    };
    let has = |key: &str| parameters.iter().any(|(_, other, _)| other == key);
    for (line, key, value) in parameters {
        let (option, value) = match option(key, value) {
            Ok(Some(option)) => option,
            Ok(None) => continue,
            Err(why) => {
                faults.push(format!("line {line}, {key}: {why}"));
                continue;
            }
        };
        if is_given(option) || (option == "--bs" && has("bssplit")) {
            continue;
        }
        words.push(option.into());
        words.extend(value.map(OsString::from));
    }
    if !faults.is_empty() {
        return Err(faults.join("\n"));
    }
    words.extend(["--name".into(), name.into()]);
    let matches = crate::command_line().try_get_matches_from(words);
    let cli = matches.and_then(|matches| Cli::from_arg_matches(&matches)).map_err(|error| {
        let text = error.render().to_string();
        let first = text.split("\n\n").next().unwrap_or_default();
        format!("[{name}]: {}", first.strip_prefix("error: ").unwrap_or(first))
    })?;
    let Command::Bench(mut args) = cli.command else {
        return Err("expected farlane bench --job FILE URL".to_owned());
    };
    let is_time_based = parameters.iter().any(|(_, key, value)| key == "time_based" && value != "0");
    let has_runtime = has("runtime") || is_given("--runtime");
    if is_time_based && !has_runtime {
        return Err(format!("[{name}]: time_based wants runtime="));
    }
    if !is_time_based {
        // As in fio, the job ends with its last byte, or when its time is over.
        args.ends_with_size = args.io_size.is_none();
        if !has_runtime {
            args.runtime = WITHOUT_END;
        }
    }
    Ok(args)
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
        "io_size" => with("--io_size", value),
        "percentile_list" => with("--percentile_list", value),
        // A number alone is seconds.
        "runtime" if value.bytes().all(|byte| byte.is_ascii_digit()) => {
            with("--runtime", &format!("{value}s"))
        }
        // A large M is a minute as well.
        "runtime" => with("--runtime", &value.to_lowercase()),
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
    fn a_job_ends_with_its_bytes_unless_it_is_time_based() {
        let one = |text: &str| arguments(&given(), &sections(text).unwrap()[0]).unwrap();
        let job = one("[a]\nrw=randwrite ; a comment\nsize=1m # another\nverify=crc32c");
        assert!(job.ends_with_size && job.runtime == WITHOUT_END && job.verify);
        assert_eq!(job.size, Some(1 << 20));
        let job = one("[a]\nruntime=1M\nrwmixread=70\nrwmixwrite=20\ntime_based=0");
        assert_eq!((job.runtime.as_secs(), job.rwmixread, job.ends_with_size), (60, 80, true));
        let job = one("[a]\nruntime=3\ntime_based\nsize=1m");
        assert_eq!((job.runtime.as_secs(), job.ends_with_size), (3, false));
        let job = one("[a]\nio_size=8m\nsize=1m");
        assert_eq!((job.io_size, job.ends_with_size), (Some(8 << 20), false));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (text, words) in [
            ("bs=4k", "there is no job"),
            ("[a]\nzonemode=zbd", "line 2, zonemode"),
            ("[a]\nrw=trim", "[a]"),
            ("[a]\ntime_based", "runtime="),
            ("[a]\nrw=read\n[b]\nrw=write", "[b]"),
            ("[a]\nrwmixwrite=200", "rwmixwrite"),
            ("[a]\nzonemode=zbd\nrwmixwrite=200", "line 2, zonemode"),
            ("[a]\nzonemode=zbd\nrwmixwrite=200", "line 3, rwmixwrite"),
        ] {
            let found = sections(text).and_then(|sections| {
                check(&sections)?;
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
