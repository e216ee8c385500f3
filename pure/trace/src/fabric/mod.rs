//! Commands of NVMe/TCP, and of NVMe/RDMA by iWARP and RoCEv2, from the segments and datagrams of a
//! capture of a network.
//!
//! A connection is recognised by its first PDU, or its first RDMA message without data; a capture
//! may begin within it. Segments may be duplicated or out of order. Where bytes are missing, the
//! connection continues with the next segment that begins with a PDU.

mod framing;
mod mpa;
mod pdus;
mod rdma;
mod roce;
mod stream;

pub(crate) use pdus::plausible;
pub use roce::{Address, Datagram};

use alloc::collections::{BTreeMap, VecDeque};

use engine::Instant;
use nvme::wire::{CompletionQueueEntry, IoOpcode, SubmissionQueueEntry};
use nvme_tcp::wire::{DataHeader, Flags, PduKind};

use crate::command::{Command, Kind, Step};
use crate::seen::Mark;
use framing::Framing;
use pdus::Pdu;
use rdma::{Keys, Message};
use roce::QueuePairs;
use stream::{Placed, Stream};

/// Maximum number of connections. Beyond it, the one that was silent for the longest time is
/// forgotten.
const CONNECTIONS_MAX: usize = 4096;
/// Maximum number of a connection's commands in progress.
const COMMANDS_MAX: usize = 4096;
/// The most bytes of all connections that wait for a segment before them.
const HELD_BYTES_MAX: usize = 64 << 20;
/// Bytes of a digest.
const DIGEST: u32 = 4;
/// The opcode of Fabrics commands, and the Fabrics Command Type (FCTYPE) of Connect.
const FABRICS: u8 = 0x7f;
const CONNECT: u8 = 1;

/// An end of a connection: an address (an IPv4 one in its IPv6 form) and a port.
pub type Endpoint = ([u8; 16], u16);

/// A TCP segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// Its number in the capture, by which a command remembers it.
    pub number: u64,
    /// When it passed.
    pub at: Instant,
    /// The sender.
    pub from: Endpoint,
    /// The receiver.
    pub to: Endpoint,
    /// Its sequence number.
    pub sequence: u32,
    /// Whether it opens the connection (SYN).
    pub opens: bool,
    /// Its bytes, as far as they were captured.
    pub bytes: &'a [u8],
    /// Bytes of it that were not captured.
    pub missing: u32,
}

impl Segment<'_> {
    const fn mark(&self) -> Mark {
        Mark { at: self.at, number: self.number }
    }
}

/// Counts of the PDUs of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of PDUs.
    pub pdus: u64,
    /// PDUs that belong to no command that is known: those of commands that began before
    /// the capture.
    pub unexpected: u64,
    /// Commands whose response is not in the capture, except those that wait for an event.
    pub unfinished: u64,
    /// Asynchronous Event Requests whose response is not in the capture.
    pub waiting: u64,
    /// Times that bytes of a connection were missing, or were no PDU.
    pub gaps: u64,
    /// Things that had no room in a table.
    pub dropped: u64,
}

/// A connection of a host to a controller.
#[derive(Debug, Default)]
struct Connection {
    /// By direction: from the end that is less, and from the other.
    directions: [(Stream, Framing); 2],
    /// The queue, where its Connect was captured.
    queue: Option<u16>,
    under_way: BTreeMap<u16, Command>,
    /// The keys of RDMA, and the commands whose data they name.
    keys: Keys,
    /// Time of its latest packet.
    heard: Instant,
    /// Whether its commands remember the numbers of their segments.
    remembers: bool,
}

/// Understands the segments of a capture.
#[derive(Debug, Default)]
pub struct Fabric {
    connections: BTreeMap<(Endpoint, Endpoint), Connection>,
    commands: VecDeque<Command>,
    counts: Counts,
    /// Bytes that wait for a segment before them.
    held_bytes: usize,
    pairs: QueuePairs,
    /// Whether commands remember the numbers of their segments.
    remembers: bool,
}

impl Fabric {
    /// An empty fabric, whose commands remember the numbers of their segments.
    pub fn remembering() -> Self {
        Self { remembers: true, ..Self::default() }
    }

