//! The options of every command for the choice and the form of logged events.

use std::os::linux::fs::MetadataExt;

use clap::{ArgAction, Args, ValueEnum};
use live::sys::logging::{self, Form};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

use super::headings::LOG;
use crate::error::Error;

/// The variable that selects the logged events, as for other programs of Rust.
const VARIABLE: &str = "RUST_LOG";
/// The first words of the names of our own modules that log events.
const OURS: [&str; 3] = ["farlane", "daemon", "live"];

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogForm {
    /// Text for people, on standard error
    Text,
    /// One JSON object a line, on standard error
    Json,
    /// Entries of systemd's journal, with their fields
    Journal,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct LogArgs {
    /// Log more events: requests of other programs too; twice for everything
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = LOG)]
    verbose: u8,
    /// Log warnings and errors only; twice for errors only
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = LOG)]
    quiet: u8,
    /// Log events in this form
    #[arg(
        long = "log",
        global = true,
        value_name = "FORM",
        default_value = "text",
        hide_possible_values = true,
        help_heading = LOG,
        help = "Log events in this form: text, json or journal"
    )]
    pub(crate) form: LogForm,
}

impl LogArgs {
    /// Logs events from now on. Lines of a service begin with the time.
    ///
    /// # Errors
    /// When `RUST_LOG` can't be understood, or the journal is asked for and is not there.
    pub(crate) fn begin(&self, is_service: bool) -> Result<(), Error> {
        let form = match self.form {
            LogForm::Json => Form::Json,
            LogForm::Journal => Form::Journal,
            LogForm::Text => {
                let ranked = has_journal();
                Form::Text { stamped: is_service && !ranked, ranked }
            }
        };
        let variable = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
        let filter = filter(self.verbose, self.quiet, variable.as_deref())?;
        logging::begin(filter, form).map_err(Error::Journal)
    }
}

/// The filter of logged events. Options override `variable`, the value of `RUST_LOG`.
fn filter(verbose: u8, quiet: u8, variable: Option<&str>) -> Result<Targets, Error> {
    let level = match (verbose, quiet) {
        (0, 0) => match variable {
            None => LevelFilter::INFO,
            Some(text) => return text.parse().map_err(|_| Error::LogFilter(text.to_owned())),
        },
        (1, 0) => LevelFilter::DEBUG,
        (_, 0) => LevelFilter::TRACE,
        (_, 1) => LevelFilter::WARN,
        _ => LevelFilter::ERROR,
    };
    Ok(Targets::new().with_targets(OURS.map(|ours| (ours, level))))
}

/// Whether systemd has connected standard error with its journal (`systemd.exec(5)`), which has a
/// time for each line.
fn has_journal() -> bool {
    let connected = std::env::var("JOURNAL_STREAM").ok();
    let numbers = std::fs::metadata("/proc/self/fd/2").map(|it| format!("{}:{}", it.st_dev(), it.st_ino()));
    connected.is_some_and(|connected| numbers.is_ok_and(|numbers| numbers == connected))
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn options_and_the_variable_select_the_logged_events() {
        let reported = |verbose, quiet, variable| {
            let filter = filter(verbose, quiet, variable).unwrap();
            [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE]
                .iter()
                .filter(|level| filter.would_enable("farlane::commands", level))
                .count()
        };
        assert_eq!([reported(0, 0, None), reported(1, 0, None), reported(2, 0, None)], [3, 4, 5]);
        assert_eq!([reported(0, 1, None), reported(0, 2, None), reported(1, 1, None)], [2, 1, 2]);
        assert_eq!(
            [
                reported(0, 0, Some("trace")),
                reported(0, 0, Some("farlane=error")),
                reported(0, 1, Some("trace"))
            ],
            [5, 1, 2]
        );
        assert!(!filter(2, 0, None).unwrap().would_enable("quinn_proto", &Level::WARN));
        assert!(filter(0, 0, Some("quinn_proto=debug")).unwrap().would_enable("quinn_proto", &Level::DEBUG));
        assert!(matches!(filter(0, 0, Some("farlane=loud")), Err(Error::LogFilter(_))));
    }
}
