//! Lookahead: host memory that an NVMe controller is about to read travels along with the doorbell
//! that makes the controller read.
//!
//! Near the host, `Lookahead` learns from passing packets where the queues are. When a submission
//! doorbell passes, it reads the new entries and the lists and data that they name, and sends this
//! memory ahead of the doorbell. At the device, a [store](crate::downstream::Store) answers the
//! device's reads from the memory sent ahead. All other reads go to the host as usual.
//! `docs/lookahead.md` says what is dropped when, and why nobody can notice.

mod controller;
mod function;
pub(crate) mod fuzz;
mod gather;
mod port;
mod reads;
#[cfg(test)]
mod tests;
mod transfer;
mod walk;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Buffer, Engine, Instant, Pool};
use pcie::requester::{self, Answer, Requester};
use pcie::switch::Switch;
use pcie::wire::{Bdf, Kind, MemoryOperation, Packet};

use crate::frame::AheadKey;
use crate::strands::{Bundle, Strand};
use port::{Down, Port};
use reads::{Purpose, Reads};

/// The longest read that lookahead makes, in bytes: the most memory of an Ahead.
const READ_MAX: u32 = 4096;

/// What lookahead has done since the start.
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
    /// How often doorbells stopped waiting for memory that was to go ahead of them.
    pub given_up: u64,
    /// Reads of memory that devices sent to the host nevertheless. Each costs a round trip.
    pub reads: u64,
    /// Bytes that devices' reads asked the host for.
    pub bytes_read: u64,
}

/// The host's side of lookahead, for all ports of a switch.
pub(crate) struct Lookahead {
    ports: Vec<Port>,
    requester: Requester,
    /// Reads of lookahead that are to go to the root complex.
    requests: VecDeque<Packet>,
    reads: Reads,
    /// Where the data of the command at hand is: addresses and lengths.
    found: Vec<(u64, u64)>,
    pool: Pool,
    /// The function that answers reads of host memory.
    completer: Bdf,
    /// Address that every function's first interrupt vector is written to, with further vectors
    /// behind it. `None` if the host has not told it.
    pub(crate) interrupts: Option<u64>,
    statistics: Statistics,
}