    /// Shows the next segment. Returns whether it is one of NVMe/TCP.
    pub fn see(&mut self, segment: &Segment<'_>) -> bool {
        let (from, to) = (segment.from, segment.to);
        let (key, side) = if from <= to { ((from, to), 0) } else { ((to, from), 1) };
        if !self.connections.contains_key(&key) {
            // The segments that open a connection do not show its protocol yet.
            if Framing::of(segment.bytes).is_none() {
                return false;
            }
            self.make_room();
        }
        let Self { connections, commands, counts, held_bytes, remembers, .. } = self;
        let connection = connections.entry(key).or_default();
        connection.heard = segment.at;
        let (stream, framing) = &mut connection.directions[side];
        *held_bytes -= stream.held_bytes();
        let room = HELD_BYTES_MAX.saturating_sub(*held_bytes + stream.held_bytes());
        if segment.opens {
            // The same ends again.
            stream.begin(segment.sequence.wrapping_add(1));
            *framing = Framing::default();
            connection.leave(counts);
            (connection.queue, connection.keys) = (None, Keys::default());
            return true;
        }
        if segment.bytes.is_empty() {
            *held_bytes += stream.held_bytes();
            return true;
        }
        let mut found = VecDeque::new();
        if !place((stream, framing), segment, room, &mut found) {
            counts.gaps += 1;
            (*stream, *framing) = Default::default();
            place((stream, framing), segment, room, &mut found);
        }
        let end = segment.sequence.wrapping_add(u32::try_from(segment.bytes.len()).unwrap_or(0));
        let is_cut = segment.missing > 0
            && !stream.is_new()
            && !(stream.skip(end, segment.missing)
                && framing.skip(segment.mark(), segment.missing, &mut found));
        if framing.is_lost() || is_cut {
            counts.gaps += 1;
            (*stream, *framing) = Default::default();
        }
        *held_bytes += stream.held_bytes();
        for event in found {
            counts.pdus += 1;
            connection.remembers = *remembers;
            connection.on_event(event, commands, counts);
        }
        true
    }

    fn make_room(&mut self) {
        if self.connections.len() < CONNECTIONS_MAX {
            return;
        }
        let oldest = self.connections.iter().min_by_key(|(_, one)| one.heard).map(|(key, _)| *key);
        if let Some(mut lost) = oldest.and_then(|key| self.connections.remove(&key)) {
            self.counts.dropped += 1;
            self.held_bytes -= lost.directions.iter().map(|(stream, _)| stream.held_bytes()).sum::<usize>();
            lost.leave(&mut self.counts);
        }
    }

    /// Shows the next datagram of RoCEv2. Returns whether it is one.
    pub fn see_datagram(&mut self, datagram: &Datagram<'_>) -> bool {
        self.pairs.see(datagram, self.remembers, &mut self.commands, &mut self.counts)
    }

    /// The next command that has ended.
    pub fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// Ends the capture: commands in progress stay unfinished.
    pub fn finish(&mut self) {
        self.pairs.finish(&mut self.counts);
        for mut connection in core::mem::take(&mut self.connections).into_values() {
            connection.leave(&mut self.counts);
        }
    }

    /// The counts so far.
    pub const fn counts(&self) -> Counts {
        self.counts
    }
}

/// Finds the PDUs that end in a segment, and in those that waited for it. Returns false if bytes
/// before it are missing. A new stream begins with a segment that begins with a PDU.
fn place(
    (stream, framing): (&mut Stream, &mut Framing),
    segment: &Segment<'_>,
    room: usize,
    found: &mut VecDeque<Event>,
) -> bool {
    if stream.is_new() && Framing::of(segment.bytes).is_none() {
        return true;
    }
    let placed = stream.put(segment.mark(), (segment.sequence, segment.bytes), room, |at, bytes| {
        framing.take(at, bytes, found);
    });
    placed == Placed::Kept
}

/// The meaning of a PDU for commands.
#[derive(Debug)]
enum Event {
    Begins {
        entry: SubmissionQueueEntry,
        bytes: u64,
        begun: Mark,
        ended: Mark,
    },
    Asks {
        id: u16,
        at: Mark,
    },
    Data {
        id: u16,
        is_sent: bool,
        bytes: u64,
        begun: Mark,
        ended: Mark,
        completes: bool,
    },
    Ends {
        entry: CompletionQueueEntry,
        at: Mark,
    },
    /// A message of RDMA that passed from the first time to the second.
    Rdma(Message, Mark, Mark),
    Nothing,
}

