//! RDMA messages in a stream of bytes: iWARP's MPA, DDP and RDMAP (RFC 5044, 5041, 5040).

use alloc::vec::Vec;

use iwarp::wire::{Header, Opcode, ReadRequest};

use super::rdma::Message;
use crate::seen::Mark;

/// The common beginning of both start frames, before the letters that distinguish them.
const START: &[u8] = b"MPA ID Re";
/// Length of such a frame before its private data, the offset of its flags, and the flag by which
/// its sender requests markers.
const START_LENGTH: usize = 20;
const FLAGS: usize = 16;
const MARKERS: u8 = 0x80;
/// Bytes of the length before a frame, and of the CRC behind it.
const LENGTH: usize = 2;
const CRC: usize = 4;
/// Maximum number of examined bytes of a frame: a header, and an entry with some of its data.
const LOOKED_AT: usize = Header::UNTAGGED_LENGTH + 80;

/// Cuts a stream into frames. Their data are skipped.
#[derive(Debug, Default)]
pub(super) struct Mpa {
    /// The examined part of the next frame, as far as it has arrived, and the time of its first
    /// byte.
    head: Vec<u8>,
    begun: Mark,
    /// Number of bytes of the frame behind that part that have not arrived.
    left: usize,
    /// The start is over, or the capture begins behind it.
    is_started: bool,
    /// A frame was invalid, or has markers. The rest of the stream is lost.
    is_lost: bool,
}

impl Mpa {
    /// The frames of a stream that begins with `bytes`, if it can be one of RDMA: at its start, or
    /// at a message that is no data.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let is_start = bytes.starts_with(START);
        let is_frame = || {
            let (length, rest) = bytes.split_first_chunk::<LENGTH>()?;
            let header = Header::parse(rest).ok()?;
            let is_whole = usize::from(u16::from_be_bytes(*length)) >= header.length();
            matches!(header, Header::Untagged { number: 1.., .. }).then_some(())?;
            is_whole.then_some(())
        };
        (is_start || is_frame().is_some()).then(|| Self { is_started: !is_start, ..Self::default() })
    }

    pub(super) const fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Passes over bytes that were not captured. Returns false if they are not all data of
    /// one frame.
    pub(super) fn skip(&mut self, bytes: u32) -> bool {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let is_data = self.left > bytes;
        if is_data {
            self.left -= bytes;
        }
        is_data
    }

    /// Shows to `show` the messages that end within `bytes`, which passed at `at`, with the time
    /// when each began.
    pub(super) fn take(&mut self, at: Mark, mut bytes: &[u8], mut show: impl FnMut(Message, Mark)) {
        while !bytes.is_empty() && !self.is_lost {
            if self.left > 0 {
                let skipped = self.left.min(bytes.len());
                bytes = &bytes[skipped..];
                self.left -= skipped;
            } else {
                if self.head.is_empty() {
                    self.begun = at;
                }
                let (more, rest) = bytes.split_at(bytes.len().min(self.wanted() - self.head.len()));
                self.head.extend_from_slice(more);
                bytes = rest;
                // How much is wanted is known only now, perhaps.
                if self.head.len() < self.wanted() {
                    continue;
                }
                self.left = self.length().saturating_sub(self.head.len());
            }
            if self.left == 0 && !self.head.is_empty() {
                self.end(&mut show);
            }
        }
    }

    /// Number of examined bytes of the next frame, as far as it is known.
    fn wanted(&self) -> usize {
        match self.head.first_chunk::<LENGTH>() {
            _ if !self.is_started => START_LENGTH,
            None => LENGTH,
            Some(length) => LENGTH + usize::from(u16::from_be_bytes(*length)).min(LOOKED_AT),
        }
    }

    /// Length of the whole frame, whose examined part has arrived.
    fn length(&self) -> usize {
        let number = |at: usize| {
            self.head.get(at..at + 2).map_or(0, |of| usize::from(of[0]) << 8 | usize::from(of[1]))
        };
        if self.is_started {
            return (LENGTH + number(0)).next_multiple_of(4) + CRC;
        }
        START_LENGTH + number(START_LENGTH - 2)
    }

    /// The frame is whole.
    fn end(&mut self, show: &mut impl FnMut(Message, Mark)) {
        if !self.is_started {
            self.is_lost = !self.head.starts_with(START) || self.head[FLAGS] & MARKERS != 0;
            self.is_started = true;
        } else if let Some(message) = message(&self.head) {
            show(message, self.begun);
        } else {
            self.is_lost = true;
        }
        self.head.clear();
    }
}

