//! `farlane measure nic`: packets between processes, cards that others serve, and peers that fail.

use std::io::{Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::own_network::{is_within, test_path};
use crate::support::running::{Running, wait_for_listener, wait_until};
use crate::support::{fail, json, succeed};
use serde_json::Value;

/// How long a program may take to end.
const LONG: Duration = Duration::from_secs(30);

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn wire(folder: &tempfile::TempDir) -> String {
    format!("shm:{}", folder.path().join("wire").display())
}

fn echo(card: &str) -> Running {
    let receiver = Running::start(&["measure", "nic", "receive", card, "--echo"]);
    wait_until("the receiver is there", || receiver.said().contains("waiting for packets"));
    receiver
}

/// Serves a card at `socket`; ready when it is there.
fn serve(socket: &Path, wire: &str) -> Running {
    let server = Running::start(&["measure", "nic", "--vfio-user", socket.to_str().unwrap(), "--wire", wire]);
    wait_for_listener(socket);
    server
}

/// Pings `card`, and checks the report of each size.
fn ping(card: &str) -> Value {
    let found =
        json(&["measure", "nic", "ping", card, "--sizes", "14,60,64,1500", "--count", "300", "--json"]);
    let sizes = found["sizes"].as_array().unwrap();
    let reported: Vec<_> =
        sizes.iter().map(|one| (one["size"].as_u64().unwrap(), one["path"].as_str().unwrap())).collect();
    let expected = [(14, "inline"), (14, "dma"), (60, "inline"), (60, "dma"), (64, "dma"), (1500, "dma")];
    assert_eq!(reported, expected, "{found}");
    let at = |of: &Value, name: &str| of[name].as_f64().unwrap();
    for one in sizes {
        let (way, round) = (&one["one_way_ns"], &one["round_trip_ns"]);
        assert_eq!(at(way, "count") + at(one, "lost"), 300.0, "{one}");
        assert!(0.0 < at(way, "p50") && at(way, "p50") <= at(way, "max"), "{one}");
        // Half of the round trip, to the three digits of a distribution.
        let ratio = at(round, "p50") / at(way, "p50");
        assert!((1.97..2.03).contains(&ratio), "{ratio}: {one}");
    }
    let floor = &found["floor"];
    for name in ["round_trip_ns", "crossing_ns", "kernel_udp_one_way_ns"] {
        assert!(at(&floor[name], "p50") > 0.0 && at(&floor[name], "count") == 300.0, "{floor}");
    }
    found
}

#[test]
fn packets_are_measured_over_shared_memory_and_drawn() {
    let folder = folder();
    let wire = wire(&folder);
    let receiver = echo(&wire);
    let found = ping(&wire);
    assert_eq!(found["interrupted"], false);
    let picture = folder.path().join("sizes.svg");
    let options = ["--sizes", "60,1500", "--count", "200", "--draw", picture.to_str().unwrap()];
    let text = succeed(&[&["measure", "nic", "ping", &wire][..], &options].concat());
    for part in ["floor: two lines cross", "the kernel's UDP", "60 B", "inline", "dma", "█", "x as long"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(std::fs::read_to_string(picture).unwrap().contains("polyline"));
    let rates = json(&["measure", "nic", "bench", &wire, "--sizes", "60,1500", "--count", "500", "--json"]);
    for rate in rates["sizes"].as_array().unwrap() {
        assert!(rate["packets_s"].as_f64().unwrap() > 0.0, "{rate}");
    }
    receiver.signal("INT");
    let ended = receiver.output();
    assert!(ended.status.success(), "{ended:?}");
}

#[test]
fn packets_are_measured_over_udp() {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let wire = format!("udp:127.0.0.1:{port}");
    let _receiver = echo(&wire);
    ping(&wire);
}

/// The message of an end of a wire of UDP when there is no packet.
const HELLO: &[u8] = b"niq wire 1";

/// The first datagram that is no hello; hellos are answered.
fn next_packet(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut bytes = [0; 9216];
    loop {
        let (length, from) = socket.recv_from(&mut bytes).unwrap();
        if bytes[..length] != *HELLO {
            return (bytes[..length].to_vec(), from);
        }
        socket.send_to(HELLO, from).unwrap();
    }
}

/// A socket, its address, and the wire that it names.
fn udp_end() -> (UdpSocket, SocketAddr, String) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address, format!("udp:{address}"))
}

