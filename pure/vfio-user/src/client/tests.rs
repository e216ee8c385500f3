//! Byte sequences written by hand, from the tables of the specification (QEMU's
//! docs/interop/vfio-user.rst).

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use engine::Buffer;

use super::*;
use crate::index::Area;
use crate::test_bench::{Counted, Counter, hex};
use crate::wire::{HeaderError, ParseError, VersionError};

const NOW: Instant = Instant::from_nanos(1_000);
const LATE: Instant = Instant::from_nanos(5_000_001_000);

struct Bench {
    client: Client<Counted>,
    counter: Counter,
}

impl Bench {
    fn fresh() -> Self {
        let mut client = Client::new(Config::default());
        client.handle_input(NOW, Input::Connected);
        Self { client, counter: Counter::default() }
    }
    /// A client whose server has answered like libvfio-user, with two descriptors per message.
    fn new() -> Self {
        let mut bench = Self::fresh();
        bench.drain();
        let json =
            "{\"capabilities\":{\"max_msg_fds\":2,\"max_data_xfer_size\":1048576,\"write_multiple\":true}}\0";
        let mut reply = hex("0000 0100 00000000 01000000 00000000  0000 0100");
        reply.extend_from_slice(json.as_bytes());
        let size = u32::try_from(reply.len()).unwrap();
        reply[4..8].copy_from_slice(&size.to_le_bytes());
        bench.client.handle_input(NOW, Input::Received { bytes: &reply, descriptors: vec![] });
        let Some(Output::Negotiated(server)) = bench.next() else { panic!("not negotiated") };
        assert_eq!((server.minor, server.descriptors_max, server.write_multiple), (1, 2, true));
        bench
    }
    fn send(&mut self, text: &str) {
        self.send_with(text, 0);
    }
    fn send_with(&mut self, text: &str, descriptors: usize) {
        let descriptors = (0..descriptors).map(|_| self.counter.open()).collect();
        self.client.handle_input(NOW, Input::Received { bytes: &hex(text), descriptors });
    }
    fn next(&mut self) -> Option<Output<Counted>> {
        self.client.poll_output()
    }
    fn drain(&mut self) -> Vec<Output<Counted>> {
        core::iter::from_fn(|| self.client.poll_output()).collect()
    }
    #[track_caller]
    fn expect(&mut self, text: &str) {
        self.expect_with(text, 0);
    }
    #[track_caller]
    fn expect_with(&mut self, text: &str, count: usize) {
        match self.next() {
            Some(Output::Transmit { bytes, descriptors }) => {
                assert_eq!(&*bytes, hex(text), "{bytes:02x?}");
                assert_eq!(descriptors.len(), count);
            }
            other => panic!("{other:?} where a message was expected"),
        }
    }
    #[track_caller]
    fn answered(&mut self, request: RequestId, result: Result<Answer<Counted>, Errno>) {
        assert_eq!(self.next(), Some(Output::Answered { request, result }));
    }
}

#[test]
fn a_version_is_offered_and_one_not_offered_is_not_taken() {
    let mut bench = Bench::fresh();
    let Some(Output::Transmit { bytes, .. }) = bench.next() else { panic!("nothing sent") };
    assert_eq!(
        (&bytes[..4], &bytes[8..20]),
        (&hex("0000 0100")[..], &hex("00000000 00000000 0000 0100")[..])
    );
    let json = "{\"capabilities\":{\"max_msg_fds\":16,\"max_data_xfer_size\":1048576,\"max_dma_maps\":65535,\
                \"pgsizes\":4096,\"write_multiple\":true}}\0";
    assert_eq!(core::str::from_utf8(&bytes[20..]), Ok(json));
    // A request before the server's answer fails.
    let request = bench.client.reset(NOW);
    bench.answered(request, Err(Errno::ENOTCONN));

    let closes = |reply: &str, expected: CloseReason, says: &str| {
        let mut bench = Bench::fresh();
        bench.drain();
        bench.send(reply);
        assert_eq!(bench.drain(), [Output::Close { reason: expected }]);
        assert!(expected.to_string().contains(says), "{expected}");
    };
    let newer = CloseReason::Newer { major: 0, minor: 2 };
    closes("0000 0100 14000000 01000000 00000000 0000 0200", newer, "version 0.2");
    let refused = CloseReason::Refused { error: Errno::EINVAL };
    closes("0000 0100 10000000 21000000 16000000", refused, "EINVAL");
    let error = crate::wire::JsonError { at: 1, expected: "a string" };
    closes(
        "0000 0100 17000000 01000000 00000000 0000 0100 7b 5b 00",
        CloseReason::Version(VersionError::Json(error)),
        "byte 1",
    );
    let truncated = VersionError::Payload(ParseError::Truncated { need: 4, have: 0 });
    closes("0000 0100 10000000 01000000 00000000", CloseReason::Version(truncated), "4 B");
    closes("0000 0100 00000000 01000000 00000000", CloseReason::Header(HeaderError::Size { size: 0 }), "0 B");

    let mut bench = Bench::fresh();
    bench.drain();
    assert_eq!(bench.client.poll_timeout(), Some(LATE));
    bench.client.handle_timeout(LATE);
    assert_eq!(bench.drain(), [Output::Close { reason: CloseReason::Handshake }]);
}

