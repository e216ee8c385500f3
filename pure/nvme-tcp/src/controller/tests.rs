//! Hosts that break the protocol.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use engine::{Buffer, Engine, Instant, Nanos, Pool};
use nvme::wire::{CommandId, CompletionQueueEntry, StatusCode, SubmissionQueueEntry};

use super::*;
use crate::wire::{
    Agreement, CommonHeader, DataHeader, FatalErrorStatus, Flags, InitializeRequest, PduKind,
    ResponseCapsule, TerminateRequest, crc32c,
};

const NOW: Instant = Instant::ZERO;

struct TestBench {
    connection: Connection,
    outputs: Vec<Output>,
}

impl TestBench {
    /// A connection with a queue of four commands, initialised.
    fn new(header_digest: bool, data_digest: bool) -> Self {
        let mut config = Config::new(Rc::new(RefCell::new(Pool::default())));
        config.host_data_max = 4096;
        config.ready_to_transfer_bytes_max = 8192;
        let mut bench = Self { connection: Connection::new(NOW, config), outputs: Vec::new() };
        let request =
            InitializeRequest { alignment: 4, header_digest, data_digest, ready_to_transfer_max: 2 };
        bench.receive(&request.emit());
        assert!(matches!(bench.outputs.pop(), Some(Output::Initialized(_))));
        bench.connection.set_queue(Queue { size: 4, capsule_data_max: 8192, success_flag: true });
        assert_eq!(bench.sent().len(), 128);
        bench
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.connection.handle_input(NOW, Input::Received(Buffer::copy_from_slice(bytes)));
        while let Some(output) = self.connection.poll_output() {
            self.outputs.push(output);
        }
    }

    fn sent(&mut self) -> Vec<u8> {
        let bytes: Vec<u8> = self.connection.outbox().slices().flatten().copied().collect();
        self.connection.sent(bytes.len());
        bytes
    }

    /// Asserts that the connection is over and that the fault is reported to the host.
    fn expect(&mut self, fault: Fault) {
        let closed = self.outputs.pop();
        assert!(matches!(closed, Some(Output::Closed(Closed::HostFault(why))) if why == fault), "{closed:?}");
        let bytes = self.sent();
        assert_eq!(bytes[0], PduKind::ControllerTerminate.raw());
        assert_eq!(TerminateRequest::parse(bytes.first_chunk().unwrap()).fault, fault);
        // The connection ignores its input from now on.
        self.outputs.clear();
        self.receive(&bytes);
        assert!(self.outputs.is_empty() && self.sent().is_empty() && !self.connection.wants_input());
    }

    /// A write of 12 KiB, with R2Ts for its first 8 KiB and its last 4 KiB.
    fn writing() -> Self {
        let mut bench = Self::new(false, false);
        let entry = SubmissionQueueEntry { opcode: 1, command_id: CommandId(9), ..Default::default() };
        bench.receive(&capsule(DataPointer::Transport { length: 12288 }.put(entry), &[]));
        assert!(matches!(bench.outputs.pop(), Some(Output::Command { slot: Slot(0), .. })));
        assert_eq!(bench.connection.pull(Slot(0), 12288), Ok(None));
        assert_eq!(bench.sent().len(), 48);
        bench
    }
}

fn capsule(entry: SubmissionQueueEntry, data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).unwrap();
    let (common, _) = Agreement::NONE.frame(PduKind::CommandCapsule, length, Flags::NONE);
    let mut bytes = common.emit().to_vec();
    bytes.extend(entry.emit());
    bytes.extend(data);
    bytes
}

fn host_data(pdu: DataHeader, last: bool) -> Vec<u8> {
    let flags = Flags::NONE.with(Flags::LAST_PDU, last);
    let (common, framing) = Agreement::NONE.frame(PduKind::HostData, pdu.length.min(1 << 20), flags);
    let mut bytes = pdu.emit(&common).to_vec();
    bytes.resize(framing.length() as usize, 0x5a);
    bytes
}

const fn part(offset: u32, length: u32) -> DataHeader {
    DataHeader { command: CommandId(9), tag: 0, offset, length }
}