/// An interface brings all frames of its neighbours.
#[test]
fn packets_of_others_are_neither_counted_nor_sent_back() {
    let (_, address, wire) = udp_end();
    let receiver = Running::start(&["measure", "nic", "receive", &wire, "--echo", "--count", "1", "--json"]);
    let (socket, ..) = udp_end();
    wait_until("the receiver is there", || {
        socket.send_to(HELLO, address).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        socket.recv(&mut [0; 64]).is_ok()
    });
    socket.set_read_timeout(Some(LONG)).unwrap();
    let packet = |kind: [u8; 2]| [&[0xff; 12][..], &kind, &[7; 46]].concat();
    let (arp, ours) = (packet([0x08, 0x06]), packet([0x88, 0xb5]));
    for bytes in [&arp, &ours] {
        socket.send_to(bytes, address).unwrap();
    }
    assert_eq!(next_packet(&socket).0[12..], ours[12..]);
    let ended = receiver.output();
    let reported: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!((&reported["packets"], &reported["bytes"]), (&1.into(), &60.into()));
}

#[test]
fn what_bench_has_not_sent_is_no_answer() {
    let (socket, _, wire) = udp_end();
    let options = ["--sizes", "60", "--count", "1", "--timeout", "3s"];
    let bench = Running::start(&[&["measure", "nic", "bench", &wire][..], &options].concat());
    let (mut packet, from) = next_packet(&socket);
    packet[20] ^= 1;
    socket.send_to(&packet, from).unwrap();
    let ended = bench.output();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success() && said.contains("0 of 1 packets came back"), "{said}");
}

#[test]
fn bench_reports_its_results_when_it_is_interrupted() {
    let (socket, _, wire) = udp_end();
    let options = ["--sizes", "14,61", "--count", "10", "--json"];
    let bench = Running::start(&[&["measure", "nic", "bench", &wire][..], &options].concat());
    loop {
        let (packet, from) = next_packet(&socket);
        if packet.len() == 61 {
            break;
        }
        socket.send_to(&packet, from).unwrap();
    }
    bench.signal("INT");
    let ended = bench.output();
    let reported: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!((ended.status.code(), &reported["interrupted"]), (Some(130), &true.into()), "{reported}");
    let sizes: Vec<_> = reported["sizes"].as_array().unwrap().iter().map(|one| &one["size"]).collect();
    assert_eq!(sizes, [14, 14]);
}

#[test]
fn results_are_reported_when_a_later_size_fails() {
    let folder = folder();
    let picture = folder.path().join("no-such-folder/sizes.svg");
    for (command, draw) in [("ping", &["--draw", picture.to_str().unwrap()][..]), ("bench", &[])] {
        let (socket, _, wire) = udp_end();
        let options = ["--sizes", "14,61", "--count", "10", "--timeout", "2s", "--json"];
        let measurement = Running::start(&[&["measure", "nic", command, &wire][..], &options, draw].concat());
        loop {
            let (packet, from) = next_packet(&socket);
            if packet.len() == 61 {
                break;
            }
            socket.send_to(&packet, from).unwrap();
        }
        let ended = measurement.output();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.code() == Some(1) && said.contains("came back"), "{command}: {said}");
        let reported: Value = serde_json::from_slice(&ended.stdout).unwrap();
        assert_eq!(reported["interrupted"], false, "{command}: {reported}");
        let sizes: Vec<_> = reported["sizes"].as_array().unwrap().iter().map(|one| &one["size"]).collect();
        assert_eq!(sizes, [14, 14], "{command}");
        // The failure to write the picture is reported beside.
        assert_eq!(said.contains("no-such-folder"), command == "ping", "{said}");
    }
}

/// Over this wire, every packet is back before the command waits for it.
#[test]
fn bench_is_interrupted_although_it_never_waits() {
    let options = ["--sizes", "60", "--count", "100000000"];
    let bench = Running::start(&[&["measure", "nic", "bench", "loop:"][..], &options].concat());
    wait_until("packets are sent", || bench.ticks() > 20);
    bench.signal("INT");
    let ended = bench.output();
    assert_eq!(ended.status.code(), Some(130), "{ended:?}");
}

