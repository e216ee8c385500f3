//! Work requests, end to end.

use alloc::vec::Vec;

use engine::{Buffer, Engine};
use proptest::prelude::*;
use rdma::{Disconnected, Done, Endpoint, Event, Exposure, Operation, PostError, SendRequest, WorkError};

use super::{
    NOW, Results, carry, completions, config, connected, events, give, part, post, receive, received,
    send_of, take,
};
use crate::{Config, Connection, Input, MESSAGE_BYTES_MAX, Output};

fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|index| u8::try_from((index * 31 + seed * 7 + index / 256) % 251).unwrap()).collect()
}

#[test]
fn messages_writes_and_reads_arrive() {
    let (mut near, mut far) = connected(config(1), config(2));
    let data = pattern(100_000, 1);
    receive(&mut far, 1, 64);
    receive(&mut far, 2, 200_000);
    let to_write = far.register(Exposure::Write(100_000)).unwrap();
    let to_read = far.register(Exposure::Read(Buffer::copy_from_slice(&data))).unwrap();
    post(&mut near, 10, send_of(b"hello", b"", None));
    post(&mut near, 11, send_of(b"head", &data, None));
    post(&mut near, 12, Operation::Write { data: Buffer::copy_from_slice(&data), remote: to_write });
    post(&mut near, 13, Operation::Read { remote: to_read });
    post(&mut near, 14, Operation::Read { remote: part(to_read, 5, 10) });
    carry(&mut near, &mut far);
    let read = |data: &[u8]| Ok(Done::Read(Buffer::copy_from_slice(data)));
    let sent = || Ok(Done::Sent);
    assert_eq!(
        completions(&mut near),
        [(10, sent()), (11, sent()), (12, Ok(Done::Written)), (13, read(&data)), (14, read(&data[5..15]))]
    );
    let whole = [b"head", &data[..]].concat();
    assert_eq!(completions(&mut far), [(1, received(b"hello")), (2, received(&whole))]);
    assert_eq!(far.deregister(to_write.key).unwrap()[..], data[..]);
    assert!(events(&mut near).is_empty() && events(&mut far).is_empty());
}

#[test]
fn a_message_invalidates_the_key_that_it_names() {
    let (mut near, mut far) = connected(config(1), config(2));
    let lent = near.register(Exposure::Write(8)).unwrap();
    receive(&mut near, 1, 16);
    post(&mut far, 2, Operation::Write { data: Buffer::copy_from_slice(b"contents"), remote: lent });
    post(&mut far, 3, send_of(b"done", b"", Some(lent.key)));
    carry(&mut near, &mut far);
    let data = Buffer::copy_from_slice(b"done");
    let done = Done::Received { data, invalidated: Some(lent.key), immediate: None };
    assert_eq!(completions(&mut near), [(1, Ok(done))]);
    post(&mut far, 4, Operation::Write { data: Buffer::copy_from_slice(b"again"), remote: lent });
    carry(&mut near, &mut far);
    assert_eq!(events(&mut near), [Event::Disconnected(Disconnected::Access(rdma::AccessError::Key))]);
    assert_eq!(near.deregister(lent.key).unwrap()[..], *b"contents");
}

#[test]
fn empty_messages_reads_and_writes_are_done() {
    let (mut near, mut far) = connected(config(1), config(2));
    receive(&mut far, 1, 0);
    let nowhere = rdma::Remote { key: rdma::Key(5), address: u64::MAX, length: 0 };
    post(&mut near, 2, send_of(b"", b"", None));
    post(&mut near, 3, Operation::Write { data: Buffer::EMPTY, remote: nowhere });
    post(&mut near, 4, Operation::Read { remote: nowhere });
    carry(&mut near, &mut far);
    assert_eq!(completions(&mut far), [(1, received(b""))]);
    let expected = [(2, Ok(Done::Sent)), (3, Ok(Done::Written)), (4, Ok(Done::Read(Buffer::EMPTY)))];
    assert_eq!(completions(&mut near), expected);
}

#[test]
fn data_that_came_in_one_block_are_not_copied() {
    let (mut near, mut far) = connected(config(1), config(2));
    receive(&mut far, 1, 4096);
    post(&mut near, 2, send_of(b"", &pattern(4096, 3), None));
    let block = Buffer::from(take(&mut near));
    let range = block.as_ptr_range();
    far.handle_input(NOW, Input::Received(block));
    let all = completions(&mut far);
    let [(1, Ok(Done::Received { data, .. }))] = &all[..] else { panic!("{all:?}") };
    assert!(range.contains(&data.as_ptr()));
    assert_eq!(data[..], pattern(4096, 3)[..]);
}

