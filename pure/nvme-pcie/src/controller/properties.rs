//! The register file: properties, which are read and written in any size and alignment, and
//! doorbells.

use nvme::pointer::PageSize;
use nvme::wire::QueueId;
use serde::{Deserialize, Serialize};

use super::arbitration::Classes;
use super::rings::{CompletionQueue, CompletionQueueId, SubmissionQueue};
use super::{Controller, DoorbellFault};
use crate::registers::{
    DOORBELL_BYTES, SUBMISSION_ENTRY_BYTES, VERSION_2_0, admin_queue_attributes, capabilities, configuration,
    low_16, low_half, offset, status,
};

/// The largest memory page (CAP.MPSMAX): 4 KiB times 2 to this power.
const PAGE_SIZE_MAX: u64 = 4;
/// CAP.TO and CRTO.CRWMT in units of 500 ms: how long a host should wait for CSTS.RDY.
const READY_TIMEOUT: u64 = 20;

/// The registers that store written values.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Properties {
    /// Controller Configuration (CC).
    pub(super) configuration: u32,
    /// Controller Status (CSTS).
    pub(super) status: u32,
    admin_queue_attributes: u32,
    admin_submission_queue: [u32; 2],
    admin_completion_queue: [u32; 2],
}

const fn join([low, high]: [u32; 2]) -> u64 {
    low as u64 | (high as u64) << 32
}

impl Properties {
    pub(super) fn is_ready(&self) -> bool {
        status::READY.of(u64::from(self.status)) == 1 && !self.is_fatal()
    }

    /// Whether the host sees the controller ready (CSTS.RDY).
    pub(super) fn shows_ready(&self) -> bool {
        status::READY.of(u64::from(self.status)) == 1
    }

    pub(super) fn is_fatal(&self) -> bool {
        status::FATAL.of(u64::from(self.status)) == 1
    }

    fn set_status(&mut self, field: crate::registers::Field, value: u64) {
        self.status = low_half(field.replace(u64::from(self.status), value));
    }

    pub(super) fn set_fatal(&mut self) {
        self.set_status(status::FATAL, 1);
    }

    pub(super) fn set_shutdown(&mut self, value: u64) {
        self.set_status(status::SHUTDOWN, value);
    }

    fn configured(&self, field: crate::registers::Field) -> u64 {
        field.of(u64::from(self.configuration))
    }

    /// Whether I/O queue entries have the sizes of the NVM Command Set: CC.IOSQES and CC.IOCQES.
    pub(super) fn has_io_entry_sizes(&self) -> bool {
        self.configured(configuration::SUBMISSION_ENTRY_SIZE) == 6
            && self.configured(configuration::COMPLETION_ENTRY_SIZE) == 4
    }
}

impl Controller {
    /// Fills `bytes` with the result of a read of the properties at `offset` of BAR0. Reserved
    /// properties and doorbells read as zeroes.
    pub fn read_register(&self, offset: u32, bytes: &mut [u8]) {
        for (at, byte) in (u64::from(offset)..).zip(bytes) {
            let word = u32::try_from(at & !3).map_or(0, |at| self.property(at));
            *byte = word.to_le_bytes()[usize::from(at.to_le_bytes()[0] & 3)];
        }
    }

    fn capabilities(&self) -> u64 {
        capabilities::QUEUE_ENTRIES_MAX.put(u64::from(self.side.config.queue_entries_max) - 1)
            | capabilities::CONTIGUOUS_QUEUES_REQUIRED.put(1)
            | capabilities::WEIGHTED_ROUND_ROBIN.put(1)
            | capabilities::TIMEOUT.put(READY_TIMEOUT)
            | capabilities::NVM_COMMAND_SET.put(1)
            | capabilities::IO_COMMAND_SETS.put(1)
            | capabilities::PAGE_SIZE_MAX.put(PAGE_SIZE_MAX)
            | capabilities::MEMORY_BUFFER.put(self.memory.is_present().into())
            | capabilities::READY_WITH_MEDIA.put(1)
    }

    /// Controller Status (CSTS). The host sees the controller ready until all lanes have
    /// acknowledged a reset.
    fn status(&self) -> u32 {
        let shown = self.side.lanes.as_ref().is_some_and(|lanes| lanes.show_ready());
        self.side.properties.status | low_half(status::READY.put(shown.into()))
    }

    fn property(&self, at: u32) -> u32 {
        let properties = &self.side.properties;
        match at {
            offset::CAPABILITIES => low_half(self.capabilities()),
            0x04 => low_half(self.capabilities() >> 32),
            offset::VERSION => VERSION_2_0,
            offset::CONFIGURATION => properties.configuration,
            offset::STATUS => self.status(),
            offset::ADMIN_QUEUE_ATTRIBUTES => properties.admin_queue_attributes,
            offset::ADMIN_SUBMISSION_QUEUE => properties.admin_submission_queue[0],
            0x2c => properties.admin_submission_queue[1],
            offset::ADMIN_COMPLETION_QUEUE => properties.admin_completion_queue[0],
            0x34 => properties.admin_completion_queue[1],
            offset::MEMORY_BUFFER_LOCATION => self.memory.location_and_size().0,
            offset::MEMORY_BUFFER_SIZE => self.memory.location_and_size().1,
            offset::MEMORY_BUFFER_CONTROL => self.memory.control_half(0),
            0x54 => self.memory.control_half(1),
            offset::MEMORY_BUFFER_STATUS => self.memory.status(),
            offset::READY_TIMEOUTS => low_half(READY_TIMEOUT),
            // Interrupt masks are for pin-based interrupts, which this controller does not have. It
            // has no PMR or boot partitions either, so their properties are zero.
            _ => 0,
        }
    }

