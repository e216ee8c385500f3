//! Raw TCP with the sizes and the round trips of the operations that are measured, both
//! sides spinning.

use distribution::Distribution;
use engine::Nanos;
use live::carrier::floor::Client;

use super::figures::{Slices, Subjects};
use crate::error::Error;
use crate::session::Session;
use crate::workload::rate;

/// Round trips, or sends of a stream, between two looks at the clock.
const BATCH: u32 = 200;

/// Bytes on the wire: a frame's header, and a TLP with its header and payload.
mod wire {
    const FRAME: u32 = 12;
    /// Bytes of a CfgRd, or of an MRd with a 32-bit address.
    pub(super) const REQUEST: u32 = FRAME + 12;
    /// Bytes of an MWr with a 32-bit address that rings a doorbell: 4 bytes of data.
    pub(super) const DOORBELL: u32 = FRAME + 16;
    /// Bytes of a CplD with a double word.
    pub(super) const REGISTER: u32 = FRAME + 16;
    /// Bytes of a CplD with a submission queue entry.
    pub(super) const ENTRY: u32 = FRAME + 12 + 64;
    /// Bytes of a page in a CplD or MWr.
    pub(super) const PAGE: u32 = FRAME + 12 + 4096;
    /// Bytes of an MWr with a completion queue entry.
    pub(super) const COMPLETION: u32 = FRAME + 12 + 16;
}

struct Floor<'a> {
    client: Client,
    slice: Nanos,
    /// Not measured here, but kept alive so that it is not taken for lost.
    tunnel: &'a mut Session,
}

/// Measures one slice of each kind, where there is a floor.
pub(super) fn round(subjects: &mut Subjects<'_>, slice: Nanos, slices: &mut Slices) -> Result<(), Error> {
    let Some(address) = subjects.floor else { return Ok(()) };
    let client = Client::connect(address).map_err(floor_error)?;
    let mut floor = Floor { client, slice, tunnel: subjects.tunnel };
    slices.config_read.push(floor.exchange(wire::REQUEST, wire::REGISTER)?.into_iter().collect());
    let read = [
        floor.exchange(wire::DOORBELL, wire::REQUEST)?,
        floor.exchange(wire::ENTRY, wire::PAGE + wire::COMPLETION)?,
    ];
    slices.read.push(sums(&read));
    let write = [
        floor.exchange(wire::DOORBELL, wire::REQUEST)?,
        floor.exchange(wire::ENTRY, wire::REQUEST)?,
        floor.exchange(wire::PAGE, wire::COMPLETION)?,
    ];
    slices.write.push(sums(&write));
    slices.iops.push(floor.stream(4096)?);
    slices.mib_s.push(floor.stream(128 << 10)? / 8.0);
    Ok(())
}

fn floor_error(error: std::io::Error) -> Error {
    Error::Child { what: "the floor's server", error }
}

impl Floor<'_> {
    /// Measures round trips for one slice.
    fn exchange(&mut self, request: u32, reply: u32) -> Result<Vec<Nanos>, Error> {
        let mut trips = Vec::new();
        let mut left = self.slice;
        while left > Nanos::ZERO {
            let batch = self.client.ping_pong(request, reply, BATCH).map_err(floor_error)?;
            left = left.saturating_sub(batch.iter().fold(Nanos::ZERO, |sum, trip| sum + *trip));
            trips.extend(batch);
        }
        self.tunnel.keep_alive()?;
        Ok(trips)
    }

    /// Sends of `bytes` per second, as fast as the connection takes them, for one slice.
    fn stream(&mut self, bytes: u32) -> Result<f64, Error> {
        let first = self.client.stream(bytes, BATCH).map_err(floor_error)?;
        let count = u64::from(BATCH) * self.slice.get() / first.get().max(1);
        let count = u32::try_from(count).unwrap_or(u32::MAX).clamp(BATCH, 1_000_000);
        let elapsed = self.client.stream(bytes, count).map_err(floor_error)?;
        self.tunnel.keep_alive()?;
        Ok(rate(u64::from(count), elapsed))
    }
}

/// The sums of the round trips that make up an operation, added up in the order in which they
/// were measured.
fn sums(trips: &[Vec<Nanos>]) -> Distribution {
    let count = trips.iter().map(Vec::len).min().unwrap_or(0);
    (0..count).map(|index| trips.iter().fold(Nanos::ZERO, |sum, trip| sum + trip[index])).collect()
}
