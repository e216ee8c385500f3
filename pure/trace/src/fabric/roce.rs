//! Commands of NVMe/RDMA from the datagrams of RoCEv2 (InfiniBand Architecture 1.4, chapter 9 and
//! annex A17).
//!
//! A queue pair sends to a number at the other end, and receives by a number of its own. The
//! messages that open a connection have both. Without them, a connection begins with a command
//! capsule, and its reverse direction is found by a key or an identifier that only one connection
//! waits for.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use engine::Instant;

use super::rdma::Message;
use super::{CONNECTIONS_MAX, Connection, Counts, Event};
use crate::command::Command;
use crate::seen::Mark;

/// An address; an IPv4 one in its IPv6 form.
pub type Address = [u8; 16];

/// Bytes of the headers that follow each other: BTH, DETH, RETH, AETH, IETH or an immediate.
const BASE: usize = 12;
const DATAGRAM: usize = 8;
const REMOTE: usize = 16;
const ACKNOWLEDGE: usize = 4;
const IMMEDIATE: usize = 4;
/// Bytes of the CRC at the end.
const CRC: usize = 4;
/// A datagram to this queue pair (GSI), and the opcode of its only kind.
const GENERAL: u32 = 1;
const UNRELIABLE: u8 = 0x64;
/// The class of messages that make connections, and two of them: its request and its reply.
const MAKING: u8 = 7;
const HEADER: usize = 24;
const REQUEST: u16 = 0x10;
const REPLY: u16 = 0x13;
/// Packet sequence numbers have 24 bits.
const NUMBERS: u32 = 0xff_ffff;
/// The most bytes of a Send that are looked at.
const LOOKED_AT: usize = 80;

/// A UDP datagram of RoCEv2.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Its number in the capture, by which a command remembers it.
    pub number: u64,
    /// When it passed.
    pub at: Instant,
    /// The sender.
    pub from: Address,
    /// The receiver.
    pub to: Address,
    /// Its bytes behind the header of UDP, as far as they were captured.
    pub bytes: &'a [u8],
    /// Bytes of it that were not captured.
    pub missing: usize,
}

/// The sender, the receiver, and the receiver's queue pair.
type Flow = (Address, Address, u32);

/// One direction of a connection.
#[derive(Debug)]
struct Way {
    connection: usize,
    /// The number of the next request, if it is known.
    next: Option<u32>,
    /// The Send in progress: its examined bytes, its length, and when it began.
    sending: (Vec<u8>, usize, Mark),
    /// The key of the write in progress, and the number of the read that is being answered, with
    /// its bytes so far.
    writing: u32,
    answering: (u32, u64),
}

/// The queue pairs of a capture.
#[derive(Debug, Default)]
pub(super) struct QueuePairs {
    ways: BTreeMap<Flow, Way>,
    connections: Vec<Connection>,
    /// Connections with no known way back: their host and target.
    alone: Vec<(usize, Address, Address)>,
    /// Requests for connections, by both ends and the requester's name for the connection: the
    /// queue pair of the host.
    asked: VecDeque<((Address, Address, u32), u32)>,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word))
}

