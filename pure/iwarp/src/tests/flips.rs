//! A bit flipped in transit, at every place of a session with CRCs, is detected or harmless.

use alloc::vec::Vec;

use engine::Buffer;
use rdma::{Done, Endpoint, Event, Exposure, Operation, SendRequest};

use super::{NOW, completions, config, events, give, part, post, receive, send_of, take};
use crate::{Config, Connection};

/// Lengths of the frames that begin a connection in bytes. They have no CRC.
const FRAMES: [usize; 2] = [20 + 4 + 4, 20 + 4 + 3];
/// Number of rounds after which a session is finished.
const ROUNDS: usize = 12;

/// The outcome of a session.
#[derive(Default)]
struct Outcome {
    /// Bytes sent by each end.
    sent: [usize; 2],
    /// An end has noticed a fault.
    is_noticed: bool,
    /// All requests are done.
    is_done: bool,
}

/// A session of messages, writes and reads of both ends. `flip` names the sending end, the position
/// of the byte and the bit to flip in it.
fn run(flip: Option<(usize, usize, u8)>) -> Outcome {
    let of = |seed| Config { segment_bytes: 100, ..config(seed) };
    let mut ends = [Connection::connect(NOW, of(1), b"near"), Connection::accept(NOW, of(2))];
    let data: Vec<u8> = (0..250).collect();
    let mut outcome = Outcome::default();
    let mut lent = None;
    let mut done = Vec::new();
    for _ in 0..ROUNDS {
        for from in 0..2 {
            let mut bytes = take(&mut ends[from]);
            let start = outcome.sent[from];
            outcome.sent[from] += bytes.len();
            let flip = flip.filter(|(way, ..)| *way == from);
            let place = flip.and_then(|(_, at, bit)| Some((at.checked_sub(start)?, bit)));
            if let Some((at, bit)) = place.filter(|(at, _)| *at < bytes.len()) {
                bytes[at] ^= 1 << bit;
            }
            give(&mut ends[1 - from], &bytes);
        }
        // The accepting end comes first: it is established before the other end notices.
        for end in [1, 0] {
            for event in events(&mut ends[end]) {
                match event {
                    Event::Requested { .. } => ends[end].accept(b"far"),
                    Event::Established { .. } if end == 1 => {
                        let read = ends[1].register(Exposure::Read(Buffer::copy_from_slice(&data))).unwrap();
                        let write = ends[1].register(Exposure::Write(250)).unwrap();
                        receive(&mut ends[1], 100, 300);
                        lent = Some((read, write));
                    }
                    Event::Established { .. } => {
                        let (read, write) = lent.unwrap();
                        let data = Buffer::copy_from_slice(&data);
                        receive(&mut ends[0], 101, 64);
                        let all = [
                            Operation::Write { data, remote: write },
                            Operation::Read { remote: read },
                            Operation::Read { remote: part(read, 50, 60) },
                            send_of(b"all is written", &[7; 200], None),
                        ];
                        for (id, operation) in (1..).zip(all) {
                            let request = SendRequest { id, operation, signalled: true };
                            // The flipped bit may announce that the peer answers no reads.
                            outcome.is_noticed |= ends[0].post_send(request).is_err();
                        }
                        post(&mut ends[1], 5, send_of(b"welcome", b"", None));
                    }
                    Event::Rejected { .. } | Event::Disconnected(_) => outcome.is_noticed = true,
                }
            }
            for (id, result) in completions(&mut ends[end]) {
                match (id, result) {
                    (_, Err(_)) => outcome.is_noticed = true,
                    (2, Ok(Done::Read(read))) => assert_eq!(read[..], data[..]),
                    (3, Ok(Done::Read(read))) => assert_eq!(read[..], data[50..110]),
                    (100, Ok(Done::Received { data: message, .. })) => {
                        assert_eq!(message[..], *[&b"all is written"[..], &[7; 200]].concat());
                        let written = ends[1].deregister(lent.unwrap().1.key).unwrap();
                        assert_eq!(written[..], data[..], "the write that a later message confirms");
                        done.push(id);
                    }
                    (101, Ok(Done::Received { data, .. })) => {
                        assert_eq!(data[..], *b"welcome");
                        done.push(id);
                    }
                    (_, Ok(_)) => done.push(id),
                }
            }
        }
    }
    outcome.is_done = done.len() >= 5;
    outcome
}

#[test]
fn a_flipped_bit_is_noticed_or_harmless() {
    let clean = run(None);
    assert!(clean.is_done && !clean.is_noticed);
    for (way, frame) in FRAMES.into_iter().enumerate() {
        let mut harmless = 0;
        for at in 0..clean.sent[way] {
            for bit in 0..8 {
                let outcome = run(Some((way, at, bit)));
                harmless += usize::from(outcome.is_done && !outcome.is_noticed);
                // Either the CRC fails, or a longer length makes the reader wait.
                let is_silent = outcome.is_done && !outcome.is_noticed;
                assert!(at < frame || !is_silent, "end {way}, byte {at}, bit {bit}");
            }
        }
        assert!(harmless > 0, "reserved bits of frames, and private data");
    }
}