#[test]
fn reads_beyond_the_limit_wait_and_hold_up_the_next_requests() {
    let limited = Config { reads_outstanding_max: 2, ..config(1) };
    let (mut near, mut far) = connected(limited, config(2));
    assert_eq!((near.read_limits(), far.read_limits()), ((2, 16), (16, 2)));
    receive(&mut far, 1, 16);
    let lent = far.register(Exposure::Read(Buffer::copy_from_slice(b"abcdef"))).unwrap();
    for id in 0..3 {
        post(&mut near, id, Operation::Read { remote: part(lent, id, 1) });
    }
    post(&mut near, 9, send_of(b"last", b"", None));
    give(&mut far, &take(&mut near));
    assert!(completions(&mut far).is_empty(), "the message waits behind the third read");
    carry(&mut near, &mut far);
    assert_eq!(completions(&mut far), [(1, received(b"last"))]);
    let ids: Vec<u64> = completions(&mut near).iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, [0, 1, 2, 9]);
}

#[test]
fn the_end_that_accepts_may_send_first_if_the_other_lets_it() {
    for (revision, peer_to_peer) in
        [(crate::Revision::Two, true), (crate::Revision::Two, false), (crate::Revision::One, true)]
    {
        let near = Config { revision, peer_to_peer, ..config(1) };
        let (mut near, mut far) = connected(near, config(2));
        receive(&mut near, 1, 16);
        receive(&mut far, 2, 16);
        post(&mut far, 3, send_of(b"first", b"", None));
        carry(&mut near, &mut far);
        let goes_first = peer_to_peer && revision == crate::Revision::Two;
        assert_eq!(!completions(&mut near).is_empty(), goes_first);
        post(&mut near, 4, send_of(b"go", b"", None));
        carry(&mut near, &mut far);
        assert_eq!(!completions(&mut near).iter().any(|(id, _)| *id == 1), goes_first);
    }
}

#[test]
fn requests_that_cannot_be_done_are_not_taken() {
    let (mut near, _far) = connected(config(1), Config { reads_answered_max: 0, ..config(2) });
    let far = rdma::Remote { key: rdma::Key(1), address: 0, length: 4 };
    let mut refuse = |operation| near.post_send(SendRequest { id: 1, operation, signalled: true });
    let immediate = Operation::Send {
        inline: rdma::Inline::EMPTY,
        data: Buffer::EMPTY,
        invalidate: None,
        immediate: Some(1),
    };
    assert_eq!(refuse(immediate), Err(PostError::Unsupported));
    assert_eq!(refuse(Operation::Read { remote: far }), Err(PostError::Unsupported), "the peer answers none");
    let long = Operation::Write { data: Buffer::zeroed(5), remote: far };
    assert_eq!(refuse(long), Err(PostError::Unsupported), "longer than its place");
    let remote = rdma::Remote { length: u32::MAX, ..far };
    let data = Buffer::zeroed(MESSAGE_BYTES_MAX as usize + 1);
    assert_eq!(refuse(Operation::Write { data, remote }), Err(PostError::Unsupported));
}

#[test]
fn the_longest_message_arrives() {
    let (mut near, mut far) = connected(config(1), config(2));
    let data = pattern(MESSAGE_BYTES_MAX as usize, 5);
    receive(&mut far, 1, u32::MAX);
    post(&mut near, 2, send_of(b"", &data, None));
    carry(&mut near, &mut far);
    assert!(completions(&mut far) == [(1, received(&data))]);
}

#[test]
fn an_end_in_order_flushes_at_both_ends() {
    let (mut near, mut far) = connected(config(1), config(2));
    let lent = far.register(Exposure::Read(Buffer::copy_from_slice(b"abcdef"))).unwrap();
    receive(&mut near, 1, 16);
    receive(&mut far, 2, 16);
    post(&mut near, 3, Operation::Read { remote: lent });
    near.disconnect();
    assert_eq!(events(&mut near), [Event::Disconnected(Disconnected::InOrder)]);
    let flushed = |id| (id, Err(WorkError::Flushed));
    assert_eq!(completions(&mut near), [flushed(3), flushed(1)]);
    assert_eq!((near.poll_output(), near.poll_output()), (Some(Output::Close), None));
    give(&mut far, &take(&mut near));
    far.handle_input(NOW, Input::Closed);
    assert_eq!(events(&mut far), [Event::Disconnected(Disconnected::InOrder)]);
    assert_eq!(completions(&mut far), [flushed(2)]);
    assert_eq!(far.poll_output(), Some(Output::Close));
    near.post_send(SendRequest { id: 5, operation: send_of(b"", b"", None), signalled: false }).unwrap();
    assert_eq!(completions(&mut near), [flushed(5)]);
}

/// One request of a random session.
#[derive(Clone, Debug)]
enum Step {
    Send(usize, bool),
    Write(usize, usize),
    Read(usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_usize..6000, any::<bool>()).prop_map(|(length, inline)| Step::Send(length, inline)),
        (0_usize..4000, 0_usize..4000).prop_map(|(offset, length)| Step::Write(offset, length)),
        (0_usize..4000, 0_usize..4000).prop_map(|(offset, length)| Step::Read(offset, length)),
    ]
}

/// One end of a random session, and its expected results.
struct Side {
    end: Connection,
    /// The memory that the peer may read.
    source: Vec<u8>,
    written: rdma::Remote,
    read: rdma::Remote,
    expected: Results,
}

