//! The host's side of lookahead: packets that pass, memory that is read, memory that is sent ahead.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Buffer, Engine, Instant, Pool};
use pcie::requester::{self, Answer, Requester};
use pcie::switch::{AheadKey, Ascent, FarLink, Interposer, Passage, Refusal, Strand, Surroundings};
use pcie::wire::{Bdf, Kind, MemoryOperation, Packet};

use crate::dma::{Guard, Refusals};
use crate::follow::Down;
use crate::gather::Doorbell;
use crate::port::Port;
use crate::reads::{Purpose, ReadCookie, Reads};

/// The longest read that lookahead makes, in bytes: the most memory of an Ahead.
pub(crate) const READ_MAX: u32 = 4096;

/// Counts of lookahead since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Submission doorbells that went with their entries.
    pub doorbells: u64,
    /// Commands of I/O queues that have completed.
    pub commands: u64,
    /// Submission queue entries that were sent ahead.
    pub entries: u64,
    /// Pieces of memory that were sent ahead: entries, lists and data.
    pub pieces: u64,
    /// Bytes in the pieces of memory that were sent ahead.
    pub bytes: u64,
    /// Commands whose data was not sent ahead for lack of room at the other end.
    pub over_budget: u64,
    /// How often doorbells stopped waiting for the memory ahead of them.
    pub given_up: u64,
    /// Reads of memory that devices sent to the host nevertheless. Each costs a round trip.
    pub reads: u64,
    /// Bytes that devices' reads requested from the host.
    pub bytes_read: u64,
}

/// The host's side of lookahead, for all ports of a switch.
pub struct Lookahead {
    pub(crate) ports: Vec<Port>,
    pub(crate) requester: Requester,
    /// Reads of lookahead for the root complex.
    requests: VecDeque<Packet>,
    pub(crate) reads: Reads,
    /// The data of the present command: addresses and lengths.
    pub(crate) found: Vec<(u64, u64)>,
    pool: Pool,
    /// The function that answers reads of host memory.
    pub(crate) completer: Bdf,
    /// Address that every function's first interrupt vector is written to, with further vectors
    /// behind it. `None` if the host has not set it.
    interrupts: Option<u64>,
    pub(crate) statistics: Statistics,
}

impl Lookahead {
    /// Creates the lookahead of a switch with this many downstream ports.
    pub fn new(ports: usize) -> Self {
        let settings = requester::Settings {
            read_request_size: READ_MAX,
            payload_size: READ_MAX,
            ..requester::Settings::default()
        };
        Self {
            ports: (0..ports).map(|_| Port::default()).collect(),
            requester: Requester::new(settings),
            requests: VecDeque::new(),
            reads: Reads::default(),
            found: Vec::new(),
            pool: Pool::default(),
            completer: Bdf::default(),
            interrupts: None,
            statistics: Statistics::default(),
        }
    }

    /// Counts of lookahead since the start.
    pub const fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Enables the DMA rule for the functions below a port: they reach only memory that the host
    /// has named to them. Without it they reach all memory that the root complex allows.
    ///
    /// # Panics
    /// When there is no such port.
    pub fn set_strict(&mut self, port: usize) {
        self.ports[port].guard = Some(Guard::default());
    }

    /// Counts of the DMA rule's refusals below a port since the start; `None` where the rule is
    /// off.
    pub fn refusals(&self, port: usize) -> Option<Refusals> {
        self.ports.get(port)?.guard.as_ref().map(Guard::refusals)
    }

    /// Announces the address of vector *n* in the MSI-X tables of the host's functions: `first`
    /// plus 4*n*. On a spread link, each interrupt then uses the strand of its completion queue and
    /// need not wait for all earlier packets.
    pub const fn set_interrupts(&mut self, first: u64) {
        self.interrupts = Some(first);
    }

    /// Examines a packet for a port. Returns the strand for the packet, or `None` if memory must go
    /// ahead of it.
    fn examine<L: FarLink>(
        &mut self,
        around: &mut Surroundings<'_, L>,
        port: usize,
        packet: &Packet,
    ) -> Option<Strand> {
        let (link, state) = (&mut around.links[port], &mut self.ports[port]);
        let down = state.follower.on_down(packet);
        state.guard_down(packet, &down);
        match down {
            Down::Nothing => {}
            Down::Forget(function) => {
                if state.forget_function(function) || link.is_spread() {
                    link.forget_ahead(AheadKey::ALL);
                    // The queues of the other functions are where they were.
                    state.lay_queues(around.now, Some(Strand::MAIN), self.interrupts, link);
                }
            }
            Down::Doorbell { function, queue, tail, before } => {
                let strand = state.strand_of(packet, link);
                if state.window > 0
                    && let Some(before) = before
                    && self.begin(around, port, function, Doorbell { queue, tail, strand }, before)
                {
                    return None;
                }
            }
        }
        let (link, state) = (&mut around.links[port], &mut self.ports[port]);
        state.forget_lost(link);
        Some(state.strand_of(packet, link))
    }