impl Lookahead {
    pub(crate) fn new(ports: usize) -> Self {
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

    pub(crate) const fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// The session of a port begins or ends: forgets what is below the port.
    pub(crate) fn on_link(&mut self, port: usize, window: u32) {
        self.reads.drop_port(port);
        self.ports[port] = Port::default();
        self.ports[port].window = window;
    }

    /// What is below a port is reset: drops packets that waited to go there, like all that have not
    /// been sent.
    pub(crate) fn on_reset(&mut self, port: usize) {
        self.reads.drop_port(port);
        self.ports[port].reset();
    }

    /// Sends a packet down to a port, now or as soon as the memory that goes ahead of it is there.
    #[inline]
    pub(crate) fn send(
        &mut self,
        now: Instant,
        port: usize,
        packet: Packet,
        switch: &Switch,
        sessions: &mut [Bundle],
    ) {
        if self.ports[port].window == 0 {
            return sessions[port].send(now, packet);
        }
        if self.ports[port].is_holding() {
            if !packet.is_non_posted() && self.ports[port].has_room() {
                return self.ports[port].hold(packet);
            }
            // Whoever waits for an answer may be who must answer our reads.
            self.release(now, port, switch, sessions);
        }
        if let Some(packet) = self.pass(now, port, packet, switch, &mut sessions[port]) {
            self.ports[port].hold(packet);
            self.collect(now, switch, sessions);
        }
    }

    /// Whether packets wait to go down to a port.
    pub(crate) fn is_holding(&self, port: usize) -> bool {
        self.ports[port].is_holding()
    }

    /// Notes that a request for a port was answered before it was sent.
    pub(crate) fn on_answered(
        &mut self,
        port: usize,
        request: &Packet,
        answer: &Packet,
        session: &mut Bundle,
    ) {
        if self.ports[port].window > 0 {
            // A read needs no action: `on_down` only notes what was asked for.
            let _ = self.ports[port].on_down(request);
            self.ports[port].on_up(answer, session);
        }
    }

    /// Examines a packet for a port and sends it. Returns the packet if memory is to go ahead of
    /// it.
    fn pass(
        &mut self,
        now: Instant,
        port: usize,
        packet: Packet,
        switch: &Switch,
        session: &mut Bundle,
    ) -> Option<Packet> {
        match self.ports[port].on_down(&packet) {
            Down::Nothing => {}
            Down::Forget(function) => {
                if self.ports[port].forget_function(function) || session.is_spread() {
                    session.forget_ahead(AheadKey::ALL);
                    // The queues of the other functions are where they were.
                    self.ports[port].lay_queues(now, Some(0), self.interrupts, session);
                }
            }
            Down::Doorbell { function, queue, tail } => {
                let strand = self.ports[port].strand_of(&packet, session);
                if self.begin(now, port, function, (queue, tail, strand), switch) {
                    return Some(packet);
                }
            }
        }
        self.ports[port].forget_lost(session);
        let strand = self.ports[port].strand_of(&packet, session);
        session.send_on(now, strand, packet);
        None
    }

    /// Sends the packets that a port holds, without waiting for more memory to go ahead of them.
    fn release(&mut self, now: Instant, port: usize, switch: &Switch, sessions: &mut [Bundle]) {
        while self.ports[port].is_holding() {
            self.statistics.given_up += 1;
            self.reads.drop_port(port);
            self.ports[port].give_up();
            self.go_on(now, port, switch, &mut sessions[port]);
        }
    }

    /// Sends the packets that a port holds, up to the next doorbell with entries. All that was to
    /// go ahead of the first packet has been sent.
    fn go_on(&mut self, now: Instant, port: usize, switch: &Switch, session: &mut Bundle) {
        // The next doorbell may be that of a queue deletion that was not seen.
        self.ports[port].forget_lost(session);
        // This doorbell itself has been examined before.
        if let Some(doorbell) = self.ports[port].take_held() {
            session.send_on(now, self.ports[port].held_strand, doorbell);
        }
        while let Some(packet) = self.ports[port].take_held() {
            if let Some(packet) = self.pass(now, port, packet, switch, session) {
                return self.ports[port].hold_first(packet);
            }
        }
    }

    /// Examines a packet that comes up from a port.
    #[inline]
    pub(crate) fn on_up(&mut self, port: usize, packet: &Packet, session: &mut Bundle) {
        if self.ports[port].window == 0 {
            return;
        }
        if let Kind::Memory(request) = &packet.header.kind
            && request.operation == MemoryOperation::Read
        {
            self.statistics.reads += 1;
            self.statistics.bytes_read += u64::from(packet.header.length) * 4;
        }
        self.statistics.commands += self.ports[port].on_up(packet, session);
        self.lay_queues(session.main().now(), port, session);
    }

    /// Tells on which strands newly created completion queues are.
    #[inline]
    fn lay_queues(&mut self, now: Instant, port: usize, bundle: &mut Bundle) {
        self.ports[port].forget_lost(bundle);
        if bundle.is_spread() && core::mem::take(&mut self.ports[port].queues_changed) {
            self.ports[port].lay_queues(now, None, self.interrupts, bundle);
        }
    }

    /// Tells the device's end again which queues a strand carries, since the strand has come up or
    /// come back.
    pub(crate) fn lay_again(&mut self, now: Instant, port: usize, strand: Strand, bundle: &mut Bundle) {
        self.ports[port].lay_queues(now, Some(strand), self.interrupts, bundle);
    }

    /// Handles an answer to a read of lookahead.
    pub(crate) fn on_completion(
        &mut self,
        now: Instant,
        packet: &Packet,
        switch: &Switch,
        sessions: &mut [Bundle],
    ) {
        if let Kind::Completion(completion) = &packet.header.kind {
            self.completer = completion.completer;
        }
        self.requester.receive(now, packet);
        self.collect(now, switch, sessions);
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, switch: &Switch, sessions: &mut [Bundle]) {
        if self.requester.poll_timeout().is_some_and(|at| at <= now) {
            self.requester.handle_timeout(now);
        }
        for port in 0..self.ports.len() {
            if self.ports[port].deadline().is_some_and(|at| at <= now) {
                self.release(now, port, switch, sessions);
            }
        }
        self.collect(now, switch, sessions);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let holds = self.ports.iter().filter_map(Port::deadline);
        holds.chain(self.requester.poll_timeout()).min()
    }

    /// The next read of lookahead for the root complex.
    pub(crate) fn poll_request(&mut self) -> Option<Packet> {
        self.requests.pop_front()
    }

    /// Handles the outputs of the requester.
    fn collect(&mut self, now: Instant, switch: &Switch, sessions: &mut [Bundle]) {
        while let Some(output) = self.requester.poll_output() {
            match output {
                requester::Output::Answer(Answer::ReadData { cookie, offset, data, last }) => {
                    let bytes = self.reads.on_data(cookie, offset, data, last, &mut self.pool);
                    if bytes.is_some() {
                        self.on_read(now, cookie, bytes, switch, sessions);
                    }
                }
                requester::Output::Answer(Answer::ReadFailed { cookie, .. }) => {
                    self.on_read(now, cookie, None, switch, sessions);
                }
                requester::Output::Packet(packet) => self.requests.push_back(packet),
                requester::Output::Answer(Answer::Register { .. }) | requester::Output::Unexpected(_) => {}
            }
        }
    }

    /// Handles the end of a read of lookahead, with its bytes unless it failed.
    fn on_read(
        &mut self,
        now: Instant,
        cookie: u64,
        bytes: Option<Buffer>,
        switch: &Switch,
        sessions: &mut [Bundle],
    ) {
        let Some(read) = self.reads.end(cookie) else { return };
        let (port, session) = (read.port, &mut sessions[read.port]);
        match (read.purpose, bytes) {
            (Purpose::Entries, Some(bytes)) => self.on_entries(now, &read, &bytes, switch, session),
            (Purpose::List(command), Some(bytes)) => {
                self.on_list(now, &read, command, &bytes, switch, session);
            }
            (Purpose::Data(command), Some(bytes)) => {
                self.on_piece(&read, command, bytes, switch, session);
            }
            (Purpose::Entries, None) => {
                let gathering = self.ports[port].gathering.as_ref();
                if let Some(function) = gathering.filter(|at| at.queue == 0).map(|at| at.function) {
                    self.ports[port].lose(function);
                }
            }
            (_, None) => {}
        }
        if self.ports[port].read_ended(now, read.purpose) {
            self.go_on(now, port, switch, session);
        } else if let Some(doorbell) = self.ports[port].ring_early(&mut self.pool) {
            session.send_on(now, self.ports[port].held_strand, doorbell);
        }
    }
}

impl core::fmt::Debug for Lookahead {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Lookahead").field("statistics", &self.statistics).finish_non_exhaustive()
    }
}
