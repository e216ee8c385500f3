//! Recording the bytes of one source alone, without a container, and reading a medium so.

use std::io;
use std::path::Path;

use engine::Nanos;
use record::format::ALIGNMENT;
use record::{RawConfig, RawRecorder};

use super::far::Far;
use super::handle::{Handle, Status};
use super::reading::{ReadError, Store};
use super::session::{Recorded, Session};
use super::sink::{Refused, Sink, Stripes, Target};
use super::{Limits, Source};
use crate::reactor::Reactor;
use crate::sys::clock::Clock;

/// Records the bytes of `source`, those of its datagrams one behind the other, to `target`, from
/// the first address of `config` on. Bytes outside of the addresses stay as they are. Otherwise as
/// [`record`](super::record()); in the result, `is_certified` says whether everything that counts
/// as stored is durable.
///
/// # Errors
/// When the medium can't be opened, is in use or too small, when it holds something at the first
/// address that may not be lost (`AlreadyExists`), or when the kernel fails.
pub fn record_raw(
    (target, overwrite): (Target<'_>, bool),
    config: RawConfig,
    source: Source,
    limits: Limits,
    handle: &Handle,
    mut report: impl FnMut(&Status),
) -> Result<Recorded, Refused> {
    let mut sink = Sink::create(target, overwrite, config.start)?;
    sink.keep()?;
    let there = sink.bytes().map(|bytes| bytes / u64::from(ALIGNMENT) * u64::from(ALIGNMENT));
    let end = config.end.into_iter().chain(there).min();
    if let Some(end) = end.filter(|end| *end <= config.start) {
        let why = format!("the start address {} is not below {end}, where it ends", config.start);
        return Err(Refused::Unfit(why));
    }
    let config = RawConfig { end, ..config };
    handle.update(|status| {
        status.medium = sink.medium().clone();
        status.start_address = config.start;
        let page = u64::from(ALIGNMENT);
        status.maximum_address = end.unwrap_or(status.medium.bytes / page * page);
        (status.chunk, status.buffer) = (config.chunk, config.buffer as u64 * u64::from(config.chunk));
    });
    let (sink, recorder) = (Stripes::single(sink, config.chunk), RawRecorder::new(config));
    let mut reactor = Reactor::new(Clock::start(), Nanos::ZERO)?;
    let mut session = Session::new(recorder, sink, vec![source], handle, &mut report);
    session.limits = limits;
    session.run(&mut reactor)?;
    Ok(session.recorded()?)
}

/// A medium that is read by addresses, regardless of its content.
#[derive(Debug)]
pub struct RawMedium(Store);

impl RawMedium {
    /// A file or block device.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        Store::open(path, false).map(|(store, _)| Self(store))
    }

    /// A namespace of another device.
    pub const fn far(far: Box<Far>) -> Self {
        Self(Store::far(far))
    }

    /// Its length in bytes.
    ///
    /// # Errors
    /// The system's.
    pub fn bytes(&self) -> io::Result<u64> {
        self.0.bytes()
    }

    /// Reads as much from `address` on as there is and `bytes` has room for. Returns the number
    /// of bytes.
    ///
    /// # Errors
    /// The system's, or the device's.
    pub fn read_at(&self, bytes: &mut [u8], address: u64) -> io::Result<usize> {
        self.0.read_at(bytes, address)
    }
}