#[test]
fn packets_that_warm_up_do_not_count_as_lost() {
    let (socket, _, wire) = udp_end();
    let options = ["--sizes", "61", "--count", "10", "--json"];
    let ping = Running::start(&[&["measure", "nic", "ping", &wire][..], &options].concat());
    let number = |packet: &[u8]| u32::from_le_bytes(packet[14..18].try_into().unwrap());
    loop {
        let (packet, from) = next_packet(&socket);
        // The second packet that warms up, and a measured one.
        if ![1, 205].contains(&number(&packet)) {
            socket.send_to(&packet, from).unwrap();
        }
        if number(&packet) == 209 {
            break;
        }
    }
    let ended = ping.output();
    let reported: Value = serde_json::from_slice(&ended.stdout).unwrap();
    let size = &reported["sizes"][0];
    assert_eq!((&size["lost"], &size["round_trip_ns"]["count"]), (&1.into(), &9.into()), "{reported}");
}

/// Each packet that is lost takes a second, and there are many.
#[test]
fn ping_gives_up_when_packets_come_back_no_more() {
    let (socket, _, wire) = udp_end();
    let options = ["--sizes", "61", "--count", "100000", "--timeout", "2s"];
    let ping = Running::start(&[&["measure", "nic", "ping", &wire][..], &options].concat());
    for _ in 0..300 {
        let (packet, from) = next_packet(&socket);
        socket.send_to(&packet, from).unwrap();
    }
    let said = ping.fail();
    assert!(said.contains("no packet came back"), "{said}");
}

/// Packets that are no answer end no wait, and make none longer.
#[test]
fn ping_gives_up_although_other_packets_come_all_the_time() {
    let (socket, _, wire) = udp_end();
    let ping = Running::start(&["measure", "nic", "ping", &wire, "--sizes", "60", "--count", "1"]);
    let (mut packet, from) = next_packet(&socket);
    packet[20] ^= 1;
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&is_over);
    let flood = std::thread::spawn(move || {
        while !ends.load(Ordering::Relaxed) {
            // Packets without room are sent again.
            let _ = socket.send_to(&packet, from);
        }
    });
    let said = ping.fail();
    is_over.store(true, Ordering::Relaxed);
    flood.join().unwrap();
    assert!(said.contains("no packet came back"), "{said}");
}

#[test]
fn a_wire_that_takes_no_packets_ends_send() {
    let folder = folder();
    let wire = wire(&folder);
    let receiver = Running::start(&["measure", "nic", "receive", &wire]);
    wait_until("the receiver is there", || receiver.said().contains("waiting for packets"));
    let options = ["--count", "1000000000000", "--timeout", "3s"];
    let sender = Running::start(&[&["measure", "nic", "send", &wire][..], &options].concat());
    // A command that only waits for the other end takes no time of the processor.
    wait_until("packets are sent", || sender.ticks() > 10);
    receiver.signal("STOP");
    let ended = sender.output();
    receiver.signal("KILL");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success() && said.contains("the card took no packet within 3s"), "{said}");
}

