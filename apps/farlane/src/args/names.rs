//! The spellings of commands: today's, second ones, and old ones, which are hidden aliases.
//!
//! A command line is brought into today's spelling before it is parsed, so the parser, the options
//! of files and the messages know one name of each command.

use std::ffi::OsString;

use clap::Command;

/// The release from which on the old spellings are unknown.
pub(crate) const LAST: &str = "0.3";

/// A spelling of a command that became another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renamed {
    /// The words behind `farlane`, as they were.
    pub(crate) old: &'static str,
    /// The words that stand for them now.
    pub(crate) new: &'static str,
    /// Where the old words still have their old meaning.
    when: When,
}

/// Where old words have their old meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Always,
    /// Where an option or a URL follows: without one, the words name a group.
    Argument,
    /// Where --to is given and no action: without it, the words offer a device.
    To,
}

const fn renamed(old: &'static str, new: &'static str) -> Renamed {
    Renamed { old, new, when: When::Always }
}

/// Every old spelling. Of two that begin alike, the longer one stands first.
pub(crate) const RENAMED: &[Renamed] = &[
    Renamed { old: "export", new: "recording convert", when: When::To },
    Renamed { old: "measure", new: "measure report", when: When::Argument },
    renamed("device", "offer device"),
    renamed("disconnect", "use disconnect"),
    renamed("discover", "use discover"),
    renamed("read", "use read"),
    renamed("write", "use write"),
    renamed("ping", "measure ping"),
    renamed("rdma", "measure rdma"),
    renamed("nic", "measure nic"),
    renamed("status", "observe status"),
    renamed("list", "observe list"),
    renamed("top", "observe top"),
    renamed("capture", "observe capture"),
    renamed("trace export", "observe trace convert"),
    renamed("trace", "observe trace"),
    renamed("ui", "observe ui"),
    renamed("lspci", "observe lspci"),
    renamed("sim sweep", "model sweep"),
    renamed("sim explain", "model explain"),
    renamed("sim published", "model published"),
    renamed("sim", "model sim"),
    renamed("emulate", "model emulate"),
    renamed("tsn check", "model tsn audit"),
    renamed("tsn", "model tsn"),
    renamed("replay", "recording replay"),
    renamed("verify", "recording verify"),
    renamed("recover", "recording recover"),
    renamed("info", "recording info"),
    renamed("preflight", "recording preflight"),
    renamed("key check", "setup key test"),
    renamed("key", "setup key"),
    renamed("check", "setup check"),
    renamed("doctor", "setup doctor"),
    renamed("man", "setup man"),
    renamed("completions", "setup completions"),
    renamed("identify", "nvme identify"),
    renamed("id-ctrl", "nvme id-ctrl"),
    renamed("smart-log", "nvme smart-log"),
    renamed("id-ns", "nvme id-ns"),
    renamed("ns-descs", "nvme ns-descs"),
    renamed("id-uuid", "nvme id-uuid"),
    renamed("list-ns", "nvme list-ns"),
    renamed("list-ctrl", "nvme list-ctrl"),
    renamed("create-ns", "nvme create-ns"),
    renamed("delete-ns", "nvme delete-ns"),
    renamed("attach-ns", "nvme attach-ns"),
    renamed("detach-ns", "nvme detach-ns"),
    renamed("format", "nvme format"),
    renamed("sanitize", "nvme sanitize"),
    renamed("sanitize-log", "nvme sanitize-log"),
    renamed("get-log", "nvme get-log"),
    renamed("error-log", "nvme error-log"),
    renamed("effects-log", "nvme effects-log"),
    renamed("ana-log", "nvme ana-log"),
    renamed("supported-log-pages", "nvme supported-log-pages"),
    renamed("changed-ns-list-log", "nvme changed-ns-list-log"),
    renamed("endurance-log", "nvme endurance-log"),
    renamed("persistent-event-log", "nvme persistent-event-log"),
    renamed("telemetry-log", "nvme telemetry-log"),
    renamed("fw-log", "nvme fw-log"),
    renamed("fw-download", "nvme fw-download"),
    renamed("fw-commit", "nvme fw-commit"),
    renamed("device-self-test", "nvme device-self-test"),
    renamed("self-test-log", "nvme self-test-log"),
    renamed("get-feature", "nvme get-feature"),
    renamed("set-feature", "nvme set-feature"),
    renamed("resv-register", "nvme resv-register"),
    renamed("resv-acquire", "nvme resv-acquire"),
    renamed("resv-release", "nvme resv-release"),
    renamed("resv-report", "nvme resv-report"),
    renamed("flush", "nvme flush"),
    renamed("write-zeroes", "nvme write-zeroes"),
    renamed("verify-blocks", "nvme verify"),
    renamed("compare", "nvme compare"),
    renamed("copy", "nvme copy"),
    renamed("write-uncor", "nvme write-uncor"),
    renamed("dsm", "nvme dsm"),
    renamed("reset", "nvme reset"),
    renamed("subsystem-reset", "nvme subsystem-reset"),
    renamed("show-regs", "nvme show-regs"),
    renamed("get-property", "nvme get-property"),
    renamed("virt-mgmt", "nvme virt-mgmt"),
    renamed("lockdown", "nvme lockdown"),
    renamed("show-hostnqn", "nvme show-hostnqn"),
    renamed("gen-hostnqn", "nvme gen-hostnqn"),
    renamed("version", "nvme version"),
    renamed("list-subsys", "nvme list-subsys"),
    renamed("admin-passthru", "nvme admin-passthru"),
    renamed("io-passthru", "nvme io-passthru"),
];

