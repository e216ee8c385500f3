//! Byte sequences written by hand, from the tables of the specification (QEMU's
//! docs/interop/vfio-user.rst) and from the observed messages of clients.

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::index::Area;
use crate::test_bench::{Counted, Counter, hex};
use crate::wire::{DmaMap, HeaderError, ParseError, VersionError};
use engine::Nanos;

const NOW: Instant = Instant::from_nanos(1_000);

fn config() -> Config {
    let mut config = Config::default();
    config.regions[0] = RegionConfig {
        areas: vec![Area { offset: 0x1000, length: 0x1000 }],
        file_offset: 0x10_0000,
        ..RegionConfig::new(0x4000)
    };
    config.regions[6] = RegionConfig { writable: false, ..RegionConfig::new(0x800) };
    config.regions[7] = RegionConfig::new(4096);
    config.interrupts[0] = InterruptConfig { count: 1, all_at_once: false };
    config.interrupts[2] = InterruptConfig { count: 33, all_at_once: true };
    config.interrupts[3] = InterruptConfig { count: 1, all_at_once: true };
    config
}

struct Bench {
    server: Server<Counted>,
    counter: Counter,
}

impl Bench {
    fn fresh() -> Self {
        let mut server = Server::new(config());
        server.handle_input(NOW, Input::Connected);
        Self { server, counter: Counter::default() }
    }
    /// A server whose client has sent version 0.1 without capabilities, as SPDK's client does.
    fn new() -> Self {
        let mut bench = Self::fresh();
        bench.send("0000 0100 14000000 00000000 00000000  0000 0100");
        bench.drain();
        bench
    }
    fn send(&mut self, text: &str) {
        self.send_with(text, 0);
    }
    fn send_with(&mut self, text: &str, descriptors: usize) {
        let descriptors = (0..descriptors).map(|_| self.counter.open()).collect();
        self.server.handle_input(NOW, Input::Received { bytes: &hex(text), descriptors });
    }
    fn next(&mut self) -> Option<Output<Counted>> {
        self.server.poll_output()
    }
    fn drain(&mut self) -> Vec<Output<Counted>> {
        core::iter::from_fn(|| self.server.poll_output()).collect()
    }
    /// Expects the next output to be this message, without a descriptor.
    #[track_caller]
    fn expect(&mut self, text: &str) {
        match self.next() {
            Some(Output::Transmit { bytes, shared: None }) => assert_eq!(&*bytes, hex(text), "{bytes:02x?}"),
            other => panic!("{other:?} where a message was expected"),
        }
    }
    /// Sends `text` and expects only the reply `errno`. `text` must begin with a header that has
    /// identifier 0001.
    #[track_caller]
    fn refused(&mut self, text: &str, errno: Errno) {
        self.refused_with(text, 0, errno);
    }
    #[track_caller]
    fn refused_with(&mut self, text: &str, descriptors: usize, errno: Errno) {
        let open = self.counter.count();
        self.send_with(text, descriptors);
        let Some(Output::Transmit { bytes, .. }) = self.next() else { panic!("no reply to {text}") };
        let sent = hex(text);
        assert_eq!(bytes.len(), 16);
        assert_eq!(
            (&bytes[..4], &bytes[4..8], &bytes[8..12]),
            (&sent[..4], &[16, 0, 0, 0][..], &[0x21, 0, 0, 0][..])
        );
        assert_eq!(bytes[12..], errno.0.to_le_bytes(), "{errno}");
        assert_eq!((self.next(), self.counter.count()), (None, open));
    }
}

/// QEMU's first message: version 0.0, and capabilities as JSON with a zero byte at the end.
#[test]
fn qemu_is_answered_with_its_own_minor_version_and_the_capabilities_it_has_named() {
    let json = "{\"capabilities\": {\"pgsizes\": 4096, \"max_msg_fds\": 16, \"max_dma_maps\": 65535, \
                \"max_data_xfer_size\": 1048576, \"migration\": {\"pgsize\": 4096, \"max_bitmap_size\": 268435456}, \
                \"write_multiple\": true}}\0";
    let mut message = hex("0000 0100 00000000 00000000 00000000  0000 0000");
    message.extend_from_slice(json.as_bytes());
    let size = u32::try_from(message.len()).unwrap();
    message[4..8].copy_from_slice(&size.to_le_bytes());
    let mut bench = Bench::fresh();
    bench.server.handle_input(NOW, Input::Received { bytes: &message, descriptors: vec![] });
    let Some(Output::Transmit { bytes, shared: None }) = bench.next() else { panic!("no reply") };
    let json = "{\"capabilities\":{\"max_msg_fds\":16,\"max_data_xfer_size\":1048576,\"max_dma_maps\":65535,\
                \"pgsizes\":4096,\"write_multiple\":true}}\0";
    assert_eq!(bytes[..4], [0, 0, 1, 0]);
    assert_eq!(bytes[4..8], u32::try_from(bytes.len()).unwrap().to_le_bytes());
    assert_eq!(bytes[8..20], hex("01000000 00000000 0000 0000"));
    assert_eq!(core::str::from_utf8(&bytes[20..]), Ok(json));
    let Some(Output::Negotiated(negotiated)) = bench.next() else { panic!("not negotiated") };
    assert_eq!((negotiated.minor, negotiated.data_max, negotiated.descriptors_max), (0, 1 << 20, 16));
    assert_eq!(bench.server.poll_timeout(), None);
}