#[test]
fn a_region_is_asked_for_again_where_there_was_too_little_room() {
    let mut bench = Bench::new();
    let request = bench.client.region_info(NOW, RegionIndex::BAR0);
    let nothing = "00000000 00000000 00000000 0000000000000000 0000000000000000";
    bench.expect(&["0100 0500 30000000 00000000 00000000  e00f0000", nothing].concat());
    let fixed = "07000000 00000000 20000000 0040000000000000 0000000000000000";
    bench.send_with(&["0100 0500 30000000 01000000 00000000  00200000", fixed].concat(), 1);
    bench.expect(&["0200 0500 30000000 00000000 00000000  00000100", nothing].concat());
    assert_eq!(bench.counter.count(), 0);
    // An unknown capability, then the areas.
    let fixed = "0f000000 00000000 20000000 0040000000000000 0000000000000000";
    let unknown = "0200 0100 30000000 0102030405060708";
    let sparse = "0100 0100 00000000 01000000 00000000 0010000000000000 0010000000000000";
    bench.send_with(&["0200 0500 60000000 01000000 00000000  50000000", fixed, unknown, sparse].concat(), 1);
    let Some(Output::Answered { request: found, result: Ok(Answer::Region { info, descriptors }) }) =
        bench.next()
    else {
        panic!("no region")
    };
    assert_eq!((found, descriptors.len(), info.size), (request, 1, 0x4000));
    assert_eq!(info.areas, [Area { offset: 0x1000, length: 0x1000 }]);
    // Lists that do not end, or lie outside the payload.
    for chain in ["20000000", "f0000000", "10000000"] {
        let request = bench.client.region_info(NOW, RegionIndex::BAR0);
        let Some(Output::Transmit { bytes, .. }) = bench.next() else { panic!("nothing sent") };
        let unknown = ["0200 0100", chain, "0102030405060708"].concat();
        bench.send(&alloc::format!(
            "{:02x}00 0500 40000000 01000000 00000000  30000000 {fixed} {unknown}",
            bytes[0]
        ));
        bench.answered(request, Err(Errno::EINVAL));
    }
}