/// The message of a frame, of which `head` is the beginning.
fn message(head: &[u8]) -> Option<Message> {
    let (length, segment) = head.split_first_chunk::<LENGTH>()?;
    let header = Header::parse(segment).ok()?;
    let length = u32::from(u16::from_be_bytes(*length));
    let bytes = length.checked_sub(u32::try_from(header.length()).ok()?)?;
    let payload = segment.get(header.length()..)?;
    Some(match header {
        // Empty ones open some kinds of connections.
        Header::Tagged { .. } if bytes == 0 => Message::Other,
        Header::Tagged { opcode: Opcode::Write, key, .. } => Message::Write { key: key.0, bytes },
        Header::Tagged { key, address, .. } => Message::Response { key: key.0, address, bytes },
        Header::Untagged { opcode: Opcode::Send { .. }, offset: 0, .. } => Message::sent(payload, bytes),
        Header::Untagged { opcode: Opcode::ReadRequest, .. } => {
            let request = ReadRequest::parse(payload.first_chunk()?);
            if request.source.length == 0 {
                return Some(Message::Other);
            }
            Message::Read {
                key: request.source.key.0,
                sink: (request.sink.0, request.sink_address),
                bytes: request.source.length,
            }
        }
        Header::Untagged { .. } => Message::Other,
    })
}

#[cfg(test)]
mod tests {
    use alloc::collections::VecDeque;
    use std::vec;

    use engine::Instant;
    use iwarp::wire::Queue;
    use nvme::wire::{CommandId, CompletionQueueEntry, IoOpcode, NamespaceId, SubmissionQueueEntry};
    use rdma::{Key, Remote};

    use super::*;
    use crate::fabric::{Fabric, Segment};
    use crate::{Command, Kind, Step};

    const HOST: ([u8; 16], u16) = ([1; 16], 40_000);
    const TARGET: ([u8; 16], u16) = ([2; 16], 4420);

    /// A frame around a header and its payload. The CRC is not looked at.
    fn frame(header: Header, payload: &[u8]) -> Vec<u8> {
        let header = &header.emit()[..header.length()];
        let length = u16::try_from(header.len() + payload.len()).unwrap();
        let mut frame = [&length.to_be_bytes()[..], header, payload].concat();
        frame.resize(frame.len().next_multiple_of(4) + CRC, 0);
        frame
    }

    fn start(letter: u8, private: &[u8]) -> Vec<u8> {
        let mut start = [START, &[letter][..], b" Frame", &[0x40, 1]].concat();
        start.extend(u16::try_from(private.len()).unwrap().to_be_bytes());
        start.extend(private);
        start
    }

    fn sent(payload: &[u8], number: u32) -> Vec<u8> {
        let opcode = Opcode::Send { invalidates: false, solicited: false };
        frame(Header::Untagged { opcode, last: true, invalidate: Key(0), number, offset: 0 }, payload)
    }

    fn entry(opcode: IoOpcode, id: u16, key: u32) -> [u8; 64] {
        let descriptor = 4096 | u64::from(key) << 24 | 0x40 << 56;
        let entry = SubmissionQueueEntry {
            opcode: opcode.into(),
            command_id: CommandId(id),
            namespace: NamespaceId(1),
            data_pointer: [0x7000_0000, descriptor],
            cdw12: 7,
            ..SubmissionQueueEntry::EMPTY
        };
        entry.emit()
    }

    fn response(id: u16) -> [u8; 16] {
        CompletionQueueEntry { command_id: CommandId(id), ..CompletionQueueEntry::default() }.emit()
    }

    fn data(opcode: Opcode, key: u32, address: u64, length: usize) -> Vec<u8> {
        frame(Header::Tagged { opcode, last: true, key: Key(key), address }, &vec![7; length])
    }

