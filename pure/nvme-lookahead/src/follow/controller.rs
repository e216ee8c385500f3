//! The state of an enabled NVMe controller, learnt from passing packets: its queues, and the block
//! sizes of its namespaces.

use alloc::boxed::Box;
use alloc::vec::Vec;

use nvme::pointer::PageSize;
use nvme::wire::identify::{IDENTIFY_LENGTH, IdentifyNamespace};
use nvme::wire::{AdminOpcode, CommandId, CompletionQueueEntry, NamespaceId, SubmissionQueueEntry};
use pcie::switch::AheadKey;

/// The most queues of either kind that are remembered, the admin queue among them. Other queues
/// work without lookahead, and not at all under the DMA rule.
const QUEUES_MAX: usize = 4096;
/// Maximum number of outstanding admin commands whose completion changes this state. With more, the
/// state is uncertain.
const ADMIN_MAX: usize = 64;
/// Maximum number of namespaces whose block size is remembered.
const NAMESPACES_MAX: usize = 256;
/// Length of the part of Identify Namespace with the block size: up to and including the LBA
/// formats.
const IDENTIFY_BYTES: usize = 384;

/// The smallest memory page, in bytes.
const PAGE_MIN: u64 = 4096;
const SUBMISSION_BYTES: u64 = SubmissionQueueEntry::LENGTH as u64;
const COMPLETION_BYTES: u64 = CompletionQueueEntry::LENGTH as u64;
/// Create I/O Queue, CDW11: Physically Contiguous (PC).
const CONTIGUOUS: u32 = 1;
/// Create I/O Completion Queue, CDW11: Interrupts Enabled (IEN).
const INTERRUPTS: u16 = 1 << 1;
/// Identify, CDW10: the namespace (CNS 00h).
const CNS_MASK: u32 = 0xff;
const FORMAT_EXTENDED: u8 = 1 << 4;

/// A submission queue in host memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SubmissionQueue {
    pub(crate) id: u16,
    pub(crate) base: u64,
    pub(crate) entries: u32,
    /// The tail that the host has rung last.
    pub(crate) tail: u32,
    /// The first entry that the device has not reported as fetched.
    pub(crate) head: u32,
    /// Number of the completion queue.
    pub(crate) completion: u16,
    /// Whether the host has requested the queue's deletion.
    deleted: bool,
    /// Whether the queue's pages are in [`Controller::scattered`], not at `base`.
    is_scattered: bool,
}