#[test]
fn requests_match_the_tables_and_answers_are_checked() {
    let mut bench = Bench::new();
    let device = bench.client.device_info(NOW);
    bench.expect("0100 0400 20000000 00000000 00000000  10000000 00000000 00000000 00000000");
    let msix = bench.client.interrupt_info(NOW, InterruptIndex::Msix);
    bench.expect("0200 0700 20000000 00000000 00000000  10000000 00000000 02000000 00000000");
    let read = bench.client.read(NOW, RegionIndex::CONFIG, 4, 2);
    bench.expect("0300 0900 20000000 00000000 00000000  0400000000000000 07000000 02000000");
    let write = bench.client.write(NOW, RegionIndex::BAR0, 0x14, &[1, 0, 0, 0]);
    bench.expect("0400 0a00 24000000 00000000 00000000  1400000000000000 00000000 04000000 01000000");
    bench.client.post(RegionIndex::BAR0, 0x1000, &[9, 0, 0, 0]);
    bench.expect("0500 0a00 24000000 10000000 00000000  0010000000000000 00000000 04000000 09000000");
    let reset = bench.client.reset(NOW);
    bench.expect("0600 0d00 10000000 00000000 00000000");
    let access = RegionAccess { offset: 0x1000, region: 0, count: 4 };
    let single = SingleWrite { access, data: [1, 2, 3, 4, 0, 0, 0, 0] };
    let multiple = bench.client.write_multiple(NOW, &[single]);
    bench.expect("0700 0f00 30000000 00000000 00000000  0100000000000000 0010000000000000 00000000 04000000 0102030400000000");

    // Answers may be in any order.
    bench.send("0600 0d00 10000000 01000000 00000000");
    bench.answered(reset, Ok(Answer::Done));
    bench.send("0300 0900 22000000 01000000 00000000  0400000000000000 07000000 02000000 0600");
    bench.answered(read, Ok(Answer::Data(Buffer::copy_from_slice(&[6, 0]))));
    bench.send("0400 0a00 10000000 21000000 0d000000");
    bench.answered(write, Err(Errno::EACCES));
    bench.send("0700 0f00 18000000 01000000 00000000  0100000000000000");
    bench.answered(multiple, Ok(Answer::Done));
    bench.send("0200 0700 20000000 01000000 00000000  10000000 01000000 02000000 21000000");
    let info = InterruptInfo { index: 2, count: 33, descriptors: true, ..InterruptInfo::default() };
    bench.answered(msix, Ok(Answer::Interrupt(info)));
    bench.send("0100 0400 20000000 01000000 00000000  10000000 03000000 09000000 05000000");
    let info = DeviceInfo { resettable: true, pci: true, regions: 9, interrupts: 5 };
    bench.answered(device, Ok(Answer::Device(info)));
    assert_eq!(bench.client.poll_timeout(), None);
    // A repeated reply, or a reply to another command, is ignored.
    bench.send_with("0100 0400 20000000 01000000 00000000  10000000 03000000 09000000 05000000", 2);
    bench.client.reset(NOW);
    bench.drain();
    bench.send("0800 0400 20000000 01000000 00000000  10000000 03000000 09000000 05000000");
    assert_eq!((bench.next(), bench.counter.count()), (None, 0));
}

#[test]
fn answers_that_do_not_fit_their_questions() {
    let mut bench = Bench::new();
    for payload in [
        // Another offset, another region, more than requested, fewer bytes than announced, no
        // payload.
        "22000000 01000000 00000000  0500000000000000 07000000 02000000 0600",
        "22000000 01000000 00000000  0400000000000000 06000000 02000000 0600",
        "23000000 01000000 00000000  0400000000000000 07000000 03000000 060000",
        "21000000 01000000 00000000  0400000000000000 07000000 02000000 06",
        "10000000 01000000 00000000",
        "10000000 21000000 00000000",
    ] {
        let request = bench.client.read(NOW, RegionIndex::CONFIG, 4, 2);
        let Some(Output::Transmit { bytes, .. }) = bench.next() else { panic!("nothing sent") };
        bench.send(&alloc::format!("{:02x}00 0900 {payload}", bytes[0]));
        let error = if payload.contains("21000000 00000000") { Errno::EIO } else { Errno::EINVAL };
        bench.answered(request, Err(error));
    }
    let request = bench.client.device_info(NOW);
    bench.drain();
    bench.send_with("0700 0400 20000000 01000000 00000000  10000000 03000000 09000000 05000000", 17);
    bench.answered(request, Err(Errno::EINVAL));
    assert_eq!(bench.counter.count(), 0);
}

#[test]
fn memory_and_interrupts_go_with_their_descriptors() {
    let mut bench = Bench::new();
    let descriptor = bench.counter.open();
    let map =
        DmaMap { readable: true, writable: false, offset: 0x1000, address: 0x10_0000, length: 0x20_0000 };
    let request = bench.client.map(NOW, map, Some(descriptor));
    bench.expect_with("0100 0200 30000000 00000000 00000000  20000000 01000000 0010000000000000 0000100000000000 0000200000000000", 1);
    bench.send("0100 0200 10000000 01000000 00000000");
    bench.answered(request, Ok(Answer::Done));
    let request = bench.client.unmap(NOW, DmaUnmap::one(0x10_0000, 0x20_0000));
    bench.expect("0200 0300 28000000 00000000 00000000  18000000 00000000 0000100000000000 0000200000000000");
    bench.send("0200 0300 28000000 01000000 00000000  18000000 00000000 0000100000000000 0000200000000000");
    bench.answered(request, Ok(Answer::Done));
    let mut three: Vec<_> = (0..3).map(|_| bench.counter.open()).collect();
    let two = InterruptData::Descriptors(three.split_off(1));
    let (msix, trigger) = (InterruptIndex::Msix, InterruptAction::Trigger);
    bench.client.set_interrupts(NOW, msix, trigger, (3, 2), two);
    bench
        .expect_with("0300 0800 24000000 00000000 00000000  14000000 24000000 02000000 03000000 02000000", 2);
    bench.client.set_interrupts(
        NOW,
        msix,
        InterruptAction::Trigger,
        (0, 2),
        InterruptData::Bools(vec![true, false]),
    );
    bench.expect("0400 0800 26000000 00000000 00000000  16000000 22000000 02000000 00000000 02000000 0100");
    // More descriptors than the server accepts.
    three.extend((0..2).map(|_| bench.counter.open()));
    let request = bench.client.set_interrupts(NOW, msix, trigger, (0, 3), InterruptData::Descriptors(three));
    bench.answered(request, Err(Errno::E2BIG));
    assert_eq!(bench.counter.count(), 0);
}

