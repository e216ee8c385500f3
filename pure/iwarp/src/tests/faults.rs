//! Faults of a peer, and the Terminate messages that report them.

use alloc::vec::Vec;

use engine::{Buffer, Engine};
use rdma::{AccessError, Disconnected, Done, Endpoint, Event, Exposure, Key, Operation, Remote, WorkError};

use super::{
    NOW, completions, config, connected, events, fpdu, give, part, post, raw_fpdu, receive, send_of, take,
    terminate_of,
};
use crate::wire::{Fault, Header, Opcode, ReadRequest, Terminate};
use crate::{Config, Connection, Input, Output};

const SEND: Opcode = Opcode::Send { invalidates: false, solicited: false };

/// The header of a message's segment.
fn untagged(opcode: Opcode, last: bool, number: u32, offset: u32) -> Header {
    Header::Untagged { opcode, last, invalidate: Key(0), number, offset }
}

fn tagged(opcode: Opcode, last: bool, remote: Remote) -> Header {
    Header::Tagged { opcode, last, key: remote.key, address: remote.address }
}

/// A connected end, and memory of it to read and to write.
struct Victim {
    end: Connection,
    read: Remote,
    write: Remote,
}

fn victim() -> Victim {
    let (_, mut end) = connected(config(1), Config { reads_answered_max: 2, ..config(2) });
    let read = end.register(Exposure::Read(Buffer::copy_from_slice(&[0x52; 64]))).unwrap();
    let write = end.register(Exposure::Write(64)).unwrap();
    receive(&mut end, 1, 16);
    Victim { end, read, write }
}

impl Victim {
    /// Gives the end `bytes`. It must end its connection with this fault.
    #[track_caller]
    fn ends_with(mut self, bytes: &[u8], fault: Fault) -> (Event, Vec<u8>) {
        give(&mut self.end, bytes);
        let (terminate, shown) = terminate_of(&mut self.end).expect("it sends a Terminate");
        assert_eq!(terminate.fault, fault);
        assert_eq!(self.end.poll_output(), Some(Output::Close));
        let mut all = events(&mut self.end);
        assert_eq!(all.len(), 1, "{all:?}");
        give(&mut self.end, bytes);
        assert!(self.end.outbox().is_empty(), "a fault is reported once");
        (all.remove(0), shown)
    }
}

fn read_request(source: Remote, number: u32) -> Vec<u8> {
    let request = ReadRequest { sink: Key(9), sink_address: 4, source };
    fpdu(untagged(Opcode::ReadRequest, true, number, 0), &request.emit())
}

#[test]
fn a_wrong_write_is_refused() {
    let lent = victim();
    let (write, read) = (lent.write, lent.read);
    let guessed = Remote { key: Key(write.key.0 ^ 1 << 20), ..write };
    for (remote, fault, error) in [
        (guessed, Fault::TAGGED_KEY, AccessError::Key),
        (read, Fault::ACCESS_RIGHTS, AccessError::Right),
        (part(write, 61, 4), Fault::TAGGED_BOUNDS, AccessError::Bounds),
        (part(write, u64::MAX, 4), Fault::TAGGED_BOUNDS, AccessError::Bounds),
        (Remote { address: u64::MAX - 2, ..write }, Fault::TAGGED_WRAP, AccessError::Bounds),
    ] {
        let header = tagged(Opcode::Write, true, remote);
        let bytes = fpdu(header, b"evil");
        let (event, shown) = victim().ends_with(&bytes, fault);
        assert_eq!(event, Event::Disconnected(Disconnected::Access(error)));
        assert_eq!(shown, [&[0xc0, 0], &bytes[..16]].concat(), "length and DDP header");
    }
}

#[test]
fn a_wrong_read_is_refused() {
    let lent = victim();
    let (write, read) = (lent.write, lent.read);
    let guessed = Remote { key: Key(read.key.0 ^ 1 << 20), ..read };
    for (remote, fault, error) in [
        (guessed, Fault::READ_KEY, AccessError::Key),
        (write, Fault::ACCESS_RIGHTS, AccessError::Right),
        (part(read, 61, 4), Fault::READ_BOUNDS, AccessError::Bounds),
        (part(read, 0, u32::MAX), Fault::READ_BOUNDS, AccessError::Bounds),
        (Remote { address: u64::MAX - 2, ..read }, Fault::READ_WRAP, AccessError::Bounds),
    ] {
        let bytes = read_request(remote, 1);
        let (event, shown) = victim().ends_with(&bytes, fault);
        assert_eq!(event, Event::Disconnected(Disconnected::Access(error)));
        assert_eq!(shown, [&[0xe0, 0], &bytes[..2 + 18 + 28]].concat(), "DDP and RDMAP headers");
    }
}