impl QueuePairs {
    /// Shows a datagram. Returns whether it is one of RoCE that has a place in a connection, or
    /// makes one.
    pub(super) fn see(
        &mut self,
        datagram: &Datagram<'_>,
        remembers: bool,
        ended: &mut VecDeque<Command>,
        counts: &mut Counts,
    ) -> bool {
        let Datagram { number: place, at, from, to, bytes, missing } = *datagram;
        let mark = Mark { at, number: place };
        let [opcode, flags, ..] = *bytes else { return false };
        let (Some(pair), Some(number)) = (word(bytes, 4), word(bytes, 8)) else { return false };
        let (pair, number) = (pair & NUMBERS, number & NUMBERS);
        // Only version 0 of the transport is known.
        if flags & 0xf != 0 {
            return false;
        }
        if (opcode, pair) == (UNRELIABLE, GENERAL) {
            return self.make((from, to), bytes.get(BASE + DATAGRAM..).unwrap_or_default(), counts);
        }
        let Some(kind) = Kind::of(opcode) else { return opcode >> 5 == 0 };
        let padding = usize::from(flags >> 4 & 3);
        let end = (bytes.len() + missing).saturating_sub(CRC + padding);
        let start = BASE + kind.headers;
        let length = end.saturating_sub(start);
        let payload = bytes.get(start..).map_or(&[][..], |rest| &rest[..rest.len().min(length)]);
        let remote = bytes.get(BASE..BASE + REMOTE);
        let key = remote.and_then(|remote| word(remote, 8));
        let Some(index) = self.way((from, to, pair), &kind, key, payload) else {
            counts.unexpected += 1;
            return true;
        };
        let Some(way) = self.ways.get_mut(&(from, to, pair)) else { return true };
        if !way.is_next(&kind, number, counts) {
            return true;
        }
        let (message, begun) = way.message(&kind, (number, mark), remote, (payload, length));
        let Some(message) = message else { return true };
        counts.pdus += 1;
        if let Some(connection) = self.connections.get_mut(index) {
            connection.heard = at;
            connection.remembers = remembers;
            connection.on_event(Event::Rdma(message, begun, mark), ended, counts);
        }
        true
    }

    /// Handles a message that opens a connection.
    fn make(&mut self, (from, to): (Address, Address), bytes: &[u8], counts: &mut Counts) -> bool {
        let Some(&[_, class, ..]) = bytes.first_chunk::<2>() else { return false };
        let (Some(attribute), Some(fields)) = (word(bytes, 16), bytes.get(HEADER..)) else { return false };
        if class != MAKING {
            return false;
        }
        let three = |at: usize| word(fields, at).map(|word| word >> 8);
        match (u16::try_from(attribute >> 16).unwrap_or(0), word(fields, 0), word(fields, 4)) {
            (REQUEST, Some(name), _) => {
                if self.asked.len() >= CONNECTIONS_MAX {
                    self.asked.pop_front();
                }
                self.asked.extend(three(32).map(|pair| ((from, to, name), pair)));
            }
            (REPLY, _, Some(name)) => {
                let place = self.asked.iter().position(|(key, _)| *key == (to, from, name));
                let host = place.and_then(|place| self.asked.remove(place)).map(|(_, pair)| pair);
                if let (Some(host), Some(target)) = (host, three(12))
                    && let Some(index) = self.begin(counts)
                {
                    self.ways.insert((to, from, target), Way::new(index));
                    self.ways.insert((from, to, host), Way::new(index));
                }
            }
            _ => {}
        }
        true
    }

    /// A new connection, if there is room.
    fn begin(&mut self, counts: &mut Counts) -> Option<usize> {
        if self.connections.len() >= CONNECTIONS_MAX {
            counts.dropped += 1;
            return None;
        }
        self.connections.push(Connection::default());
        Some(self.connections.len() - 1)
    }

    /// The connection of a flow, whose direction is known from now on.
    fn way(&mut self, flow: Flow, kind: &Kind, key: Option<u32>, payload: &[u8]) -> Option<usize> {
        if let Some(way) = self.ways.get(&flow) {
            return Some(way.connection);
        }
        let (from, to, _) = flow;
        let is_command = kind.what == What::Send && kind.is_first && payload.len() >= 64;
        let index = if is_command {
            let index = self.begin(&mut Counts::default())?;
            self.alone.push((index, from, to));
            index
        } else {
            let id = payload.get(12..14).map(|id| u16::from_le_bytes([id[0], id[1]]));
            let is_it = |connection: &Connection| match kind.what {
                What::Write | What::Read => key.is_some_and(|key| connection.keys.has(key)),
                What::Send => {
                    id.is_some_and(|id| payload.len() == 16 && connection.under_way.contains_key(&id))
                }
                What::Response => false,
            };
            let fits = |(index, host, target): &&(usize, Address, Address)| {
                (*host, *target) == (to, from) && self.connections.get(*index).is_some_and(is_it)
            };
            let mut found = self.alone.iter().filter(fits).map(|(index, ..)| *index);
            let index = found.next().filter(|_| found.next().is_none())?;
            self.alone.retain(|(of, ..)| *of != index);
            index
        };
        self.ways.insert(flow, Way::new(index));
        Some(index)
    }

