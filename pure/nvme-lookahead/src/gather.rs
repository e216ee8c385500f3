//! Reads the memory that goes ahead of a doorbell: first entries, then lists, then data.

use alloc::vec::Vec;

use engine::{Buffer, Nanos};
use nvme::wire::SubmissionQueueEntry;
use pcie::switch::{Ahead, AheadKey, FarLink, PortId, Strand, Surroundings};
use pcie::wire::Bdf;

use crate::follow::controller::SubmissionQueue;
use crate::lookahead::{Lookahead, READ_MAX};
use crate::port::{Command, Gathering};
use crate::reads::{Purpose, Read};
use crate::transfer::Transfer;
use crate::walk::{Next, Walk};

/// How long a doorbell waits for the memory ahead of it, since the doorbell itself or the end of
/// the latest read.
pub(crate) const HOLD: Nanos = Nanos::from_millis(1);
/// How long a doorbell waits in all: a host needs 2 ms to 4 ms for 4 MiB.
const HOLD_MAX: Nanos = Nanos::from_millis(10);
/// How long a doorbell of admin commands waits. Lookahead must see these commands before it can
/// send anything else ahead.
const HOLD_ADMIN: Nanos = Nanos::from_millis(20);
/// Maximum number of entries that go ahead of one doorbell.
const ENTRIES_MAX: u32 = 64;
/// Maximum number of data bytes of one command that go ahead.
const COMMAND_BYTES_MAX: u64 = 1 << 20;
const ENTRY: u64 = SubmissionQueueEntry::LENGTH as u64;

/// A doorbell of a submission queue, and the strand that carries it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doorbell {
    pub(crate) queue: u16,
    pub(crate) tail: u32,
    pub(crate) strand: Strand,
}

impl Lookahead {
    /// Begins to read the memory that goes ahead of `doorbell`. False if there is none.
    pub(crate) fn begin<L: FarLink>(
        &mut self,
        around: &mut Surroundings<'_, L>,
        port: usize,
        id: Bdf,
        doorbell: Doorbell,
        before: SubmissionQueue,
    ) -> bool {
        let Doorbell { queue, tail, strand } = doorbell;
        self.requester.set(pcie::requester::Settings {
            id: around.switch.id(PortId::Upstream),
            ..*self.requester.settings()
        });
        let Some(function) = self.ports[port].function(id) else { return false };
        let may_read = function.may_read();
        let Some(controller) = &mut function.controller else { return false };
        let count = (tail + before.entries - before.tail) % before.entries;
        let taken = if may_read { count.min(ENTRIES_MAX) } else { 0 };
        if queue == 0 && taken < count {
            controller.lost = true;
            return false;
        }
        if taken == 0 {
            return false;
        }
        let (hold, most) = if queue == 0 { (HOLD_ADMIN, HOLD_ADMIN) } else { (HOLD, HOLD_MAX) };
        let (deadline, last) = (around.now + hold, around.now + most);
        self.ports[port].held_strand = strand;
        self.ports[port].gathering = Some(Gathering {
            function: id,
            queue,
            deadline,
            last,
            reads: 0,
            entries: 0,
            strand,
            before,
            rung: 0,
            bytes: 0,
            whole: 0,
        });
        let first = taken.min(before.entries - before.tail);
        for (slot, entries) in [(before.tail, first), (0, taken - first)] {
            if entries > 0 {
                let address = before.base + u64::from(slot) * ENTRY;
                self.read(around, port, Purpose::Entries, (address, u64::from(entries) * ENTRY));
            }
        }
        let begun = self.ports[port].gathering.as_ref().is_some_and(|gathering| gathering.reads > 0);
        if !begun {
            self.ports[port].give_up();
            if queue == 0 {
                self.ports[port].lose(id);
            }
        }
        self.statistics.doorbells += u64::from(begun);
        begun
    }