    /// Sends the packets that a port holds, without waiting for more memory ahead of them.
    fn release<L: FarLink>(&mut self, around: &mut Surroundings<'_, L>, port: usize) {
        while self.ports[port].is_holding() {
            self.statistics.given_up += 1;
            self.reads.drop_port(port);
            self.ports[port].give_up();
            self.go_on(around, port);
        }
    }

    /// Sends the packets that a port holds, up to the next doorbell with entries. All memory ahead
    /// of the first packet was sent.
    fn go_on<L: FarLink>(&mut self, around: &mut Surroundings<'_, L>, port: usize) {
        let link = &mut around.links[port];
        // The next doorbell may be that of a queue deletion that was not seen.
        self.ports[port].forget_lost(link);
        // This doorbell itself has been examined before.
        if let Some(doorbell) = self.ports[port].take_held() {
            link.send_on(around.now, self.ports[port].held_strand, doorbell);
        }
        while let Some(packet) = self.ports[port].take_held() {
            match self.examine(around, port, &packet) {
                Some(strand) => around.links[port].send_on(around.now, strand, packet),
                None => return self.ports[port].hold_first(packet),
            }
        }
    }

    /// Announces the strands of newly created completion queues.
    #[inline]
    fn lay_queues(&mut self, now: Instant, port: usize, link: &mut impl FarLink) {
        self.ports[port].forget_lost(link);
        if link.is_spread() && core::mem::take(&mut self.ports[port].queues_changed) {
            self.ports[port].lay_queues(now, None, self.interrupts, link);
        }
    }

    /// Handles the outputs of the requester.
    fn collect<L: FarLink>(&mut self, around: &mut Surroundings<'_, L>) {
        while let Some(output) = self.requester.poll_output() {
            match output {
                requester::Output::Answer(Answer::ReadData { cookie, offset, data, last }) => {
                    let cookie = ReadCookie(cookie);
                    let bytes = self.reads.on_data(cookie, offset, data, last, &mut self.pool);
                    if bytes.is_some() {
                        self.on_read(around, cookie, bytes);
                    }
                }
                requester::Output::Answer(Answer::ReadFailed { cookie, .. }) => {
                    self.on_read(around, ReadCookie(cookie), None)
                }
                requester::Output::Packet(packet) => self.requests.push_back(packet),
                requester::Output::Answer(Answer::Register { .. }) | requester::Output::Unexpected(_) => {}
            }
        }
    }

    /// Handles the end of a read of lookahead, with its bytes unless it failed.
    fn on_read<L: FarLink>(
        &mut self,
        around: &mut Surroundings<'_, L>,
        cookie: ReadCookie,
        bytes: Option<Buffer>,
    ) {
        let Some(read) = self.reads.end(cookie) else { return };
        let port = read.port;
        match (read.purpose, bytes) {
            (Purpose::Entries, Some(bytes)) => self.on_entries(around, &read, &bytes),
            (Purpose::List(command), Some(bytes)) => self.on_list(around, &read, command, &bytes),
            (Purpose::Data(command), Some(bytes)) => self.on_piece(around, &read, command, bytes),
            (Purpose::Entries, None) => {
                let gathering = self.ports[port].gathering.as_ref();
                if let Some(function) = gathering.filter(|at| at.queue == 0).map(|at| at.function) {
                    self.ports[port].lose(function);
                }
            }
            (_, None) => {}
        }
        if self.ports[port].read_ended(around.now, read.purpose) {
            self.go_on(around, port);
        } else if let Some(doorbell) = self.ports[port].ring_early(&mut self.pool) {
            around.links[port].send_on(around.now, self.ports[port].held_strand, doorbell);
        }
    }
}

impl Interposer for Lookahead {
    fn on_link(&mut self, port: usize, link: &impl FarLink) {
        self.reads.drop_port(port);
        self.ports[port].on_link(link.ahead_window());
    }

    fn on_reset(&mut self, port: usize) {
        self.reads.drop_port(port);
        self.ports[port].reset();
    }

