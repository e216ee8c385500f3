//! The known state below one port of the switch, the packets that wait there, and the memory sent
//! ahead.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Instant, Pool};
use nvme::wire::{CommandId, SubmissionQueueEntry};
use pcie::switch::{AheadKey, FarLink, Strand};
use pcie::wire::{Bdf, Kind, MemoryOperation, Packet};

use crate::dma::Guard;
use crate::follow::controller::{Ended, SubmissionQueue};
use crate::follow::function::Function;
use crate::follow::{Down, Follower};
use crate::gather::HOLD;
use crate::reads::Purpose;
use crate::walk::Walk;

/// Bytes of an interrupt's message.
const MESSAGE: u32 = 4;
/// The most packets that wait behind a doorbell. A further packet ends the waiting.
const HELD_MAX: usize = 256;
/// Maximum number of commands whose memory may be at the other end.
const COMMANDS_MAX: usize = 1024;
/// When this many bytes have gone ahead of a doorbell, it rings for the commands that are complete.
/// This is half a segment: over a slow link, the device would otherwise be idle during the
/// transmission.
const RING_BYTES: usize = 16 << 10;

/// A command whose memory has been sent ahead.
#[derive(Debug)]
struct Sent {
    function: Bdf,
    queue: u16,
    command: CommandId,
    key: AheadKey,
    bytes: u32,
}

/// A command whose data pointer is being followed.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) key: AheadKey,
    pub(crate) walk: Walk,
    /// Whether the command's data goes ahead, and not only its lists.
    pub(crate) data: bool,
    /// Whether the command's data comes from the device.
    pub(crate) back: bool,
    /// Number of entries from the previous tail to the command's entry, this entry included.
    pub(crate) distance: u32,
    /// Outstanding reads of the command's lists and data.
    pub(crate) reads: usize,
}

/// The memory that goes ahead of the held doorbell.
#[derive(Debug)]
pub(crate) struct Gathering {
    pub(crate) function: Bdf,
    pub(crate) queue: u16,
    /// When the doorbell stops waiting unless a read ends before, never later than `last`.
    pub(crate) deadline: Instant,
    pub(crate) last: Instant,
    /// Outstanding reads, and how many of these are of entries.
    pub(crate) reads: usize,
    pub(crate) entries: usize,
    /// The strand of the doorbell and of everything that goes ahead of it.
    pub(crate) strand: Strand,
    /// The submission queue as it was before the doorbell.
    pub(crate) before: SubmissionQueue,
    /// Entries announced to the device by early doorbells, and bytes sent ahead since the latest of
    /// these.
    pub(crate) rung: u32,
    pub(crate) bytes: usize,
    /// Number of commands, from the first, that have gone ahead completely.
    pub(crate) whole: usize,
}

/// The meaning of a packet that comes up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ups {
    /// The I/O commands that it completes.
    pub(crate) commands: u64,
    /// It is more than data of commands.
    pub(crate) ended: bool,
}

/// The lookahead state of one port.
#[derive(Debug, Default)]
pub(crate) struct Port {
    /// Bytes that the other end keeps. With 0, packets are not examined.
    pub(crate) window: u32,
    pub(crate) follower: Follower,
    /// The DMA rule, unless devices may reach all memory.
    pub(crate) guard: Option<Guard>,
    held: VecDeque<Packet>,
    pub(crate) gathering: Option<Gathering>,
    pub(crate) commands: Vec<Command>,
    sent: Vec<Sent>,
    sent_bytes: u32,
    key: u32,
    /// The strand of the held doorbell.
    pub(crate) held_strand: Strand,
    /// Whether completion queues exist that the device's end does not know.
    pub(crate) queues_changed: bool,
}

