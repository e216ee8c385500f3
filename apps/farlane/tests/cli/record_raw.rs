//! Streams without a container: from address to address, and what reads them back.

use std::fs;
use std::path::Path;

use crate::support::running::{Running, wait_for_listener, wait_until};
use crate::support::{Export, fail, json, succeed};
use cloud_hypervisor_vfio_user::Client;
use record::registers::layout as at;
use serde_json::Value;

const START: usize = 1 << 20;

/// The first `count` bytes of what `generate:` makes.
fn generated(count: usize) -> Vec<u8> {
    (0..count.div_ceil(8) as u64).flat_map(u64::to_le_bytes).take(count).collect()
}

fn record(arguments: &[&str]) -> Value {
    let said = succeed(&[&["record", "--raw", "--json"], arguments].concat());
    let end: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!((&end["event"], &end["durable"]), (&"end".into(), &true.into()), "{end}");
    assert!(end.get("certified").is_none(), "nothing on the medium certifies anything");
    end
}

#[test]
fn bytes_go_to_their_addresses_and_come_back_and_all_else_stays() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (medium, copy) = (at("medium"), at("copy"));
    fs::write(&medium, vec![0xee; 8 << 20]).unwrap();
    let there = ["--from", "generate:200MB", "--to", &medium, "--start-address", "1MiB"];
    let error = fail(&[&["record", "--raw", "--size", "1MiB"], &there[..]].concat());
    assert!(error.contains("has contents already"), "{error}");
    let there = [&there[..], &["--force"]].concat();
    let end = record(&[&there[..], &["--size", "3000001"]].concat());
    assert_eq!((&end["bytes_stored"], &end["bytes_lost"]), (&3_000_001.into(), &0.into()), "{end}");
    assert_eq!((&end["start_address"], &end["last_address"]), (&START.into(), &(START + 3_000_001).into()));
    let bytes = fs::read(&medium).unwrap();
    assert!(bytes[START..][..3_000_001] == generated(3_000_001), "other bytes");
    assert!(bytes[..START].iter().all(|byte| *byte == 0xee), "what lies before is as it was");
    let behind = (START + 3_000_001).next_multiple_of(4096);
    assert!(bytes[behind..].iter().all(|byte| *byte == 0xee) && bytes.len() == 8 << 20);
    let last = (START + 3_000_001).to_string();
    let range = ["--raw", "--start-address", "1MiB", "--maximum-address", &last];
    let replayed = json(&[&["recording", "replay", &medium, "--to", &copy, "--json"], &range[..]].concat());
    assert!(fs::read(&copy).unwrap() == generated(3_000_001));
    assert_eq!((&replayed["sha256"], &replayed["bytes"]), (&end["sha256"], &3_000_001.into()), "{replayed}");
    // It ends at the given address.
    let end = record(&[&there[..], &["--maximum-address", "2MiB"]].concat());
    assert_eq!((&end["reason"], &end["last_address"]), (&"limit reached".into(), &(2 << 20).into()));
    let end = record(&[&there[..], &["--chunks", "5", "--chunk", "64k"]].concat());
    assert_eq!((&end["bytes_in"], &end["last_address"]), (&(5 << 16).into(), &(START + (5 << 16)).into()));
    let text = succeed(&[&["record", "--raw"], &there[..], &["--chunks", "1"]].concat());
    assert!(text.contains("from address 1048576 up to 1179648"), "{text}");
}

#[test]
fn a_far_ssd_takes_a_raw_stream_and_sends_it() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy").to_str().unwrap().to_owned();
    let far = Export::start(&["--ram", "16MiB"]);
    let url = far.url();
    let there = ["--from", "generate:200MB", "--to", &url, "--start-address", "12MiB"];
    // The namespace ends before the stream.
    let end = record(&there);
    assert_eq!((&end["reason"], &end["bytes_stored"]), (&"limit reached".into(), &(4 << 20).into()), "{end}");
    succeed(&["recording", "replay", &url, "--raw", "--start-address", "12MiB", "--to", &copy]);
    assert!(fs::read(&copy).unwrap() == generated(4 << 20));
    let error =
        fail(&["record", "--raw", "--from", "generate:1MB", "--to", &url, "--start-address", "16MiB"]);
    assert!(error.contains("16777216"), "{error}");
}

/// A number of four bytes, then bytes that follow from it.
fn datagram(number: u32, length: usize) -> Vec<u8> {
    let rest = (4..length).map(|at| u8::try_from((number as usize + at) % 251).unwrap());
    number.to_be_bytes().into_iter().chain(rest).collect()
}