impl SubmissionQueue {
    const fn new(id: u16, base: u64, entries: u32, completion: u16) -> Self {
        Self { id, base, entries, tail: 0, head: 0, completion, deleted: false, is_scattered: false }
    }
    const fn end(&self) -> u64 {
        self.base + self.entries as u64 * SUBMISSION_BYTES
    }
    /// Whether the host has rung for this entry, and has not got it back yet.
    #[inline]
    pub(crate) const fn is_rung(&self, slot: u32) -> bool {
        if self.head <= self.tail {
            self.head <= slot && slot < self.tail
        } else {
            slot < self.entries && (self.head <= slot || slot < self.tail)
        }
    }
    /// Records the head that the device reports.
    pub(crate) const fn advance(&mut self, head: u32) {
        if self.is_rung(head) || head == self.tail {
            self.head = head;
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CompletionQueue {
    pub(crate) id: u16,
    pub(crate) base: u64,
    pub(crate) entries: u32,
    /// The queue's interrupt vector, if it has interrupts.
    pub(crate) vector: Option<u16>,
    /// Key by which the device's end knows the queue's address, if it was informed.
    pub(crate) key: Option<AheadKey>,
    /// The entry that the device writes next, and the one that the host reads next.
    pub(crate) next: u32,
    pub(crate) head: u32,
    /// Whether the queue's pages are in [`Controller::scattered`], not at `base`.
    is_scattered: bool,
}

impl CompletionQueue {
    const fn new(id: u16, base: u64, entries: u32, vector: Option<u16>) -> Self {
        Self { id, base, entries, vector, key: None, next: 0, head: 0, is_scattered: false }
    }
    pub(crate) const fn end(&self) -> u64 {
        self.base + self.entries as u64 * COMPLETION_BYTES
    }
}

/// How a namespace is formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// Bytes of a logical block, and of its metadata.
    pub(crate) block: u64,
    pub(crate) metadata: u64,
    /// Whether metadata travels with the block, not separately.
    pub(crate) extended: bool,
}

/// The pages of a queue that is not contiguous.
#[derive(Debug)]
struct Scattered {
    is_submission: bool,
    id: u16,
    pages: Vec<u64>,
}

/// The change made by a successful admin command.
#[derive(Debug)]
enum Change {
    CreateSubmission(SubmissionQueue),
    CreateCompletion(CompletionQueue),
    DeleteSubmission(u16),
    DeleteCompletion(u16),
    /// The block size of a namespace becomes known. `bytes` are the received part of the data
    /// structure at `address`.
    Identify {
        namespace: NamespaceId,
        address: u64,
        bytes: Box<[u8; IDENTIFY_BYTES]>,
    },
}

/// The consequence of a completion for lookahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// A command has ended.
    Command { queue: u16, command: CommandId },
    /// A submission queue has been deleted.
    Queue(u16),
    /// A completion queue has been created.
    Created,
    /// The device's end must forget its knowledge of a completion queue.
    Deleted(AheadKey),
    /// The device wrote something that is no whole entry, so any command may have ended.
    Unclear,
}

/// The known queues and namespaces of an enabled NVMe controller.
#[derive(Debug)]
pub(crate) struct Controller {
    /// Memory page size (CC.MPS).
    pub(crate) page: PageSize,
    pub(crate) submission: Vec<SubmissionQueue>,
    pub(crate) completion: Vec<CompletionQueue>,
    /// Address range from the lowest to the highest completion queue.
    completions_at: (u64, u64),
    changes: Vec<(CommandId, Change)>,
    namespaces: Vec<(NamespaceId, Format)>,
    /// Bytes from doorbell to doorbell.
    pub(crate) stride: u64,
    /// Address range from the lowest to the highest submission queue.
    submissions_at: (u64, u64),
    /// Pages of queues that are not contiguous.
    scattered: Vec<Scattered>,
    /// Whether a packet was not understood. Nothing is sent ahead until the controller is enabled
    /// anew.
    pub(crate) lost: bool,
}

impl Controller {
    /// Creates the state of a controller that was just enabled, with its admin queues.
    pub(crate) fn new(page: PageSize, submission: (u64, u32), completion: (u64, u32)) -> Self {
        let mut controller = Self {
            page,
            submission: Vec::new(),
            completion: Vec::new(),
            completions_at: (0, 0),
            changes: Vec::new(),
            namespaces: Vec::new(),
            stride: 4,
            submissions_at: (0, 0),
            scattered: Vec::new(),
            lost: false,
        };
        let (base, entries) = completion;
        controller.add_completion(CompletionQueue::new(0, base, entries, None));
        let (base, entries) = submission;
        controller.add_submission(SubmissionQueue::new(0, base, entries, 0));
        controller
    }

    fn add_submission(&mut self, queue: SubmissionQueue) {
        let fits = queue.is_scattered || is_place(queue.base, u64::from(queue.entries) * SUBMISSION_BYTES);
        self.submission.retain(|other| other.id != queue.id);
        if fits && self.submission.len() < QUEUES_MAX {
            self.submission.push(queue);
        }
        self.measure();
    }

    fn add_completion(&mut self, queue: CompletionQueue) {
        let fits = queue.is_scattered || is_place(queue.base, u64::from(queue.entries) * COMPLETION_BYTES);
        self.completion.retain(|other| other.id != queue.id);
        if fits && self.completion.len() < QUEUES_MAX {
            self.completion.push(queue);
        }
        self.measure();
    }

    /// Records the pages of the queue that an outstanding admin command is creating.
    pub(crate) fn scatter(&mut self, command: CommandId, pages: Vec<u64>) {
        let change = self.changes.iter().find(|(id, _)| *id == command).map(|(_, change)| change);
        let (is_submission, id) = match change {
            Some(Change::CreateSubmission(queue)) => (true, queue.id),
            Some(Change::CreateCompletion(queue)) => (false, queue.id),
            _ => return,
        };
        self.scattered.retain(|known| (known.is_submission, known.id) != (is_submission, id));
        if self.scattered.len() < QUEUES_MAX {
            self.scattered.push(Scattered { is_submission, id, pages });
        }
    }

