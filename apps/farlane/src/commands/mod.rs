//! One file a subcommand.

pub(crate) mod attach;
pub(crate) mod bench;
mod control;
pub(crate) mod copy;
pub(crate) mod demo;
pub(crate) mod device;
pub(crate) mod discover;
pub(crate) mod emulate;
pub(crate) mod export;
mod fields;
pub(crate) mod floor_server;
mod guest;
pub(crate) mod identify;
pub(crate) mod lspci;
mod pieces;
pub(crate) mod ping;
mod served;
pub(crate) mod sim;
pub(crate) mod smart_log;
pub(crate) mod status;
pub(crate) mod target;
pub(crate) mod tsn;

use std::io::Write;

use live::descriptors;

use crate::error::Error;

/// Descriptors that every command that serves opens: of its loop, of signals, of the control socket, of what saves a state.
const OPENED: u64 = 12;
/// Descriptors of a namespace, at most.
pub(crate) const OPENED_BY_NAMESPACE: usize = 6;
/// Descriptors of a listener, or of a thread's loop.
pub(crate) const OPENED_BY_LISTENER: usize = 3;

/// Prints `value` as one line of JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Error> {
    let text = serde_json::to_string(value).map_err(|error| Error::Output(error.into()))?;
    print(&format!("{text}\n"))
}

/// Reports `value` as one line of JSON, without waiting for whoever reads it.
pub(crate) fn report_json(value: &impl serde::Serialize) -> Result<(), Error> {
    live::telling::report(serde_json::to_string(value).map_err(|error| Error::Output(error.into()))?);
    Ok(())
}

/// Prints `text`; a reader that has gone away (`| head`) ends the program quietly.
pub(crate) fn print(text: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        result => result.map_err(Error::Output),
    }
}

/// Keeps this thread on processor `cpu`, if one was chosen.
pub(crate) fn stay_on(cpu: Option<usize>) -> Result<(), Error> {
    cpu.map_or(Ok(()), |cpu| live::reactor::pin(cpu).map_err(Error::Processor))
}

/// Begins a command that serves others: with as many descriptors as this process may have, and on processor `cpu`. Those who
/// are served are not to fail for what was known before: `opened` descriptors are about to be used for what is offered.
pub(crate) fn begin_serving(cpu: Option<usize>, opened: usize) -> Result<(), Error> {
    descriptors::prepare(OPENED + opened as u64)?;
    stay_on(cpu)
}