#[test]
fn packets_are_measured_over_a_pair_of_interfaces() {
    const PAIR: &str = "ip link set lo up && ip link add near type veth peer name far && \
                        ip link set near up && ip link set far up && exec \"$@\"";
    if !is_within(test_path!("packets_are_measured_over_a_pair_of_interfaces"), "a pair of interfaces", PAIR)
    {
        return;
    }
    let link = |name: &str, to: &str| {
        let arguments = ["link", "set", name, to];
        assert!(Command::new("ip").args(arguments).status().unwrap().success(), "{arguments:?}");
    };
    let _receiver = echo("eth:far");
    ping("eth:near");
    // A served card, too; and an interface that goes down is a link that does.
    let folder = folder();
    let socket = folder.path().join("card");
    let server = serve(&socket, "eth:near");
    let card = format!("vfio-user:{}", socket.display());
    ping(&card);
    link("near", "down");
    wait_until("the link is down", || server.said().contains("link down"));
    link("near", "up");
    ping(&card);
    let said = fail(&["measure", "nic", "ping", "eth:no-such-one", "--timeout", "1s"]);
    assert!(said.contains("eth:no-such-one"), "{said}");
    // The longest packets that pass, and longer ones.
    let options = ["--sizes", "1514", "--count", "10", "--json"];
    let found = json(&[&["measure", "nic", "ping", "eth:near"][..], &options].concat());
    assert_eq!(found["sizes"][0]["one_way_ns"]["count"], 10, "{found}");
    for arguments in [
        &["nic", "ping", "eth:near", "--sizes", "60,1515", "--count", "10"][..],
        &["nic", "bench", "eth:near", "--sizes", "60,1515"],
        &["nic", "send", "eth:near", "--size", "1515"],
    ] {
        let said = Running::start(arguments).fail();
        for part in ["1515 does not fit", "at most 1514", "the MTU of near is 1500", "near mtu 1501"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}

#[test]
fn a_served_card_is_measured_and_goes_on_when_its_user_is_killed() {
    let folder = folder();
    let (wire, socket) = (wire(&folder), folder.path().join("card"));
    let server = serve(&socket, &wire);
    let _receiver = echo(&wire);
    let card = format!("vfio-user:{}", socket.display());
    ping(&card);
    let user = Running::start(&["measure", "nic", "receive", &card]);
    wait_until("the card is in use", || user.said().contains("waiting for packets"));
    user.signal("KILL");
    ping(&card);
    server.signal("TERM");
    let ended = server.output();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.success() && said.contains("link up") && said.contains("has gone"), "{said}");
    // Of six ways each, with the packets that warm up; no process uses the card any more.
    assert!(said.contains("6000 packets sent"), "{said}");
}

#[test]
fn ends_that_sleep_cost_no_processor_and_are_woken() {
    let folder = folder();
    let (wire, socket) = (wire(&folder), folder.path().join("card"));
    let server = Running::start(&[
        "measure",
        "nic",
        "--vfio-user",
        socket.to_str().unwrap(),
        "--wire",
        &wire,
        "--spin",
        "0s",
    ]);
    wait_for_listener(&socket);
    let card = format!("vfio-user:{}", socket.display());
    let asleep = Running::start(&["measure", "nic", "receive", &card, "--echo", "--spin", "0s"]);
    wait_until("the receiver is there", || asleep.said().contains("waiting for packets"));
    let options = ["--sizes", "60,1500", "--count", "50", "--interval", "2ms", "--spin", "0s"];
    let found = json(&[&["measure", "nic", "ping", &wire, "--json"][..], &options].concat());
    assert_eq!(found["floor"]["wake_ns"]["count"], 50, "{found}");
    for one in found["sizes"].as_array().unwrap() {
        // Who is not woken looks again after 100 ms.
        let p50 = one["round_trip_ns"]["p50"].as_f64().unwrap();
        assert!(one["lost"] == 0 && p50 < 50e6, "{one}");
    }
    // The wire's other end is gone now, and nothing comes.
    std::thread::sleep(Duration::from_millis(200));
    let before = [&server, &asleep].map(Running::ticks);
    std::thread::sleep(Duration::from_secs(2));
    let after = [&server, &asleep].map(Running::ticks);
    for (before, after) in before.into_iter().zip(after) {
        assert!(after - before <= 4, "{} ms of a processor in 2 s", (after - before) * 10);
    }
}

#[test]
fn packets_that_are_sent_are_counted_where_they_come() {
    let folder = folder();
    let wire = wire(&folder);
    let receiver = Running::start(&["measure", "nic", "receive", &wire, "--count", "500", "--json"]);
    let sent = json(&["measure", "nic", "send", &wire, "--size", "61", "--count", "500", "--json"]);
    assert_eq!(sent["bytes"], 500 * 61);
    let ended = receiver.output();
    let reported: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!((&reported["packets"], &reported["bytes"]), (&500.into(), &(500 * 61).into()));
}

/// An end that sends everything back takes no more packets while its own are not taken.
#[test]
fn what_comes_back_does_not_hold_up_send() {
    let folder = folder();
    let wire = wire(&folder);
    let _receiver = echo(&wire);
    // More than both directions of the wire and both cards hold.
    let options = ["--count", "20000", "--timeout", "5s", "--json"];
    let sent = json(&[&["measure", "nic", "send", &wire][..], &options].concat());
    assert_eq!(sent["packets"], 20_000);
}

#[test]
fn send_goes_on_with_the_end_that_takes_the_place_of_one_that_died() {
    let folder = folder();
    let wire = wire(&folder);
    let _sender =
        Running::start(&["measure", "nic", "send", &wire, "--count", "1000000000000", "--timeout", "20s"]);
    let first = Running::start(&["measure", "nic", "receive", &wire]);
    wait_until("packets come", || first.ticks() > 10);
    first.signal("KILL");
    let second = Running::start(&["measure", "nic", "receive", &wire, "--count", "1000", "--json"]);
    let ended = second.output();
    let reported: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!((ended.status.code(), &reported["packets"]), (Some(0), &1_000.into()), "{reported}");
}

#[test]
fn send_fails_when_no_process_takes_the_place_of_an_end_that_died() {
    let folder = folder();
    let wire = wire(&folder);
    let receiver = Running::start(&["measure", "nic", "receive", &wire]);
    wait_until("the receiver is there", || receiver.said().contains("waiting for packets"));
    let options = ["--count", "1000000000000", "--timeout", "2s"];
    let sender = Running::start(&[&["measure", "nic", "send", &wire][..], &options].concat());
    wait_until("packets are sent", || sender.ticks() > 10);
    receiver.signal("KILL");
    let said = sender.fail();
    assert!(said.contains("no card appeared at the other end"), "{said}");
}

/// A wire of UDP always has room, so there is no wait that a signal could end.
#[test]
fn send_is_interrupted_and_reports_the_packets_that_it_has_sent() {
    let (socket, _, wire) = udp_end();
    let sender = Running::start(&["measure", "nic", "send", &wire, "--count", "1000000000000", "--json"]);
    next_packet(&socket);
    sender.signal("INT");
    let ended = sender.output();
    let reported: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{reported}");
    assert!(reported["packets"].as_u64().unwrap() > 0, "{reported}");
}

#[test]
fn a_peer_that_is_killed_or_stopped_is_reported() {
    for signal in ["KILL", "STOP"] {
        let folder = folder();
        let wire = wire(&folder);
        let receiver = echo(&wire);
        let options = ["--count", "100000000", "--sizes", "60", "--timeout", "2s"];
        let pinger = Running::start(&[&["measure", "nic", "bench", &wire][..], &options].concat());
        // A command that only waits for the other end takes no time of the processor.
        wait_until("some packets pass before", || pinger.ticks() > 10);
        receiver.signal(signal);
        let ended = pinger.output();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success(), "{said}");
        assert!(said.contains("packets came back"), "{signal}: {said}");
        receiver.signal("KILL");
    }
}