    /// The offset of `address` in a queue that is not contiguous.
    fn offset_in(&self, is_submission: bool, id: u16, address: u64) -> Option<u64> {
        let known =
            self.scattered.iter().find(|known| (known.is_submission, known.id) == (is_submission, id))?;
        let within = u64::from(self.page.offset_of(address));
        let page = known.pages.iter().position(|page| *page == address - within)?;
        Some(page as u64 * u64::from(self.page.bytes()) + within)
    }

    /// The submission queue that has memory at `address`, and the offset there.
    #[inline]
    pub(crate) fn submission_at(&self, address: u64) -> Option<(usize, u64)> {
        let near = self.submissions_at.0 <= address && address < self.submissions_at.1;
        if !near && self.scattered.is_empty() {
            return None;
        }
        self.submission.iter().enumerate().find_map(|(index, queue)| {
            let offset = if queue.is_scattered {
                self.offset_in(true, queue.id, address)
            } else {
                address.checked_sub(queue.base)
            };
            let offset = offset.filter(|offset| *offset < u64::from(queue.entries) * SUBMISSION_BYTES)?;
            Some((index, offset))
        })
    }

    /// The completion queue that has memory at `address`, and the offset there.
    #[inline]
    pub(crate) fn completion_at(&self, address: u64) -> Option<(usize, u64)> {
        let near = self.completions_at.0 <= address && address < self.completions_at.1;
        if !near && self.scattered.is_empty() {
            return None;
        }
        self.completion.iter().enumerate().find_map(|(index, queue)| {
            let offset = if queue.is_scattered {
                self.offset_in(false, queue.id, address)
            } else {
                address.checked_sub(queue.base)
            };
            let offset = offset.filter(|offset| *offset < u64::from(queue.entries) * COMPLETION_BYTES)?;
            Some((index, offset))
        })
    }

    fn measure(&mut self) {
        let submission = || self.submission.iter().filter(|queue| !queue.is_scattered);
        let first = submission().map(|queue| queue.base).min();
        let end = submission().map(SubmissionQueue::end).max();
        self.submissions_at = first.zip(end).unwrap_or((0, 0));
        let completion = || self.completion.iter().filter(|queue| !queue.is_scattered);
        let first = completion().map(|queue| queue.base).min();
        let end = completion().map(CompletionQueue::end).max();
        self.completions_at = first.zip(end).unwrap_or((0, 0));
    }

    /// Handles a ring of a submission queue's doorbell. Returns the queue as it was before, if
    /// lookahead can follow the queue.
    pub(crate) fn ring(&mut self, id: u16, tail: u32) -> Option<SubmissionQueue> {
        let queue = self.submission.iter_mut().find(|queue| queue.id == id && !queue.deleted)?;
        let before = *queue;
        if tail >= queue.entries {
            return None;
        }
        queue.tail = tail;
        let answered = self.completion.iter().any(|other| other.id == before.completion);
        (answered && !self.lost).then_some(before)
    }

    /// Handles a ring of a completion queue's doorbell.
    pub(crate) fn consume(&mut self, id: u16, head: u32) {
        if let Some(queue) = self.completion.iter_mut().find(|queue| queue.id == id)
            && head < queue.entries
        {
            queue.head = head;
        }
    }

    /// The completion queue of a submission queue, if both exist.
    pub(crate) fn completion_of(&self, id: u16) -> Option<u16> {
        let queue = self.submission.iter().find(|queue| queue.id == id && !queue.deleted)?;
        self.completion.iter().any(|other| other.id == queue.completion).then_some(queue.completion)
    }

    /// The highest number of a submission queue.
    pub(crate) fn last_queue(&self) -> u16 {
        self.submission.iter().map(|queue| queue.id).max().unwrap_or(0)
    }