#[test]
fn a_wrong_message_is_refused() {
    let send = |last, number, offset, data: &[u8]| fpdu(untagged(SEND, last, number, offset), data);
    let cases = [
        (send(true, 0, 0, b"data"), Fault::MESSAGE_NUMBER),
        (send(true, 2, 0, b"data"), Fault::MESSAGE_NUMBER),
        (send(true, 1, 1, b"data"), Fault::MESSAGE_OFFSET),
        (send(true, 1, 0, &[0; 17]), Fault::TOO_LONG),
        ([send(false, 1, 0, b"data"), send(true, 1, 5, b"data")].concat(), Fault::MESSAGE_OFFSET),
        ([send(false, 1, 0, &[0; 16]), send(true, 1, 16, b"!")].concat(), Fault::TOO_LONG),
        ([send(false, 1, 0, &[0; 16]), send(true, 1, u32::MAX, b"!")].concat(), Fault::MESSAGE_OFFSET),
        ([send(true, 1, 0, b""), send(true, 2, 0, b"")].concat(), Fault::NO_BUFFER),
        (
            [
                send(false, 1, 0, b"data"),
                fpdu(untagged(Opcode::Send { invalidates: false, solicited: true }, true, 1, 4), b"data"),
            ]
            .concat(),
            Fault::UNEXPECTED_OPCODE,
        ),
        (
            fpdu(untagged(Opcode::Send { invalidates: true, solicited: false }, true, 1, 0), b""),
            Fault::CANNOT_INVALIDATE,
        ),
    ];
    for (bytes, fault) in cases {
        victim().ends_with(&bytes, fault);
    }
}

#[test]
fn a_receive_request_that_was_taken_is_completed() {
    for (bytes, error) in [
        (fpdu(untagged(SEND, true, 1, 0), &[0; 17]), WorkError::LocalLength),
        (raw_fpdu(&[0]), WorkError::Flushed),
    ] {
        let mut victim = victim();
        give(&mut victim.end, &bytes);
        assert_eq!(completions(&mut victim.end), [(1, Err(error))]);
        // An incomplete message.
        let mut other = super::faults::victim();
        give(&mut other.end, &fpdu(untagged(SEND, false, 1, 0), b"data"));
        assert!(completions(&mut other.end).is_empty());
        give(&mut other.end, &bytes);
        assert_eq!(completions(&mut other.end).len(), 1);
    }
}

#[test]
fn a_wrong_segment_is_refused() {
    let good = untagged(SEND, true, 1, 0).emit();
    let change = |at: usize, value: u8| {
        let mut bytes = good;
        bytes[at] = value;
        raw_fpdu(&bytes)
    };
    let cases = [
        (change(0, 0x42), Fault::UNTAGGED_VERSION),
        (change(0, 0xc2), Fault::TAGGED_VERSION),
        (change(1, 0x83), Fault::RDMAP_VERSION),
        (change(1, 0x4f), Fault::UNEXPECTED_OPCODE),
        (change(9, 7), Fault::INVALID_QUEUE),
        (raw_fpdu(&good[..17]), Fault::DDP_CATASTROPHIC),
        (raw_fpdu(b""), Fault::DDP_CATASTROPHIC),
    ];
    for (bytes, fault) in cases {
        victim().ends_with(&bytes, fault);
    }
    let mut bytes = raw_fpdu(&good);
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let (event, shown) = victim().ends_with(&bytes, Fault::CRC);
    assert_eq!(event, Event::Disconnected(Disconnected::PeerFault(Fault::CRC.describe())));
    assert_eq!(shown, [0, 0]);
}

#[test]
fn a_peer_has_as_many_reads_as_it_may() {
    let mut victim = victim();
    // Two reads may be outstanding. As many again may have been answered before the world reported
    // it, and an empty one may permit this end to send.
    for number in 1..=5 {
        give(&mut victim.end, &read_request(victim.read, number));
    }
    // One response was sent: there is room for another.
    let one = victim.end.outbox().len() / 5;
    victim.end.sent(one);
    give(&mut victim.end, &read_request(victim.read, 6));
    assert!(events(&mut victim.end).is_empty());
    give(&mut victim.end, &read_request(victim.read, 7));
    assert_eq!(events(&mut victim.end).len(), 1);
    assert_eq!(terminate_of(&mut victim.end).unwrap().0.fault, Fault::NO_BUFFER);
}

#[test]
fn a_wrong_read_request_is_refused() {
    let request = ReadRequest { sink: Key(9), sink_address: 4, source: victim().read }.emit();
    let of =
        |last, number, offset, data: &[u8]| fpdu(untagged(Opcode::ReadRequest, last, number, offset), data);
    victim().ends_with(&of(true, 2, 0, &request), Fault::MESSAGE_NUMBER);
    victim().ends_with(&of(true, 1, 4, &request), Fault::MESSAGE_OFFSET);
    victim().ends_with(&of(false, 1, 0, &request), Fault::TOO_LONG);
    victim().ends_with(&of(true, 1, 0, &request[..27]), Fault::TOO_LONG);
    victim().ends_with(&of(true, 1, 0, &[&request[..], b"!"].concat()), Fault::TOO_LONG);
}

