//! Sources that cannot wait, as a user sees them: lost data are counted, with their place.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use crate::support::running::signal;
use crate::support::{FARLANE, fail, json};
use serde_json::Value;

/// Length of the head that a recording has before each datagram.
const HEAD: u64 = 16;

/// `farlane record` with sources of datagrams, killed when dropped.
struct Recording {
    child: Child,
    errors: BufReader<ChildStderr>,
    path: String,
    /// Where each source receives.
    addresses: Vec<SocketAddr>,
    directory: tempfile::TempDir,
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Recording {
    fn start(sources: &[&str], more: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.rec").to_str().unwrap().to_owned();
        let mut command = Command::new(&*FARLANE);
        command.args(["record", "--to", &path, "--json"]).args(more);
        for source in sources {
            command.args(["--from", source]);
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        let mut recording = Self { child, errors, path, addresses: Vec::new(), directory };
        let expected = sources.iter().filter(|source| source.starts_with("udp:")).count();
        while recording.addresses.len() < expected {
            let mut line = String::new();
            assert_ne!(recording.errors.read_line(&mut line).unwrap(), 0, "the recorder ended");
            if let Some((_, address)) = line.trim().split_once("receiving datagrams at ") {
                recording.addresses.push(address.parse().unwrap());
            }
        }
        recording
    }

    /// Asks the recorder to end. Returns its last event.
    fn stop(&mut self) -> Value {
        signal(self.child.id(), "INT");
        let mut said = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        serde_json::from_str(said.lines().last().unwrap()).unwrap()
    }

    /// Asks the recorder to end. Returns its last event, which is checked against the recording.
    fn end(mut self) -> Value {
        let end = self.stop();
        assert_eq!(number(&end, "bytes_in"), number(&end, "bytes_stored") + number(&end, "bytes_lost"));
        let proof = json(&["recording", "verify", &self.path, "--json"]);
        assert_eq!((&proof["ok"], &proof["sha256"]), (&true.into(), &end["sha256"]));
        let mut gaps = end["gaps"].as_array().unwrap().clone();
        gaps.sort_by_key(|gap| (number(gap, "stream"), number(gap, "from")));
        assert_eq!(proof["gaps"], Value::Array(gaps));
        assert!(self.directory.path().exists());
        end
    }
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} of {value}"))
}

/// The gaps of a stream: the place of the first byte, bytes, packets, and where they were lost.
fn gaps(end: &Value, stream: usize) -> Vec<(u64, u64, u64, String)> {
    let gaps = end["gaps"].as_array().unwrap().iter().filter(|gap| gap["stream"] == stream);
    let reported = |gap: &Value| {
        let [from, bytes, packets] = ["from", "bytes", "packets"].map(|key| number(gap, key));
        (from, bytes, packets, gap["where"].as_str().unwrap().to_owned())
    };
    gaps.map(reported).collect()
}

fn socket() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

/// RTP (RFC 3550, section 5.1) with 1,000 bytes.
fn rtp(number: u64) -> Vec<u8> {
    let [.., high, low] = number.to_be_bytes();
    [&[0x80, 96, high, low, 0, 0, 0, 1, 1, 2, 3, 4][..], &[7; 988]].concat()
}

/// VITA 49 data with a stream identifier (ANSI/VITA 49.2, section 5.1.1), of 40 bytes.
fn vita49(number: u64) -> Vec<u8> {
    [&[0x10, u8::try_from(number % 16).unwrap(), 0, 10, 0, 0, 0, 42][..], &[1; 32]].concat()
}

/// A payload packet of block 9 (GigE Vision 2.0, section 24.3), of 508 bytes.
fn gvsp(number: u64) -> Vec<u8> {
    let [.., a, b, c] = number.to_be_bytes();
    [&[0, 0, 0, 9, 3, a, b, c][..], &[2; 500]].concat()
}

/// SPEAD-64-40: heaps of one packet with 100 bytes, of 140 bytes together.
fn spead(number: u64) -> Vec<u8> {
    let items = [1 << 40 | number, 2 << 40 | 100, 3 << 40, 4 << 40 | 100];
    let items = items.map(|item: u64| (1 << 63 | item).to_be_bytes()).concat();
    [&[0x53, 4, 3, 5, 0, 0, 0, 4][..], &items, &[3; 100]].concat()
}

/// A number of 4 bytes, lowest first, that grows by 16; 20 bytes.
fn field(number: u64) -> Vec<u8> {
    let number = u32::try_from((number * 16) & 0xffff_ffff).unwrap();
    [&[5; 2][..], &number.to_le_bytes(), &[6; 14]].concat()
}

#[test]
fn eight_streams_at_once_with_lost_doubled_and_reordered_datagrams_are_accounted_exactly() {
    type Make = fn(u64) -> Vec<u8>;
    let kinds: [(&str, Make, u64); 8] = [
        ("sequence=rtp", rtp, 65_510),
        ("sequence=vita49", vita49, 3),
        ("sequence=gvsp", gvsp, 1),
        ("sequence=spead", spead, 100),
        ("sequence=offset:2,bytes:4,step:16,le", field, 0x0fff_fff0),
        ("payload&sequence=rtp", rtp, 0),
        ("payload&sequence=vita49", vita49, 0),
        ("payload", rtp, 0),
    ];
    let urls: Vec<_> =
        kinds.iter().map(|(options, ..)| format!("udp://127.0.0.1:0?window=3&{options}")).collect();
    let urls: Vec<_> = urls.iter().map(String::as_str).collect();
    let recording = Recording::start(&urls, &[]);
    let sender = socket();
    // 10, 11, 12 and 30 are lost, 20 comes after 22, 40 comes twice, and one has no number.
    let mut order: Vec<u64> = (0..60).filter(|at| ![10, 11, 12, 30, 20].contains(at)).collect();
    order.insert(order.iter().position(|at| *at == 22).unwrap() + 1, 20);
    order.insert(order.iter().position(|at| *at == 40).unwrap(), 40);
    for at in &order {
        for ((_, make, start), address) in kinds.iter().zip(&recording.addresses) {
            sender.send_to(&make(start + at), address).unwrap();
        }
    }
    for address in &recording.addresses {
        sender.send_to(b"?", address).unwrap();
    }
    let end = recording.end();
    for (stream, (options, make, _)) in kinds.iter().enumerate() {
        let head = if options.contains("payload") { 0 } else { HEAD };
        let length = head + make(0).len() as u64;
        let account = &end["streams"][stream];
        assert_eq!(number(account, "packets"), order.len() as u64 + 1, "{options}");
        if *options == "payload" {
            assert_eq!((gaps(&end, stream), number(account, "bytes_lost")), (vec![], 0), "{options}");
            continue;
        }
        let counts = &account["sequence"];
        let counts = ["reordered", "late", "twice", "foreign", "anew"].map(|key| number(counts, key));
        // Heaps may come side by side: their order means nothing.
        let reordered = u64::from(!options.contains("spead"));
        assert_eq!(counts, [reordered, 0, 1, 1, 0], "{options}");
        assert_eq!(number(account, "bytes_lost"), 4 * length, "{options}");
        let lost: Vec<_> = gaps(&end, stream)
            .into_iter()
            .map(|(_, bytes, packets, place)| (bytes, packets, place))
            .collect();
        let wire = || "wire".to_owned();
        assert_eq!(lost, [(3 * length, 3, wire()), (length, 1, wire())], "{options}");
        // Packet 13 is the first that is three ahead of packet 10 and its row. Heaps wait for those
        // behind them.
        if !options.contains("spead") {
            assert_eq!(gaps(&end, stream)[0].0, 10 * length, "{options}");
        }
    }
}

#[test]
fn what_the_kernel_drops_while_the_recorder_is_stopped_is_a_gap_at_the_socket() {
    let sources = ["udp://127.0.0.1:0?buffer=64k&sequence=rtp", "udp://127.0.0.1:0?buffer=64k"];
    let recording = Recording::start(&sources, &[]);
    let sender = socket();
    let send = |numbers: std::ops::Range<u64>| {
        for number in numbers {
            for address in &recording.addresses {
                sender.send_to(&rtp(number), address).unwrap();
            }
        }
    };
    send(0..10);
    std::thread::sleep(Duration::from_millis(200));
    signal(recording.child.id(), "STOP");
    send(10..1_000);
    signal(recording.child.id(), "CONT");
    std::thread::sleep(Duration::from_millis(200));
    send(1_000..1_010);
    let end = recording.end();
    for stream in 0..2 {
        let account = &end["streams"][stream];
        let lost: u64 = gaps(&end, stream).iter().map(|(_, _, packets, _)| packets).sum();
        assert!(lost > 500, "{end}");
        assert_eq!(number(account, "packets") + lost, 1_010, "{end}");
        assert_eq!(number(account, "bytes_lost"), lost * (HEAD + 1_000), "{end}");
        assert!(gaps(&end, stream).iter().all(|(.., place)| place == "socket"), "{end}");
    }
}

#[test]
fn a_full_buffer_loses_bytes_of_those_who_cannot_wait_and_counts_them() {
    let sources = ["generate:50GB", "udp://127.0.0.1:0?sequence=rtp"];
    let recording = Recording::start(&sources, &["--on-full", "drop", "--buffer", "4MiB"]);
    let sender = socket();
    for number in 0..3_000 {
        sender.send_to(&rtp(number), recording.addresses[0]).unwrap();
        if number % 10 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let end = recording.end();
    let lost = gaps(&end, 0);
    assert!(!lost.is_empty() && lost.iter().all(|(.., place)| place == "ring"), "{lost:?}");
    // Each datagram came, and is stored or declared. A gap of the socket is the machine's.
    let lost: u64 = gaps(&end, 1).iter().map(|(_, _, packets, _)| packets).sum();
    let stored = number(&end["streams"][1], "bytes_stored") / (HEAD + 1_000);
    assert_eq!(stored + lost, 3_000);
    assert!(gaps(&end, 1).iter().all(|(.., place)| place == "ring" || place == "socket"), "{end}");
}

#[test]
fn long_and_short_datagrams_come_back_as_they_were() {
    let recording = Recording::start(&["udp://127.0.0.1:0?payload"], &["--chunk", "72k"]);
    let sender = socket();
    let mut sent = Vec::new();
    let lengths = [1, 0, 1_536, 1_537, 3, 65_507, 9_000, 2, 65_507, 65_507, 7].repeat(20);
    for (at, length) in lengths.into_iter().enumerate() {
        let datagram = vec![u8::try_from(at % 251).unwrap(); length];
        sender.send_to(&datagram, recording.addresses[0]).unwrap();
        sent.extend(datagram);
        std::thread::sleep(Duration::from_millis(1));
    }
    let copy = recording.directory.path().join("copy").to_str().unwrap().to_owned();
    let path = recording.path.clone();
    signal(recording.child.id(), "INT");
    let mut recording = recording;
    assert!(recording.child.wait().unwrap().success());
    json(&["recording", "replay", &path, "--to", &copy, "--speed", "max", "--json"]);
    assert!(std::fs::read(copy).unwrap() == sent);
}

#[test]
fn malformed_datagrams_are_recorded_and_counted() {
    let kinds = ["rtp", "vita49", "gvsp", "spead", "offset:60,bytes:8"];
    let urls: Vec<_> = kinds.iter().map(|kind| format!("udp://127.0.0.1:0?sequence={kind}")).collect();
    let recording = Recording::start(&urls.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
    let sender = socket();
    let shorts = [&b""[..], b"\x00", b"\x53\x04\x03\x05", &[0xff; 40], &[0x53, 4, 3, 5, 0, 0, 255, 255]];
    for address in &recording.addresses {
        for datagram in shorts {
            sender.send_to(datagram, address).unwrap();
        }
    }
    let end = recording.end();
    for (stream, kind) in kinds.iter().enumerate() {
        let account = &end["streams"][stream];
        assert_eq!(number(account, "packets"), shorts.len() as u64, "{kind}");
        assert_eq!(number(&account["sequence"], "foreign"), shorts.len() as u64, "{kind}");
        let bytes: usize = shorts.iter().map(|datagram| datagram.len()).sum();
        assert_eq!(number(account, "bytes_stored"), bytes as u64 + 5 * HEAD, "{kind}");
    }
}

#[test]
fn groups_are_joined_by_name_and_by_address_and_of_one_source() {
    let sources = [
        "udp://239.255.77.1:0?iface=127.0.0.1",
        "udp://[ff12::4d01]:0?iface=lo",
        "udp://239.255.77.2:0?iface=127.0.0.1&source=127.0.0.1",
        "udp://239.255.77.3:0?iface=lo&source=127.0.0.9",
    ];
    let recording = Recording::start(&sources, &[]);
    let (sender, sender6) = (socket(), UdpSocket::bind("[::1]:0").unwrap());
    let mut expected = Vec::new();
    for address in &recording.addresses {
        let mut address = *address;
        if let SocketAddr::V6(address) = &mut address {
            // The first interface is the loopback.
            address.set_scope_id(1);
        }
        let socket = if address.is_ipv4() { &sender } else { &sender6 };
        let sent = socket.send_to(b"to a group", address);
        // Many machines have no route for groups of IPv6 over the loopback.
        assert!(sent.is_ok() || address.is_ipv6(), "{sent:?}");
        expected.push(u64::from(sent.is_ok()));
    }
    // This one takes datagrams of another source only.
    expected[3] = 0;
    std::thread::sleep(Duration::from_millis(100));
    let end = recording.end();
    let packets: Vec<_> = (0..4).map(|stream| number(&end["streams"][stream], "packets")).collect();
    assert_eq!(packets, expected);
}

#[test]
fn what_cannot_work_is_refused_with_a_remedy() {
    let refused = |from: &str, more: &[&str]| {
        fail(&[&["record", "--from", from, "--to", "/nonexistent/a.rec"], more].concat())
    };
    assert!(refused("udp://127.0.0.1:0", &["--chunk", "64k"]).contains("72 KiB or more"));
    assert!(refused("udp://239.1.2.3:0?iface=none0", &[]).contains("udp://239.1.2.3:0?iface=none0"));
    assert!(refused("udp://192.0.2.1:5000", &[]).contains("Cannot assign"));
}

#[test]
fn packets_of_an_interface_are_recorded_or_the_missing_capability_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let [path, copy] = ["a.rec", "copy"].map(|name| directory.path().join(name).to_str().unwrap().to_owned());
    let arguments = ["record", "--from", "packets:lo", "--to", &path, "--json"];
    let mut command = Command::new(&*FARLANE);
    let mut child = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    if line.contains("CAP_NET_RAW") {
        assert!(!child.wait().unwrap().success());
        return;
    }
    assert!(line.contains("recording the packets of lo"), "{line}");
    let (sender, receiver) = (socket(), socket());
    let marked = |number: u32| [&b"a packet with the mark "[..], &number.to_be_bytes()].concat();
    for number in 0..500 {
        sender.send_to(&marked(number), receiver.local_addr().unwrap()).unwrap();
    }
    signal(child.id(), "INT");
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success(), "{said}");
    let end: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert!(number(&end["streams"][0], "packets") >= 500, "{end}");
    assert_eq!(number(&end, "bytes_in"), number(&end, "bytes_stored") + number(&end, "bytes_lost"));
    assert_eq!(json(&["recording", "verify", &path, "--json"])["ok"], true);
    json(&["recording", "replay", &path, "--to", &copy, "--speed", "max", "--json"]);
    let bytes = std::fs::read(copy).unwrap();
    for number in [0, 1, 250, 499] {
        let mark = marked(number);
        let times = bytes.windows(mark.len()).filter(|window| *window == mark).count();
        assert_eq!(times, 1, "packet {number}: it is sent and received, and recorded once");
    }
    // A frame stands behind its head, with its own headers: 14 of Ethernet, 20 of IPv4, 8 of UDP.
    let at = bytes.windows(27).position(|window| window == marked(0)).unwrap();
    assert_eq!(bytes[at - 58..at - 54], (42 + 27_u32).to_le_bytes());
    assert_eq!(bytes[at - 30..at - 28], [8, 0], "IPv4");
}

#[test]
fn exports_of_datagrams_have_their_payloads_alone() {
    for source in ["udp://127.0.0.1:0", "udp://127.0.0.1:0?payload"] {
        let mut recording = Recording::start(&[source], &[]);
        let sender = socket();
        // 400 samples of four bytes each: the number of the sample.
        let datagrams: Vec<Vec<u8>> =
            (0..50_u32).map(|one| (one * 8..one * 8 + 8).flat_map(u32::to_le_bytes).collect()).collect();
        for datagram in &datagrams {
            sender.send_to(datagram, recording.addresses[0]).unwrap();
        }
        std::thread::sleep(Duration::from_millis(200));
        recording.stop();
        let path = |name: &str| recording.directory.path().join(name).to_str().unwrap().to_owned();
        let export = |more: &[&str]| json(&[&["export", &recording.path, "--json"], more].concat());
        let read = |name: &str| std::fs::read(path(name)).unwrap();
        let payload = datagrams.concat();
        assert_eq!(export(&["--to", &path("a.raw"), "--format", "raw"])["bytes"], payload.len());
        assert!(read("a.raw") == payload, "{source}");
        let sigmf = ["--to", &path("a.sigmf-data"), "--datatype", "ri32_le", "--sample-rate", "1000"];
        export(&sigmf);
        assert!(read("a.sigmf-data") == payload, "{source}");
        let meta: Value = serde_json::from_slice(&read("a.sigmf-meta")).unwrap();
        assert_eq!(meta["captures"][0]["core:sample_start"], 0);
        if source.contains('?') {
            continue;
        }
        for file in ["a.pcap", "a.pcapng", "a.mcap"] {
            assert_eq!(export(&["--to", &path(file)])["bytes"], payload.len(), "{file}");
        }
        export(&["--to", &path("b.raw"), "--format", "raw", "--heads"]);
        let with_heads = read("b.raw");
        assert_eq!(with_heads.len(), payload.len() + 16 * datagrams.len());
        assert_eq!(with_heads[16..48], datagrams[0]);
        let refused = ["export", &recording.path, "--to", &path("b.pcap"), "--heads"];
        assert!(fail(&refused).contains("--format raw"));
    }
}

#[test]
fn lost_datagrams_of_unknown_length_cost_nothing_of_what_came() {
    let recording = Recording::start(&["udp://127.0.0.1:0?window=3&sequence=rtp"], &[]);
    let socket = socket();
    let mut came = 0;
    for number in (0..2_000).filter(|number| number % 50 != 7) {
        let datagram = [rtp(number), vec![9; usize::try_from(number * 13 % 300).unwrap()]].concat();
        socket.send_to(&datagram, recording.addresses[0]).unwrap();
        came += HEAD + datagram.len() as u64;
        if number % 20 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    std::thread::sleep(Duration::from_millis(200));
    let end = recording.end();
    assert_eq!(number(&end, "bytes_stored"), came, "{end}");
    let lost: u64 = gaps(&end, 0).iter().map(|(_, _, packets, _)| packets).sum();
    assert_eq!(lost, 40, "{end}");
}
