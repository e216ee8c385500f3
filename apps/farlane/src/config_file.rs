//! Options of a command from a file: `--config FILE`. docs/config.md describes it.
//!
//! The file is TOML. The table `export` has options of `farlane export` by their long names, in the
//! order in which a command line would have them. The options become words of the command line, so
//! one parser reads both and reports the errors of either.

use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, ArgMatches, Command};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::args::names;
use crate::error::Error;
use crate::whole_file;

/// The commands that take options from a file, by the names of their tables there, and their words
/// on the command line. `farlane target` has a form of its own.
pub(crate) const COMMANDS: [(&str, &str); 6] = [
    ("export", "export"),
    ("attach", "attach"),
    ("device", "offer device"),
    ("connect", "connect"),
    ("emulate", "model emulate"),
    ("record", "record"),
];
/// The option that names the file.
const OPTION: &str = "--config";
/// The longest value of an option, in bytes. Paths and URLs are far shorter.
const VALUE_MAX: usize = 64 << 10;
/// Options that the unit of a command gives, so that a file for it goes without: the command, the
/// option, and a value of the unit's.
const BY_UNITS: [(&str, &str, &str); 1] = [("attach", "vfio-user", "/run/farlane-attach-NAME/ssd.sock")];

/// Adds the option to the commands that have it.
pub(crate) fn add_to(command: Command) -> Command {
    let option = || {
        Arg::new("config")
            .long("config")
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help("Take options from the table of this command in FILE; those given here come first")
    };
    COMMANDS.iter().fold(command, |command, (_, words)| match words.split_once(' ') {
        None => command.mut_subcommand(words, |one| one.arg(option())),
        Some((group, name)) => {
            command.mut_subcommand(group, |group| group.mut_subcommand(name, |one| one.arg(option())))
        }
    })
}

/// The words on the command line of the command whose table in a file is `name`.
pub(crate) fn words_of(name: &str) -> &str {
    COMMANDS.iter().find(|(table, _)| *table == name).map_or(name, |(_, words)| *words)
}

/// The command whose table in a file is `name`.
fn of_table<'a>(root: &'a Command, name: &str) -> Option<&'a Command> {
    names::find(root, words_of(name))
}

/// An option that a file has.
#[derive(Debug)]
struct Word {
    text: OsString,
    key: String,
    place: Range<usize>,
}

/// The options of one command in a file.
#[derive(Debug)]
pub(crate) struct Options {
    path: PathBuf,
    text: String,
    words: Vec<Word>,
}

/// The words of a command line, and the file that some of them come from.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) words: Vec<OsString>,
    options: Option<Options>,
}

impl Line {
    fn path(&self) -> PathBuf {
        self.options.as_ref().map(|options| options.path.clone()).unwrap_or_default()
    }

    /// The error in the file that made the command line wrong; none if the fault is elsewhere.
    pub(crate) fn blame(&self, error: &clap::Error) -> Option<Error> {
        self.options.as_ref()?.blame(error)
    }
}

/// Puts the options of a file into the command line `given`, if it names a file.
///
/// # Errors
/// When the file can't be read, or has a key that is no option.
pub(crate) fn expand(root: &Command, given: Vec<OsString>) -> Result<Line, Error> {
    let Some((at, path)) = named(&given) else { return Ok(Line { words: given, options: None }) };
    let name = given[at].to_string_lossy().into_owned();
    let Some(command) = of_table(root, &name) else { return Ok(Line { words: given, options: None }) };
    let mut options = Options::read(&path)?;
    options.take(command, &name)?;
    let (before, after) = given.split_at(at + 1);
    // An option that may be given once is left to the command line, if it is there too.
    options.words.retain(|word| {
        let option = format!("--{}", word.key);
        let is_given = after
            .iter()
            .filter_map(|one| one.to_str())
            .any(|one| one == option || one.strip_prefix(&option).is_some_and(|rest| rest.starts_with('=')));
        let repeats = command
            .get_arguments()
            .any(|arg| arg.get_long() == Some(&word.key) && matches!(arg.get_action(), ArgAction::Append));
        repeats || !is_given
    });
    let from_file = options.words.iter().map(|word| &word.text);
    let words = before.iter().chain(from_file).chain(after).cloned().collect();
    Ok(Line { words, options: Some(options) })
}