    fn on_strand(&mut self, now: Instant, port: usize, strand: Strand, link: &mut impl FarLink) {
        if link.is_spread() {
            self.ports[port].lay_queues(now, Some(strand), self.interrupts, link);
        }
    }

    #[inline]
    fn on_down<L: FarLink>(
        &mut self,
        around: &mut Surroundings<'_, L>,
        port: usize,
        packet: &mut Packet,
    ) -> Passage {
        if !self.ports[port].is_watched() {
            return Passage::On(Strand::MAIN);
        }
        if let Kind::Completion(completion) = &packet.header.kind {
            let Port { guard, follower, .. } = &mut self.ports[port];
            if let Some(guard) = guard {
                guard.on_completion(follower, packet, completion);
            }
            if !self.ports[port].is_holding() {
                // An answer may have been an admin command that is not understood.
                self.ports[port].forget_lost(&mut around.links[port]);
                return Passage::On(Strand::MAIN);
            }
        }
        if self.ports[port].is_holding() {
            if !packet.is_non_posted() && self.ports[port].has_room() {
                self.ports[port].hold(core::mem::replace(packet, Packet::blank()));
                return Passage::Kept;
            }
            // The requester that waits for this answer may be the one that must answer lookahead's
            // reads.
            self.release(around, port);
        }
        if let Some(strand) = self.examine(around, port, packet) {
            return Passage::On(strand);
        }
        self.ports[port].hold(core::mem::replace(packet, Packet::blank()));
        self.collect(around);
        Passage::Kept
    }

    fn on_answered(&mut self, port: usize, request: &Packet, answer: &Packet, link: &mut impl FarLink) {
        if self.ports[port].is_watched() {
            // A read needs no action: `on_down` only notes the request.
            let _ = self.ports[port].follower.on_down(request);
            self.ports[port].on_up(answer, &[], link);
        }
    }

    #[inline]
    fn on_up(&mut self, now: Instant, port: usize, packet: &Packet, link: &mut impl FarLink) -> Ascent {
        if !self.ports[port].is_watched() {
            return Ascent::On;
        }
        let operation = match &packet.header.kind {
            Kind::Memory(request) => Some(request.operation),
            _ => None,
        };
        let bytes =
            if operation == Some(MemoryOperation::Write) { packet.data_bytes() } else { Default::default() };
        let Port { guard, follower, .. } = &mut self.ports[port];
        if let Some(guard) = guard
            && !guard.admits(now, follower, packet, bytes)
        {
            return Ascent::Refused;
        }
        if operation == Some(MemoryOperation::Read) {
            self.statistics.reads += 1;
            self.statistics.bytes_read += u64::from(packet.header.length) * 4;
            return Ascent::On;
        }
        let ups = self.ports[port].on_up(packet, bytes, link);
        self.statistics.commands += ups.commands;
        // Data of commands change nothing.
        if ups.ended || operation.is_none() {
            self.lay_queues(now, port, link);
        }
        Ascent::On
    }

    fn poll_refusal(&mut self) -> Option<(usize, Refusal)> {
        let ports = self.ports.iter_mut().enumerate();
        ports.filter_map(|(port, of)| Some((port, of.guard.as_mut()?.poll_refusal()?))).next()
    }

    fn on_completion<L: FarLink>(&mut self, around: &mut Surroundings<'_, L>, packet: &Packet) -> bool {
        if let Kind::Completion(completion) = &packet.header.kind {
            self.completer = completion.completer;
        }
        self.requester.receive(around.now, packet);
        self.collect(around);
        true
    }

    fn is_holding(&self, port: usize) -> bool {
        self.ports[port].is_holding()
    }

    fn handle_timeout<L: FarLink>(&mut self, around: &mut Surroundings<'_, L>) {
        if self.requester.poll_timeout().is_some_and(|at| at <= around.now) {
            self.requester.handle_timeout(around.now);
        }
        for port in 0..self.ports.len() {
            if self.ports[port].deadline().is_some_and(|at| at <= around.now) {
                self.release(around, port);
            }
        }
        self.collect(around);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let mut earliest = self.requester.poll_timeout();
        for gathering in self.ports.iter().filter_map(|port| port.gathering.as_ref()) {
            if earliest.is_none_or(|at| gathering.deadline < at) {
                earliest = Some(gathering.deadline);
            }
        }
        earliest
    }

    fn poll_packet(&mut self) -> Option<Packet> {
        engine::pop(&mut self.requests)
    }
}

impl core::fmt::Debug for Lookahead {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Lookahead").field("statistics", &self.statistics).finish_non_exhaustive()
    }
}