    /// Reads memory that the function may read, in pieces that fit in an Ahead.
    fn read<L: FarLink>(
        &mut self,
        around: &mut Surroundings<'_, L>,
        port: usize,
        purpose: Purpose,
        (address, length): (u64, u64),
    ) {
        // Reads whole double words, as a device would.
        let Some((mut at, end)) = double_words(address, length) else { return };
        let Some(gathering) = &self.ports[port].gathering else { return };
        let (function, is_admin) = (gathering.function, gathering.queue == 0);
        let number = u8::try_from(port).expect("a switch has at most 32 ports");
        while at < end {
            let page = u64::from(READ_MAX);
            let stop = end.min((at / page + 1).saturating_mul(page));
            // Windows are larger than pages, and begin and end on page boundaries.
            let reaches = around.switch.may_read(number, function, at);
            let length = usize::try_from(stop - at).unwrap_or(usize::MAX);
            let read = Read { port, purpose, address: at, length };
            if reaches && let Some(cookie) = self.reads.begin(read) {
                let length = u32::try_from(length).unwrap_or(READ_MAX);
                match self.requester.read(around.now, cookie.0, at, length) {
                    Ok(()) => self.ports[port].read_begun(purpose),
                    Err(_busy) => {
                        self.reads.end(cookie);
                    }
                }
            } else if purpose == Purpose::Entries && is_admin {
                self.ports[port].lose(function);
            }
            at = stop;
        }
    }

    /// Handles entries of a submission queue that were read.
    pub(crate) fn on_entries<L: FarLink>(
        &mut self,
        around: &mut Surroundings<'_, L>,
        read: &Read,
        bytes: &Buffer,
    ) {
        for (index, entry) in bytes.as_chunks::<{ SubmissionQueueEntry::LENGTH }>().0.iter().enumerate() {
            let entry = SubmissionQueueEntry::parse(entry);
            let start = index * SubmissionQueueEntry::LENGTH;
            let address = read.address + start as u64;
            let bytes = bytes.slice(start..start + SubmissionQueueEntry::LENGTH);
            self.on_entry(around, read.port, (address, bytes), &entry);
        }
    }

    fn on_entry<L: FarLink>(
        &mut self,
        around: &mut Surroundings<'_, L>,
        number: usize,
        (address, bytes): (u64, Buffer),
        entry: &SubmissionQueueEntry,
    ) {
        let port = &mut self.ports[number];
        let Some(Gathering { function: id, queue, strand, before, .. }) = port.gathering else { return };
        let Some(controller) = port.function(id).and_then(|function| function.controller.as_mut()) else {
            return;
        };
        let page = controller.page;
        let transfer = if queue == 0 {
            controller.on_admin(entry);
            None
        } else {
            controller.block(entry.namespace).and_then(|block| Transfer::of(entry, block))
        };
        let Some(key) = port.begin_command(id, queue, entry.command_id, &mut around.links[number]) else {
            return;
        };
        // A command whose entry has no room has no room for its data either.
        if !self.send_piece(around, number, key, (address, bytes), true) {
            return;
        }
        self.statistics.entries += 1;
        self.ports[number].entry_given(id, queue, entry);
        let Some(transfer) = transfer else { return };
        let port = &mut self.ports[number];
        let fits = transfer.length <= COMMAND_BYTES_MAX && port.affords(transfer.length);
        let data = transfer.to_controller && fits;
        self.statistics.over_budget += u64::from(transfer.to_controller && !fits);
        let mut found = core::mem::take(&mut self.found);
        let (walk, next) =
            Walk::start(entry, transfer, page, &mut |address, length| found.push((address, length)));
        self.found = found;
        let command = self.ports[number].commands.len();
        let back = !transfer.to_controller && !strand.is_main();
        let slot = u32::try_from((address - before.base) / ENTRY).unwrap_or(0);
        let distance = (slot + before.entries - before.tail) % before.entries + 1;
        self.ports[number].commands.push(Command { key, walk, data, back, distance, reads: 0 });
        self.follow(around, number, command, next);
    }