/// Records these datagrams. Returns the last event and the contents of the medium.
fn record_datagrams(options: &str, datagrams: &[Vec<u8>]) -> (Value, Vec<u8>) {
    let directory = tempfile::tempdir().unwrap();
    let medium = directory.path().join("medium");
    let (from, to) = (format!("udp://127.0.0.1:0?{options}"), medium.to_str().unwrap());
    let recorder =
        Running::start(&["record", "--raw", "--json", "--chunk", "16k", "--from", &from, "--to", to]);
    let reported =
        || recorder.said().lines().find_map(|line| Some(line.split_once("datagrams at ")?.1.to_owned()));
    wait_until("it receives", || reported().is_some());
    let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for datagram in datagrams {
        sender.send_to(datagram, reported().unwrap().trim()).unwrap();
    }
    recorder.signal("INT");
    let said = String::from_utf8(recorder.output().stdout).unwrap();
    (serde_json::from_str(said.lines().last().unwrap()).unwrap(), fs::read(medium).unwrap())
}

#[test]
fn datagrams_lie_one_behind_the_other_across_chunks_and_missing_ones_keep_their_place() {
    const LENGTH: usize = 1_000;
    // 10 to 12 never come, 30 comes late, and 40 twice.
    let mut numbers: Vec<u32> = (0..60).filter(|number| !(10..13).contains(number)).collect();
    numbers.retain(|number| *number != 30);
    numbers.insert(numbers.iter().position(|number| *number == 35).unwrap() + 1, 30);
    numbers.insert(numbers.iter().position(|number| *number == 40).unwrap() + 1, 40);
    let sent: Vec<_> = numbers.iter().map(|number| datagram(*number, LENGTH)).collect();
    let (end, medium) = record_datagrams("sequence=offset:0,bytes:4", &sent);
    assert_eq!((&end["bytes_in"], &end["bytes_lost"]), (&60_000.into(), &4_000.into()), "{end}");
    assert_eq!((&end["durable"], &end["last_address"]), (&true.into(), &60_000.into()), "{end}");
    let gaps = end["gaps"].as_array().unwrap().iter().map(|gap| {
        assert_eq!((&gap["where"], &gap["address"]), (&"wire".into(), &gap["from"]), "{end}");
        ["from", "bytes", "packets"].map(|key| gap[key].as_u64().unwrap())
    });
    assert_eq!(gaps.collect::<Vec<_>>(), [[10_000, 3_000, 3], [30_000, 1_000, 1]], "{end}");
    let heard = &end["streams"][0];
    assert_eq!(heard["packets"], numbers.len(), "{end}");
    assert_eq!((&heard["sequence"]["late"], &heard["sequence"]["twice"]), (&1.into(), &1.into()), "{end}");
    for (number, bytes) in (0..).zip(medium[..60_000].chunks(LENGTH)) {
        let expected = if (10..13).contains(&number) || number == 30 {
            vec![0; LENGTH]
        } else {
            datagram(number, LENGTH)
        };
        assert!(bytes == expected, "datagram {number} is not at its address");
    }
}

#[test]
fn datagrams_of_any_length_lie_one_behind_the_other_and_unknown_losses_take_no_place() {
    let lengths = [1_usize, 9_000, 16_384, 40_000, 4, 65_507, 1_500];
    let sent: Vec<_> = (0..).zip(lengths).map(|(number, length)| datagram(number, length.max(4))).collect();
    let (end, medium) = record_datagrams("", &sent);
    let all = sent.concat();
    assert_eq!((&end["bytes_stored"], &end["gaps"]), (&all.len().into(), &Value::Array(Vec::new())), "{end}");
    assert!(medium[..all.len()] == all, "other bytes");
    // One of three lengths is missing, and it is unknown which.
    let sent = [datagram(0, 100), datagram(1, 200), datagram(3, 300)];
    let (end, medium) = record_datagrams("sequence=offset:0,bytes:4", &sent);
    let gap = &end["gaps"][0];
    assert_eq!((&gap["from"], &gap["bytes"], &gap["packets"]), (&300.into(), &0.into(), &1.into()), "{end}");
    assert!(medium[..600] == sent.concat());
}

#[test]
fn what_no_raw_stream_can_be_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a").to_str().unwrap().to_owned();
    let record = ["record", "--raw", "--from", "generate:1MB", "--to", &path];
    for (more, words) in [
        (&["--ring", "1GiB"][..], "--ring"),
        (&["--pre-trigger", "1s"], "--pre-trigger"),
        (&["--each"], "--each"),
        (&["--from", "generate:1MB"], "2 --from and 1 --to: expected one of each"),
        (&["--start-address", "1000"], "a multiple of 4096, such as 0"),
        (&["--start-address", "8k", "--maximum-address", "4k"], "expected less than --maximum-address"),
        (&["--chunks", "0"], "--chunks"),
    ] {
        let error = fail(&[&record[..], more].concat());
        assert!(error.contains(words), "{words}: {error}");
    }
    let error = fail(&["record", "--start-address", "4k", "--from", "generate:1MB", "--to", &path]);
    assert!(error.contains("--raw"), "{error}");
    fs::write(&path, vec![1; 9_000]).unwrap();
    let error = fail(&["recording", "replay", &path, "--raw", "--maximum-address", "10000", "--to", "-"]);
    assert!(error.contains("expected a part of the 9000 B"), "{error}");
    let error = fail(&["recording", "replay", &path, "--raw", "--speed", "2", "--to", "-"]);
    assert!(error.contains("--speed"), "{error}");
}