/// The command line of this process, with the options of its file as they are by now.
///
/// # Errors
/// When the file can't be read, or has an error.
pub(crate) fn read_again() -> Result<ArgMatches, Error> {
    let root = crate::command_line();
    let line = expand(&root, names::given())?;
    root.try_get_matches_from(&line.words).map_err(|error| {
        let why = first_line(&error);
        let unplaced = || Error::Options { path: line.path(), line: 1, column: 1, why };
        line.blame(&error).unwrap_or_else(unplaced)
    })
}

/// Whether the command line of this process has one of these options beside its file.
pub(crate) fn is_given_beside(options: &[&str]) -> bool {
    let given: Vec<_> = std::env::args_os().collect();
    let words = given.iter().filter_map(|word| word.to_str()).take_while(|word| *word != "--");
    let names = words.map(|word| word.split('=').next().unwrap_or_default());
    names.filter_map(|word| word.strip_prefix("--")).any(|name| options.contains(&name))
}

/// Where the command stands in a command line, and the file that it names.
fn named(given: &[OsString]) -> Option<(usize, PathBuf)> {
    let places = names::places(given);
    let (_, words) = COMMANDS.iter().find(|(_, words)| names::leads_to(given, &places, words))?;
    let at = places[words.split(' ').count() - 1];
    let mut rest = given[at + 1..].iter().take_while(|word| *word != "--");
    while let Some(word) = rest.next() {
        if word == OPTION {
            return Some((at, PathBuf::from(rest.next()?)));
        }
        if let Some(path) = word.to_str().and_then(|word| word.strip_prefix(OPTION)?.strip_prefix('=')) {
            return Some((at, PathBuf::from(path)));
        }
    }
    None
}

/// Whether a file has options of commands, and of which ones.
///
/// # Errors
/// When the file can't be read, or is not TOML.
pub(crate) fn commands_in(path: &Path) -> Result<Vec<&'static str>, Error> {
    let options = Options::read(path)?;
    let table = options.table()?;
    let tables = COMMANDS.into_iter().map(|(name, _)| name);
    Ok(tables.filter(|name| table.get_ref().contains_key(*name)).collect())
}

/// Checks the options of the command `name` in a file. Returns the option that the file leaves to
/// the command's unit, if it leaves one.
///
/// # Errors
/// When one of them is wrong, or one is missing that no unit gives.
pub(crate) fn check(root: &Command, path: &Path, name: &str) -> Result<Option<&'static str>, Error> {
    let mut options = Options::read(path)?;
    let Some(command) = of_table(root, name) else { return Ok(None) };
    options.take(command, name)?;
    let by_unit = BY_UNITS.iter().find(|(command, option, _)| {
        *command == name && options.words.iter().all(|word| word.key != *option)
    });
    let words = std::iter::once("farlane").chain(words_of(name).split(' ')).map(OsString::from);
    let words = words.chain(options.words.iter().map(|word| word.text.clone()));
    let words = words.chain(by_unit.map(|(_, option, value)| format!("--{option}={value}").into()));
    match root.clone().try_get_matches_from(words) {
        Ok(_) => Ok(by_unit.map(|(_, option, _)| *option)),
        Err(error) => Err(options.blame(&error).unwrap_or_else(|| options.wrong(0..0, &first_line(&error)))),
    }
}

fn first_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.split("\n\n").next().unwrap_or_default();
    let words = text.strip_prefix("error: ").unwrap_or(text).split_whitespace();
    words.collect::<Vec<_>>().join(" ")
}

