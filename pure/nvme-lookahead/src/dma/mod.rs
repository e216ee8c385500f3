//! The DMA rule: a followed function reaches only memory that the host has named to it.
//!
//! The rule reads no memory and parses no doorbell of its own. It examines the bytes that the
//! device receives: entries, lists and shadow doorbells, in answers to the device's reads and in
//! memory that is sent ahead. The device can know only these bytes, and may use only the memory
//! that they name. The rule for each command follows.
#![cfg_attr(doc, doc = include_str!("../../dma.md"))]

mod commands;
mod extent;
mod grants;
mod inside;
mod list;
mod rule;
mod slab;
mod special;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use engine::{Instant, Nanos};
use nvme::wire::SubmissionQueueEntry;
use pcie::switch::Refusal;
use pcie::wire::{Bdf, Completion, Kind, MemoryOperation, MemoryRequest, Packet, Tag};

use crate::follow::Follower;
use crate::follow::function::Function;
use rule::{Access, Rule};

/// How long a disabled controller may continue with its commands, unless it reports earlier that it
/// has stopped. The host keeps the memory for it meanwhile.
const CLOSING: Nanos = Nanos::from_secs(2);
/// Minimum time between two reports of refusals.
const REPORT_EVERY: Nanos = Nanos::from_secs(10);

/// Counts of the DMA rule's refusals since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Reads that were answered with Unsupported Request. Atomic operations count as reads.
    pub reads: u64,
    /// Writes that were dropped.
    pub writes: u64,
}

/// A read of a function that has not been answered completely.
#[derive(Clone, Copy, Debug)]
struct Pending {
    /// Address of the first byte, and number of bytes that the function requested.
    address: u64,
    length: u16,
    /// Whether the answer may name further memory to the device.
    is_naming: bool,
}

/// A function's rule, and its reads.
#[derive(Debug)]
struct Watched {
    id: Bdf,
    epoch: u32,
    rule: Rule,
    /// Reads by their tag.
    reads: Vec<Option<Pending>>,
    /// Until when the controller may continue after the host has disabled it.
    closing: Option<Instant>,
}

/// The DMA rule of one port.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    watched: Vec<Watched>,
    /// The host has written to a queue in a controller's own memory.
    has_inside: bool,
    refusals: Refusals,
    /// A refusal to report, and the number of refusals since the last report.
    news: Option<Refusal>,
    untold: u64,
    quiet_until: Instant,
}

impl Guard {
    /// Forgets all that is known of the functions.
    pub(crate) fn reset(&mut self) {
        self.watched.clear();
        self.has_inside = false;
    }

    pub(crate) const fn refusals(&self) -> Refusals {
        self.refusals
    }

    /// A refusal to report.
    pub(crate) const fn poll_refusal(&mut self) -> Option<Refusal> {
        self.news.take()
    }

    /// The state of a function, limited to its present controller.
    #[inline]
    fn watch(&mut self, function: &Function) -> &mut Watched {
        let is_known = |watched: &Watched| watched.id == function.id && watched.epoch == function.epoch;
        match self.watched.iter().position(is_known) {
            Some(at) => &mut self.watched[at],
            None => self.watch_anew(function),
        }
    }

    /// Forgets what a function's earlier controller knew, if there was one.
    #[cold]
    fn watch_anew(&mut self, function: &Function) -> &mut Watched {
        let found = self.watched.iter().position(|watched| watched.id == function.id);
        let at = found.unwrap_or_else(|| {
            self.watched.push(Watched {
                id: function.id,
                epoch: function.epoch,
                rule: Rule::default(),
                reads: Vec::new(),
                closing: None,
            });
            self.watched.len() - 1
        });
        let watched = &mut self.watched[at];
        if watched.epoch != function.epoch {
            watched.epoch = function.epoch;
            watched.closing = None;
            watched.rule.clear();
            // Answers to earlier reads name memory that is forgotten.
            watched.reads.iter_mut().flatten().for_each(|pending| pending.is_naming = false);
        }
        watched
    }

    /// Whether a packet that comes up, a write with its bytes, may continue.
    #[inline]
    pub(crate) fn admits(
        &mut self,
        now: Instant,
        follower: &mut Follower,
        packet: &Packet,
        bytes: &[u8],
    ) -> bool {
        let Kind::Memory(request) = &packet.header.kind else { return true };
        let known = follower.functions.iter_mut().find(|function| function.id == request.requester);
        let admitted = match known {
            Some(function) => self.admits_to(now, function, (packet, bytes), request),
            None => follower.is_plain_master(request.requester),
        };
        if !admitted {
            self.refuse(now, packet, request);
        }
        admitted
    }

