//! The subcommands, each in a module of its own.

pub(crate) mod attach;
pub(crate) mod bench;
pub(crate) mod beside;
pub(crate) mod capture;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod connect;
mod control;
pub(crate) mod copy;
pub(crate) mod demo;
pub(crate) mod device;
pub(crate) mod discover;
pub(crate) mod doctor;
pub(crate) mod emulate;
pub(crate) mod export;
mod fields;
pub(crate) mod floor_server;
pub(crate) mod guest;
pub(crate) mod identify;
pub(crate) mod key;
pub(crate) mod listening;
pub(crate) mod lspci;
pub(crate) mod man;
pub(crate) mod measure;
mod medium;
pub(crate) mod nic;
pub(crate) mod nvme;
mod pieces;
pub(crate) mod ping;
pub(crate) mod preflight;
pub(crate) mod rdma;
pub(crate) mod record;
pub(crate) mod save;
mod served;
pub(crate) mod sim;
pub(crate) mod status;
pub(crate) mod target;
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod tsn;
pub(crate) mod ui;
pub(crate) mod upgrade;

use std::io::Write;

use crate::error::Error;

/// Most descriptors of one namespace.
pub(crate) const OPENED_BY_NAMESPACE: usize = 6;
/// Descriptors of a listener, or of a thread's loop.
pub(crate) const OPENED_BY_LISTENER: usize = 3;

pub(crate) use ::status::SCHEMA_VERSION;

/// JSON output, with the version of its schema.
#[derive(serde::Serialize)]
struct Versioned<'a, T> {
    schema_version: u32,
    #[serde(flatten)]
    value: &'a T,
}

/// `value`, which has names, and the version of its schema as one line of JSON.
pub(crate) fn json_line(value: &impl serde::Serialize) -> Result<String, Error> {
    let versioned = Versioned { schema_version: SCHEMA_VERSION, value };
    serde_json::to_string(&versioned).map_err(|error| Error::Output(error.into()))
}

/// Prints `value`, which has names, as one line of JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Error> {
    print(&format!("{}\n", json_line(value)?))
}

/// Prints `value`, which has the version of its schema, as one line of JSON.
pub(crate) fn print_line(value: &impl serde::Serialize) -> Result<(), Error> {
    let text = serde_json::to_string(value).map_err(|error| Error::Output(error.into()))?;
    print(&format!("{text}\n"))
}

/// Reports `value`, which has names, as one line of JSON, without waiting for its reader.
pub(crate) fn report_json(value: &impl serde::Serialize) -> Result<(), Error> {
    live::sys::logging::report(json_line(value)?);
    Ok(())
}

/// Prints `value` as nvme-cli would: names and their meaning are that program's.
pub(crate) fn print_json_of_nvme_cli(value: &impl serde::Serialize) -> Result<(), Error> {
    print_line(value)
}

/// Prints `text`, without bytes that would control a terminal: names in it may be a peer's or a
/// file's. If the reader has gone away (`| head`), ends the program quietly, unless the program
/// does more than print.
pub(crate) fn print(text: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    match out.write_all(texts::clean_words(text).as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            if !live::sys::logging::outlives_reader() {
                std::process::exit(0);
            }
            Ok(())
        }
        result => result.map_err(Error::Output),
    }
}

/// A number of things in words: `1 port`, `2 ports`.
pub(crate) fn counted((count, what): (usize, &str)) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