#[test]
fn spdk_is_answered_without_json() {
    let mut bench = Bench::fresh();
    assert_eq!(bench.server.poll_timeout(), Some(NOW + Nanos::from_secs(10)));
    bench.send("0700 0100 14000000 00000000 00000000  0000 0100");
    bench.expect("0700 0100 14000000 01000000 00000000  0000 0100");
    let Some(Output::Negotiated(negotiated)) = bench.next() else { panic!("not negotiated") };
    assert_eq!((negotiated.minor, negotiated.data_max, negotiated.descriptors_max), (1, 1 << 20, 1));
}

#[test]
fn a_newer_minor_version_is_answered_with_ours_and_a_newer_major_one_with_the_end() {
    let mut bench = Bench::fresh();
    bench.send("0700 0100 14000000 00000000 00000000  0000 0900");
    bench.expect("0700 0100 14000000 01000000 00000000  0000 0100");
    let mut bench = Bench::fresh();
    bench.send("0700 0100 14000000 00000000 00000000  0200 0000");
    bench.expect("0700 0100 10000000 21000000 5f000000");
    assert_eq!(bench.drain(), [Output::Close { reason: CloseReason::Major { major: 2 } }]);
}

#[test]
fn a_wrong_first_message_or_header_ends_the_connection_with_a_reason() {
    let closes = |texts: &[&str], expected: CloseReason, says: &str| {
        let mut bench = Bench::fresh();
        for text in texts {
            bench.send_with(text, 1);
        }
        let last = bench.drain().pop();
        assert_eq!(last, Some(Output::Close { reason: expected }));
        assert!(expected.to_string().contains(says), "{expected}");
        assert_eq!(bench.counter.count(), 0);
        // The connection is over, and later bytes are dropped.
        bench.send_with("0100 0400 20000000 00000000 00000000", 2);
        assert_eq!((bench.next(), bench.counter.count(), bench.server.poll_timeout()), (None, 0, None));
    };
    let command = Command::DeviceGetInfo;
    closes(
        &["0000 0400 10000000 00000000 00000000"],
        CloseReason::NotVersion { command },
        "DeviceGetInfo (4)",
    );
    let size = |size| CloseReason::Header(HeaderError::Size { size });
    closes(&["0000 0100 0f000000 00000000 00000000"], size(15), "15 B");
    closes(&["0000 0100", "21001000 00000000 00000000"], size(0x10_0021), "1048609 B");
    let flags = CloseReason::Header(HeaderError::Type { flags: 2 });
    closes(&["0000 0100 10000000 02000000 00000000"], flags, "0x2");
    let truncated = VersionError::Payload(ParseError::Truncated { need: 4, have: 3 });
    closes(&["0000 0100 13000000 00000000 00000000 000000"], CloseReason::Version(truncated), "3 B");
    let unterminated = CloseReason::Version(VersionError::Unterminated);
    closes(&["0000 0100 16000000 00000000 00000000 0000 0000 7b7d"], unterminated, "zero byte");
}

#[test]
fn a_silent_client_is_sent_away() {
    let mut bench = Bench::fresh();
    let later = NOW + Nanos::from_secs(10);
    bench.server.handle_timeout(later);
    assert_eq!(bench.drain(), [Output::Close { reason: CloseReason::Handshake }]);
    assert_eq!(bench.server.poll_timeout(), None);
}

#[test]
fn memory_is_mapped_with_and_without_a_descriptor_and_taken_back() {
    let mut bench = Bench::new();
    // argsz 32, readable and writable, offset 0, address 0x100000, size 0x200000; then a ROM,
    // readable, without a descriptor.
    let request = "0500 0200 30000000 00000000 00000000  20000000 03000000 0000000000000000 0000100000000000 0000200000000000";
    bench.send_with(request, 1);
    bench.send("0600 0200 30000000 00000000 00000000  20000000 01000000 0000000000000000 0000fc0000000000 0000040000000000");
    let Some(Output::Map { token, map, descriptor }) = bench.next() else { panic!("not mapped") };
    let (address, length, offset) = (0x10_0000, 0x20_0000, 0);
    assert_eq!(map, DmaMap { readable: true, writable: true, offset, address, length });
    assert_eq!(descriptor.as_ref().map(|descriptor| descriptor.number), Some(1));
    let Some(Output::Map { token: rom, map, descriptor: None }) = bench.next() else {
        panic!("ROM not mapped")
    };
    assert!(!map.writable);
    // Answers may be in another order.
    bench.server.map_done(rom, Ok(()));
    bench.server.map_done(token, Ok(()));
    bench.expect("0600 0200 10000000 01000000 00000000");
    bench.expect("0500 0200 10000000 01000000 00000000");
    bench.server.map_done(token, Ok(()));
    assert_eq!(bench.next(), None);
    drop(descriptor);
    assert_eq!(bench.counter.count(), 0);

    // A piece that overlaps another one at either end is refused.
    bench.refused_with(&request.replacen("0500", "0100", 1), 1, Errno::EEXIST);
    bench.refused("0100 0200 30000000 00000000 00000000  20000000 03000000 0000000000000000 00f00f0000000000 0020000000000000", Errno::EEXIST);
    bench.refused("0100 0200 30000000 00000000 00000000  20000000 03000000 0000000000000000 00f02f0000000000 0020000000000000", Errno::EEXIST);

    // Only a whole piece can be taken back. SPDK sends the descriptor again.
    bench.refused(
        "0100 0300 28000000 00000000 00000000  18000000 00000000 0000100000000000 0000100000000000",
        Errno::ENOENT,
    );
    bench.send_with(
        "0800 0300 28000000 00000000 00000000  18000000 00000000 0000100000000000 0000200000000000",
        1,
    );
    let Some(Output::Unmap { token: Some(token), address: 0x10_0000, length: 0x20_0000 }) = bench.next()
    else {
        panic!("not unmapped")
    };
    assert_eq!((bench.next(), bench.counter.count()), (None, 0));
    bench.server.unmap_done(token);
    bench.expect("0800 0300 28000000 01000000 00000000  18000000 00000000 0000100000000000 0000200000000000");
}

