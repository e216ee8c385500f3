//! Controllers that break the protocol.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use engine::{Engine, Instant, Pool};
use nvme::wire::CompletionQueueEntry;

use super::*;
use crate::wire::{Agreement, DataHeader, InitializeResponse, PduKind, ResponseCapsule};

const NOW: Instant = Instant::ZERO;

struct TestBench {
    connection: Connection,
    outputs: Vec<Output>,
}

impl TestBench {
    fn raw(header_digest: bool) -> Self {
        let config = Config {
            header_digest: super::DigestUse::preferred_if(header_digest),
            ready_to_transfer_max: 2,
            ..Config::new(Rc::new(RefCell::new(Pool::default())))
        };
        let mut bench = Self { connection: Connection::new(NOW, config), outputs: Vec::new() };
        assert_eq!(bench.sent().len(), 128);
        bench
    }

    /// A connection with a read of 8 KiB (identifier 0) and a write of 16 KiB (identifier 1).
    fn new() -> Self {
        let mut bench = Self::raw(false);
        bench.receive(&response().emit());
        assert!(matches!(bench.outputs.pop(), Some(Output::Initialized(_))));
        let entry = SubmissionQueueEntry::default();
        assert_eq!(bench.connection.submit(10, entry, Data::Read(8192)), Ok(CommandId(0)));
        let data = Data::Write(Buffer::zeroed(16384));
        assert_eq!(bench.connection.submit(11, entry, data), Ok(CommandId(1)));
        assert_eq!(bench.sent().len(), 144);
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

    fn expect(&mut self, fault: Fault) {
        let closed = self.outputs.pop();
        let why = matches!(closed, Some(Output::Closed(Closed::ControllerFault(why))) if why == fault);
        assert!(why, "{closed:?}, {fault} expected");
        let bytes = self.sent();
        let request = &bytes[bytes.len().saturating_sub(152)..];
        let start = request.iter().position(|byte| *byte == PduKind::HostTerminate.raw());
        assert!(start.is_some());
        assert!(!self.connection.is_ready());
    }
}

const fn response() -> InitializeResponse {
    InitializeResponse { alignment: 4, header_digest: false, data_digest: false, host_data_max: 4096 }
}

fn data(command: u16, offset: u32, length: u32, flags: Flags) -> Vec<u8> {
    let (common, framing) = Agreement::NONE.frame(PduKind::ControllerData, length, flags);
    let pdu = DataHeader { command: CommandId(command), tag: 0, offset, length };
    let mut bytes = pdu.emit(&common).to_vec();
    bytes.resize(framing.length() as usize, 0x77);
    bytes
}

fn leave(command: u16, offset: u32, length: u32) -> Vec<u8> {
    let (common, _) = Agreement::NONE.frame(PduKind::ReadyToTransfer, 0, Flags::NONE);
    DataHeader { command: CommandId(command), tag: 5, offset, length }.emit(&common).to_vec()
}

fn completion(command: u16) -> Vec<u8> {
    let (common, _) = Agreement::NONE.frame(PduKind::ResponseCapsule, 0, Flags::NONE);
    let entry = CompletionQueueEntry { command_id: CommandId(command), ..Default::default() };
    ResponseCapsule { entry }.emit(&common).to_vec()
}

#[test]
fn unrequested_data_end_the_connection() {
    let last = Flags::LAST_PDU;
    let cases = [
        (data(2, 0, 512, last), Fault::field(8)),
        // Data for a write; an R2T for a read.
        (data(1, 0, 512, last), Fault::field(8)),
        (leave(0, 0, 512), Fault::field(8)),
        (leave(2, 0, 512), Fault::field(8)),
        (completion(2), Fault::field(20)),
        (completion(1024), Fault::field(20)),
        (data(0, 512, 512, last), Fault::SEQUENCE),
        (data(0, 8192, 512, last), Fault::OUT_OF_RANGE),
        (data(0, 0, 8196, last), Fault::OUT_OF_RANGE),
        (data(0, u32::MAX, 512, last), Fault::OUT_OF_RANGE),
        (leave(1, 0, 0), Fault::field(16)),
        (leave(1, 4096, 4096), Fault::SEQUENCE),
        (leave(1, 0, 16388), Fault::OUT_OF_RANGE),
        (leave(1, u32::MAX, 2), Fault::OUT_OF_RANGE),
        (response().emit().to_vec(), Fault::SEQUENCE),
    ];
    for (bytes, fault) in cases {
        let mut bench = TestBench::new();
        bench.receive(&bytes);
        bench.expect(fault);
    }
    // Data after the last data PDU; DATAL and PLEN that disagree.
    let mut bench = TestBench::new();
    bench.receive(&data(0, 0, 4096, last));
    bench.receive(&data(0, 4096, 4096, last));
    bench.expect(Fault::SEQUENCE);
    let mut bench = TestBench::new();
    let mut bytes = data(0, 0, 4096, last);
    bytes[16] = 4;
    bench.receive(&bytes);
    bench.expect(Fault::field(16));
    // A third R2T while two are outstanding, for none of which data were sent.
    let mut bench = TestBench::new();
    bench.receive(&[leave(1, 0, 4096), leave(1, 4096, 4096), leave(1, 8192, 4096)].concat());
    bench.expect(Fault::LIMIT);
    let mut bench = TestBench::new();
    bench.receive(&[leave(1, 0, 4096), leave(1, 4096, 4096)].concat());
    assert_eq!(bench.sent().len(), 2 * (24 + 4096));
    bench.receive(&leave(1, 8192, 8192));
    assert_eq!(bench.sent().len(), 2 * (24 + 4096));
    bench.receive(&completion(1));
    assert!(matches!(&bench.outputs[..], [Output::Completed(completed)] if completed.cookie == 11));
}

#[test]
fn an_unrequested_grant_ends_the_connection() {
    let mut bench = TestBench::raw(false);
    bench.receive(&InitializeResponse { header_digest: true, ..response() }.emit());
    bench.expect(Fault::unsupported(11));
    let mut bench = TestBench::raw(true);
    bench.receive(&InitializeResponse { data_digest: true, ..response() }.emit());
    bench.expect(Fault::unsupported(11));
    let mut bench = TestBench::raw(false);
    bench.receive(&InitializeResponse { host_data_max: 4092, ..response() }.emit());
    bench.expect(Fault::field(12));
    let mut bench = TestBench::raw(false);
    bench.receive(&completion(0));
    bench.expect(Fault::SEQUENCE);
    let mut bench = TestBench::raw(false);
    let timeout = bench.connection.poll_timeout().unwrap();
    bench.connection.handle_timeout(timeout);
    assert!(matches!(bench.connection.poll_output(), Some(Output::Closed(Closed::InitialiseTimeout))));
}

#[test]
fn a_read_that_brings_less_says_so() {
    let mut bench = TestBench::new();
    bench.receive(&data(0, 0, 4096, Flags::LAST_PDU));
    bench.receive(&completion(0));
    let Some(Output::Completed(Completed { data, entry, .. })) = bench.outputs.pop() else { panic!() };
    assert!(entry.status().is_success() && data.len() == 4096);
    // A success in the same PDU as the data.
    let mut bench = TestBench::new();
    bench.receive(&data_success());
    let Some(Output::Completed(Completed { cookie: 10, data, .. })) = bench.outputs.pop() else { panic!() };
    assert_eq!(data.len(), 8192);
}

fn data_success() -> Vec<u8> {
    data(0, 0, 8192, Flags(Flags::LAST_PDU.0 | Flags::SUCCESS.0))
}