impl Event {
    fn of(pdu: &Pdu<'_>) -> Self {
        let Pdu { common, header, begun, ended } = *pdu;
        let data = || header.first_chunk().map(DataHeader::parse);
        match common.kind {
            PduKind::CommandCapsule => {
                let digest = if common.flags.has(Flags::DATA_DIGEST) { DIGEST } else { 0 };
                let before = u32::from(common.data_offset) + digest;
                let inside = u64::from(common.length.saturating_sub(before));
                let bytes = if common.data_offset == 0 { 0 } else { inside };
                let entry = header.get(8..).and_then(|rest| rest.first_chunk());
                entry.map_or(Self::Nothing, |entry| Self::Begins {
                    entry: SubmissionQueueEntry::parse(entry),
                    bytes,
                    begun,
                    ended,
                })
            }
            PduKind::ResponseCapsule => {
                let entry = header.get(8..).and_then(|rest| rest.first_chunk());
                entry.map_or(Self::Nothing, |entry| Self::Ends {
                    entry: CompletionQueueEntry::parse(entry),
                    at: ended,
                })
            }
            PduKind::ReadyToTransfer => {
                data().map_or(Self::Nothing, |data| Self::Asks { id: data.command.0, at: ended })
            }
            PduKind::HostData | PduKind::ControllerData => data().map_or(Self::Nothing, |data| Self::Data {
                id: data.command.0,
                is_sent: common.kind == PduKind::HostData,
                bytes: data.length.into(),
                begun,
                ended,
                completes: common.kind == PduKind::ControllerData && common.flags.has(Flags::SUCCESS),
            }),
            _ => Self::Nothing,
        }
    }
}

impl Connection {
    /// Forgets the commands in progress, and counts them.
    fn leave(&mut self, counts: &mut Counts) {
        for command in core::mem::take(&mut self.under_way).into_values() {
            match command.kind.waits_for_events() {
                true => counts.waiting += 1,
                false => counts.unfinished += 1,
            }
        }
    }

    fn on_event(&mut self, event: Event, ended: &mut VecDeque<Command>, counts: &mut Counts) {
        let event = match event {
            Event::Rdma(message, begun, ended) => self.keys.event(message, begun, ended),
            event => Some(event),
        };
        let Some(event) = event else {
            counts.unexpected += 1;
            return;
        };
        match event {
            Event::Nothing | Event::Rdma(..) => {}
            Event::Begins { entry, bytes, begun, ended } => {
                if self.under_way.len() >= COMMANDS_MAX {
                    counts.dropped += 1;
                    return;
                }
                let mut command = self.command(&entry);
                command.bytes = bytes;
                command.span(begun, ended, Step::Capsule);
                let lost = self.under_way.insert(entry.command_id.0, command);
                counts.unfinished += u64::from(lost.is_some());
            }
            Event::Asks { id, at } => match self.under_way.get_mut(&id) {
                Some(command) => command.step(at, Step::ReadyToTransfer),
                None => counts.unexpected += 1,
            },
            Event::Data { id, is_sent, bytes, begun, ended: at, completes } => {
                let Some(command) = self.under_way.get_mut(&id) else {
                    counts.unexpected += 1;
                    return;
                };
                command.bytes += bytes;
                command.span(begun, at, if is_sent { Step::DataArrived } else { Step::Data });
                if completes && let Some(mut command) = self.under_way.remove(&id) {
                    command.step(at, Step::Completion);
                    command.status = Some(0);
                    ended.push_back(command);
                }
            }
            Event::Ends { entry, at } => {
                let Some(mut command) = self.under_way.remove(&entry.command_id.0) else {
                    counts.unexpected += 1;
                    return;
                };
                command.step(at, Step::Completion);
                command.status = Some(entry.status().raw());
                ended.push_back(command);
            }
        }
    }

    /// A command that begins with this entry.
    fn command(&mut self, entry: &SubmissionQueueEntry) -> Command {
        // In a Fabrics command, the lowest byte of the NSID field is its type.
        let [kind, ..] = entry.namespace.0.to_le_bytes();
        if (entry.opcode, kind) == (FABRICS, CONNECT) {
            self.queue = u16::try_from(entry.cdw10 >> 16).ok();
        }
        let mut command = Command::new(match self.queue {
            _ if entry.opcode == FABRICS => Kind::Fabrics(kind),
            Some(0) => Kind::Admin(entry.opcode),
            _ => Kind::Io(entry.opcode),
        });
        command = command.remembering(self.remembers);
        command.queue = self.queue;
        command.id = Some(entry.command_id.0);
        command.namespace = Some(entry.namespace.0).filter(|id| *id != 0 && entry.opcode != FABRICS);
        let has_blocks = matches!(
            IoOpcode::from(entry.opcode),
            IoOpcode::Read | IoOpcode::Write | IoOpcode::Compare | IoOpcode::WriteZeroes | IoOpcode::Verify
        );
        if matches!(command.kind, Kind::Io(_)) && has_blocks {
            command.lba = Some(entry.starting_lba());
            command.blocks = Some((entry.cdw12 & 0xffff) + 1);
        }
        command
    }
}