#[test]
fn all_memory_can_be_taken_back_at_once() {
    let mut bench = Bench::new();
    let all = "0900 0300 28000000 00000000 00000000  18000000 02000000 0000000000000000 0000000000000000";
    let answer = all.replacen("00000000", "01000000", 1);
    bench.send(all);
    bench.expect(&answer);
    for address in ["0000", "0010", "0020"] {
        bench.send(&alloc::format!("0500 0200 30000000 00000000 00000000  20000000 03000000 0000000000000000 {address}000000000000 0010000000000000"));
    }
    bench.drain();
    bench.send(all);
    let outputs = bench.drain();
    assert_eq!(outputs.len(), 3);
    for output in outputs {
        assert_eq!(bench.next(), None);
        let Output::Unmap { token: Some(token), .. } = output else { panic!("{output:?}") };
        bench.server.unmap_done(token);
    }
    bench.expect(&answer);
}

#[test]
fn memory_that_the_world_cannot_map_is_not_mapped() {
    let mut bench = Bench::new();
    let map = "0500 0200 30000000 00000000 00000000  20000000 03000000 0000000000000000 0000100000000000 0000200000000000";
    bench.send_with(map, 1);
    let Some(Output::Map { token, .. }) = bench.next() else { panic!("not mapped") };
    bench.server.map_done(token, Err(Errno::ENODEV));
    bench.expect("0500 0200 10000000 21000000 13000000");
    bench.send_with(map, 1);
    assert!(matches!(bench.next(), Some(Output::Map { .. })));
}

#[test]
fn invalid_maps_are_refused() {
    let mut bench = Bench::new();
    for payload in [
        // argsz, flags, offset, address, size
        "1f000000 03000000 0000000000000000 0000100000000000 0000200000000000",
        "20000000 04000000 0000000000000000 0000100000000000 0000200000000000",
        "20000000 03000000 0000000000000000 0000100000000000 0000000000000000",
        "20000000 03000000 0000000000000000 00f0ffffffffffff 0020000000000000",
        "20000000 03000000 00f0ffffffffff7f 0000000000000000 0020000000000000",
        "20000000 03000000 ffffffffffffffff 0000000000000000 0020000000000000",
    ] {
        bench.refused_with(&["0100 0200 30000000 00000000 00000000", payload].concat(), 1, Errno::EINVAL);
    }
    let fine = "0100 0200 30000000 00000000 00000000  20000000 03000000 0000000000000000 0000100000000000 0000200000000000";
    bench.refused_with(fine, 2, Errno::EINVAL);
    // Memory that no file could hold is allowed without a file.
    bench.send("0100 0200 30000000 00000000 00000000  20000000 03000000 0000000000000000 0000008000000000 0000000000000080");
    assert!(matches!(
        bench.next(),
        Some(Output::Map { descriptor: None, map: DmaMap { length: 0x8000_0000_0000_0000, .. }, .. })
    ));
    bench.refused_with(fine, 17, Errno::EINVAL);
    bench.refused_with("0100 0200 11000000 00000000 00000000  20", 1, Errno::EINVAL);
}