const REGION: usize = 8000;

fn side(mut end: Connection, seed: usize) -> Side {
    let source = pattern(REGION, seed);
    let read = end.register(Exposure::Read(Buffer::copy_from_slice(&source))).unwrap();
    let written = end.register(Exposure::Write(8000)).unwrap();
    Side { end, source, written, read, expected: Vec::new() }
}

impl Side {
    /// Posts the requests of `steps`, and records their expected effect on the peer in `memory` and
    /// `messages`.
    fn post(&mut self, steps: &[Step], peer: &Self, memory: &mut [u8], messages: &mut Vec<Vec<u8>>) {
        for (id, step) in (0_u64..).zip(steps) {
            let data = pattern(8000, usize::try_from(id).unwrap() + 100);
            let narrow = |value: usize| u32::try_from(value).unwrap();
            let (operation, done) = match *step {
                Step::Send(length, inline) => {
                    let split = if inline { length.min(64) } else { 0 };
                    messages.push(data[..length].to_vec());
                    (send_of(&data[..split], &data[split..length], None), Done::Sent)
                }
                Step::Write(offset, length) => {
                    memory[offset..offset + length].copy_from_slice(&data[..length]);
                    let remote = part(peer.written, offset as u64, narrow(length));
                    let data = Buffer::copy_from_slice(&data[..length]);
                    (Operation::Write { data, remote }, Done::Written)
                }
                Step::Read(offset, length) => {
                    let remote = part(peer.read, offset as u64, narrow(length));
                    let data = Buffer::copy_from_slice(&peer.source[offset..offset + length]);
                    (Operation::Read { remote }, Done::Read(data))
                }
            };
            self.expected.push((id, Ok(done)));
            post(&mut self.end, id, operation);
        }
    }

    /// Checks completions and memory.
    fn check(&mut self, memory: &[u8], messages: &[Vec<u8>]) {
        let (of_peer, own): (Results, Results) =
            completions(&mut self.end).into_iter().partition(|(id, _)| *id >= 1000);
        assert_eq!(own, self.expected);
        let got: Vec<_> = of_peer.into_iter().map(|(_, result)| result).collect();
        assert_eq!(got, messages.iter().map(|data| received(data)).collect::<Vec<_>>());
        let mut got = self.end.deregister(self.written.key).unwrap().to_vec();
        got.resize(REGION, 0);
        assert!(got == memory);
        assert!(events(&mut self.end).is_empty());
    }
}

/// Passes bytes on in pieces: by landing, or in blocks.
fn pass(from: &mut Connection, to: &mut Connection, cuts: &mut impl Iterator<Item = (usize, bool)>) -> bool {
    let (Some((cut, lands)), false) = (cuts.next(), from.outbox().is_empty()) else { return false };
    let bytes: Vec<u8> = from.outbox().slices().flatten().copied().take(cut).collect();
    from.sent(bytes.len());
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        match to.landing().filter(|_| lands) {
            Some(place) => {
                let (piece, behind) = rest.split_at(place.len().min(rest.len()));
                place[..piece.len()].copy_from_slice(piece);
                to.landed(piece.len());
                rest = behind;
            }
            None => {
                give(to, rest);
                rest = &[];
            }
        }
    }
    true
}

proptest! {
    /// Every message, write and read arrives once, in order and unchanged, for any requests at both
    /// ends and any division of the streams.
    #[test]
    fn random_sessions_perform_all_requests(near_steps in prop::collection::vec(step(), 0..12),
                                         far_steps in prop::collection::vec(step(), 0..12),
                                         cuts in prop::collection::vec((1_usize..3000, any::<bool>()), 1..30),
                                         segment_bytes in 1_u32..3000, crc in any::<bool>(),
                                         reads_outstanding_max in 1_u16..4) {
        let near = Config { segment_bytes: segment_bytes.max(60), crc, reads_outstanding_max, ..config(1) };
        let far = Config { segment_bytes: 32 << 10, crc, ..config(2) };
        let (near, far) = connected(near, far);
        let (mut near, mut far) = (side(near, 1), side(far, 2));
        for id in 0..12 {
            receive(&mut near.end, 1000 + id, 6000);
            receive(&mut far.end, 1000 + id, 6000);
        }
        let (mut at_near, mut at_far) = ((std::vec![0; REGION], Vec::new()), (std::vec![0; REGION], Vec::new()));
        near.post(&near_steps, &far, &mut at_far.0, &mut at_far.1);
        far.post(&far_steps, &near, &mut at_near.0, &mut at_near.1);
        let mut cuts = cuts.into_iter().cycle();
        loop {
            let there = pass(&mut near.end, &mut far.end, &mut cuts);
            let back = pass(&mut far.end, &mut near.end, &mut cuts);
            if !there && !back {
                break;
            }
        }
        near.check(&at_near.0, &at_near.1);
        far.check(&at_far.0, &at_far.1);
    }
}