/// Numbers of regions: BAR0 and the configuration space (VFIO_PCI_CONFIG_REGION_INDEX).
const BAR0: u32 = 0;
const CONFIG: u32 = 7;

/// A driver of a recorder's registers, through Cloud Hypervisor's client.
struct Driver(Client);

impl Driver {
    fn new(socket: &str) -> Self {
        let mut client = Client::new(Path::new(socket)).expect("the version and the regions are agreed on");
        // Memory Space Enable and Bus Master Enable.
        client.region_write(CONFIG, 4, &6_u16.to_le_bytes()).unwrap();
        Self(client)
    }

    fn write(&mut self, register: u32, value: &[u8]) {
        self.0.region_write(BAR0, u64::from(at::WRITING + register), value).unwrap();
    }

    fn read(&mut self, offset: u32) -> u64 {
        let mut bytes = [0; 8];
        self.0.region_read(BAR0, offset.into(), &mut bytes).unwrap();
        u64::from_le_bytes(bytes)
    }

    fn of(&mut self, register: u32) -> u64 {
        self.read(at::WRITING + register)
    }

    /// The state, which is the high half behind the control register.
    fn state(&mut self) -> u64 {
        self.of(at::CONTROL) >> 32
    }
}

#[test]
fn a_driver_says_from_where_to_where() {
    const ENDED: u64 = 4;
    const FAILED: u64 = 5;
    let directory = tempfile::tempdir().unwrap();
    let at_path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (medium, socket) = (at_path("medium"), at_path("registers"));
    fs::write(&medium, vec![0xee; 8 << 20]).unwrap();
    let source = ["record", "--raw", "--from", "generate:200MB", "--to", &medium, "--force"];
    let recorder =
        Running::start(&[&source[..], &["--on-demand", "--registers", &socket, "--json"]].concat());
    wait_for_listener(&socket);
    let mut driver = Driver::new(&socket);
    let can = u32::try_from(driver.read(at::CAPABILITIES) & u64::from(u32::MAX)).unwrap();
    assert_eq!(can, at::CAN_WRITE | at::CAN_ADDRESS);
    for (first, end) in [(1_u64 << 20, 2_u64 << 20), (4 << 20, 4 << 20 | 8_192)] {
        driver.write(at::FIRST_ADDRESS, &first.to_le_bytes());
        driver.write(at::MAXIMUM_ADDRESS, &end.to_le_bytes());
        assert_eq!((driver.of(at::FIRST_ADDRESS), driver.of(at::MAXIMUM_ADDRESS)), (first, end));
        driver.write(at::CONTROL, &at::START.to_le_bytes());
        wait_until("it has ended", || driver.state() == ENDED && driver.of(at::LAST_ADDRESS) == end);
        assert_eq!(driver.of(at::BYTES_STORED), end - first);
    }
    // Three chunks end it before the last address.
    driver.write(at::FIRST_ADDRESS, &(6_u64 << 20).to_le_bytes());
    driver.write(at::MAXIMUM_ADDRESS, &(8_u64 << 20).to_le_bytes());
    driver.write(at::CHUNKS_MAX, &3_u64.to_le_bytes());
    assert_eq!(driver.of(at::CHUNKS_MAX), 3);
    driver.write(at::CONTROL, &at::START.to_le_bytes());
    let end = (6 << 20) + 3 * (128 << 10);
    wait_until("three chunks are written", || driver.state() == ENDED && driver.of(at::LAST_ADDRESS) == end);
    assert_eq!((driver.of(at::BYTES_STORED), driver.of(at::CHUNKS_MAX)), (3 * (128 << 10), 3));
    // Addresses that are not those of pages are refused, and the next start may have others.
    driver.write(at::FIRST_ADDRESS, &1_000_u64.to_le_bytes());
    driver.write(at::CONTROL, &at::START.to_le_bytes());
    wait_until("it has failed", || driver.state() == FAILED);
    recorder.signal("INT");
    recorder.output();
    let bytes = fs::read(&medium).unwrap();
    let mut expected = vec![0xee; 8 << 20];
    expected[1 << 20..2 << 20].copy_from_slice(&generated(1 << 20));
    expected[4 << 20..][..8_192].copy_from_slice(&generated(8_192));
    expected[6 << 20..][..3 * (128 << 10)].copy_from_slice(&generated(3 * (128 << 10)));
    assert!(bytes == expected, "only what the driver named is written");
}