#[test]
fn the_device_and_its_regions_are_reported() {
    let mut bench = Bench::new();
    bench.send("0200 0400 20000000 00000000 00000000  10000000 00000000 00000000 00000000");
    bench.expect("0200 0400 20000000 01000000 00000000  10000000 03000000 09000000 05000000");

    // QEMU first has room for the fixed part only. The place of the capability must already be
    // right there.
    bench.send("0300 0500 30000000 00000000 00000000  20000000 00000000 00000000 00000000 0000000000000000 0000000000000000");
    let fixed = "40000000 0f000000 00000000 20000000 0040000000000000 0000100000000000";
    let short = hex(&["0300 0500 30000000 01000000 00000000", fixed].concat());
    let shared = Some(RegionIndex::BAR0);
    assert_eq!(bench.next(), Some(Output::Transmit { bytes: short.into(), shared }));
    bench.send("0400 0500 30000000 00000000 00000000  40000000 00000000 00000000 00000000 0000000000000000 0000000000000000");
    // Capability 1 in version 1, the last; one area at 0x1000 with length 0x1000.
    let sparse = "0100 0100 00000000 01000000 00000000 0010000000000000 0010000000000000";
    let full = hex(&["0400 0500 50000000 01000000 00000000", fixed, sparse].concat());
    assert_eq!(bench.next(), Some(Output::Transmit { bytes: full.clone().into(), shared }));

    // SPDK sends 4,064 B, all zeros except for the first, with room for as many.
    let mut request = hex("0400 0500 f00f0000 00000000 00000000  e00f0000");
    request.resize(4080, 0);
    bench.server.handle_input(NOW, Input::Received { bytes: &request, descriptors: vec![] });
    assert_eq!(bench.next(), Some(Output::Transmit { bytes: full.into(), shared }));

    // Configuration space, an absent region, and a region that does not exist.
    bench.send("0500 0500 30000000 00000000 00000000  20000000 00000000 07000000 00000000 0000000000000000 0000000000000000");
    bench.expect("0500 0500 30000000 01000000 00000000  20000000 03000000 07000000 00000000 0010000000000000 0000000000000000");
    bench.send("0500 0500 30000000 00000000 00000000  20000000 00000000 05000000 00000000 0000000000000000 0000000000000000");
    bench.expect("0500 0500 30000000 01000000 00000000  20000000 00000000 05000000 00000000 0000000000000000 0000000000000000");
    bench.refused("0100 0500 30000000 00000000 00000000  20000000 00000000 09000000 00000000 0000000000000000 0000000000000000", Errno::EINVAL);
    // There are no descriptors for accesses.
    bench.send("0600 0600 20000000 00000000 00000000  10000000 00000000 00000000 00000000");
    bench.expect("0600 0600 20000000 01000000 00000000  10000000 00000000 00000000 00000000");
}

/// `{"capabilities":{"max_msg_fds":0}}`
#[test]
fn a_client_that_takes_no_descriptors_can_map_nothing() {
    let mut bench = Bench::fresh();
    let mut message = hex("0000 0100 37000000 00000000 00000000  0000 0000");
    message.extend_from_slice(b"{\"capabilities\":{\"max_msg_fds\":0}}\0");
    bench.server.handle_input(NOW, Input::Received { bytes: &message, descriptors: vec![] });
    assert_eq!(bench.drain().len(), 2);
    bench.send("0300 0500 30000000 00000000 00000000  40000000 00000000 00000000 00000000 0000000000000000 0000000000000000");
    bench.expect("0300 0500 30000000 01000000 00000000  20000000 03000000 00000000 00000000 0040000000000000 0000100000000000");
}

#[test]
fn kinds_of_interrupts_are_reported() {
    let mut bench = Bench::new();
    for (index, flags, count) in
        [("00", "07", "01"), ("01", "00", "00"), ("02", "09", "21"), ("03", "09", "01")]
    {
        bench.send(&alloc::format!(
            "0200 0700 20000000 00000000 00000000  10000000 00000000 {index}000000 00000000"
        ));
        bench.expect(&alloc::format!(
            "0200 0700 20000000 01000000 00000000  10000000 {flags}000000 {index}000000 {count}000000"
        ));
    }
    bench.refused("0100 0700 20000000 00000000 00000000  10000000 00000000 05000000 00000000", Errno::EINVAL);
}

/// A `SET_IRQS` message with identifier 1, from flags, index, start, count, and bytes.
fn set(flags: u8, index: u8, start: u8, count: u8, data: &str) -> alloc::string::String {
    let data_length = hex(data).len();
    let (argsz, size) = (20 + data_length, 36 + data_length);
    alloc::format!(
        "0100 0800 {size:02x}000000 00000000 00000000  {argsz:02x}000000 {flags:02x}000000 {index:02x}000000 \
         {start:02x}000000 {count:02x}000000 {data}"
    )
}

#[test]
fn interrupts_are_set_up_used_and_torn_down() {
    let mut bench = Bench::new();
    let done = "0100 0800 10000000 01000000 00000000";
    let expect = |bench: &mut Bench, text: &str, descriptors, index, action, start, count, data| {
        bench.send_with(text, descriptors);
        assert_eq!(bench.next(), Some(Output::SetInterrupts { index, action, start, count, data }));
        bench.expect(done);
    };
    let (trigger, unmask) = (InterruptAction::Trigger, InterruptAction::Unmask);
    let (intx, msix) = (InterruptIndex::Intx, InterruptIndex::Msix);
    let mut opened = Counter::default();
    let mut open = |count| InterruptData::Descriptors((0..count).map(|_| opened.open()).collect());
    // INTx as QEMU sets it up and unmasks it; MSI-X enabled without a descriptor, then vector by
    // vector.
    expect(&mut bench, &set(0x24, 0, 0, 1, ""), 1, intx, trigger, 0, 1, open(1));
    expect(&mut bench, &set(0x11, 0, 0, 1, ""), 0, intx, unmask, 0, 1, InterruptData::None);
    expect(&mut bench, &set(0x21, 0, 0, 0, ""), 0, intx, trigger, 0, 0, InterruptData::None);
    expect(&mut bench, &set(0x24, 2, 0, 1, ""), 0, msix, trigger, 0, 1, open(0));
    expect(&mut bench, &set(0x24, 2, 1, 16, ""), 16, msix, trigger, 1, 16, open(16));
    let bools = InterruptData::Bools(vec![true, false, true]);
    expect(&mut bench, &set(0x22, 2, 4, 3, "01 00 ff"), 0, msix, trigger, 4, 3, bools);
    expect(&mut bench, &set(0x21, 2, 0, 33, ""), 0, msix, trigger, 0, 33, InterruptData::None);
    assert_eq!(bench.counter.count(), 0);
    // Interrupts that are set up when the client disconnects are torn down. The pin was torn down
    // before.
    bench.server.handle_input(NOW, Input::Disconnected);
    let data = InterruptData::None;
    assert_eq!(
        bench.drain(),
        [Output::SetInterrupts { index: msix, action: trigger, start: 0, count: 0, data }]
    );
}

