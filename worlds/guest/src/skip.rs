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
    or_skip(test, Kit::shared, true)
}

/// As [`kit_or_skip`], with [`Kit::newer`]'s kernel.
///
/// # Panics
/// As [`kit_or_skip`].
#[must_use]
pub fn newer_kit_or_skip(test: &str) -> Option<&'static Kit> {
    or_skip(test, Kit::newer, true)
}

/// As [`kit_or_skip`], with [`Kit::built`]'s kernel, which is nobody's duty to have: this never panics.
#[must_use]
pub fn built_kit_or_skip(test: &str) -> Option<&'static Kit> {
    or_skip(test, Kit::built, false)
}

fn or_skip(
    test: &str,
    kit: fn() -> Result<&'static Kit, Error>,
    can_be_required: bool,
) -> Option<&'static Kit> {
    let wish = env::var(WISH).unwrap_or_default();
    let kit = if wish == "off" { Err(Error::unavailable(format!("{WISH}=off"))) } else { kit() };
    match kit {
        Ok(kit) => Some(kit),
        Err(error) => {
            assert!(!can_be_required || wish != "required", "{test}: {error}, and {WISH}=required");
            // Not `eprintln`, which the test runner keeps to itself when the test passes.
            let _ = writeln!(io::stderr(), "SKIPPED {test}: {error}");
            None
        }
    }
}