#[test]
fn a_wire_that_leads_back_needs_no_second_card() {
    ping("loop:");
    let folder = folder();
    let socket = folder.path().join("card");
    let _server = serve(&socket, "loop:");
    ping(&format!("vfio-user:{}", socket.display()));
}

#[test]
fn a_server_that_is_killed_is_reported() {
    let folder = folder();
    let (wire, socket) = (wire(&folder), folder.path().join("card"));
    let server = serve(&socket, &wire);
    let card = format!("vfio-user:{}", socket.display());
    let user = Running::start(&["measure", "nic", "receive", &card]);
    wait_until("the card is in use", || user.said().contains("waiting for packets"));
    server.signal("KILL");
    let ended = user.output();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success() && said.contains("is gone"), "{said}");
}

/// Every process that reaches the sockets may write any bytes there.
#[test]
fn garbage_on_the_sockets_ends_its_own_connection_alone() {
    let folder = folder();
    let (wire, socket) = (wire(&folder), folder.path().join("card"));
    let _receiver = echo(&wire);
    let wire_socket: PathBuf = folder.path().join("wire");
    let _server = serve(&socket, &wire);
    let card = format!("vfio-user:{}", socket.display());
    ping(&card);
    for path in [&socket, &wire_socket] {
        for garbage in [&b"GET / HTTP/1.0\r\n\r\n"[..], &[0xff; 4096], &[0; 64]] {
            let mut stranger = UnixStream::connect(path).unwrap();
            stranger.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let _ = stranger.write_all(garbage);
            let _ = stranger.shutdown(std::net::Shutdown::Write);
            // It is let go, with or without an answer.
            let _ = stranger.read_to_end(&mut Vec::new());
        }
    }
    ping(&card);
}

