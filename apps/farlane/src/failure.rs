//! Reports of a command's error to its user: as text, as JSON, or as an event.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::process::ExitCode;

use live::sys::logging;
use schemars::JsonSchema;
use serde::Serialize;
use status::SchemaVersion;

use crate::args::LogForm;
use crate::error::Error;
use crate::error::code::USAGE;

/// Ends the program with the error.
pub(crate) fn end(error: &Error, form: LogForm) -> ExitCode {
    // Text that an error quotes, from a file, an option or a peer, is cleaned here.
    let help = miette::Diagnostic::help(error).map(|help| texts::clean(&help.to_string()));
    let (exit, message) = (error.exit(), texts::clean(&error.to_string()));
    if wants_json() {
        logging::write_last(object(&message, help.as_deref(), error.json_code(), exit.code()));
    } else if form == LogForm::Text || matches!(error, Error::Journal(_) | Error::LogFilter(_)) {
        logging::write_last(text(&message, help.as_deref()));
    } else {
        error!(code = error.json_code(), exit = exit.code(), help, "{message}");
        logging::flush();
    }
    exit.into()
}

/// An error for people, in the form of errors about arguments: the fault, then the remedy.
fn text(message: &str, help: Option<&str>) -> String {
    match help {
        Some(help) => format!("error: {message}\n\n  help: {help}"),
        None => format!("error: {message}"),
    }
}

/// Why a command failed, as the last line of standard error.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Object<'a> {
    schema_version: SchemaVersion,
    error: Described<'a>,
}

/// An error.
#[derive(Serialize, JsonSchema)]
struct Described<'a> {
    /// The failure and its reason, for people.
    message: &'a str,
    /// The remedy, for people.
    help: Option<&'a str>,
    /// The kind of the error: docs/operate.md lists the codes.
    code: &'a str,
    /// The exit status.
    exit: u8,
}

/// An error for programs.
fn object(message: &str, help: Option<&str>, code: &str, exit: u8) -> String {
    let object = Object { schema_version: SchemaVersion, error: Described { message, help, code, exit } };
    serde_json::to_string(&object).unwrap_or_default()
}

/// Whether the command line asks for JSON. Its errors are found before it is understood.
fn wants_json() -> bool {
    let given: Vec<_> = std::env::args_os().skip(1).take_while(|one| one != "--").collect();
    asks_for_json(&given.iter().map(|one| one.as_os_str()).collect::<Vec<_>>())
}

fn asks_for_json(given: &[&OsStr]) -> bool {
    let is_form = |option: &OsStr| option == "-o" || option == "--output-format";
    let whole = ["--json", "--output-format=json", "-ojson", "-o=json"];
    given.iter().any(|one| whole.iter().any(|wanted| one == wanted))
        || given.windows(2).any(|pair| is_form(pair[0]) && pair[1] == "json")
}

/// Logs that an old spelling was used, unless notes are not logged.
pub(crate) fn note(note: &str, form: LogForm) {
    if !tracing::enabled!(tracing::Level::INFO) {
        return;
    }
    match form {
        LogForm::Text => eprintln!("note: {note}"),
        LogForm::Json | LogForm::Journal => info!("{note}"),
    }
}

/// Prints that an old spelling was used before the command line is refused or its help is printed.
pub(crate) fn note_before_refusal(note: Option<&str>) {
    let is_quiet = std::env::args_os().take_while(|word| word != "--").any(|word| {
        let word = word.to_string_lossy();
        word == "--quiet" || word.starts_with("-q") || word.starts_with("-vq") || word.starts_with("--log")
    });
    if let Some(note) = note.filter(|_| !is_quiet) {
        eprintln!("note: {note}");
    }
}

/// Ends the program with the error in its arguments, or with the requested help.
pub(crate) fn refuse(error: &clap::Error) -> ! {
    if !error.use_stderr() {
        error.exit();
    }
    let plain = reworded(error, error.render().to_string());
    let short = texts::clean(&plain);
    if wants_json() {
        let exit = u8::try_from(error.exit_code()).unwrap_or(u8::MAX);
        let (message, help) = short.split_once("\n\n").unwrap_or((&short, ""));
        let message = message.strip_prefix("error: ").unwrap_or(message);
        eprintln!("{}", object(message.trim(), Some(help.trim()), USAGE, exit));
    } else if short == plain && is_plain(std::env::args_os()) && std::io::stderr().is_terminal() {
        eprint!("{}", reworded(error, error.render().ansi().to_string()));
    } else {
        eprint!("{short}");
    }
    std::process::exit(error.exit_code());
}

/// Whether none of these words has a sequence for terminals: colours could not be distinguished
/// from it.
fn is_plain(words: impl Iterator<Item = std::ffi::OsString>) -> bool {
    words.into_iter().all(|word| word.to_str().is_some_and(|word| texts::clean_words(word) == word))
}

/// The parsers of numbers don't name the expected form, so their messages are replaced.
fn reworded(error: &clap::Error, text: String) -> String {
    if error.kind() != clap::error::ErrorKind::ValueValidation {
        return text;
    }
    ["invalid digit found in string", "cannot parse integer from empty string"]
        .iter()
        .fold(text, |text, words| text.replace(words, "expected a whole number, such as 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_asked_for_in_each_of_its_ways() {
        let asks = |line: &str| asks_for_json(&line.split(' ').map(OsStr::new).collect::<Vec<_>>());
        for line in ["ping x --json", "id-ctrl x -o json", "id-ctrl x --output-format json", "x -ojson"] {
            assert!(asks(line), "{line}");
        }
        assert!(!asks("id-ctrl json -o normal") && !asks("read x --output json"));
    }
}