    /// Length in bytes of a block of `namespace`, if it is known and has no metadata with the data.
    pub(crate) fn block(&self, namespace: NamespaceId) -> Option<u64> {
        // Whether inline metadata is transferred depends on the command, so this is left to the
        // device.
        let format = self.format(namespace).filter(|format| !(format.extended && format.metadata > 0))?;
        Some(format.block)
    }
    /// How `namespace` is formatted, if known.
    pub(crate) fn format(&self, namespace: NamespaceId) -> Option<Format> {
        self.namespaces.iter().find(|known| known.0 == namespace).map(|known| known.1)
    }

    /// Handles an admin command that the host has submitted.
    pub(crate) fn on_admin(&mut self, entry: &SubmissionQueueEntry) {
        let [id, size] = halves(entry.cdw10);
        let entries = u32::from(size) + 1;
        // For a submission queue, `of` is its completion queue; for a completion queue, its vector.
        let [flags, of] = halves(entry.cdw11);
        let (completion, vector) = (of, of);
        let contiguous = u32::from(flags) & CONTIGUOUS != 0;
        let [base, second] = entry.data_pointer;
        // The pages of a queue that is not contiguous are in a list.
        let place = if contiguous { base } else { 0 };
        let change = match AdminOpcode::from(entry.opcode) {
            AdminOpcode::CreateIoSubmissionQueue => {
                self.lost |= !contiguous;
                Change::CreateSubmission(SubmissionQueue {
                    is_scattered: !contiguous,
                    ..SubmissionQueue::new(id, place, entries, completion)
                })
            }
            AdminOpcode::CreateIoCompletionQueue => {
                self.lost |= !contiguous;
                let vector = (flags & INTERRUPTS != 0).then_some(vector);
                Change::CreateCompletion(CompletionQueue {
                    is_scattered: !contiguous,
                    ..CompletionQueue::new(id, place, entries, vector)
                })
            }
            AdminOpcode::DeleteIoSubmissionQueue => {
                // The host no longer uses the queue, even if the deletion fails. The device may
                // still take entries.
                self.submission
                    .iter_mut()
                    .filter(|queue| queue.id == id)
                    .for_each(|queue| queue.deleted = true);
                Change::DeleteSubmission(id)
            }
            AdminOpcode::DeleteIoCompletionQueue => Change::DeleteCompletion(id),
            AdminOpcode::Identify if entry.cdw10 & CNS_MASK == 0 => {
                let in_page =
                    u64::from(self.page.bytes() - self.page.offset_of(base)) >= IDENTIFY_BYTES as u64;
                let fits = base.checked_add(IDENTIFY_BYTES as u64).is_some();
                // An SGL of one data block has its address in the same place as a PRP entry.
                let data_block = entry.flags >> 6 == 0 || second >> 56 == 0;
                if !in_page || !fits || !data_block || entry.namespace == NamespaceId::ALL {
                    return;
                }
                let bytes = Box::new([0; IDENTIFY_BYTES]);
                Change::Identify { namespace: entry.namespace, address: base, bytes }
            }
            // With this command, tails are in memory that lookahead does not see.
            AdminOpcode::DoorbellBufferConfig => return self.lost = true,
            AdminOpcode::FormatNvm
            | AdminOpcode::NamespaceManagement
            | AdminOpcode::NamespaceAttachment
            | AdminOpcode::CapacityManagement => return self.namespaces.clear(),
            _ => return,
        };
        // Lookahead and the DMA rule may both have seen the command.
        self.changes.retain(|(command, _)| *command != entry.command_id);
        if self.changes.len() == ADMIN_MAX {
            self.lost = true;
            return;
        }
        self.changes.push((entry.command_id, change));
    }

    /// Handles a write of `bytes` by the device to host memory at `address`. Passes every end to
    /// `ended`.
    #[inline]
    pub(crate) fn on_write(&mut self, address: u64, bytes: &[u8], ended: &mut impl FnMut(Ended)) {
        if !self.changes.is_empty() {
            self.capture(address, bytes);
        }
        let end = address.saturating_add(bytes.len() as u64);
        if address < self.completions_at.1 && end > self.completions_at.0 {
            self.on_completions(address, bytes, ended);
        }
    }