impl Port {
    /// Whether a packet must wait behind others.
    pub(crate) fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }
    /// Whether one more packet can wait.
    pub(crate) fn has_room(&self) -> bool {
        self.held.len() < HELD_MAX
    }
    pub(crate) fn hold(&mut self, packet: Packet) {
        self.held.push_back(packet);
    }
    pub(crate) fn hold_first(&mut self, packet: Packet) {
        self.held.push_front(packet);
    }
    pub(crate) fn take_held(&mut self) -> Option<Packet> {
        self.held.pop_front()
    }
    /// Until when packets are held; `None` if none are held.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.gathering.as_ref().map(|gathering| gathering.deadline)
    }
    /// Whether packets must be examined.
    pub(crate) const fn is_watched(&self) -> bool {
        self.window > 0 || self.guard.is_some()
    }
    /// Handles a link that has come up or gone down: the state below it is unknown.
    pub(crate) fn on_link(&mut self, window: u32) {
        let mut guard = self.guard.take();
        if let Some(guard) = &mut guard {
            guard.reset();
        }
        *self = Self { window, guard, ..Self::default() };
    }
    /// Shows a packet that goes down to the DMA rule.
    #[inline]
    pub(crate) fn guard_down(&mut self, packet: &Packet, down: &Down) {
        let Self { guard: Some(guard), follower, .. } = self else { return };
        match down {
            Down::Nothing => guard.on_host_write(follower, packet),
            Down::Doorbell { function, queue, .. } => guard.on_ring(follower, *function, *queue),
            Down::Forget(_) => {}
        }
    }
    /// Notes an entry that was sent ahead.
    pub(crate) fn entry_given(&mut self, id: Bdf, queue: u16, entry: &SubmissionQueueEntry) {
        if let Some(guard) = &mut self.guard
            && let Some(function) = self.follower.function(id)
        {
            guard.on_entry(function, queue, entry);
        }
    }
    /// Notes a list that was sent ahead.
    pub(crate) fn list_given(&mut self, address: u64, bytes: &[u8]) {
        if let Some(guard) = &mut self.guard
            && let Some(gathering) = &self.gathering
            && let Some(function) = self.follower.function(gathering.function)
        {
            guard.on_list(function, address, bytes);
        }
    }
    pub(crate) fn function(&mut self, id: Bdf) -> Option<&mut Function> {
        self.follower.function(id)
    }

    /// Handles a reset of all functions, which drops everything that waits.
    pub(crate) fn reset(&mut self) {
        self.follower.reset();
        if let Some(guard) = &mut self.guard {
            guard.reset();
        }
        self.held.clear();
        self.commands.clear();
        self.sent.clear();
        (self.gathering, self.sent_bytes) = (None, 0);
    }

    /// Stops waiting for the outstanding reads.
    pub(crate) fn give_up(&mut self) {
        let Some(gathering) = self.gathering.take() else { return };
        self.commands.clear();
        if gathering.queue == 0 && gathering.entries > 0 {
            self.lose(gathering.function);
        }
    }
    /// Notes that admin commands of `function` went unseen.
    pub(crate) fn lose(&mut self, function: Bdf) {
        if let Some(controller) = self.function(function).and_then(|function| function.controller.as_mut()) {
            controller.lost = true;
        }
    }
    /// Counts a read that has begun for the gathering.
    pub(crate) fn read_begun(&mut self, purpose: Purpose) {
        let Some(gathering) = &mut self.gathering else { return };
        gathering.reads += 1;
        match purpose {
            Purpose::Entries => gathering.entries += 1,
            Purpose::List(command) | Purpose::Data(command) => self.commands[command].reads += 1,
        }
    }
    /// Counts a read of the gathering that has ended. Returns whether it was the last one.
    pub(crate) fn read_ended(&mut self, now: Instant, purpose: Purpose) -> bool {
        let Some(gathering) = &mut self.gathering else { return false };
        gathering.deadline = gathering.deadline.max(now + HOLD).min(gathering.last);
        gathering.reads -= 1;
        match purpose {
            Purpose::Entries => gathering.entries -= 1,
            Purpose::List(command) | Purpose::Data(command) => self.commands[command].reads -= 1,
        }
        let last = gathering.reads == 0;
        if last {
            self.gathering = None;
            self.commands.clear();
        }
        last
    }
    /// A doorbell for the first commands of the held doorbell, as if the host had rung more often.
    /// It is due when so much has gone ahead for these commands that they should not wait for the
    /// others. Each early doorbell rings for more commands than the one before.
    pub(crate) fn ring_early(&mut self, pool: &mut Pool) -> Option<Packet> {
        let gathering = self.gathering.as_mut().filter(|gathering| gathering.bytes >= RING_BYTES)?;
        let whole =
            self.commands.iter().skip(gathering.whole).take_while(|command| command.reads == 0).count();
        gathering.whole += whole;
        let distance = self.commands[..gathering.whole].last()?.distance;
        if gathering.entries > 0 || distance <= gathering.rung {
            return None;
        }
        (gathering.rung, gathering.bytes) = (distance, 0);
        let tail = (gathering.before.tail + distance) % gathering.before.entries;
        let mut doorbell = self.held.front()?.clone();
        doorbell.payload = pool.copy(&tail.to_le_bytes());
        Some(if doorbell.digest.is_some() { doorbell.with_ecrc() } else { doorbell })
    }

    /// The strand for a packet to the device.
    #[inline]
    pub(crate) fn strand_of(&self, packet: &Packet, link: &impl FarLink) -> Strand {
        if !link.is_spread() {
            return Strand::MAIN;
        }
        let Kind::Memory(request) = &packet.header.kind else { return Strand::MAIN };
        if request.operation != MemoryOperation::Write {
            return Strand::MAIN;
        }
        let below = self
            .follower
            .functions
            .iter()
            .filter_map(|function| function.offset_of(request.address).map(|offset| (offset, function)));
        let nearest = below.min_by_key(|(offset, _)| *offset);
        let queue = nearest.and_then(|(offset, function)| {
            function.completion_queue(offset + u64::from(packet.header.lead()))
        });
        queue.map_or(Strand::MAIN, |queue| link.strand_of_queue(queue))
    }

    /// Informs the device's end of the strands of completions and their interrupts: for queues that
    /// are unknown there, or, on strand `again`, for all queues.
    pub(crate) fn lay_queues(
        &mut self,
        now: Instant,
        again: Option<Strand>,
        interrupts: Option<u64>,
        link: &mut impl FarLink,
    ) {
        let Self { follower, key, .. } = self;
        let controllers = follower.functions.iter_mut().filter_map(|function| function.controller.as_mut());
        let known = controllers.filter(|controller| !controller.lost);
        for queue in known.flat_map(|controller| &mut controller.completion) {
            let strand = link.strand_of_queue(queue.id);
            if queue.id == 0 || strand.is_main() || (again.is_none() && queue.key.is_some()) {
                continue;
            }
            let name = *queue.key.get_or_insert_with(|| {
                *key = key.wrapping_add(1).max(1);
                AheadKey(*key)
            });
            let length = u32::try_from(queue.end() - queue.base).unwrap_or(u32::MAX);
            let vector = interrupts.zip(queue.vector);
            let ranges = [
                (queue.base, length),
                vector.map_or((0, 0), |(first, vector)| (message_address(first, vector), MESSAGE)),
            ];
            let ranges = &ranges[..1 + usize::from(vector.is_some())];
            link.lay(now, again.unwrap_or(Strand::MAIN), strand, name, ranges);
        }
    }

    /// Forgets the memory sent ahead for controllers that are no longer understood. The deletion of
    /// one of their queues with all its commands would go unnoticed.
    #[inline]
    pub(crate) fn forget_lost(&mut self, link: &mut impl FarLink) {
        let Self { follower, sent, sent_bytes, .. } = self;
        for function in &mut follower.functions {
            let id = function.id;
            let Some(controller) = function.controller.as_mut().filter(|controller| controller.lost) else {
                continue;
            };
            for key in controller.completion.iter_mut().filter_map(|queue| queue.key.take()) {
                link.forget_ahead(key);
            }
            if !sent.is_empty() {
                forget(sent, sent_bytes, link, |one| one.function == id);
            }
        }
    }

    /// Examines a packet that comes up, a write with its bytes.
    #[inline]
    pub(crate) fn on_up(&mut self, packet: &Packet, bytes: &[u8], link: &mut impl FarLink) -> Ups {
        let mut ups = Ups::default();
        let Self { follower, sent, sent_bytes, queues_changed, .. } = self;
        let id = match &packet.header.kind {
            Kind::Memory(request) => request.requester,
            _ => Bdf::default(),
        };
        follower.on_up(packet, bytes, &mut |ended| {
            ups.ended = true;
            ups.commands += u64::from(matches!(ended, Ended::Command { queue: 1.., .. }));
            match ended {
                Ended::Created => *queues_changed = true,
                Ended::Deleted(key) => link.forget_ahead(key),
                _ => {}
            }
            let over = |one: &Sent| match ended {
                Ended::Command { queue, command } => (one.queue, one.command) == (queue, command),
                Ended::Queue(queue) => one.queue == queue,
                Ended::Unclear => true,
                Ended::Created | Ended::Deleted(_) => false,
            };
            forget(sent, sent_bytes, link, |one| one.function == id && over(one));
        });
        ups
    }

    /// Forgets the memory sent ahead for a function whose controller was reset. Returns whether
    /// there was any.
    pub(crate) fn forget_function(&mut self, id: Bdf) -> bool {
        let before = self.sent.len();
        let bytes = &mut self.sent_bytes;
        self.sent.retain(|one| {
            let stays = one.function != id;
            *bytes -= if stays { 0 } else { one.bytes };
            stays
        });
        self.sent.len() < before
    }

    /// Whether `bytes` more have room at the other end.
    pub(crate) const fn affords(&self, bytes: u64) -> bool {
        self.sent_bytes as u64 + bytes <= self.window as u64
    }

    /// A key for the memory of a command. `None` if too many commands are in progress.
    pub(crate) fn begin_command(
        &mut self,
        function: Bdf,
        queue: u16,
        command: CommandId,
        link: &mut impl FarLink,
    ) -> Option<AheadKey> {
        // The host uses the command's identifier again, so the earlier command has ended unnoticed.
        forget(&mut self.sent, &mut self.sent_bytes, link, |one| {
            (one.function, one.queue, one.command) == (function, queue, command)
        });
        if self.sent.len() == COMMANDS_MAX {
            return None;
        }
        self.key = self.key.wrapping_add(1).max(1);
        let key = AheadKey(self.key);
        self.sent.push(Sent { function, queue, command, key, bytes: 0 });
        Some(key)
    }

    /// Whether `bytes` may go ahead with `key`: its command has not ended, and there is room.
    pub(crate) fn may_charge(&mut self, key: AheadKey, bytes: usize) -> bool {
        self.affords(bytes as u64) && self.sent_with(key).is_some()
    }

    /// Notes that `bytes` went ahead with `key`.
    pub(crate) fn charge(&mut self, key: AheadKey, bytes: usize) {
        let bytes = u32::try_from(bytes).expect("a piece is at most a page");
        let sent = self.sent_with(key).expect("the command has not ended");
        sent.bytes += bytes;
        self.sent_bytes += bytes;
    }

    fn sent_with(&mut self, key: AheadKey) -> Option<&mut Sent> {
        self.sent.iter_mut().rev().find(|sent| sent.key == key)
    }
}

