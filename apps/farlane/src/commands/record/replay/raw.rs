//! `farlane recording replay --raw`: the bytes of a medium, from address to address.

use live::sys::logging;
use std::time::{Duration, Instant};

use live::drivers::record::{Handle, RawMedium, State};
use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::super::account::Addresses;
use super::super::{far, first, hex, print, print_json, unreadable};
use super::destination::Outlet;
use crate::args::{Destination, ReplayArgs};
use crate::commands::json_line;
use crate::error::Error;

/// So much is read at once, in bytes.
const PIECE: usize = 1 << 20;

/// The part of a raw recording that was sent.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Replayed<'a> {
    bytes: u64,
    /// Always true.
    raw: bool,
    #[serde(flatten)]
    addresses: Addresses,
    elapsed_s: f64,
    sha256: &'a str,
}

/// The account of the sent bytes.
struct Sent {
    bytes: u64,
    digest: Sha256,
    took: Duration,
}

pub(super) fn session(args: &ReplayArgs, handle: &Handle) -> Result<(), Error> {
    let [path] = args.paths.as_slice() else {
        let why = format!("{} media: expected one, because --raw has no members", args.paths.len());
        return Err(Error::Raw { why });
    };
    let failed = |error| Error::File { path: path.clone(), error };
    let medium = match far(path)? {
        Some(far) => RawMedium::far(far),
        None => RawMedium::open(path).map_err(|error| unreadable(path, error))?,
    };
    let (start, there) = (args.raw.start_address, medium.bytes().map_err(failed)?);
    let end = args.raw.maximum_address.unwrap_or(there);
    if start >= end || end > there {
        let why =
            format!("addresses {start} to {end}: expected a part of the {there} B of {}", path.display());
        return Err(Error::Raw { why });
    }
    if let Destination::File(to) = &args.to {
        super::super::check_output(&args.paths, to)?;
    }
    handle.update(|status| {
        status.state = State::Running;
        (status.start_address, status.maximum_address) = (start, end);
        (status.medium.bytes, status.chunk) = (there, 0);
    });
    let mut outlet = Outlet::open(&args.to, handle).map_err(|error| Error::Replay { error })?;
    let mut sent = Sent { bytes: 0, digest: Sha256::new(), took: Duration::ZERO };
    let (began, mut pass) = (Instant::now(), 0);
    while (args.passes == 0 || pass < args.passes) && !handle.is_stopped() {
        send(args, handle, (&medium, start, end), &mut outlet, &mut sent)?;
        pass += 1;
    }
    outlet.flush().map_err(|error| Error::Replay { error })?;
    sent.took = began.elapsed();
    handle.update(|status| status.state = State::Ended);
    report(args, handle, sent)
}

/// Sends everything once.
fn send(
    args: &ReplayArgs,
    handle: &Handle,
    (medium, start, end): (&RawMedium, u64, u64),
    outlet: &mut Outlet,
    sent: &mut Sent,
) -> Result<(), Error> {
    let failed = |error| Error::File { path: first(&args.paths).to_owned(), error };
    let mut block = vec![0; PIECE];
    let mut at = start;
    while at < end && !handle.is_stopped() {
        let left = usize::try_from(end - at).unwrap_or(PIECE);
        let read = medium.read_at(&mut block, at).map_err(failed)?.min(left);
        if read == 0 {
            return Err(failed(std::io::ErrorKind::UnexpectedEof.into()));
        }
        let length = match args.to {
            Destination::Datagrams(_) => usize::from(args.datagram),
            _ => PIECE,
        };
        let mut pieces = block[..read].chunks(length);
        pieces.try_for_each(|piece| outlet.send(piece)).map_err(|error| Error::Replay { error })?;
        sent.digest.update(&block[..read]);
        sent.bytes += read as u64;
        at += read as u64;
        handle.update(|status| {
            (status.last_address, status.progress.last_address) = (at, at);
            status.progress.bytes_in = sent.bytes;
        });
    }
    Ok(())
}

fn report(args: &ReplayArgs, handle: &Handle, sent: Sent) -> Result<(), Error> {
    let (status, seconds) = (handle.status(), sent.took.as_secs_f64());
    let (from, last, sha256) = (status.start_address, status.last_address, hex(&sent.digest.finalize()));
    let addresses =
        Addresses { start_address: from, maximum_address: status.maximum_address, last_address: last };
    let value = Replayed { bytes: sent.bytes, raw: true, addresses, elapsed_s: seconds, sha256: &sha256 };
    let text = format!(
        "{} B sent in {seconds:.3} s, from address {from} up to {last}\n  SHA-256 {sha256}\n",
        sent.bytes
    );
    match (matches!(args.to, Destination::StandardOutput), args.output.json) {
        (true, true) => logging::show(json_line(&value)? + "\n"),
        (true, false) => logging::show(text),
        (false, true) => print_json(&value)?,
        (false, false) => print(&text)?,
    }
    Ok(())
}