#[test]
fn a_third_end_learns_that_two_others_use_the_wire() {
    let folder = folder();
    let wire = wire(&folder);
    let _ends = [echo(&wire), echo(&wire)];
    let said = fail(&["measure", "nic", "ping", &wire, "--timeout", "300ms", "--count", "10"]);
    assert!(said.contains("two others use the wire"), "{said}");
}

#[test]
fn an_unusable_wire_or_card_is_reported_with_a_remedy() {
    let folder = folder();
    let absent = format!("vfio-user:{}", folder.path().join("nobody").display());
    let said = fail(&["measure", "nic", "ping", &absent]);
    assert!(said.contains("there is no card") && said.contains("farlane measure nic serve"), "{said}");
    let alone = wire(&folder);
    let said = fail(&["measure", "nic", "ping", &alone, "--timeout", "100ms", "--count", "10"]);
    assert!(said.contains("no card appeared at the other end"), "{said}");
    let said = fail(&["measure", "nic", "ping", &alone, "--sizes", "13"]);
    assert!(said.contains("expected 14 to 9216 bytes"), "{said}");
    let missing = format!("shm:{}", folder.path().join("missing/wire").display());
    let said = fail(&["measure", "nic", "ping", &missing, "--count", "10"]);
    assert!(said.contains("there is no directory") && said.contains("create the directory"), "{said}");
    let socket = folder.path().join("card").display().to_string();
    let serve = |wire: &str| fail(&["measure", "nic", "serve", "--vfio-user", &socket, "--wire", wire]);
    let said = serve(&missing);
    assert!(said.contains("there is no directory") && said.contains("create the directory"), "{said}");
    let said = serve("eth:no-such-one");
    assert!(said.contains("the wire eth:no-such-one can't be used") && said.contains("ip link"), "{said}");
}

/// Checks that nothing but hellos comes within `time`.
fn nothing_comes(socket: &UdpSocket, time: Duration) {
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let (start, mut bytes) = (Instant::now(), [0; 9216]);
    while start.elapsed() < time {
        if let Ok(length) = socket.recv(&mut bytes) {
            assert_eq!(bytes[..length], *HELLO);
        }
    }
    socket.set_read_timeout(Some(LONG)).unwrap();
}

/// The program in C, run as its first lines say.
#[test]
fn a_program_in_c_drives_a_served_card() {
    let folder = folder();
    let program = folder.path().join("nic_host");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/nic_host.c");
    let compiled =
        Command::new("cc").args(["-O2", "-Wall", "-Werror", "-o"]).arg(&program).arg(source).status();
    if compiled.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        eprintln!("skipped: there is no C compiler");
        return;
    }
    assert!(compiled.unwrap().success());
    let (wire, socket) = (wire(&folder), folder.path().join("card"));
    let _receiver = echo(&wire);
    let _server = serve(&socket, &wire);
    let output = Command::new(&program).arg(&socket).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("1000 packets of 60 bytes came back"), "{output:?}");
    // It does not take a frame of another sender for its packet.
    let (end, _, wire) = udp_end();
    let socket = folder.path().join("second");
    let _second = serve(&socket, &wire);
    let child = Command::new(&program).arg(&socket).stdout(Stdio::piped()).spawn().unwrap();
    for number in 0..1_000_u32 {
        let (packet, from) = next_packet(&end);
        assert_eq!((packet.len(), &packet[14..18]), (60, &number.to_le_bytes()[..]));
        let mut other = packet.clone();
        other[12] = 8;
        end.send_to(&other, from).unwrap();
        if number == 0 {
            nothing_comes(&end, Duration::from_millis(300));
        }
        end.send_to(&packet, from).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("1000 packets of 60 bytes came back"), "{output:?}");
    // A socket's path has room for 107 bytes.
    let output = Command::new(program).arg("x".repeat(108)).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("too long"), "{output:?}");
}