#[test]
fn invalid_interrupt_operations_are_refused() {
    let mut bench = Bench::new();
    for (text, descriptors) in [
        // An unknown kind; beyond the last vector; a range that wraps; an empty range.
        (set(0x24, 5, 0, 1, ""), 1),
        (set(0x24, 2, 33, 1, ""), 1),
        (set(0x24, 2, 32, 2, ""), 2),
        (set(0x24, 2, 0, 0, ""), 0),
        (set(0x21, 2, 1, 0, ""), 0),
        // Several kinds of data or actions together, none at all, or unknown ones.
        (set(0x25, 2, 0, 1, ""), 1),
        (set(0x34, 2, 0, 1, ""), 1),
        (set(0x20, 2, 0, 1, ""), 0),
        (set(0x04, 2, 0, 1, ""), 1),
        (set(0x64, 2, 0, 1, ""), 1),
        // Descriptors for only some vectors, or where none are allowed; bytes for only some
        // vectors, or where none are allowed.
        (set(0x24, 2, 0, 2, ""), 1),
        (set(0x21, 2, 0, 1, ""), 1),
        (set(0x22, 2, 0, 2, "01"), 0),
        (set(0x22, 2, 0, 1, "01 01"), 0),
        (set(0x24, 2, 0, 1, "01"), 1),
        // Masking of vectors that cannot be masked, and a descriptor for unmasking.
        (set(0x09, 2, 0, 1, ""), 0),
        (set(0x14, 0, 0, 1, ""), 1),
        // Too many descriptors.
        (set(0x24, 2, 0, 17, ""), 17),
    ] {
        bench.refused_with(&text, descriptors, Errno::EINVAL);
    }
    let wraps = "0100 0800 24000000 00000000 00000000  14000000 24000000 02000000 ffffffff 01000000";
    bench.refused_with(wraps, 1, Errno::EINVAL);
    bench.server.handle_input(NOW, Input::Disconnected);
    assert_eq!(bench.drain(), []);
}

#[test]
fn regions_are_read_and_written_and_answered_in_any_order() {
    let mut bench = Bench::new();
    bench.send("0a00 0900 20000000 00000000 00000000  1400000000000000 00000000 04000000");
    bench.send("0b00 0a00 24000000 00000000 00000000  0400000000000000 07000000 04000000 06000000");
    // A posted write, which is how QEMU writes to a register.
    bench.send("0c00 0a00 24000000 10000000 00000000  0010000000000000 00000000 04000000 2a000000");
    let Some(Output::RegionRead { token: read, region: RegionIndex::BAR0, offset: 0x14, length: 4 }) =
        bench.next()
    else {
        panic!("no read")
    };
    let Some(Output::RegionWrite { token: Some(write), region: RegionIndex::CONFIG, offset: 4, data }) =
        bench.next()
    else {
        panic!("no write")
    };
    assert_eq!(*data, [6, 0, 0, 0]);
    let Some(Output::RegionWrite { token: None, region: RegionIndex::BAR0, offset: 0x1000, data }) =
        bench.next()
    else {
        panic!("no posted write")
    };
    assert_eq!((&*data, bench.next()), (&[0x2a, 0, 0, 0][..], None));
    bench.server.write_done(write, Ok(()));
    bench.expect("0b00 0a00 20000000 01000000 00000000  0400000000000000 07000000 04000000");
    bench.server.read_done(read, Ok(&[1, 2, 3, 4]));
    bench.expect("0a00 0900 24000000 01000000 00000000  1400000000000000 00000000 04000000 01020304");
    // The read has been answered already.
    bench.server.read_done(read, Ok(&[1, 2, 3, 4]));
    assert_eq!(bench.next(), None);

    bench.send("0a00 0900 20000000 00000000 00000000  1400000000000000 00000000 04000000");
    let Some(Output::RegionRead { token: read, .. }) = bench.next() else { panic!("no read") };
    bench.server.read_done(read, Err(Errno::EIO));
    bench.expect("0a00 0900 10000000 21000000 05000000");
}