    #[inline]
    fn admits_to(
        &mut self,
        now: Instant,
        function: &mut Function,
        (packet, bytes): (&Packet, &[u8]),
        request: &MemoryRequest,
    ) -> bool {
        if !function.may_read() {
            return false;
        }
        let watched = self.watch(function);
        let start = request.address + u64::from(packet.header.lead());
        let Function { controller, closing, layout, .. } = function;
        if controller.is_none() && closing.is_some() {
            let until = *watched.closing.get_or_insert(now + CLOSING);
            if now >= until {
                (*closing, watched.closing) = (None, None);
                watched.rule.clear();
            }
        }
        let controller = controller.as_mut().or(closing.as_mut());
        match request.operation {
            MemoryOperation::Write => {
                let access = controller.map(|controller| watched.rule.on_write(controller, start, bytes));
                !matches!(access, None | Some(Access::Refused)) || layout.is_interrupt(start, bytes)
            }
            MemoryOperation::Read => {
                let Some(controller) = controller else { return false };
                let Some(place) = watched.place(request.tag) else { return false };
                let length = packet.header.byte_count();
                let Some(end) = start.checked_add(length.into()) else { return false };
                let access = watched.rule.on_read(controller, start, end);
                if access == Access::Refused {
                    return false;
                }
                let is_naming = access == Access::Naming;
                watched.reads[place] = Some(Pending { address: start, length, is_naming });
                true
            }
            _ => false,
        }
    }

    #[cold]
    fn refuse(&mut self, now: Instant, packet: &Packet, request: &MemoryRequest) {
        let write = request.operation == MemoryOperation::Write;
        *(if write { &mut self.refusals.writes } else { &mut self.refusals.reads }) += 1;
        if now < self.quiet_until {
            self.untold += 1;
            return;
        }
        self.quiet_until = now + REPORT_EVERY;
        self.news = Some(Refusal {
            function: request.requester,
            write,
            address: request.address,
            length: u32::from(packet.header.length) * 4,
            untold: core::mem::take(&mut self.untold),
        });
    }

    /// Handles an answer to a read of a function.
    #[inline]
    pub(crate) fn on_completion(
        &mut self,
        follower: &mut Follower,
        packet: &Packet,
        completion: &Completion,
    ) {
        let Some(function) = follower.function(completion.requester) else { return };
        let watched = self.watch(function);
        let Some(Some(pending)) = watched.reads.get(usize::from(completion.tag.get())).copied() else {
            return;
        };
        let bytes = packet.data_bytes();
        if !completion.data || bytes.len() >= usize::from(completion.byte_count) {
            watched.reads[usize::from(completion.tag.get())] = None;
        }
        if let Some(offset) = pending.length.checked_sub(completion.byte_count)
            && pending.is_naming
            && completion.data
            && let Some(controller) = &mut function.controller
        {
            watched.rule.on_given(controller, pending.address + u64::from(offset), bytes);
        }
    }

    /// Handles a write of the host to a device's memory, which may be an entry of a queue there.
    #[inline]
    pub(crate) fn on_host_write(&mut self, follower: &mut Follower, packet: &Packet) {
        let Kind::Memory(MemoryRequest { operation: MemoryOperation::Write, address, .. }) =
            &packet.header.kind
        else {
            return;
        };
        for function in &mut follower.functions {
            let at = function.in_memory_buffer(*address);
            let queue =
                function.controller.as_ref().and_then(|known| Some((known, known.submission_at(at)?)));
            if let Some((controller, (index, offset))) = queue {
                let queue = controller.submission[index];
                let offset = offset + u64::from(packet.header.lead());
                self.watch(function).rule.inside.on_write(&queue, offset, packet.data_bytes());
                self.has_inside = true;
            }
        }
    }

    /// Handles a doorbell: entries in the controller's own memory count as given.
    #[inline]
    pub(crate) fn on_ring(&mut self, follower: &mut Follower, id: Bdf, queue: u16) {
        if !self.has_inside {
            return;
        }
        let Some(function) = follower.function(id) else { return };
        let watched = self.watch(function);
        if watched.rule.inside.is_empty() {
            return;
        }
        let Some(controller) = &mut function.controller else { return };
        let Some(of) = controller.submission.iter().find(|of| of.id == queue).copied() else { return };
        while let Some(entry) = watched.rule.inside.poll_entry(&of) {
            watched.rule.on_entry(controller, queue, of.completion, &entry);
        }
    }

    /// Handles an entry that was sent ahead.
    #[inline]
    pub(crate) fn on_entry(&mut self, function: &mut Function, queue: u16, entry: &SubmissionQueueEntry) {
        let watched = self.watch(function);
        if let Some(controller) = &mut function.controller
            && let Some(of) = controller.submission.iter().find(|of| of.id == queue)
        {
            let completion = of.completion;
            watched.rule.on_entry(controller, queue, completion, entry);
        }
    }

    /// Handles a list that was sent ahead.
    pub(crate) fn on_list(&mut self, function: &mut Function, address: u64, bytes: &[u8]) {
        let watched = self.watch(function);
        if let Some(controller) = &mut function.controller {
            watched.rule.on_given(controller, address, bytes);
        }
    }
}

impl Watched {
    /// The slot for a read with this tag, unless another read has the same tag, which would make
    /// the answer ambiguous.
    fn place(&mut self, tag: Tag) -> Option<usize> {
        let place = usize::from(tag.get());
        if place >= self.reads.len() {
            self.reads.resize(place + 1, None);
        }
        self.reads[place].is_none().then_some(place)
    }
}