/// Options that became others.
pub(crate) const RENAMED_OPTIONS: [(&str, &str); 1] = [("--trace", "--capture")];

/// Second spellings that stay: the daily words of a group, and nvme-cli's words.
pub(crate) const SECOND: [(&str, &str); 13] = [
    ("offer export", "export"),
    ("offer target", "target"),
    ("use attach", "attach"),
    ("use connect", "connect"),
    ("measure demo", "demo"),
    ("measure bench", "bench"),
    ("recording record", "record"),
    ("nvme list", "observe list"),
    ("nvme discover", "use discover"),
    ("nvme connect", "connect"),
    ("nvme disconnect", "use disconnect"),
    ("nvme read", "use read"),
    ("nvme write", "use write"),
];

/// A command line in today's spelling.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Modern {
    pub(crate) words: Vec<OsString>,
    /// The note to log about an old spelling.
    pub(crate) note: Option<String>,
}

/// Brings the command line `given`, from the program's name on, into today's spelling.
pub(crate) fn modern(root: &Command, given: Vec<OsString>) -> Modern {
    let (words, renamed) = with_renamed_command(given);
    let words = with_first_spelling(words);
    let names = names_in(root, &words);
    let (words, options) = with_renamed_options(find(root, &names).unwrap_or(root), words);
    if renamed.is_none() && options.is_empty() {
        return Modern { words, note: None };
    }
    let (old, new) = renamed.map_or((names.as_str(), names.as_str()), |one| (one.old, one.new));
    let (mut was, mut is) = (format!("farlane {old}"), format!("farlane {new}"));
    for (old, new) in &options {
        was += &format!(" {old}");
        is += &format!(" {new}");
    }
    let what = if options.is_empty() { "name" } else { "spelling" };
    Modern { words, note: Some(format!("{was} is now {is}; the old {what} goes in {LAST}")) }
}

/// The command line of this process, in today's spelling.
pub(crate) fn given() -> Vec<OsString> {
    modern(&crate::command_line(), std::env::args_os().collect()).words
}

/// The names in today's spelling of the command that `names` lead to.
pub(crate) fn first_spelling(names: &[String]) -> Vec<String> {
    let given = std::iter::once("farlane").chain(names.iter().map(String::as_str));
    let (words, _) = with_renamed_command(given.map(OsString::from).collect());
    let words = with_first_spelling(words);
    words.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Adds the commands that have a second spelling there, too, for help and completions.
pub(super) fn add_to(root: Command) -> Command {
    SECOND.iter().fold(root, |root, (second, first)| {
        let (Some((group, name)), Some(command)) = (second.split_once(' '), find(&root, first)) else {
            return root;
        };
        let command = command.clone().name(name);
        root.mut_subcommand(group, |group| group.subcommand(command))
    })
}

/// The command that these words lead to.
pub(crate) fn find<'a>(root: &'a Command, words: &str) -> Option<&'a Command> {
    words.split(' ').try_fold(root, |command, word| command.find_subcommand(word))
}

/// Where words stand that may name commands: the first words, behind options of every command.
pub(crate) fn places(given: &[OsString]) -> Vec<usize> {
    let mut places = Vec::new();
    let mut at = 1;
    while let Some(word) = given.get(at).and_then(|word| word.to_str()) {
        match options_of_every_command(word) {
            Some(length) => at += length,
            None if word.starts_with('-') => break,
            None => {
                places.push(at);
                at += 1;
            }
        }
    }
    places
}

/// The word at `at`, or behind options of every command there.
fn after_options(given: &[OsString], mut at: usize) -> Option<&str> {
    loop {
        let word = given.get(at)?.to_str()?;
        match options_of_every_command(word) {
            Some(length) => at += length,
            None => return Some(word),
        }
    }
}

/// How many words an option of every command has, if `word` is one.
fn options_of_every_command(word: &str) -> Option<usize> {
    let letters = word.strip_prefix('-').unwrap_or_default();
    let is_cluster = !letters.is_empty() && letters.chars().all(|one| matches!(one, 'v' | 'q'));
    match word {
        "--log" => Some(2),
        "--verbose" | "--quiet" => Some(1),
        _ if is_cluster || word.starts_with("--log=") => Some(1),
        _ => None,
    }
}