    /// Ends the capture, and counts the commands in progress.
    pub(super) fn finish(&mut self, counts: &mut Counts) {
        self.connections.iter_mut().for_each(|one| one.leave(counts));
        *self = Self::default();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Send,
    Write,
    Read,
    Response,
}

/// The kind of a packet, from its opcode.
struct Kind {
    what: What,
    is_first: bool,
    is_last: bool,
    /// Bytes of the headers between BTH and payload.
    headers: usize,
}

impl Kind {
    /// The kind of a packet of a reliable connection that carries something.
    const fn of(opcode: u8) -> Option<Self> {
        let (what, is_first, is_last, headers) = match opcode {
            0 => (What::Send, true, false, 0),
            1 => (What::Send, false, false, 0),
            2 => (What::Send, false, true, 0),
            3 | 22 => (What::Send, false, true, IMMEDIATE),
            4 => (What::Send, true, true, 0),
            5 | 23 => (What::Send, true, true, IMMEDIATE),
            6 => (What::Write, true, false, REMOTE),
            7 => (What::Write, false, false, 0),
            8 => (What::Write, false, true, 0),
            9 => (What::Write, false, true, IMMEDIATE),
            10 => (What::Write, true, true, REMOTE),
            11 => (What::Write, true, true, REMOTE + IMMEDIATE),
            12 => (What::Read, true, true, REMOTE),
            13 => (What::Response, true, false, ACKNOWLEDGE),
            14 => (What::Response, false, false, 0),
            15 => (What::Response, false, true, ACKNOWLEDGE),
            16 => (What::Response, true, true, ACKNOWLEDGE),
            _ => return None,
        };
        Some(Self { what, is_first, is_last, headers })
    }
}

impl Way {
    const fn new(connection: usize) -> Self {
        let sending = (Vec::new(), 0, Mark { at: Instant::ZERO, number: 0 });
        Self { connection, next: None, sending, writing: 0, answering: (0, 0) }
    }

    /// Whether a packet is new, and not a repetition.
    fn is_next(&mut self, kind: &Kind, number: u32, counts: &mut Counts) -> bool {
        if kind.what == What::Response {
            return true;
        }
        let ahead = self.next.map_or(0, |next| number.wrapping_sub(next) & NUMBERS);
        if ahead > NUMBERS / 2 {
            return false;
        }
        counts.gaps += u64::from(ahead > 0);
        // A read uses as many numbers as its response has packets.
        self.next = (kind.what != What::Read).then_some((number + 1) & NUMBERS);
        true
    }