/// Address of interrupt vector `vector`, if the first vector is written to `first`.
fn message_address(first: u64, vector: u16) -> u64 {
    first.wrapping_add(u64::from(vector) * u64::from(MESSAGE))
}

/// Forgets the memory of the commands for which `over` returns true.
fn forget(sent: &mut Vec<Sent>, bytes: &mut u32, link: &mut impl FarLink, over: impl Fn(&Sent) -> bool) {
    let mut index = 0;
    while let Some(one) = sent.get(index) {
        if over(one) {
            *bytes -= one.bytes;
            link.forget_ahead(one.key);
            sent.swap_remove(index);
        } else {
            index += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use nvme::pointer::PageSize;

    use super::*;
    use crate::follow::controller::Controller;
    use crate::tests::Link;

    #[test]
    fn memory_of_a_controller_that_is_no_longer_understood_is_forgotten() {
        let mut link = Link { window: 1 << 20, ..Link::default() };
        let mut port = Port { window: 1 << 20, ..Port::default() };
        let [one, other] = [Bdf::new(1, 0, 0), Bdf::new(1, 0, 1)];
        let mut keys = Vec::new();
        for id in [one, other] {
            let mut function = Function::new(id);
            function.controller = Some(Controller::new(PageSize::KIB4, (0x1000, 32), (0x2000, 32)));
            port.follower.functions.push(function);
            let key = port.begin_command(id, 1, CommandId(7), &mut link).unwrap();
            port.charge(key, 64);
            keys.push(key);
        }
        port.forget_lost(&mut link);
        assert_eq!((port.sent.len(), port.sent_bytes), (2, 128));
        // The deletion of the queue and the reuse of its memory would go unnoticed.
        port.lose(one);
        port.forget_lost(&mut link);
        let left: Vec<_> = port.sent.iter().map(|one| one.function).collect();
        assert_eq!((left, port.sent_bytes), ([other].into(), 64));
        assert_eq!(link.forgotten, keys[..1]);
    }
}
