//! Recording streams to a file or a namespace, and reading recordings.

mod digesting;
mod end;
mod extents;
mod far;
mod flood;
mod handle;
mod measure;
mod opening;
mod pulse;
mod raw;
mod reading;
mod reads;
mod registers;
mod session;
mod signing;
mod sink;
mod source;
mod storage;
mod striped;
#[cfg(test)]
mod tests;
mod time;
mod wait;

pub use end::{End, heed_file_limit, stop_on_signals};
pub use far::Far;
pub use flood::{Flood, Sent};
pub use handle::{Handle, Medium, State, Status, Triggered};
pub use measure::{Ended, Extent, MEASURED_DEPTH, MEASURED_MAX, Measured, Measurement};
pub use pulse::{PAUSE_MIN, Writes};
pub use raw::{RawMedium, record_raw};
pub use reading::{ReadError, Recording};
pub use reads::Block;
pub use registers::offer_registers;
pub use session::Recorded;
pub use signing::Signer;
pub use sink::{Refused, Target};
pub use source::{Bound, Heard, Interface, OnFull, Source, Udp};
pub use storage::Storage;
pub use striped::Part;
pub use time::real_time;

use std::time::Duration;

use engine::Nanos;
use record::{Algorithm, Config, Digests, Recorder, RingConfig};

use crate::reactor::Reactor;
pub use crate::reactor::SecondSignal;
use crate::sys::clock::Clock;
use digesting::Digester;
use session::Session;
use sink::Stripes;

/// When a recording ends by itself. One that waits for a trigger counts from the trigger on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// After this time.
    pub time: Option<Duration>,
    /// After this many bytes of all streams. Those that were lost on the wire are not counted.
    pub bytes: Option<u64>,
}

/// Where a recording goes.
#[derive(Debug)]
pub struct Place<'a> {
    /// The medium, or several over which the recording is striped: at
    /// most [`MEMBERS_MAX`](record::format::MEMBERS_MAX).
    pub targets: Vec<Target<'a>>,
    /// Whether the former content may be lost.
    pub overwrite: bool,
}

/// Records `sources`, each as a stream, to a new recording at `place`. Calls `report` with its
/// progress a few times a second. Ends when every source has ended, at a limit, when `handle` is
/// asked to stop, or with the medium.
///
/// # Errors
/// When the file can't be opened or is in use, when it holds something that may not be lost
/// (`AlreadyExists`), or when the kernel fails.
pub fn record(
    place: Place<'_>,
    config: Config,
    sources: Vec<Source>,
    limits: Limits,
    handle: &Handle,
    mut report: impl FnMut(&Status),
) -> Result<Recorded, Refused> {
    let mut sink = Stripes::create(place.targets, place.overwrite, (config.recording, config.chunk))?;
    let fixed = sink.slots();
    let slots = fixed.into_iter().chain(config.slots).min();
    check_ring(&config, slots)?;
    let room = slots.map_or(u64::MAX, |slots| slots * u64::from(config.chunk));
    sink.expect(limits.bytes.unwrap_or(0).min(room));
    let config = Config { crc32c: crate::sys::digest::crc32c, slots, ..config };
    handle.update(|status| {
        status.medium = sink.medium().clone();
        status.maximum_address = slots.map_or(status.medium.bytes, |slots| slots * u64::from(config.chunk));
        status.is_ring = config.ring.is_some();
        status.pre_trigger = config.pre_trigger;
        (status.chunk, status.buffer) = (config.chunk, config.buffer as u64 * u64::from(config.chunk));
    });
    let streams = config.streams.len();
    let by_threads = config.digests == Digests::World && config.algorithm != Algorithm::None;
    let digester = by_threads.then(|| Digester::start(config.algorithm, streams)).transpose()?;
    let recorder = Recorder::new(config, real_time());
    let mut reactor = Reactor::new(Clock::start(), Nanos::ZERO)?;
    let mut session = Session::new(recorder, sink, sources, handle, &mut report);
    (session.digester, session.limits) = (digester, limits);
    session.run(&mut reactor)?;
    Ok(session.recorded()?)
}

/// A ring needs a medium of a certain length.
fn check_ring(config: &Config, slots: Option<u64>) -> Result<(), Refused> {
    let needed = RingConfig::slots_min(config.buffer);
    if config.ring.is_none() || slots.is_some_and(|slots| slots >= needed) {
        return Ok(());
    }
    let (chunk, expected) = (u64::from(config.chunk), needed * u64::from(config.chunk));
    let why = match slots {
        Some(slots) => format!("a ring of {} B is too short: expected {expected} B or more", slots * chunk),
        None => "the size of a ring in a file is not known: give --ring SIZE".to_owned(),
    };
    Err(Refused::Unfit(why))
}