    /// A session of a read and a write of 4 KiB: the bytes of each end, in turns.
    fn session() -> Vec<(bool, Vec<u8>)> {
        let request = ReadRequest {
            sink: Key(0x55),
            sink_address: 0x9000,
            source: Remote { key: Key(0x1235), address: 0x7000_0000, length: 4096 },
        };
        let opcode = Opcode::ReadRequest;
        let asked = Header::Untagged { opcode, last: true, invalidate: Key(0), number: 1, offset: 0 };
        assert_eq!(Queue::ReadRequest as u32, 1);
        vec![
            (true, start(b'q', &[0; 32])),
            (false, start(b'p', &[0; 32])),
            (true, sent(&entry(IoOpcode::Read, 3, 0x1234), 1)),
            (false, data(Opcode::Write, 0x1234, 0x7000_0000, 3000)),
            (false, [data(Opcode::Write, 0x1234, 0x7000_0bb8, 1096), sent(&response(3), 1)].concat()),
            (true, sent(&entry(IoOpcode::Write, 4, 0x1235), 2)),
            (false, frame(asked, &request.emit())),
            (true, data(Opcode::ReadResponse, 0x55, 0x9000, 4000)),
            (true, data(Opcode::ReadResponse, 0x55, 0x9fa0, 96)),
            (false, sent(&response(4), 2)),
        ]
    }

    /// The commands of a session whose segments have at most `longest` bytes, from one of its turns
    /// on.
    fn commands(longest: usize, from: usize) -> (Vec<Command>, u64) {
        let (mut fabric, mut sequences, mut at) = (Fabric::default(), [u32::MAX - 40, 9], 0);
        for (is_host, bytes) in session().into_iter().skip(from) {
            for bytes in bytes.chunks(longest) {
                at += 10;
                let sequence = &mut sequences[usize::from(is_host)];
                let (from, to) = if is_host { (HOST, TARGET) } else { (TARGET, HOST) };
                let at = Instant::from_nanos(at);
                fabric.see(&Segment {
                    number: 0,
                    at,
                    from,
                    to,
                    sequence: *sequence,
                    opens: false,
                    bytes,
                    missing: 0,
                });
                *sequence = sequence.wrapping_add(u32::try_from(bytes.len()).unwrap());
            }
        }
        fabric.finish();
        let mut commands = VecDeque::new();
        commands.extend(core::iter::from_fn(|| fabric.poll_command()));
        let counts = fabric.counts();
        assert_eq!((counts.gaps, counts.unfinished, counts.dropped), (0, 0, 0));
        (commands.into(), counts.unexpected)
    }

    #[test]
    fn data_pass_by_the_keys_of_their_commands_however_the_stream_is_cut() {
        // A frame's first segment must show its kind.
        for longest in [20, 21, 60, 1460, 70_000] {
            let (commands, unexpected) = commands(longest, 0);
            assert_eq!((commands.len(), unexpected), (2, 0), "{longest}");
            let of = |command: &Command| (command.kind, command.bytes, command.blocks);
            assert_eq!(of(&commands[0]), (Kind::Io(2), 4096, Some(8)));
            assert_eq!(of(&commands[1]), (Kind::Io(1), 4096, Some(8)));
            let steps = |command: &Command| {
                command.hops.iter().map(|hop| (hop.step, hop.packets)).collect::<Vec<_>>()
            };
            assert_eq!(steps(&commands[0]), [(Step::Capsule, 1), (Step::Data, 2), (Step::Completion, 1)]);
            let write = [
                (Step::Capsule, 1),
                (Step::ReadyToTransfer, 1),
                (Step::DataArrived, 2),
                (Step::Completion, 1),
            ];
            assert_eq!(steps(&commands[1]), write);
        }
    }

    #[test]
    fn a_capture_that_begins_behind_the_start_knows_the_commands_that_begin_in_it() {
        let (commands, unexpected) = commands(70_000, 4);
        assert_eq!(commands.iter().map(|one| one.id).collect::<Vec<_>>(), [Some(4)]);
        // The data of the read came before, and its response belongs to no command.
        assert!(unexpected <= 1);
    }

    #[test]
    fn markers_and_nonsense_are_lost_and_nothing_panics() {
        let mut marked = start(b'q', &[]);
        marked[FLAGS] |= MARKERS;
        let mut mpa = Mpa::of(&marked).unwrap();
        mpa.take(Mark::default(), &marked, |_, _| panic!("no message"));
        assert!(mpa.is_lost());
        for length in 0..64 {
            for byte in [0, 1, 0x41, 0x81, 0xc1, 0xff] {
                let bytes = vec![byte; length];
                if let Some(mut mpa) = Mpa::of(&bytes) {
                    mpa.take(Mark::default(), &bytes, |_, _| {});
                }
            }
        }
    }
}