impl Options {
    fn read(path: &Path) -> Result<Self, Error> {
        let text = whole_file::read(path, texts::LIST_MAX)?;
        let options = Self { path: path.to_owned(), text, words: Vec::new() };
        match texts::check_nesting(&options.text) {
            Ok(()) => Ok(options),
            Err(why) => Err(options.wrong(0..0, &why)),
        }
    }

    fn table(&self) -> Result<Spanned<DeTable<'_>>, Error> {
        DeTable::parse(&self.text).map_err(|error| self.wrong(error.span().unwrap_or(0..0), error.message()))
    }

    /// Takes the options of `command`, which the file's table `name` has, once or several times.
    fn take(&mut self, command: &Command, name: &str) -> Result<(), Error> {
        let mut words = Vec::new();
        let table = self.table()?;
        match table.get_ref().get(name).map(Spanned::get_ref) {
            None => return Err(self.wrong(0..0, &format!("expected a table [{name}]"))),
            Some(DeValue::Table(one)) => self.take_table(command, one, &mut words)?,
            Some(DeValue::Array(several)) => {
                for one in several.iter() {
                    let DeValue::Table(table) = one.get_ref() else {
                        return Err(self.wrong(one.span(), &format!("expected a table [[{name}]]")));
                    };
                    self.take_table(command, table, &mut words)?;
                }
            }
            Some(_) => return Err(self.wrong(0..0, &format!("{name}: expected a table [{name}]"))),
        }
        self.words = words;
        Ok(())
    }

    fn take_table(&self, command: &Command, table: &DeTable<'_>, words: &mut Vec<Word>) -> Result<(), Error> {
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in entries {
            let name = key.get_ref().as_ref();
            let Some(arg) = argument(command, name) else {
                let why = format!("there is no option --{name} of farlane {}", words_of(command.get_name()));
                return Err(self.wrong(key.span(), &why));
            };
            let values = match value.get_ref() {
                DeValue::Array(several) => several.iter().collect(),
                _ => vec![value],
            };
            for one in values {
                let Some(text) = word(arg, name, one.get_ref()) else {
                    let expected =
                        if arg.get_action().takes_values() { "text or a number" } else { "true or false" };
                    return Err(self.wrong(one.span(), &format!("{name}: expected {expected}")));
                };
                if let Some(text) = text.as_ref().filter(|text| text.len() > VALUE_MAX) {
                    let length = text.len();
                    let why = format!("{name}: {length} B; expected at most {VALUE_MAX}: shorten the value");
                    return Err(self.wrong(one.span(), &why));
                }
                let word = |text: String| Word { text: text.into(), key: name.to_owned(), place: one.span() };
                words.extend(text.map(word));
            }
        }
        Ok(())
    }

    /// The error in the file that `error` is about; none if it is about something else.
    fn blame(&self, error: &clap::Error) -> Option<Error> {
        let Some(ContextValue::String(arg)) = error.get(ContextKind::InvalidArg) else { return None };
        let value = match error.get(ContextKind::InvalidValue) {
            Some(ContextValue::String(value)) => value.as_str(),
            _ => "",
        };
        let name = arg.trim_start_matches(['-', '<', '[']);
        let name = name.split([' ', '=', '>', ']']).next().unwrap_or_default().to_lowercase();
        let is_it = |word: &&Word| word.key == name && word.text.to_string_lossy().ends_with(value);
        let word = self.words.iter().find(is_it)?;
        Some(self.wrong(word.place.clone(), &first_line(error)))
    }

    /// The error that something at `place` is wrong.
    fn wrong(&self, place: Range<usize>, why: &str) -> Error {
        let before = self.text.get(..place.start).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Error::Options { path: self.path.clone(), line, column, why: why.to_owned() }
    }
}