    /// The message that a packet ends or is a part of, and when that began.
    fn message(
        &mut self,
        kind: &Kind,
        (number, at): (u32, Mark),
        remote: Option<&[u8]>,
        (payload, length): (&[u8], usize),
    ) -> (Option<Message>, Mark) {
        let remote = |at: usize| remote.and_then(|remote| word(remote, at));
        let bytes = u32::try_from(length).unwrap_or(u32::MAX);
        match kind.what {
            What::Send => {
                if kind.is_first {
                    self.sending = (Vec::new(), 0, at);
                }
                let room = LOOKED_AT.saturating_sub(self.sending.0.len());
                self.sending.0.extend_from_slice(&payload[..payload.len().min(room)]);
                self.sending.1 += length;
                let whole = u32::try_from(self.sending.1).unwrap_or(u32::MAX);
                (kind.is_last.then(|| Message::sent(&self.sending.0, whole)), self.sending.2)
            }
            What::Write => {
                if kind.is_first {
                    self.writing = remote(8).unwrap_or(0);
                }
                (Some(Message::Write { key: self.writing, bytes }), at)
            }
            What::Read => {
                let (key, bytes) = (remote(8).unwrap_or(0), remote(12).unwrap_or(0));
                // A response has no address, but the number of its request.
                (Some(Message::Read { key, sink: (number, 0), bytes }), at)
            }
            What::Response => {
                if kind.is_first {
                    self.answering = (number, 0);
                }
                let (key, address) = self.answering;
                self.answering.1 += u64::from(bytes);
                (Some(Message::Response { key, address, bytes }), at)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec;

    use nvme::wire::{CommandId, CompletionQueueEntry, IoOpcode, NamespaceId, SubmissionQueueEntry};

    use super::*;
    use crate::fabric::Fabric;
    use crate::{Kind as CommandKind, Step};

    const HOST: Address = [1; 16];
    const TARGET: Address = [2; 16];
    /// The queue pairs of host and target.
    const HOSTS: u32 = 0x11;
    const TARGETS: u32 = 0x22;

    fn packet(opcode: u8, pair: u32, number: u32, headers: &[u8], payload: &[u8]) -> Vec<u8> {
        let padding = payload.len().next_multiple_of(4) - payload.len();
        let flags = u8::try_from(padding << 4).unwrap();
        let base = [&[opcode, flags, 0xff, 0xff][..], &pair.to_be_bytes(), &number.to_be_bytes()].concat();
        [&base, headers, payload, &vec![0; padding + CRC]].concat()
    }

    fn remote(key: u32, length: u32) -> Vec<u8> {
        [&0x7000_0000_u64.to_be_bytes()[..], &key.to_be_bytes(), &length.to_be_bytes()].concat()
    }

    fn entry(opcode: IoOpcode, id: u16, key: u32) -> [u8; 64] {
        let entry = SubmissionQueueEntry {
            opcode: opcode.into(),
            command_id: CommandId(id),
            namespace: NamespaceId(1),
            data_pointer: [0x7000_0000, 4096 | u64::from(key) << 24 | 0x40 << 56],
            cdw12: 7,
            ..SubmissionQueueEntry::EMPTY
        };
        entry.emit()
    }

    fn response(id: u16) -> [u8; 16] {
        CompletionQueueEntry { command_id: CommandId(id), ..CompletionQueueEntry::default() }.emit()
    }

    /// A message that makes a connection: its attribute, and the fields at their places.
    fn making(attribute: u16, fields: &[(usize, u32)]) -> Vec<u8> {
        let mut bytes = vec![0; 256];
        (bytes[0], bytes[1], bytes[2], bytes[3]) = (1, MAKING, 2, 3);
        bytes[16..18].copy_from_slice(&attribute.to_be_bytes());
        for (at, word) in fields {
            bytes[HEADER + at..HEADER + at + 4].copy_from_slice(&word.to_be_bytes());
        }
        packet(UNRELIABLE, GENERAL, 0, &[0; DATAGRAM], &bytes)
    }

    /// A read and a write of 4 KiB: whether the host sends, and the packet.
    fn session() -> Vec<(bool, Vec<u8>)> {
        let aeth = [0; ACKNOWLEDGE];
        vec![
            (true, making(REQUEST, &[(0, 77), (32, HOSTS << 8)])),
            (false, making(REPLY, &[(0, 99), (4, 77), (12, TARGETS << 8)])),
            (true, packet(4, TARGETS, 0xff_ffff, &[], &entry(IoOpcode::Read, 3, 0x1234))),
            (false, packet(17, HOSTS, 0xff_ffff, &aeth, &[])),
            (false, packet(6, HOSTS, 100, &remote(0x1234, 4096), &[7; 2048])),
            (false, packet(7, HOSTS, 101, &[], &[7; 2047])),
            (false, packet(8, HOSTS, 102, &[], &[7])),
            (false, packet(23, HOSTS, 103, &[0; IMMEDIATE], &response(3))),
            (true, packet(4, TARGETS, 0, &[], &entry(IoOpcode::Write, 4, 0x1235))),
            (false, packet(12, HOSTS, 104, &remote(0x1235, 4096), &[])),
            (true, packet(13, TARGETS, 104, &aeth, &[7; 2048])),
            (true, packet(15, TARGETS, 105, &aeth, &[7; 2048])),
            (false, packet(4, HOSTS, 106, &[], &response(4))),
        ]
    }

    /// The commands of these packets, each repeated `times` times.
    fn commands(packets: &[(bool, Vec<u8>)], times: usize) -> (Vec<Command>, Counts) {
        let mut fabric = Fabric::default();
        for (at, (is_host, bytes)) in (0..).zip(packets) {
            let (from, to) = if *is_host { (HOST, TARGET) } else { (TARGET, HOST) };
            for _ in 0..times {
                let at = Instant::from_nanos(at * 10);
                assert!(fabric.see_datagram(&Datagram { number: 0, at, from, to, bytes, missing: 0 }));
            }
        }
        fabric.finish();
        (core::iter::from_fn(|| fabric.poll_command()).collect(), fabric.counts())
    }

    fn assert_session(commands: &[Command]) {
        let found: Vec<_> = commands.iter().map(|one| (one.kind, one.id, one.bytes, one.blocks)).collect();
        let of = |opcode, id| (CommandKind::Io(opcode), Some(id), 4096, Some(8));
        assert_eq!(found, [of(2, 3), of(1, 4)]);
        let steps =
            |command: &Command| command.hops.iter().map(|hop| (hop.step, hop.packets)).collect::<Vec<_>>();
        assert_eq!(steps(&commands[0]), [(Step::Capsule, 1), (Step::Data, 3), (Step::Completion, 1)]);
        let write =
            [(Step::Capsule, 1), (Step::ReadyToTransfer, 1), (Step::DataArrived, 2), (Step::Completion, 1)];
        assert_eq!(steps(&commands[1]), write);
    }

    #[test]
    fn commands_have_their_steps_whether_or_not_the_connection_was_seen_to_be_made() {
        for from in [0, 2] {
            let (commands, counts) = commands(&session()[from..], 1);
            assert_session(&commands);
            assert_eq!((counts.unexpected, counts.unfinished, counts.gaps), (0, 0, 0), "{counts:?}");
        }
    }

    #[test]
    fn requests_that_are_sent_again_count_once() {
        let mut session = session();
        // Responses are known by their numbers alone: they are left out here.
        session.truncate(8);
        let (commands, counts) = commands(&session, 3);
        assert_eq!((commands.len(), commands[0].bytes), (1, 4096));
        assert_eq!((counts.unexpected, counts.gaps), (0, 0), "{counts:?}");
    }

    #[test]
    fn no_cut_and_no_change_of_a_packet_is_too_strange() {
        for (place, (is_host, whole)) in session().into_iter().enumerate() {
            for length in 0..whole.len().min(90) {
                for change in [0_u8, 1, 0x80, 0xff] {
                    let mut packets = session();
                    let mut bytes = whole[..length].to_vec();
                    if let Some(last) = bytes.last_mut() {
                        *last ^= change;
                    }
                    packets[place] = (is_host, bytes);
                    let mut fabric = Fabric::default();
                    for (is_host, bytes) in &packets {
                        let (from, to) = if *is_host { (HOST, TARGET) } else { (TARGET, HOST) };
                        fabric.see_datagram(&Datagram {
                            number: 0,
                            at: Instant::ZERO,
                            from,
                            to,
                            bytes,
                            missing: 0,
                        });
                    }
                    fabric.finish();
                }
            }
        }
    }
}
