//! Places in a controller's memory for the data of commands that have them in buffers.

use engine::{Buffer, Pool};
use nvme::host::{Command, Data};
use nvme_pcie::host::{
    self, Data as Place, DataRegion, Host, Origin, QueueId, Submission, SubmitError as Refused,
};
use pcie::memory::Unmapped;

use super::cookie::TableCookie;
use super::error::SubmitError;
use super::event::Completed;

/// The length in bytes of a slot: the most that one command moves.
pub(super) const SLOT_BYTES: u32 = 128 << 10;
/// The most bytes that the pool of buffers keeps for reuse.
const POOL_RETAIN: usize = 8 << 20;

/// A command under way whose data are in a slot.
#[derive(Clone, Copy, Debug)]
struct Taken {
    cookie: u64,
    address: u64,
    /// The number of bytes that the command reads.
    read: usize,
}

/// The slots, which are at the beginning of the driver's data region.
#[derive(Debug)]
pub(super) struct Slots {
    free: Vec<u32>,
    taken: Vec<Option<Taken>>,
    pool: Pool,
}

impl Slots {
    pub(super) fn new(count: u32) -> Self {
        Self {
            free: (0..count).rev().collect(),
            taken: vec![None; count as usize],
            pool: Pool::new(POOL_RETAIN),
        }
    }

    /// The queue and the data region for a command to `host`. Commands with the same `hint` share
    /// an I/O queue; a command without one is for the admin queue.
    pub(super) fn target(host: &Host, hint: Option<u16>) -> (QueueId, DataRegion) {
        let queues = host.identity().map_or(1, |identity| identity.io_queues.max(1));
        (hint.map_or(QueueId::ADMIN, |hint| QueueId(1 + hint % queues)), host.data_region())
    }

    /// The part of the driver's data region that is left for data with a place of their own.
    pub(super) const fn rest(&self, region: DataRegion) -> DataRegion {
        let slots = self.taken.len() as u64 * SLOT_BYTES as u64;
        DataRegion { base: region.base + slots, length: region.length.saturating_sub(slots) }
    }

    /// Gives the data of a command a slot in `region`; `write` puts bytes there.
    pub(super) fn issue(
        &mut self,
        (queue, region): (QueueId, DataRegion),
        command: &Command,
        write: impl FnOnce(u64, &[u8]) -> Result<(), Unmapped>,
    ) -> Result<Submission, SubmitError> {
        let Command { cookie, entry, ref data } = *command;
        if data.is_empty() {
            return Ok(Submission { queue, entry, data: None, cookie });
        }
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        if length > SLOT_BYTES {
            return Err(SubmitError::Pcie(Refused::Length { length, limit: SLOT_BYTES }));
        }
        let slot = *self.free.last().ok_or(SubmitError::Pcie(Refused::Busy))?;
        let offset = u64::from(slot) * u64::from(SLOT_BYTES);
        if offset + u64::from(SLOT_BYTES) > region.length {
            return Err(SubmitError::Pcie(Refused::NotReady));
        }
        let address = region.base + offset;
        let read = match data {
            Data::Write(bytes) => {
                write(address, bytes).map_err(|error| SubmitError::Pcie(Refused::Memory(error)))?;
                0
            }
            _ => data.len(),
        };
        self.free.pop();
        self.taken[slot as usize] = Some(Taken { cookie, address, read });
        let cookie = TableCookie::at(slot as usize);
        Ok(Submission { queue, entry, data: Some(Place { address, length }), cookie: cookie.raw() })
    }

    /// Takes back the slot of a command, if the command has one.
    #[inline]
    pub(super) fn retire(&mut self, cookie: u64) -> Option<(u64, u64, usize)> {
        let slot = TableCookie::parse(cookie)?.place();
        let Taken { cookie, address, read } = self.taken.get_mut(slot)?.take()?;
        self.free.push(u32::try_from(slot).expect("a slot has a number of 32 bits"));
        Some((cookie, address, read))
    }

    /// The result of a command for its caller; `fetch` gets bytes from the memory.
    #[inline]
    pub(super) fn complete(
        &mut self,
        completed: &host::Completed,
        fetch: impl FnOnce(u64, &mut [u8]) -> Result<(), Unmapped>,
    ) -> Completed {
        let (mut cookie, mut data) = (completed.cookie, Buffer::EMPTY);
        if let Some((own, address, read)) = self.retire(cookie) {
            cookie = own;
            if read > 0 && completed.status.is_success() {
                let mut bytes = self.pool.take(read);
                if fetch(address, &mut bytes).is_ok() {
                    data = self.pool.seal(bytes);
                }
            }
        }
        Completed {
            cookie,
            status: completed.status,
            dw0: completed.dw0,
            dw1: 0,
            data,
            is_unheard: completed.origin == Origin::Host,
            submitted: completed.submitted,
        }
    }
}
