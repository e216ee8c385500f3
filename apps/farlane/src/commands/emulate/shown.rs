//! The counters of an emulator, on its terminal or as lines of JSON.

use std::io::IsTerminal;

use distribution::Distribution;
use live::sys::logging;

use super::Counted;
use crate::commands::report_json;
use crate::error::Error;

/// The counters that were shown last.
pub(super) struct Shown<C> {
    json: bool,
    last: C,
}

impl<C: Counted> Shown<C> {
    pub(super) fn new(json: bool) -> Self {
        Self { json, last: C::default() }
    }

    /// Shows the counters if anything has passed since the last time.
    pub(super) fn show(&mut self, counters: C, late: &Distribution) -> Result<(), Error> {
        if counters == self.last {
            return Ok(());
        }
        self.last = counters;
        if self.json {
            report_json(&counters.line(late, false))
        } else {
            // A person watches the counters change; for a log, those at the end are enough.
            if std::io::stderr().is_terminal() {
                logging::show(format!("\r\x1b[K{}", counters.words()));
            }
            Ok(())
        }
    }

    pub(super) fn end(&self, counters: C, late: &Distribution) -> Result<(), Error> {
        if self.json {
            return report_json(&counters.line(late, true));
        }
        if std::io::stderr().is_terminal() {
            logging::show("\r\x1b[K".to_owned());
        }
        logging::report(format!("{}\nwritten after their time in the model: {late}", counters.words()));
        Ok(())
    }
}
