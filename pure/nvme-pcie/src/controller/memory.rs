//! The controller memory buffer: memory of the controller in its own BAR, in which the host may put
//! submission queues. The host then pushes entries instead of the controller fetching them, which
//! saves a round trip.

use alloc::vec;
use alloc::vec::Vec;

use nvme::wire::{StatusCode, SubmissionQueueEntry};
use serde::{Deserialize, Serialize};

use super::side::Side;
use super::{Controller, Queues};
use crate::registers::{SUBMISSION_ENTRY_BYTES, low_half, memory_control, memory_location, memory_size};

/// The greatest length in bytes of a controller memory buffer.
pub const MEMORY_BUFFER_BYTES_MAX: u32 = 16 << 20;
/// The smallest length in bytes of a controller memory buffer, and the unit of its length.
pub const MEMORY_BUFFER_BYTES_MIN: u32 = 4 << 10;
/// The number of the BAR with the controller memory buffer.
pub const MEMORY_BUFFER_BAR: u8 = 2;

/// The buffer's memory, and the host's settings for it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct MemoryBuffer {
    bytes: Vec<u8>,
    /// Controller Memory Buffer Memory Space Control (CMBMSC).
    control: [u32; 2],
}

impl MemoryBuffer {
    pub(super) fn new(bytes: u32) -> Self {
        Self { bytes: vec![0; bytes as usize], control: [0; 2] }
    }

    pub(super) fn is_present(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Resets the host's settings on a reset of the function. A controller reset does not call
    /// this.
    pub(super) fn reset(&mut self) {
        self.control = [0; 2];
    }

    fn control(&self) -> u64 {
        u64::from(self.control[0]) | u64::from(self.control[1]) << 32
    }

    /// CMBLOC and CMBSZ, which are zero until the host has enabled these registers.
    pub(super) fn location_and_size(&self) -> (u32, u32) {
        if !self.is_present() || memory_control::REGISTERS_ENABLED.of(self.control()) == 0 {
            return (0, 0);
        }
        let units = self.bytes.len() as u64 / u64::from(MEMORY_BUFFER_BYTES_MIN);
        let size = memory_size::SUBMISSION_QUEUES.put(1) | memory_size::SIZE.put(units);
        (low_half(memory_location::BAR.put(MEMORY_BUFFER_BAR.into())), low_half(size))
    }

    /// The low (0) or high (1) half of CMBMSC.
    pub(super) fn control_half(&self, half: usize) -> u32 {
        self.control[half]
    }

    pub(super) fn set_control_half(&mut self, half: usize, value: u32) {
        if self.is_present() {
            let writable = if half == 0 { memory_control::WRITABLE } else { u32::MAX };
            self.control[half] = value & writable;
        }
    }

    /// CMBSTS: Controller Base Address Invalid is set if the buffer would not fit above its base
    /// address.
    pub(super) fn status(&self) -> u32 {
        let enabled = memory_control::SPACE_ENABLED.of(self.control()) == 1;
        u32::from(enabled && self.base().checked_add(self.bytes.len() as u64).is_none())
    }

    fn base(&self) -> u64 {
        memory_control::BASE.of(self.control()) << 12
    }

    /// Offset in the buffer of `length` bytes at `address`; `None` if all bytes are in host memory.
    ///
    /// # Errors
    /// When only some of the bytes are in the buffer.
    pub(super) fn locate(&self, address: u64, length: u64) -> Result<Option<u32>, StatusCode> {
        let enabled = self.is_present() && memory_control::SPACE_ENABLED.of(self.control()) == 1;
        let size = self.bytes.len() as u64;
        let (base, end) = (self.base(), address.saturating_add(length));
        let Some(top) = base.checked_add(size).filter(|_| enabled) else { return Ok(None) };
        if end <= base || address >= top {
            return Ok(None);
        }
        if address < base || end > top {
            return Err(StatusCode::InvalidControllerMemoryBufferUse);
        }
        Ok(u32::try_from(address - base).ok())
    }
}

impl Controller {
    /// Fills `bytes` with the result of a read at `offset` of the controller memory buffer. Bytes
    /// beyond its end read as ones.
    pub fn read_memory_buffer(&self, offset: u64, bytes: &mut [u8]) {
        bytes.fill(u8::MAX);
        let Ok(start) = usize::try_from(offset) else { return };
        let found = self.memory.bytes.get(start..).unwrap_or_default();
        for (place, byte) in bytes.iter_mut().zip(found) {
            *place = *byte;
        }
    }

    /// Writes to the controller memory buffer. Bytes beyond its end are dropped.
    #[inline(never)]
    pub(super) fn write_memory_buffer(&mut self, offset: u64, bytes: &[u8]) {
        let Ok(start) = usize::try_from(offset) else { return };
        let found = self.memory.bytes.get_mut(start..).unwrap_or_default();
        for (place, byte) in found.iter_mut().zip(bytes) {
            *place = *byte;
        }
    }
}

impl<S: Side> Queues<S> {
    /// Starts `entries` commands of a queue in the buffer, from the entry at `start`.
    #[cold]
    #[inline(never)]
    pub(super) fn start_from_memory(&mut self, number: u32, start: u32, entries: u32) {
        let Ok(queue) = u16::try_from(number) else { return };
        self.slots.reserve(u16::try_from(entries).expect("a fetch is of 64 entries at most"));
        self.statistics.pushed += u64::from(entries);
        if let Some(queue) = self.submission_queues[usize::from(queue)].as_mut() {
            queue.on_arrived(entries);
        }
        for index in 0..entries {
            let at = start as usize + (index * SUBMISSION_ENTRY_BYTES) as usize;
            let bytes = self.memory.bytes.get(at..).and_then(|bytes| bytes.first_chunk());
            let entry = SubmissionQueueEntry::parse(bytes.expect("the queue was located in the buffer"));
            self.start(queue, entry);
        }
        let all_fetched =
            self.submission_queues[usize::from(queue)].as_ref().is_some_and(|one| !one.has_new());
        if all_fetched && self.shadow.is_some() && queue != 0 {
            self.knock(queue);
        }
    }
}