/// A response that differs from the request ends the read with a bad response.
#[test]
fn a_wrong_response_is_refused() {
    let sink = |offset: u64| Remote { key: Key(1), address: offset, length: 0 };
    let of = |last, remote, data: &[u8]| fpdu(tagged(Opcode::ReadResponse, last, remote), data);
    let other = Remote { key: Key(2), ..sink(0) };
    let cases = [
        (of(true, other, &[0; 8]), Fault::TAGGED_KEY),
        (of(true, sink(1), &[0; 8]), Fault::TAGGED_BOUNDS),
        (of(true, sink(0), &[0; 7]), Fault::TAGGED_BOUNDS),
        (of(false, sink(0), &[0; 8]), Fault::TAGGED_BOUNDS),
        (of(true, sink(0), &[0; 9]), Fault::TAGGED_BOUNDS),
        ([of(false, sink(0), &[0; 4]), of(true, sink(0), &[0; 4])].concat(), Fault::TAGGED_BOUNDS),
        ([of(false, sink(0), &[0; 4]), of(true, sink(4), &[0; 5])].concat(), Fault::TAGGED_BOUNDS),
    ];
    for (bytes, fault) in cases {
        let (mut near, _) = connected(config(1), config(2));
        let remote = Remote { key: Key(77), address: 0, length: 8 };
        post(&mut near, 5, Operation::Read { remote });
        take(&mut near);
        give(&mut near, &bytes);
        assert_eq!(completions(&mut near), [(5, Err(WorkError::BadResponse))]);
        assert_eq!(terminate_of(&mut near).unwrap().0.fault, fault);
    }
    victim().ends_with(&of(true, sink(0), b"data"), Fault::TAGGED_KEY);
}

#[test]
fn a_fault_that_the_peer_reports_ends_the_oldest_request() {
    for (fault, error) in [
        (Fault::READ_BOUNDS, WorkError::RemoteAccess),
        (Fault::TAGGED_KEY, WorkError::RemoteAccess),
        (Fault::NO_BUFFER, WorkError::ReceiverNotReady),
        (Fault::TOO_LONG, WorkError::RemoteInvalidRequest),
        (Fault::CRC, WorkError::RemoteOperation),
    ] {
        let (mut near, _) = connected(config(1), config(2));
        post(&mut near, 5, Operation::Read { remote: Remote { key: Key(7), address: 0, length: 8 } });
        post(&mut near, 6, send_of(b"next", b"", None));
        take(&mut near);
        let reported = Terminate { fault }.emit(crate::wire::Shown::Nothing);
        give(&mut near, &fpdu(untagged(Opcode::Terminate, true, 1, 0), &reported));
        assert_eq!(events(&mut near), [Event::Disconnected(Disconnected::Reported(fault.describe()))]);
        assert_eq!(completions(&mut near), [(5, Err(error)), (6, Err(WorkError::Flushed))]);
        assert!(near.outbox().is_empty(), "a Terminate is not answered");
    }
}

/// Both ends agree on the fault when this end accesses memory without permission.
#[test]
fn an_access_of_ours_that_is_refused_fails_here() {
    let (mut near, mut far) = connected(config(1), config(2));
    let lent = far.register(Exposure::Read(Buffer::copy_from_slice(b"abcd"))).unwrap();
    post(&mut near, 1, Operation::Read { remote: part(lent, 0, 5) });
    super::carry(&mut near, &mut far);
    assert_eq!(completions(&mut near), [(1, Err(WorkError::RemoteAccess))]);
    assert_eq!(
        events(&mut near),
        [Event::Disconnected(Disconnected::Reported(Fault::READ_BOUNDS.describe()))]
    );
    assert_eq!(events(&mut far), [Event::Disconnected(Disconnected::Access(AccessError::Bounds))]);
}

#[test]
fn a_stream_that_ends_within_an_fpdu_is_a_fault() {
    let bytes = fpdu(untagged(SEND, true, 1, 0), b"data");
    for cut in 0..=bytes.len() {
        let mut victim = victim();
        give(&mut victim.end, &bytes[..cut]);
        victim.end.handle_input(NOW, Input::Closed);
        let expected = if cut == 0 || cut == bytes.len() {
            Disconnected::InOrder
        } else {
            Disconnected::PeerFault("the stream ended within an FPDU")
        };
        assert_eq!(events(&mut victim.end), [Event::Disconnected(expected)], "{cut}");
        let done = matches!(completions(&mut victim.end)[..], [(1, Ok(Done::Received { .. }))]);
        assert_eq!(done, cut == bytes.len());
    }
}