#[test]
fn accesses_that_a_region_does_not_allow() {
    let mut bench = Bench::new();
    // Beyond the end, a wrapping offset, no bytes, more than 1 MiB, an unknown region, an absent
    // region.
    for access in [
        "fd3f000000000000 00000000 04000000",
        "ffffffffffffffff 00000000 04000000",
        "0000000000000000 00000000 00000000",
        "0000000000000000 00000000 01001000",
        "0000000000000000 09000000 04000000",
        "0000000000000000 05000000 04000000",
    ] {
        bench.refused(&["0100 0900 20000000 00000000 00000000", access].concat(), Errno::EINVAL);
    }
    bench.refused(
        "0100 0a00 24000000 00000000 00000000  0000000000000000 06000000 04000000 00000000",
        Errno::EACCES,
    );
    // More or fewer bytes than announced; a read with bytes.
    bench.refused(
        "0100 0a00 23000000 00000000 00000000  0000000000000000 00000000 04000000 000000",
        Errno::EINVAL,
    );
    bench.refused(
        "0100 0a00 25000000 00000000 00000000  0000000000000000 00000000 04000000 0000000000",
        Errno::EINVAL,
    );
    bench.refused(
        "0100 0900 21000000 00000000 00000000  0000000000000000 00000000 04000000 00",
        Errno::EINVAL,
    );
    bench.refused_with(
        "0100 0900 20000000 00000000 00000000  1400000000000000 00000000 04000000",
        1,
        Errno::EINVAL,
    );
    // A wrong posted write is not even refused.
    bench.send("0100 0a00 23000000 10000000 00000000  0000000000000000 00000000 04000000 000000");
    assert_eq!(bench.next(), None);
}

#[test]
fn several_writes_in_one_message_are_answered_when_all_are() {
    let mut bench = Bench::new();
    let two = "0100 0f00 48000000 00000000 00000000  0200000000000000 \
               0010000000000000 00000000 04000000 0102030400000000 \
               0410000000000000 00000000 08000000 0102030405060708";
    bench.send(two);
    let outputs = bench.drain();
    let [
        Output::RegionWrite { token: Some(first), data, offset: 0x1000, .. },
        Output::RegionWrite { token: Some(second), .. },
    ] = &outputs[..]
    else {
        panic!("{outputs:?}")
    };
    assert_eq!((&**data, first), (&[1, 2, 3, 4][..], second));
    bench.server.write_done(*first, Ok(()));
    assert_eq!(bench.next(), None);
    bench.server.write_done(*first, Ok(()));
    bench.expect("0100 0f00 18000000 01000000 00000000  0200000000000000");
    // No write is executed if one of them is impossible; then counts that do not match.
    bench.refused(&two.replace("0410000000000000", "fd3f000000000000"), Errno::EINVAL);
    bench.refused(&two.replace("0200000000000000", "0300000000000000"), Errno::EINVAL);
    bench.refused(&two.replace("0200000000000000", "ffffffffffffffff"), Errno::EINVAL);
    bench.refused(&two.replace("00000000 08000000", "00000000 09000000"), Errno::EINVAL);
    bench.refused("0100 0f00 18000000 00000000 00000000  0000000000000000", Errno::EINVAL);
}

#[test]
fn a_reset_is_passed_on_and_absent_features_are_reported() {
    let mut bench = Bench::new();
    bench.send("0100 0d00 10000000 00000000 00000000");
    let Some(Output::Reset { token }) = bench.next() else { panic!("no reset") };
    bench.server.reset_done(token, Ok(()));
    bench.expect("0100 0d00 10000000 01000000 00000000");
    bench.refused("0100 1000 18000000 00000000 00000000  08000000 01000100", Errno::EOPNOTSUPP);
    bench.refused("0100 1100 18000000 00000000 00000000  08000000 00000000", Errno::EOPNOTSUPP);
    bench.refused("0100 1200 18000000 00000000 00000000  08000000 00000000", Errno::EOPNOTSUPP);
    bench.refused("0100 0e00 18000000 00000000 00000000  08000000 00000000", Errno::EOPNOTSUPP);
    bench.refused("0100 6300 10000000 00000000 00000000", Errno::ENOSYS);
    bench.refused("0100 0100 14000000 00000000 00000000  0000 0100", Errno::EINVAL);
    bench.refused("0100 0b00 20000000 00000000 00000000  0000000000000000 0400000000000000", Errno::EINVAL);
}

/// Answers of QEMU 11.1.3, as observed: 16 B read, 16 B written.
#[test]
fn qemu_answers_about_its_memory() {
    let mut bench = Bench::new();
    bench.send("0500 0200 30000000 00000000 00000000  20000000 03000000 0000000000000000 0000000000000000 0000010000000000");
    bench.drain();
    bench.server.dma_read(NOW, Cookie(1), 0x1000, 16);
    bench.expect("0000 0b00 20000000 00000000 00000000  0010000000000000 1000000000000000");
    bench.send("0000 0b00 30000000 01000000 00000000  00100000000000001000000000000000887766554433221100ffeeddccbbaa99");
    let data = hex("887766554433221100ffeeddccbbaa99").into();
    assert_eq!(bench.next(), Some(Output::DmaData { cookie: Cookie(1), offset: 0, data, last: true }));
    bench.server.dma_write(NOW, Cookie(2), 0x2000, hex("0102030405060708090a0b0c0d0e0f10").into());
    bench.drain();
    bench.send("0100 0c00 20000000 01000000 00000000  00200000000000001000000000000000");
    assert_eq!(bench.next(), Some(Output::DmaWritten { cookie: Cookie(2) }));
}