#[test]
fn a_server_reads_and_writes_memory_and_is_answered() {
    let mut bench = Bench::new();
    bench.send("0700 0b00 20000000 00000000 00000000  0010000000000000 0400000000000000");
    let Some(Output::DmaRead { token: read, address: 0x1000, length: 4 }) = bench.next() else {
        panic!("no read")
    };
    bench.send("0700 0c00 22000000 00000000 00000000  0020000000000000 0200000000000000 0a0b");
    let Some(Output::DmaWrite { token: Some(write), address: 0x2000, data }) = bench.next() else {
        panic!("no write")
    };
    assert_eq!(*data, [10, 11]);
    bench.client.dma_read_done(write, Err(Errno::EIO));
    bench.client.dma_write_done(write, Ok(()));
    bench.expect("0700 0c00 20000000 01000000 00000000  0020000000000000 0200000000000000");
    bench.client.dma_read_done(read, Ok(&[1, 2, 3, 4]));
    bench.expect("0700 0b00 24000000 01000000 00000000  0010000000000000 0400000000000000 01020304");
    bench.client.dma_read_done(read, Ok(&[1, 2, 3, 4]));
    // The write is posted.
    bench.send("0700 0c00 22000000 10000000 00000000  0020000000000000 0200000000000000 0a0b");
    assert!(matches!(bench.drain()[..], [Output::DmaWrite { token: None, .. }]));
    for (refused, errno) in [
        ("0b00 20000000 00000000 00000000  0010000000000000 0000000000000000", Errno::EINVAL),
        ("0b00 20000000 00000000 00000000  ffffffffffffffff 0200000000000000", Errno::EINVAL),
        ("0b00 20000000 00000000 00000000  0010000000000000 0100100000000000", Errno::E2BIG),
        ("0b00 20000000 00000000 00000000  0010000000000000 0000000001000000", Errno::E2BIG),
        ("0c00 22000000 00000000 00000000  0020000000000000 0300000000000000 0a0b", Errno::EINVAL),
        ("0c00 10000000 00000000 00000000", Errno::EINVAL),
        ("0900 20000000 00000000 00000000  0020000000000000 0300000000000000", Errno::ENOSYS),
    ] {
        bench.send(&["0700", refused].concat());
        let command = &refused[..4];
        bench.expect(&alloc::format!("0700 {command} 10000000 21000000 {:02x}000000", errno.0));
    }
    bench.send_with("0700 0b00 20000000 00000000 00000000  0010000000000000 0400000000000000", 1);
    bench.expect("0700 0b00 10000000 21000000 16000000");
    assert_eq!(bench.counter.count(), 0);
}

#[test]
fn unanswered_requests_fail() {
    let mut bench = Bench::new();
    let request = bench.client.reset(NOW);
    bench.drain();
    assert_eq!(bench.client.poll_timeout(), Some(LATE));
    bench.client.handle_timeout(LATE);
    bench.answered(request, Err(Errno::ETIMEDOUT));
    let request = bench.client.reset(LATE);
    bench.drain();
    bench.client.handle_input(LATE, Input::Disconnected);
    bench.answered(request, Err(Errno::ENOTCONN));
    bench.client.post(RegionIndex::BAR0, 0, &[0; 4]);
    assert_eq!((bench.next(), bench.client.poll_timeout()), (None, None));

    let mut bench = Bench::new();
    for _ in 0..crate::REQUESTS_MAX {
        bench.client.reset(NOW);
    }
    bench.drain();
    let request = bench.client.reset(NOW);
    bench.answered(request, Err(Errno::EBUSY));
    let request = bench.client.read(NOW, RegionIndex::BAR0, 0, crate::DATA_MAX + 1);
    bench.answered(request, Err(Errno::E2BIG));
}