/// The option with this long name, or the argument of this name that has no option on the command
/// line.
fn argument<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    command.get_arguments().filter(|arg| arg.get_id() != "config").find(|arg| match arg.get_long() {
        Some(long) => long == name,
        None => arg.get_id() == name && arg.is_positional(),
    })
}

/// The word of a command line that stands for a value, or none where an option is off. The outer
/// none is a value of a wrong type.
fn word(arg: &Arg, name: &str, value: &DeValue<'_>) -> Option<Option<String>> {
    let text = match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(is_on) if !arg.get_action().takes_values() => {
            return Some(is_on.then(|| format!("--{name}")));
        }
        _ => return None,
    };
    match (arg.get_action().takes_values(), arg.is_positional()) {
        (false, _) => None,
        (true, true) => Some(Some(text)),
        (true, false) => Some(Some(format!("--{name}={text}"))),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    fn options(text: &str) -> Options {
        Options { path: PathBuf::from("box.toml"), text: text.to_owned(), words: Vec::new() }
    }

    fn taken(name: &str, text: &str) -> Result<Vec<String>, String> {
        let root = add_to(Cli::command());
        let mut options = options(text);
        options.take(of_table(&root, name).unwrap(), name).map_err(|error| error.to_string())?;
        Ok(options.words.iter().map(|word| word.text.to_string_lossy().into_owned()).collect())
    }

    #[test]
    fn options_become_words_in_the_order_of_the_file() {
        let text = "[[export]]\nlisten = \"127.0.0.1:1\"\nram = [\"1MiB\", \"2MiB\"]\ninsecure = true\njson = false\n\
            [[export]]\nlisten = \"127.0.0.1:2\"\nram = 4096\n[attach]\nurl = \"tcp://a:1\"\n";
        let export = [
            "--listen=127.0.0.1:1",
            "--ram=1MiB",
            "--ram=2MiB",
            "--insecure",
            "--listen=127.0.0.1:2",
            "--ram=4096",
        ];
        assert_eq!(taken("export", text).unwrap(), export);
        assert_eq!(taken("attach", text).unwrap(), ["tcp://a:1"]);
    }

    #[test]
    fn an_error_is_reported_with_its_place() {
        for (text, reported) in [
            (
                "[export]\n  speed = 1\n",
                "box.toml: line 2, column 3: there is no option --speed of farlane export",
            ),
            (
                "[export]\nconfig = \"x\"\n",
                "box.toml: line 2, column 1: there is no option --config of farlane export",
            ),
            ("[export]\nram = true\n", "box.toml: line 2, column 7: ram: expected text or a number"),
            (
                "[export]\ninsecure = \"yes\"\n",
                "box.toml: line 2, column 12: insecure: expected true or false",
            ),
            ("[export]\nram = [{ a = 1 }]\n", "box.toml: line 2, column 8: ram: expected text or a number"),
            ("export = 1\n", "box.toml: line 1, column 1: export: expected a table [export]"),
            ("", "box.toml: line 1, column 1: expected a table [export]"),
        ] {
            assert_eq!(taken("export", text).unwrap_err(), reported);
        }
        let cut = taken("export", "[export\nram = 1\n").unwrap_err();
        assert!(cut.starts_with("box.toml: line 1, column 8: "), "{cut}");
    }

    #[test]
    fn the_command_is_found_behind_what_is_for_all() {
        let named = |line: &str| {
            let given: Vec<_> = line.split(' ').map(OsString::from).collect();
            named(&given).map(|(at, path)| (at, path.display().to_string()))
        };
        assert_eq!(named("farlane --log json -v export --config a"), Some((4, "a".to_owned())));
        assert_eq!(named("farlane export --ram 1 --config=a"), Some((1, "a".to_owned())));
        assert_eq!(named("farlane target --config a"), None);
        assert_eq!(named("farlane export -- --config a"), None);
        assert_eq!(named("farlane export --config"), None);
    }
}