#[test]
fn data_that_do_not_fit_their_leave_end_the_connection() {
    let second = |offset, length| DataHeader { tag: 1024, ..part(offset, length) };
    let cases = [
        (DataHeader { command: CommandId(8), ..part(0, 4096) }, false, Fault::field(8)),
        (DataHeader { tag: 1, ..part(0, 4096) }, false, Fault::field(10)),
        (DataHeader { tag: 2048, ..part(0, 4096) }, false, Fault::field(10)),
        (DataHeader { tag: u16::MAX, ..part(0, 4096) }, false, Fault::field(10)),
        // More than MAXH2CDATA.
        (part(0, 8192), true, Fault::LIMIT),
        // Data before, behind and across the requested range.
        (part(8192, 4096), true, Fault::OUT_OF_RANGE),
        (part(6144, 4096), true, Fault::OUT_OF_RANGE),
        (part(u32::MAX - 3, 4096), true, Fault::OUT_OF_RANGE),
        (second(4096, 4096), true, Fault::OUT_OF_RANGE),
        // Data out of order, and LAST_PDU before the end.
        (part(4096, 4096), true, Fault::SEQUENCE),
        (part(0, 4096), true, Fault::SEQUENCE),
        (second(8192, 4096), false, Fault::SEQUENCE),
    ];
    for (pdu, last, fault) in cases {
        let mut bench = TestBench::writing();
        bench.receive(&host_data(pdu, last));
        bench.expect(fault);
    }
    // DATAL and PLEN that disagree; no data at all.
    for length in [0, 2048, 8192] {
        let mut bench = TestBench::writing();
        let mut bytes = host_data(part(0, 4096), false);
        bytes[16..20].copy_from_slice(&u32::to_le_bytes(length));
        bench.receive(&bytes);
        bench.expect(Fault::field(16));
    }
    let mut bench = TestBench::writing();
    bench.receive(&host_data(part(0, 0), false));
    bench.expect(Fault::field(16));
    // The same data twice; data for a command that has ended.
    let mut bench = TestBench::writing();
    bench.receive(&host_data(part(0, 4096), false));
    bench.receive(&host_data(part(0, 4096), false));
    bench.expect(Fault::SEQUENCE);
    let mut bench = TestBench::writing();
    for (pdu, last) in [(second(8192, 4096), true), (part(0, 4096), false), (part(4096, 4096), true)] {
        bench.receive(&host_data(pdu, last));
    }
    let data = bench.outputs.pop();
    assert!(matches!(data, Some(Output::HostData { slot: Slot(0), data }) if data.len() == 12288));
    bench.receive(&host_data(part(4096, 4096), true));
    bench.expect(Fault::field(10));
}

#[test]
fn pdus_at_the_wrong_time_end_the_connection() {
    let request = InitializeRequest {
        alignment: 4,
        header_digest: false,
        data_digest: false,
        ready_to_transfer_max: 1,
    };
    let mut bench = TestBench::new(false, false);
    bench.receive(&request.emit());
    bench.expect(Fault::SEQUENCE);
    let config = Config::new(Rc::new(RefCell::new(Pool::default())));
    let mut early = TestBench { connection: Connection::new(NOW, config), outputs: Vec::new() };
    early.receive(&capsule(SubmissionQueueEntry::default(), &[]));
    early.expect(Fault::SEQUENCE);
    // More commands than the queue has entries.
    let mut bench = TestBench::new(false, false);
    for id in 0..5 {
        let entry = SubmissionQueueEntry { command_id: CommandId(id), ..Default::default() };
        bench.receive(&capsule(DataPointer::Transport { length: 0 }.put(entry), &[]));
    }
    bench.expect(Fault::SEQUENCE);
    // A controller's PDU, and PDU-Types that do not exist.
    for (kind, length) in [(1, 128), (3, 24), (5, 24), (7, 24), (9, 24), (8, 24), (10, 24), (255, 24)] {
        let mut bench = TestBench::new(false, false);
        let mut bytes = std::vec![0; length];
        bytes[..8].copy_from_slice(&[kind, 0, u8::try_from(length).unwrap(), 0, 24, 0, 0, 0]);
        bench.receive(&bytes);
        bench.expect(Fault::field(0));
    }
}