/// Replaces an old spelling of a command. Returns which one it was.
fn with_renamed_command(given: Vec<OsString>) -> (Vec<OsString>, Option<Renamed>) {
    let (places, is_help) = named(&given);
    let is_it =
        |one: &&Renamed| leads_to(&given, &places, one.old) && one.when.holds(&given, places[0], is_help);
    let Some(one) = RENAMED.iter().find(is_it) else { return (given, None) };
    let count = one.old.split(' ').count();
    (replaced(given, &places[..count], one.new), Some(*one))
}

/// Replaces a second spelling of a command.
fn with_first_spelling(given: Vec<OsString>) -> Vec<OsString> {
    let (places, _) = named(&given);
    match SECOND.iter().find(|(second, _)| leads_to(&given, &places, second)) {
        Some((second, first)) => replaced(given, &places[..second.split(' ').count()], first),
        None => given,
    }
}

/// Where the names of the command stand, and whether its help is asked for by `help`.
fn named(given: &[OsString]) -> (Vec<usize>, bool) {
    let mut places = places(given);
    let is_help = places.first().is_some_and(|first| given[*first] == "help");
    if is_help {
        places.remove(0);
    }
    (places, is_help)
}

/// Whether the words at `places` begin with `words`.
pub(crate) fn leads_to(given: &[OsString], places: &[usize], words: &str) -> bool {
    let count = words.split(' ').count();
    count <= places.len() && words.split(' ').zip(places).all(|(word, place)| given[*place] == word)
}

/// `given` with `new` in place of the words at `places`.
fn replaced(given: Vec<OsString>, places: &[usize], new: &str) -> Vec<OsString> {
    let mut words = Vec::with_capacity(given.len() + 2);
    for (place, word) in given.into_iter().enumerate() {
        if places.first() == Some(&place) {
            words.extend(new.split(' ').map(OsString::from));
        } else if !places.contains(&place) {
            words.push(word);
        }
    }
    words
}

impl When {
    /// Whether the word at `place` has its old meaning.
    fn holds(self, given: &[OsString], place: usize, is_help: bool) -> bool {
        match self {
            Self::Always => true,
            _ if is_help => false,
            Self::Argument => {
                let next = after_options(given, place + 1).unwrap_or_default();
                (next.starts_with('-') && !matches!(next, "-h" | "--help")) || next.contains(':')
            }
            Self::To => {
                let next = after_options(given, place + 1).unwrap_or_default();
                let words = given[place + 1..].iter().filter_map(|word| word.to_str());
                let mut words = words.take_while(|word| *word != "--");
                let is_to = |word: &str| word == "--to" || word.starts_with("--to=");
                !EXPORT_ACTIONS.contains(&next) && words.any(is_to)
            }
        }
    }
}

/// The words that may follow `export` instead of options. A recording of one of these names needs
/// `./`.
const EXPORT_ACTIONS: [&str; 7] = ["status", "add", "remove", "resize", "save", "reload", "help"];

/// The name of the page of the command whose own page would be `name`, such as
/// `farlane-offer-export`.
pub(crate) fn first_name(name: &str) -> String {
    let dashed = |words: &str| format!("farlane-{}", words.replace(' ', "-"));
    let second = SECOND.iter().find(|(second, _)| dashed(second) == name);
    second.map_or_else(|| name.to_owned(), |(_, first)| dashed(first))
}

/// Whether these words are a second spelling.
pub(crate) fn is_second(words: &str) -> bool {
    SECOND.iter().any(|(second, _)| *second == words)
}

/// The names of the command in a command line of today's spelling.
pub(crate) fn names_in(root: &Command, words: &[OsString]) -> String {
    let mut names: Vec<&str> = Vec::new();
    let mut command = root;
    for place in named(words).0 {
        let Some(name) = words[place].to_str() else { break };
        let Some(next) = command.find_subcommand(name) else { break };
        command = next;
        names.push(name);
    }
    names.join(" ")
}

/// Replaces options that became others, where `command` has the new one. Returns each pair that was
/// found.
fn with_renamed_options(
    command: &Command,
    mut words: Vec<OsString>,
) -> (Vec<OsString>, Vec<(&'static str, &'static str)>) {
    let has = |option: &str| command.get_arguments().any(|arg| arg.get_long() == option.strip_prefix("--"));
    let mut found = Vec::new();
    for (old, new) in RENAMED_OPTIONS.into_iter().filter(|(old, new)| has(new) && !has(old)) {
        for word in words.iter_mut().take_while(|word| *word != "--") {
            let Some(value) = word.to_str().and_then(|word| word.strip_prefix(old)) else { continue };
            if value.is_empty() || value.starts_with('=') {
                *word = format!("{new}{value}").into();
                if !found.contains(&(old, new)) {
                    found.push((old, new));
                }
            }
        }
    }
    (words, found)
}