    /// Handles a list that was read.
    pub(crate) fn on_list<L: FarLink>(
        &mut self,
        around: &mut Surroundings<'_, L>,
        read: &Read,
        command: usize,
        bytes: &Buffer,
    ) {
        let mut found = core::mem::take(&mut self.found);
        let Some(of) = self.ports[read.port].commands.get_mut(command) else { return };
        let key = of.key;
        let next = of.walk.on_list(bytes, &mut |address, length| found.push((address, length)));
        self.found = found;
        if self.send_piece(around, read.port, key, (read.address, bytes.clone()), false) {
            self.ports[read.port].list_given(read.address, bytes);
            self.follow(around, read.port, command, next);
        } else {
            self.found.clear();
        }
    }

    /// Reads the data found, if it goes ahead, and the next list.
    fn follow<L: FarLink>(
        &mut self,
        around: &mut Surroundings<'_, L>,
        port: usize,
        command: usize,
        next: Next,
    ) {
        let mut found = core::mem::take(&mut self.found);
        let of = self.ports[port].commands.get(command);
        let data = of.is_some_and(|command| command.data);
        if let Some(Command { key, back: true, .. }) = of
            && let Some(Gathering { strand, .. }) = self.ports[port].gathering
        {
            let ranges: Vec<_> = joined(&found).collect();
            around.links[port].lay(around.now, strand, strand, *key, &ranges);
        }
        for piece in found.drain(..) {
            if data {
                self.read(around, port, Purpose::Data(command), piece);
            }
        }
        self.found = found;
        if let Next::List { address, length } = next {
            self.read(around, port, Purpose::List(command), (address, u64::from(length)));
        }
    }

    /// Handles data that was read.
    pub(crate) fn on_piece<L: FarLink>(
        &mut self,
        around: &mut Surroundings<'_, L>,
        read: &Read,
        command: usize,
        bytes: Buffer,
    ) {
        if let Some(key) = self.ports[read.port].commands.get(command).map(|command| command.key) {
            self.send_piece(around, read.port, key, (read.address, bytes), false);
        }
    }

    /// Sends a piece ahead, if it has room at the other end and on the way, and if its command has
    /// not ended.
    fn send_piece<L: FarLink>(
        &mut self,
        around: &mut Surroundings<'_, L>,
        port: usize,
        key: AheadKey,
        (address, bytes): (u64, Buffer),
        once: bool,
    ) -> bool {
        let length = bytes.len();
        if !self.ports[port].may_charge(key, length) {
            return false;
        }
        let number = u8::try_from(port).expect("a switch has at most 32 ports");
        let payload_size = around.switch.config(PortId::Downstream(number)).payload_size();
        let payload_size = u16::try_from(payload_size).unwrap_or(128);
        let ahead = Ahead { address, key, completer: self.completer, payload_size, once };
        let strand = self.ports[port].gathering.as_mut().map_or(Strand::MAIN, |gathering| {
            gathering.bytes += length;
            gathering.strand
        });
        let sent = around.links[port].send_ahead_on(strand, ahead, bytes);
        if sent {
            self.ports[port].charge(key, length);
            self.statistics.pieces += 1;
            self.statistics.bytes += length as u64;
        }
        sent
    }
}

/// The pieces of a command's data, with adjoining pieces joined.
pub(crate) fn joined(found: &[(u64, u64)]) -> impl Iterator<Item = (u64, u32)> {
    let follows = |one: &(u64, u64), next: &(u64, u64)| one.0.checked_add(one.1) == Some(next.0);
    found.chunk_by(follows).map(|pieces| {
        let length: u64 = pieces.iter().map(|(_, length)| length).sum();
        (pieces[0].0, u32::try_from(length).unwrap_or(u32::MAX))
    })
}

/// Start and end of the double words that contain `length` bytes at `address`. `None` if they reach
/// the end of the address space, where there is no memory.
pub(crate) fn double_words(address: u64, length: u64) -> Option<(u64, u64)> {
    let end = address.checked_add(length)?.checked_next_multiple_of(4)?;
    Some((address & !3, end))
}