/// A bench whose client accepts 8 B per message and shares 64 KiB at address 0, and a readable page
/// behind that.
fn small() -> Bench {
    let mut bench = Bench::fresh();
    let json = "7b226361706162696c6974696573223a7b226d61785f646174615f786665725f73697a65223a387d7d00";
    bench.send(&["0000 0100 3e000000 00000000 00000000  0000 0100", json].concat());
    bench.send("0500 0200 30000000 00000000 00000000  20000000 03000000 0000000000000000 0000000000000000 0000010000000000");
    bench.send("0500 0200 30000000 00000000 00000000  20000000 01000000 0000000000000000 0000010000000000 0010000000000000");
    assert!(
        bench
            .drain()
            .iter()
            .any(|output| matches!(output, Output::Negotiated(client) if client.data_max == 8))
    );
    bench
}

#[test]
fn the_clients_memory_is_read_in_parts_as_large_as_it_takes() {
    let mut bench = small();
    let cookie = Cookie(77);
    // 0xfff8..0x10004: the end of one piece and the beginning of the next.
    bench.server.dma_read(NOW, cookie, 0xfff8, 12);
    bench.expect("0000 0b00 20000000 00000000 00000000  f8ff000000000000 0800000000000000");
    bench.expect("0100 0b00 20000000 00000000 00000000  0000010000000000 0400000000000000");
    // The client sends a request with the same identifier in between, and answers in another order.
    bench.send("0100 0d00 10000000 00000000 00000000");
    let Some(Output::Reset { token }) = bench.next() else { panic!("no reset") };
    bench.send("0100 0b00 24000000 01000000 00000000  0000010000000000 0400000000000000 0a0b0c0d");
    let data = Buffer::copy_from_slice(&[10, 11, 12, 13]);
    assert_eq!(bench.next(), Some(Output::DmaData { cookie, offset: 8, data, last: false }));
    bench.server.reset_done(token, Ok(()));
    bench.expect("0100 0d00 10000000 01000000 00000000");
    bench.send("0000 0b00 28000000 01000000 00000000  f8ff000000000000 0800000000000000 0102030405060708");
    let data = Buffer::copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(bench.next(), Some(Output::DmaData { cookie, offset: 0, data, last: true }));
    // The repeated answer is ignored.
    bench.send_with(
        "0000 0b00 28000000 01000000 00000000  f8ff000000000000 0800000000000000 0102030405060708",
        1,
    );
    assert_eq!((bench.next(), bench.counter.count(), bench.server.poll_timeout()), (None, 0, None));
}

#[test]
fn the_clients_memory_is_written_and_answered_with_more_or_less() {
    let mut bench = small();
    let cookie = Cookie(1);
    bench.server.dma_write(NOW, cookie, 0x20, Buffer::copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 9]));
    bench.expect("0000 0c00 28000000 00000000 00000000  2000000000000000 0800000000000000 0102030405060708");
    bench.expect("0100 0c00 21000000 00000000 00000000  2800000000000000 0100000000000000 09");
    bench.send("0000 0c00 10000000 01000000 00000000");
    assert_eq!(bench.next(), None);
    bench.send("0100 0c00 1c000000 01000000 00000000  2800000000000000 01000000");
    assert_eq!(bench.next(), Some(Output::DmaWritten { cookie }));
}

#[test]
fn accesses_to_the_clients_memory_fail_each_in_its_way() {
    let mut bench = small();
    let cookie = Cookie(3);
    let failed = |error| Some(Output::DmaFailed { cookie, error });
    bench.server.dma_read(NOW, cookie, 0x1_0ffd, 4);
    assert_eq!(bench.next(), failed(Errno::EFAULT));
    bench.server.dma_read(NOW, cookie, u64::MAX, 2);
    assert_eq!(bench.next(), failed(Errno::EFAULT));
    bench.server.dma_read(NOW, cookie, 0, 0);
    assert_eq!(bench.next(), failed(Errno::EINVAL));
    bench.server.dma_write(NOW, cookie, 0xfffc, Buffer::zeroed(8));
    assert_eq!(bench.next(), failed(Errno::EACCES));
    // One part is refused, so the access has failed regardless of the other part.
    bench.server.dma_read(NOW, cookie, 0, 16);
    assert_eq!(bench.drain().len(), 2);
    bench.send("0000 0b00 10000000 21000000 0e000000");
    assert_eq!(bench.next(), failed(Errno::EFAULT));
    bench.send("0100 0b00 28000000 01000000 00000000  0800000000000000 0800000000000000 0102030405060708");
    assert_eq!(bench.next(), None);
    // Another range than requested; fewer bytes than announced; an error without a number.
    for reply in [
        "0b00 24000000 01000000 00000000  0400000000000000 0400000000000000 01020304",
        "0b00 23000000 01000000 00000000  0000000000000000 0400000000000000 010203",
        "0b00 10000000 01000000 00000000",
        "0b00 10000000 21000000 00000000",
    ] {
        bench.server.dma_read(NOW, cookie, 0, 4);
        let Some(Output::Transmit { bytes, .. }) = bench.next() else { panic!("nothing sent") };
        bench.send(&alloc::format!("{:02x}00 {reply}", bytes[0]));
        assert!(matches!(bench.next(), Some(Output::DmaFailed { error: Errno::EINVAL | Errno::EIO, .. })));
    }
    // SPDK's client never answers.
    bench.server.dma_read(NOW, cookie, 0, 4);
    bench.drain();
    let late = bench.server.poll_timeout().unwrap();
    assert_eq!(late, NOW + Nanos::from_secs(5));
    bench.server.handle_timeout(late);
    assert_eq!((bench.next(), bench.server.poll_timeout()), (failed(Errno::ETIMEDOUT), None));
    // The client disconnects.
    bench.server.dma_read(NOW, cookie, 0, 4);
    bench.drain();
    bench.server.handle_input(NOW, Input::Disconnected);
    assert_eq!(bench.next(), failed(Errno::ENOTCONN));
    bench.drain();
    bench.server.dma_read(NOW, cookie, 0, 4);
    assert_eq!(bench.next(), failed(Errno::ENOTCONN));
}

