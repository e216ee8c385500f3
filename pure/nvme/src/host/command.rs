//! Commands that hosts send. Counts here are ordinary numbers; these functions alone convert them
//! to the specification's 0's based form.

use crate::subsystem::Instance;
use crate::wire::bits::{high_u32, low_u16, low_u32};
use crate::wire::feature::FeatureId;
use crate::wire::{AdminOpcode, CommandId, IoOpcode, NamespaceId, QueueId, SubmissionQueueEntry};

/// A command such as Read, Write or Write Zeroes on `blocks` (1..=65,536) logical blocks from
/// `lba`.
pub fn on_blocks(opcode: IoOpcode, namespace: NamespaceId, lba: u64, blocks: u32) -> SubmissionQueueEntry {
    let entry = SubmissionQueueEntry {
        opcode: opcode.into(),
        namespace,
        // Number of Logical Blocks (NLB) is 0's based.
        cdw12: u32::from(low_u16(blocks.wrapping_sub(1))),
        ..SubmissionQueueEntry::default()
    };
    entry.with_starting_lba(lba)
}

/// A Flush, which makes all completed writes to the namespace durable.
pub fn flush(namespace: NamespaceId) -> SubmissionQueueEntry {
    SubmissionQueueEntry { opcode: IoOpcode::Flush.into(), namespace, ..SubmissionQueueEntry::default() }
}

/// An Identify for the data structure `structure` (CNS), which has 4096 bytes.
pub fn identify(structure: u32, namespace: NamespaceId) -> SubmissionQueueEntry {
    SubmissionQueueEntry {
        opcode: AdminOpcode::Identify.into(),
        namespace,
        cdw10: structure,
        ..SubmissionQueueEntry::default()
    }
}

/// A Get Log Page for `length` bytes, a multiple of 4, of log page `page` from byte `offset`.
/// Reading the page unmasks the page's asynchronous event (RAE is 0).
pub fn get_log_page(namespace: NamespaceId, page: u8, offset: u64, length: u32) -> SubmissionQueueEntry {
    // Number of Dwords (NUMDL, NUMDU) is 0's based.
    let dwords = (length / 4).saturating_sub(1);
    let [a, b, c, d] = dwords.to_le_bytes();
    SubmissionQueueEntry {
        opcode: AdminOpcode::GetLogPage.into(),
        namespace,
        cdw10: u32::from_le_bytes([page, 0, a, b]),
        cdw11: u32::from_le_bytes([c, d, 0, 0]),
        cdw12: low_u32(offset),
        cdw13: high_u32(offset),
        ..SubmissionQueueEntry::default()
    }
}

/// A Set Features that sets `feature` to `value` until the next controller level reset.
pub fn set_features(feature: FeatureId, value: u32) -> SubmissionQueueEntry {
    SubmissionQueueEntry {
        opcode: AdminOpcode::SetFeatures.into(),
        cdw10: u8::from(feature).into(),
        cdw11: value,
        ..SubmissionQueueEntry::default()
    }
}

/// A Set Features (Number of Queues) that requests `pairs` (at least 1) I/O submission queues and
/// the same number of completion queues.
pub fn set_number_of_queues(pairs: u16) -> SubmissionQueueEntry {
    let wanted = u32::from(pairs.saturating_sub(1));
    set_features(FeatureId::NumberOfQueues, wanted << 16 | wanted)
}

/// Number of I/O queue pairs that the controller grants, from DW0 of the completion of
/// [`set_number_of_queues`]. The controller may grant more or fewer than the host requested.
pub fn granted_queues(dw0: u32) -> u16 {
    low_u16(dw0).min(low_u16(dw0 >> 16)).saturating_add(1)
}

/// An Asynchronous Event Request, which completes when the controller has an event to report.
pub fn asynchronous_event_request() -> SubmissionQueueEntry {
    SubmissionQueueEntry { opcode: AdminOpcode::AsynchronousEventRequest.into(), ..Default::default() }
}

