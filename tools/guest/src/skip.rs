//! For tests: returns a kit, or prints a conspicuous line with the reason why there is none.

use std::env;
use std::io::{self, Write};

use crate::{Error, Kit};

/// The environment variable that controls how tests handle guests. `off` skips them; `required`
/// makes a missing kit a failure.
pub const WISH: &str = "FARLANE_GUEST";

/// The kit; or `None`, after a line on standard error that `test` is skipped and why. The line is
/// visible although the test passes.
///
/// # Panics
/// When [`WISH`] is `required` and there is no kit.
#[must_use]
pub fn kit_or_skip(test: &str) -> Option<&'static Kit> {
    or_skip(test, Kit::shared, true)
}

/// The kit with the kernel of [`Kit::newer`]; or `None`, after a line on standard error that `test`
/// is skipped and why.
///
/// # Panics
/// When [`WISH`] is `required` and there is no such kit.
#[must_use]
pub fn newer_kit_or_skip(test: &str) -> Option<&'static Kit> {
    or_skip(test, Kit::newer, true)
}

/// The kit with the kernel of [`Kit::full`]; or `None`, after a line on standard error that `test`
/// is skipped and why.
///
/// # Panics
/// When [`WISH`] is `required` and there is no such kit.
#[must_use]
pub fn full_kit_or_skip(test: &str) -> Option<&'static Kit> {
    or_skip(test, Kit::full, true)
}

/// The kit with the kernel of [`Kit::built`]; or `None`, after a line on standard error that `test`
/// is skipped and why. This kernel is never required, so the function does not panic.
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
            // `eprintln` would not do: the test runner hides its output when the test passes.
            let _ = writeln!(io::stderr(), "SKIPPED {test}: {error}");
            None
        }
    }
}
