//! For tests: a kit, or a loud line that says why there is none.

use std::env;
use std::io::{self, Write};

use crate::{Error, Kit};

/// The environment variable that says what tests do about guests: `off` skips them, `required` makes the lack of one a
/// failure.
pub const WISH: &str = "FARLANE_GUEST";

/// The kit, or `None` after a line on standard error that `test` is skipped and why. The line is seen although the test
/// passes.
///
/// # Panics
/// When guests are `required` and there is none.
#[must_use]
pub fn kit_or_skip(test: &str) -> Option<&'static Kit> {
    let wish = env::var(WISH).unwrap_or_default();
    let kit = if wish == "off" { Err(Error::unavailable(format!("{WISH}=off"))) } else { Kit::shared() };
    match kit {
        Ok(kit) => Some(kit),
        Err(error) => {
            assert!(wish != "required", "{test}: {error}, and {WISH}=required");
            // Not `eprintln`, which the test runner keeps to itself when the test passes.
            let _ = writeln!(io::stderr(), "SKIPPED {test}: {error}");
            None
        }
    }
}