    /// Writes `bytes` at `offset` of BAR0. Each double word that the write touches is written in
    /// turn, and keeps its other bytes.
    pub(super) fn write_register(&mut self, offset: u32, bytes: &[u8]) {
        let mut at = u64::from(offset);
        let mut rest = bytes;
        while !rest.is_empty() {
            let skip = usize::from(at.to_le_bytes()[0] & 3);
            let count = rest.len().min(4 - skip);
            let Ok(word_at) = u32::try_from(at & !3) else { return };
            let mut word = self.property(word_at).to_le_bytes();
            word[skip..skip + count].copy_from_slice(&rest[..count]);
            self.write_property(word_at, u32::from_le_bytes(word));
            at += 4 - (at & 3);
            rest = &rest[count..];
        }
    }

    fn write_property(&mut self, at: u32, value: u32) {
        match at {
            offset::DOORBELLS.. => self.ring_doorbell((at - offset::DOORBELLS) / DOORBELL_BYTES, value),
            offset::CONFIGURATION => self.configure(value & configuration::WRITABLE),
            offset::ADMIN_QUEUE_ATTRIBUTES => {
                self.side.properties.admin_queue_attributes = value & 0x0fff_0fff
            }
            offset::ADMIN_SUBMISSION_QUEUE => self.side.properties.admin_submission_queue[0] = value & !0xfff,
            0x2c => self.side.properties.admin_submission_queue[1] = value,
            offset::ADMIN_COMPLETION_QUEUE => self.side.properties.admin_completion_queue[0] = value & !0xfff,
            0x34 => self.side.properties.admin_completion_queue[1] = value,
            offset::MEMORY_BUFFER_CONTROL => self.memory.set_control_half(0, value),
            0x54 => self.memory.set_control_half(1, value),
            // The other properties are read-only or absent.
            _ => {}
        }
    }

    fn configure(&mut self, value: u32) {
        let before = core::mem::replace(&mut self.side.properties.configuration, value);
        let enabled = |word: u32| configuration::ENABLE.of(u64::from(word)) == 1;
        let shutdown = |word: u32| configuration::SHUTDOWN.of(u64::from(word));
        match (enabled(before), enabled(value)) {
            (false, true) => self.enable(),
            (true, false) => self.reset_controller(),
            _ => {}
        }
        if shutdown(value) != 0 && shutdown(before) != shutdown(value) {
            self.begin_shutdown();
        } else if shutdown(value) == 0 && shutdown(before) != 0 {
            self.side.properties.set_shutdown(0);
            self.end_drain();
        }
    }

    /// Handles CC.EN changing from 0 to 1. The controller becomes ready once lanes have
    /// acknowledged a reset and media have ended the requests from before it, or fails fatally if
    /// the configuration is invalid.
    pub(super) fn enable(&mut self) {
        let outstanding = self.side.core.subsystem().media_outstanding(self.key);
        self.side.set_enabling(self.is_resetting() || outstanding > 0);
        if self.side.enabling {
            return;
        }
        let properties = &self.side.properties;
        let attributes = u64::from(properties.admin_queue_attributes);
        let submission = admin_queue_attributes::SUBMISSION_ENTRIES.of(attributes) + 1;
        let completion = admin_queue_attributes::COMPLETION_ENTRIES.of(attributes) + 1;
        let (Ok(submission), Ok(completion)) = (u32::try_from(submission), u32::try_from(completion)) else {
            return;
        };
        let arbitration = properties.configured(configuration::ARBITRATION);
        let page_shift = properties.configured(configuration::PAGE_SIZE);
        let page = PageSize::from_mps(page_shift);
        let (submission_base, completion_base) =
            (join(properties.admin_submission_queue), join(properties.admin_completion_queue));
        let length = u64::from(submission) * u64::from(SUBMISSION_ENTRY_BYTES);
        let local = self.memory.locate(submission_base, length);
        let sound = page_shift <= PAGE_SIZE_MAX
            && matches!(
                properties.configured(configuration::COMMAND_SET),
                configuration::NVM_COMMAND_SET | configuration::ALL_COMMAND_SETS
            )
            && arbitration <= configuration::WEIGHTED_ROUND_ROBIN
            && submission >= 2
            && completion >= 2
            && page.offset_of(submission_base) == 0
            && page.offset_of(completion_base) == 0;
        let Some(local) = local.ok().filter(|_| sound) else {
            self.side.properties.set_fatal();
            return;
        };
        self.page_size = page;
        let weighted = arbitration == configuration::WEIGHTED_ROUND_ROBIN;
        self.classes = weighted.then(Classes::new);
        let mut admin = CompletionQueue::new(completion_base, completion, Some(0));
        admin.submission_queues = 1;
        self.completion_queues[0] = Some(admin);
        let admin =
            SubmissionQueue::new(QueueId::ADMIN, submission_base, submission, CompletionQueueId::ADMIN);
        self.submission_queues[0] = Some(admin.located(local));
        self.side.properties.set_status(status::READY, 1);
    }

    fn ring_doorbell(&mut self, number: u32, value: u32) {
        if !self.side.properties.is_ready() {
            return;
        }
        let Ok(queue) = u16::try_from(number / 2) else { return };
        let is_tail = number.is_multiple_of(2);
        let value = u32::from(low_16(value));
        if let Err(fault) = self.ring(queue, is_tail, value)
            && !(fault == DoorbellFault::Register && self.ring_in_lane(queue, is_tail, value))
        {
            self.report_doorbell(fault);
        }
    }
}