#[test]
fn only_a_window_of_messages_is_under_way_and_a_limit_of_accesses_waits() {
    let mut bench = small();
    for number in 0..crate::DMA_MAX as u64 + 1 {
        bench.server.dma_read(NOW, Cookie(number), 0, 16);
    }
    let outputs = bench.drain();
    let sent = outputs.iter().filter(|output| matches!(output, Output::Transmit { .. })).count();
    assert_eq!(sent, crate::DMA_WINDOW);
    let cookie = Cookie(crate::DMA_MAX as u64);
    assert_eq!(outputs.last(), Some(&Output::DmaFailed { cookie, error: Errno::EBUSY }));
    bench.send("0000 0b00 28000000 01000000 00000000  0000000000000000 0800000000000000 0102030405060708");
    assert_eq!(bench.drain().len(), 2);
}

#[test]
fn a_client_that_goes_leaves_nothing() {
    let mut bench = Bench::new();
    let map = "0500 0200 30000000 00000000 00000000  20000000 03000000 0000000000000000 0000100000000000 0000200000000000";
    bench.send_with(map, 1);
    bench.send("0a00 0900 20000000 00000000 00000000  1400000000000000 00000000 04000000");
    // Half a message follows, with descriptors.
    bench.send_with("0100 0800 24000000 00000000", 3);
    let outputs = bench.drain();
    let [Output::Map { token: map, .. }, Output::RegionRead { token: read, .. }] = outputs[..] else {
        panic!("{outputs:?}")
    };
    drop(outputs);
    assert_eq!(bench.counter.count(), 3);
    bench.server.handle_input(NOW, Input::Disconnected);
    let unmap = Output::Unmap { token: None, address: 0x10_0000, length: 0x20_0000 };
    assert_eq!((bench.drain(), bench.counter.count()), (vec![unmap], 0));
    // Requests of the next client have other names.
    bench.server.handle_input(NOW, Input::Connected);
    bench.send("0000 0100 14000000 00000000 00000000  0000 0100");
    bench.send("0a00 0900 20000000 00000000 00000000  1400000000000000 00000000 04000000");
    bench.drain();
    bench.server.map_done(map, Ok(()));
    bench.server.read_done(read, Ok(&[1, 2, 3, 4]));
    assert_eq!(bench.next(), None);
}

#[test]
fn more_requests_than_there_is_room_for_are_refused_but_posted_writes_go_on() {
    let mut bench = Bench::new();
    let read = "0100 0900 20000000 00000000 00000000  1400000000000000 00000000 04000000";
    for _ in 0..crate::REQUESTS_MAX {
        bench.send(read);
    }
    let outputs = bench.drain();
    assert_eq!(outputs.len(), crate::REQUESTS_MAX);
    bench.refused(read, Errno::EBUSY);
    bench.send("0c00 0a00 24000000 10000000 00000000  0010000000000000 00000000 04000000 2a000000");
    assert!(matches!(bench.next(), Some(Output::RegionWrite { token: None, .. })));
    let Output::RegionRead { token, .. } = outputs[5] else { panic!("no read") };
    bench.server.read_done(token, Ok(&[0; 4]));
    bench.drain();
    bench.send(read);
    assert!(matches!(bench.next(), Some(Output::RegionRead { .. })));
}

#[test]
fn memory_beyond_the_limit_is_refused() {
    let mut bench = Bench::new();
    let map = |address: u64| {
        let map = crate::wire::DmaMap { readable: true, writable: true, offset: 0, address, length: 4096 };
        let mut message = hex("0100 0200 30000000 00000000 00000000");
        message.extend_from_slice(&map.emit());
        message
    };
    for number in 0..=crate::MAPS_MAX as u64 {
        let bytes = map(number * 4096);
        bench.server.handle_input(NOW, Input::Received { bytes: &bytes, descriptors: vec![] });
        match bench.next() {
            Some(Output::Map { token, .. }) => bench.server.map_done(token, Ok(())),
            Some(Output::Transmit { bytes, .. }) => {
                assert_eq!(number, crate::MAPS_MAX as u64);
                assert_eq!(bytes[12..], Errno::ENOSPC.0.to_le_bytes());
            }
            other => panic!("{other:?}"),
        }
        bench.drain();
    }
    bench.server.handle_input(NOW, Input::Disconnected);
    assert_eq!(bench.drain().len(), crate::MAPS_MAX);
}