    /// Copies the part of a write that belongs to an Identify data structure.
    fn capture(&mut self, address: u64, bytes: &[u8]) {
        for (_, change) in &mut self.changes {
            let Change::Identify { address: base, bytes: copy, .. } = change else { continue };
            let (end, copy_end) = (address.saturating_add(bytes.len() as u64), *base + IDENTIFY_BYTES as u64);
            let (from, to) = (address.max(*base), end.min(copy_end));
            if from < to {
                let within = |of: u64| usize::try_from(of).unwrap_or(usize::MAX);
                copy[within(from - *base)..within(to - *base)]
                    .copy_from_slice(&bytes[within(from - address)..within(to - address)]);
            }
        }
    }

    fn on_completions(&mut self, address: u64, bytes: &[u8], ended: &mut impl FnMut(Ended)) {
        let end = address.saturating_add(bytes.len() as u64);
        for index in 0..self.completion.len() {
            let Some(queue) = self.completion.get(index) else { return };
            let (from, to) = (address.max(queue.base), end.min(queue.end()));
            if queue.is_scattered || from >= to {
                continue;
            }
            let within = |of: u64| usize::try_from(of - address).unwrap_or(usize::MAX);
            let whole = (from - queue.base).is_multiple_of(COMPLETION_BYTES);
            let (entries, rest) = bytes[within(from)..within(to)].as_chunks();
            if !whole || !rest.is_empty() {
                self.lost = true;
                ended(Ended::Unclear);
                continue;
            }
            for entry in entries {
                self.on_completion(&CompletionQueueEntry::parse(entry), ended);
            }
        }
    }

    fn on_completion(&mut self, entry: &CompletionQueueEntry, ended: &mut impl FnMut(Ended)) {
        let (queue, command) = (entry.submission_queue.0, entry.command_id);
        ended(Ended::Command { queue, command });
        if queue != 0 {
            return;
        }
        let Some(index) = self.changes.iter().position(|(id, _)| *id == command) else { return };
        let (_, change) = self.changes.remove(index);
        if let Change::DeleteSubmission(id) = change {
            ended(Ended::Queue(id));
        }
        if !entry.status().is_success() {
            return;
        }
        match change {
            Change::CreateSubmission(queue) => self.add_submission(queue),
            Change::CreateCompletion(queue) => {
                self.add_completion(queue);
                ended(Ended::Created);
            }
            // The creation of the queue may have been outstanding when the host requested its
            // deletion.
            Change::DeleteSubmission(id) => self.submission.retain(|queue| queue.id != id),
            Change::DeleteCompletion(id) => {
                let key = self.completion.iter().find(|queue| queue.id == id).and_then(|queue| queue.key);
                if let Some(key) = key {
                    ended(Ended::Deleted(key));
                }
                self.completion.retain(|queue| queue.id != id);
                self.measure();
            }
            Change::Identify { namespace, bytes, .. } => self.on_identified(namespace, &bytes),
        }
    }

    fn on_identified(&mut self, namespace: NamespaceId, bytes: &[u8; IDENTIFY_BYTES]) {
        let mut whole = Box::new([0; IDENTIFY_LENGTH]);
        whole[..IDENTIFY_BYTES].copy_from_slice(bytes);
        let identity = IdentifyNamespace::parse(&whole);
        self.namespaces.retain(|known| known.0 != namespace);
        let metadata = u64::from(identity.formatted().metadata_size);
        let extended = identity.formatted_lba_size & FORMAT_EXTENDED != 0;
        if let Some(block) = identity.block_bytes()
            && self.namespaces.len() < NAMESPACES_MAX
        {
            self.namespaces.push((namespace, Format { block: block.into(), metadata, extended }));
        }
    }
}

/// Whether a queue can be at `base`: it begins on a page and ends below the end of the address
/// space. How a controller handles other addresses is undefined.
const fn is_place(base: u64, length: u64) -> bool {
    base.is_multiple_of(PAGE_MIN) && base.checked_add(length).is_some()
}

const fn halves(dword: u32) -> [u16; 2] {
    let [a, b, c, d] = dword.to_le_bytes();
    [u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d])]
}