#[test]
fn a_capsule_larger_than_agreed_ends_the_connection() {
    let mut bench = TestBench::new(false, false);
    bench.receive(&capsule(SubmissionQueueEntry::default(), &[0; 8192]));
    assert!(matches!(bench.outputs.pop(), Some(Output::Command { .. })));
    bench.receive(&capsule(
        SubmissionQueueEntry { command_id: CommandId(2), ..Default::default() },
        &[0; 8196],
    ));
    bench.expect(Fault::LIMIT);
    // A command that only claims a great length: no memory is kept for it.
    let mut bench = TestBench::new(false, false);
    let mut bytes = capsule(SubmissionQueueEntry::default(), &[0; 16]);
    bytes[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    bench.receive(&bytes[..72]);
    bench.expect(Fault::LIMIT);
}

#[test]
fn a_header_digest_that_does_not_match_ends_the_connection() {
    let mut bench = TestBench::new(true, false);
    let entry = DataPointer::Transport { length: 0 }.put(SubmissionQueueEntry::default());
    let mut bytes = capsule(entry, &[]);
    bytes[1] = Flags::HEADER_DIGEST.0;
    bytes[4] = 76;
    let digest = crc32c(0, &bytes);
    bytes.extend(digest.to_le_bytes());
    bench.receive(&bytes);
    assert!(matches!(bench.outputs.pop(), Some(Output::Command { .. })));
    for bit in [8 * 8, 8 * 75] {
        let mut bench = TestBench::new(true, false);
        let mut broken = bytes.clone();
        broken[bit / 8] ^= 1;
        bench.receive(&broken);
        let received = u32::from_le_bytes(*broken.last_chunk().unwrap());
        bench.expect(Fault::header_digest(received));
    }
}

#[test]
fn the_fault_in_a_hosts_terminate_request_is_reported() {
    let mut bench = TestBench::new(false, false);
    let fault = Fault { status: FatalErrorStatus::LimitExceeded, information: 7 };
    let (bytes, length) = TerminateRequest { fault }.emit(Receiver::Controller, &[1; 24]);
    bench.receive(&bytes[..length]);
    let closed = bench.outputs.pop();
    assert!(matches!(closed, Some(Output::Closed(Closed::Terminated(why))) if why == fault));
    assert!(bench.sent().is_empty());
}

#[test]
fn a_host_that_says_nothing_is_let_go() {
    let config = Config::new(Rc::new(RefCell::new(Pool::default())));
    let timeout = config.initialise_timeout;
    let mut connection = Connection::new(NOW, config);
    assert_eq!(connection.poll_timeout(), Some(NOW + timeout));
    connection.handle_timeout(NOW + Nanos::new(1));
    assert!(connection.poll_output().is_none());
    connection.handle_timeout(NOW + timeout);
    assert!(matches!(connection.poll_output(), Some(Output::Closed(Closed::InitialiseTimeout))));
    assert_eq!(connection.poll_timeout(), None);
}

fn status_of(bytes: &[u8]) -> (CommandId, StatusCode) {
    let header = CommonHeader::parse(bytes.first_chunk().unwrap()).unwrap();
    assert_eq!(header.kind, PduKind::ResponseCapsule);
    let entry = ResponseCapsule::parse(bytes.first_chunk().unwrap()).entry;
    (entry.command_id, entry.status().code())
}

#[test]
fn an_identifier_in_use_is_a_conflict_of_the_second() {
    let mut bench = TestBench::new(false, false);
    let entry = DataPointer::Transport { length: 0 }.put(SubmissionQueueEntry::default());
    bench.receive(&capsule(entry, &[]));
    bench.receive(&capsule(entry, &[]));
    assert_eq!(bench.outputs.len(), 1);
    assert_eq!(status_of(&bench.sent()), (CommandId(0), StatusCode::CommandIdConflict));
    bench.connection.complete(Slot(0), CompletionQueueEntry::default());
    assert_eq!(status_of(&bench.sent()), (CommandId(0), StatusCode::SuccessfulCompletion));
    bench.receive(&capsule(entry, &[]));
    assert_eq!(bench.outputs.len(), 2);
}

#[test]
fn descriptors_that_do_not_do_are_refused() {
    let refused = |pointer: DataPointer, capsule_data: &[u8], length: u32| {
        let mut bench = TestBench::new(false, false);
        let mut entry = SubmissionQueueEntry { opcode: 1, ..Default::default() };
        entry = pointer.put(entry);
        bench.receive(&capsule(entry, capsule_data));
        bench.connection.pull(Slot(0), length).map_err(nvme::wire::Status::code)
    };
    let inside = |offset, length| DataPointer::InCapsule { offset, length };
    let data = [7; 512];
    assert_eq!(refused(inside(0, 512), &data, 512).unwrap().unwrap().len(), 512);
    assert_eq!(refused(inside(256, 256), &data, 256).unwrap().unwrap().len(), 256);
    assert_eq!(refused(inside(0, 513), &data, 513), Err(StatusCode::DataSglLengthInvalid));
    assert_eq!(refused(inside(0, 512), &data, 1024), Err(StatusCode::DataSglLengthInvalid));
    assert_eq!(refused(inside(0, 256), &data, 512), Err(StatusCode::DataSglLengthInvalid));
    assert_eq!(refused(inside(513, 0), &data, 512), Err(StatusCode::SglOffsetInvalid));
    assert_eq!(refused(inside(u64::MAX, 512), &data, 512), Err(StatusCode::SglOffsetInvalid));
    let outside = DataPointer::Transport { length: 512 };
    assert_eq!(refused(outside, &[], 1024), Err(StatusCode::DataSglLengthInvalid));
    let none = DataPointer::Invalid(StatusCode::InvalidField);
    assert_eq!(refused(none, &[], 512), Err(StatusCode::InvalidField));
    // Towards the host: data that cannot go in a capsule, and too little room.
    let mut bench = TestBench::new(false, false);
    let entry = SubmissionQueueEntry { opcode: 2, ..Default::default() };
    for (id, pointer, code) in [
        (0, inside(0, 512), StatusCode::SglDescriptorTypeInvalid),
        (1, DataPointer::Transport { length: 256 }, StatusCode::DataSglLengthInvalid),
    ] {
        bench
            .receive(&capsule(pointer.put(SubmissionQueueEntry { command_id: CommandId(id), ..entry }), &[]));
        let pushed = bench.connection.push(Slot(id), 0, 512, Buffer::zeroed(512));
        assert_eq!(pushed.map_err(nvme::wire::Status::code), Err(code));
    }
}

#[test]
fn a_success_goes_with_the_last_data_only_where_nothing_else_is_to_be_said() {
    for (success_flag, dw0, spared) in [(true, 0, true), (true, 1, false), (false, 0, false)] {
        let mut bench = TestBench::new(false, false);
        bench.connection.set_queue(Queue { size: 4, capsule_data_max: 0, success_flag });
        let entry = SubmissionQueueEntry { opcode: 2, ..Default::default() };
        bench.receive(&capsule(DataPointer::Transport { length: 1024 }.put(entry), &[]));
        bench.connection.push(Slot(0), 0, 1024, Buffer::zeroed(512)).unwrap();
        let first = bench.sent();
        assert_eq!((first[0], first[1], first.len()), (7, 0, 24 + 512));
        bench.connection.push(Slot(0), 512, 1024, Buffer::zeroed(512)).unwrap();
        bench.connection.complete(Slot(0), CompletionQueueEntry { dw0, ..Default::default() });
        let bytes = bench.sent();
        let flags = if spared { 0b1100 } else { 0b0100 };
        assert_eq!((bytes[0], bytes[1]), (7, flags));
        assert_eq!(bytes.len(), 24 + 512 + if spared { 0 } else { 24 });
    }
}

#[test]
fn data_that_lie_one_behind_the_other_go_in_one_pdu() {
    for digests in [false, true] {
        let mut bench = TestBench::new(false, digests);
        let entry = |id| SubmissionQueueEntry { opcode: 2, command_id: CommandId(id), ..Default::default() };
        for id in 0..2 {
            bench.receive(&capsule(DataPointer::Transport { length: 2048 }.put(entry(id)), &[]));
        }
        let piece = |value| Buffer::copy_from_slice(&[value; 512]);
        // The second piece before the first; then pieces of another command in between; the last
        // piece is missing when the command fails.
        for (slot, offset) in [(0, 512), (0, 0), (0, 1024), (1, 0), (1, 512)] {
            let value = u8::try_from(offset / 512).unwrap();
            bench.connection.push(Slot(slot), offset, 2048, piece(value)).unwrap();
        }
        let failed = StatusCode::UnrecoveredReadError.into();
        bench.connection.complete(Slot(1), CompletionQueueEntry::default().with_status(failed, false));
        let bytes = bench.sent();
        let (head, tail) = (24, if digests { 4 } else { 0 });
        let second = head + 3 * 512 + tail;
        for (at, id, pieces) in [(0, 0, 3_usize), (second, 1, 2)] {
            let (pdu, length) = (&bytes[at..], pieces * 512);
            assert_eq!((pdu[0], pdu[1] & 0b1100, pdu[8]), (7, 0, id));
            assert_eq!(pdu[16..20], u32::try_from(length).unwrap().to_le_bytes());
            let data = &pdu[head..head + length];
            assert!((0..pieces).all(|piece| usize::from(data[piece * 512 + 511]) == piece));
            if digests {
                let digest = crc32c(0, data).to_le_bytes();
                assert_eq!(pdu[head + length..head + length + 4], digest);
            }
        }
        let response = &bytes[second + head + 2 * 512 + tail..];
        assert_eq!((response[0], response.len()), (5, head));
    }
}
