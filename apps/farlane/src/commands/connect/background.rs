//! Goes on in a process of its own, when the block device can be used.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::args::names;
use crate::commands::print;
use crate::error::Error;

/// Says, in the environment of that process, that it is that process.
const THERE: &str = "FARLANE_IN_BACKGROUND";

/// Whether this is the process that goes on.
pub(super) fn is_there() -> bool {
    std::env::var_os(THERE).is_some()
}

/// Starts the process with the arguments of this one, and waits until its block device can be used.
/// If it ends before, this process ends as it did.
pub(super) fn start() -> Result<(), Error> {
    let fail = |error| Error::Child { what: "the process in the background", error };
    let program = std::env::current_exe().map_err(fail)?;
    let mut command = Command::new(program);
    command.args(names::given().into_iter().skip(1)).env(THERE, "1");
    // Its own group: Ctrl-C ends this process only. Its messages go where ours go.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(fail)?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut line).map_err(fail)?;
    }
    if line.is_empty() {
        let status = child.wait().map_err(fail)?;
        std::process::exit(status.code().unwrap_or_else(|| i32::from(crate::exit::Exit::Failed.code())));
    }
    print(&line)
}