/// An Abort of `command` on `queue`.
pub fn abort(queue: QueueId, command: CommandId) -> SubmissionQueueEntry {
    SubmissionQueueEntry {
        opcode: AdminOpcode::Abort.into(),
        cdw10: u32::from(command.0) << 16 | u32::from(queue.0),
        ..SubmissionQueueEntry::default()
    }
}

/// A Create I/O Completion Queue for a queue of `entries` (2..=65,536) physically contiguous
/// entries from `address`. The queue raises interrupt `vector`, if there is one.
pub fn create_completion_queue(
    queue: QueueId,
    address: u64,
    entries: u32,
    vector: Option<u16>,
) -> SubmissionQueueEntry {
    // Interrupt Vector (IV) and Interrupts Enabled (IEN).
    let interrupts = vector.map_or(0, |vector| u32::from(vector) << 16 | 0b10);
    create_queue(AdminOpcode::CreateIoCompletionQueue, queue, address, entries, interrupts)
}

/// A Create I/O Submission Queue for a queue of `entries` (2..=65,536) physically contiguous
/// entries from `address`. Its commands complete to the completion queue with the same identifier.
pub fn create_submission_queue(queue: QueueId, address: u64, entries: u32) -> SubmissionQueueEntry {
    // Completion Queue Identifier (CQID).
    let completion_queue = u32::from(queue.0) << 16;
    create_queue(AdminOpcode::CreateIoSubmissionQueue, queue, address, entries, completion_queue)
}

fn create_queue(
    opcode: AdminOpcode,
    queue: QueueId,
    address: u64,
    entries: u32,
    attributes: u32,
) -> SubmissionQueueEntry {
    /// Physically Contiguous (PC).
    const CONTIGUOUS: u32 = 1;
    SubmissionQueueEntry {
        opcode: opcode.into(),
        data_pointer: [address, 0],
        // Queue Size (QSIZE) is 0's based.
        cdw10: entries.wrapping_sub(1) << 16 | u32::from(queue.0),
        cdw11: attributes | CONTIGUOUS,
        ..SubmissionQueueEntry::default()
    }
}

/// A Cross-Controller Reset that ends the life `instance` of another controller of the subsystem,
/// which has the identifier `controller` (CNTLID).
pub fn cross_controller_reset(controller: u16, instance: Instance) -> SubmissionQueueEntry {
    let [a, b] = controller.to_le_bytes();
    SubmissionQueueEntry {
        opcode: AdminOpcode::CrossControllerReset.into(),
        cdw10: u32::from_le_bytes([a, b, instance.uniquifier, 0]),
        cdw12: low_u32(instance.random),
        cdw13: high_u32(instance.random),
        ..SubmissionQueueEntry::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_0s_based() {
        let namespace = NamespaceId(3);
        let read = on_blocks(IoOpcode::Read, namespace, 0x1_2345_6789, 65_536);
        assert_eq!((read.cdw10, read.cdw11, read.cdw12), (0x2345_6789, 1, 0xffff));
        assert_eq!(on_blocks(IoOpcode::Write, namespace, 0, 1).cdw12, 0);
        let log = get_log_page(NamespaceId::ALL, 2, 0x1_0000_0200, 512 << 10);
        assert_eq!((log.cdw10, log.cdw11), (0xffff_0002, 1));
        assert_eq!((log.cdw12, log.cdw13), (0x200, 1));
        let created = create_completion_queue(QueueId(3), 0x1000, 65_536, Some(5));
        assert_eq!((created.cdw10, created.cdw11, created.data_pointer[0]), (0xffff_0003, 0x5_0003, 0x1000));
        let created = create_submission_queue(QueueId(3), 0x2000, 2);
        assert_eq!((created.cdw10, created.cdw11, created.data_pointer[0]), (0x1_0003, 0x3_0001, 0x2000));
        let queues = set_number_of_queues(4);
        assert_eq!((queues.cdw10, queues.cdw11), (7, 3 << 16 | 3));
        assert_eq!(
            [granted_queues(3 << 16 | 1), granted_queues(0), granted_queues(u32::MAX)],
            [2, 1, 0xffff]
        );
    }
}
