//! Messages and exits when an end dies, the network breaks, strangers come, or a user presses
//! ctrl-c.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use crate::support::load::{assert_serves, assert_verified, verified};
use crate::support::proxy::Proxy;
use crate::support::relay::Relay;
use crate::support::running::{Running, signal, times, wait_until};
use crate::support::{Export, fail, json};
use serde_json::Value;
use tempfile::TempDir;

/// A namespace in a file, and the options to offer it again.
struct Disk {
    _directory: TempDir,
    path: PathBuf,
    spec: String,
}

impl Disk {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        let spec = format!("{},size=16MiB", path.display());
        Self { _directory: directory, path, spec }
    }

    fn export(&self, address: &str) -> Export {
        Export::at(address, &["--namespace", &self.spec, "--hold", "1s"])
    }

    /// Waits until something has been written to the disk.
    fn wait_for_writes(&self) {
        wait_until("writes", || std::fs::metadata(&self.path).is_ok_and(|file| file.blocks() > 64));
    }
}

#[test]
fn a_far_end_that_is_killed_and_started_again_in_time_loses_nothing() {
    let disk = Disk::new();
    let mut far = disk.export("127.0.0.1:0");
    let load = verified(&far.url(), "2s", &[]);
    disk.wait_for_writes();
    far.kill();
    sleep(Duration::from_millis(200));
    let far = disk.export(&far.address);
    let said = assert_verified(load);
    assert!(said.contains("interrupted: the connection was lost"), "{said}");
    assert_serves(&far.url());
}

#[test]
fn a_far_end_that_does_not_come_back_is_an_error_and_a_new_one_serves() {
    let disk = Disk::new();
    let mut far = disk.export("127.0.0.1:0");
    let load = verified(&far.url(), "60s", &["--timeout", "2s"]);
    disk.wait_for_writes();
    far.kill();
    let said = load.fail();
    assert!(said.contains("link down: no connection for 1 s"), "{said}");
    assert!(said.contains("the far end has gone"), "{said}");
    let far = disk.export(&far.address);
    assert_serves(&far.url());
}

/// The hold time of the tunnel, 10 s, is no part of what `--timeout` promises.
#[test]
fn a_far_end_that_does_not_come_back_is_given_up_when_the_user_said() {
    let mut far = Export::start(&["--ram", "16MiB"]);
    let load = Running::start(&["bench", &far.url(), "--runtime", "60s", "--timeout", "2s"]);
    far.wait_for("link up");
    sleep(Duration::from_secs(1));
    far.kill();
    let killed = Instant::now();
    let output = load.output();
    assert!(!output.status.success());
    let took = killed.elapsed();
    assert!((1..7).contains(&took.as_secs()), "given up after {took:?}, not after 2 s");
}

#[test]
fn a_hundred_cuts_lose_nothing() {
    let far = Export::start(&["--ram", "16MiB"]);
    let proxy = Proxy::cutting(&far.address, 100, 256 << 10, 1);
    let mut said = String::new();
    // A slow machine may need further loads for as many cuts.
    wait_until("a hundred cuts", || {
        said += &assert_verified(verified(&proxy.url(), "3s", &[]));
        proxy.cuts() >= 100
    });
    assert!(times(&said, "resumed") > 50, "{said}");
    assert!(!said.contains("link down") && !said.contains("reset"), "{said}");
    assert!(!far.said().contains("link down: no"), "{}", far.said());
}

#[test]
fn bits_that_are_turned_over_on_the_way_change_nothing_and_are_noticed() {
    let far = Export::start(&["--ram", "16MiB"]);
    for seed in 1..=3 {
        let proxy = Proxy::flipping(&far.address, 30, 200 << 10, seed);
        let load = verified(&proxy.url(), "3s", &["--timeout", "30s"]);
        let said = assert_verified(load);
        assert!(proxy.cuts() >= 10, "seed {seed}: only {} flips", proxy.cuts());
        assert!(!said.contains("link down") && !said.contains("reset"), "seed {seed}: {said}");
        let noticed = said.matches("damaged").count() + far.said().matches("damaged").count();
        assert!(noticed > 0, "seed {seed}: {said}");
    }
}

#[test]
fn twenty_connections_that_say_nothing_keep_out_neither_a_new_host_nor_one_that_resumes() {
    let far = Export::start(&["--ram", "16MiB", "--hold", "1s"]);
    let relay = Relay::to(&far.address);
    let idle =
        |count| -> Vec<TcpStream> { (0..count).map(|_| TcpStream::connect(&far.address).unwrap()).collect() };
    for count in [20, 400] {
        let first = idle(count);
        // The far end would close silent connections after five seconds; the next host gets in
        // before that.
        let found = json(&["measure", "ping", &far.url(), "--count", "10", "--timeout", "4s", "--json"]);
        assert_eq!(found["count"], 10);
        let load = verified(&format!("tcp://{}", relay.address), "3s", &[]);
        let passed = relay.passed();
        wait_until("the load runs", || relay.passed() > passed + (1 << 20));
        relay.cut();
        let second = idle(count);
        relay.join();
        let said = assert_verified(load);
        assert!(said.contains("resumed") && !said.contains("link down"), "{count}: {said}");
        drop((first, second));
    }
}

/// Sends `bytes` to the far end. Returns its answer before it hangs up.
fn say(address: &str, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // The far end may hang up before it has read everything.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => {
            panic!("not hung up on: {error}")
        }
        _ => String::from_utf8_lossy(&answer).into_owned(),
    }
}

#[test]
fn strangers_do_no_harm_and_get_the_reason() {
    let far = Export::start(&["--ram", "16MiB"]);
    let load = verified(&far.url(), "3s", &[]);
    far.wait_for("link up");

    let tls_hello = [0x16, 3, 1, 0, 0xc8, 1, 0, 0, 0xc4, 3, 3, 7, 7, 7];
    let strangers: [&[u8]; 3] = [b"GET / HTTP/1.1\r\nHost: far\r\n\r\n", &tls_hello, &[0xff; 100_000]];
    for bytes in strangers {
        let answer = say(&far.address, bytes);
        assert!(answer.is_empty() || answer.contains("this is a Farlane tunnel"), "{answer:?}");
    }
    assert!(say(&far.address, b"GET / HTTP/1.1\r\n\r\n").contains("this is a Farlane tunnel"));
    let mut random = 1_u64;
    for length in 1..200 {
        let mut byte = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            random.to_be_bytes()[0]
        };
        let bytes: Vec<u8> = (0..length).map(|_| byte()).collect();
        let mut stream = TcpStream::connect(&far.address).unwrap();
        // The far end may hang up before it has read everything.
        let _ = stream.write_all(&bytes);
    }
    let crowd: Vec<_> = (0..50).map(|_| TcpStream::connect(&far.address).unwrap()).collect();
    wait_until("the crowd is too large", || far.said().contains("many connections say nothing"));
    drop(crowd);
    let silent = TcpStream::connect(&far.address).unwrap();

    assert!(!assert_verified(load).contains("interrupted"));
    assert!(!far.said().contains("interrupted"), "{}", far.said());
    // A connection that says nothing is asked to leave.
    let mut answer = Vec::new();
    let _ = (&silent).read_to_end(&mut answer);
    assert!(String::from_utf8_lossy(&answer).contains("no Hello came within"), "{answer:?}");
    assert_serves(&far.url());
}

/// The Hello that a host sends first.
fn hello() -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    let _host = Running::start(&["measure", "ping", &url]);
    let (mut stream, _) = listener.accept().unwrap();
    let mut bytes = vec![0; 12];
    stream.read_exact(&mut bytes).unwrap();
    // pure/tunnel/protocol.md: bytes 2 and 3 of the header are the length of the body.
    let length = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
    bytes.resize(12 + length, 0);
    stream.read_exact(&mut bytes[12..]).unwrap();
    bytes
}

#[test]
fn a_hello_that_is_cut_at_any_byte_keeps_no_host_out() {
    let hello = hello();
    assert!(hello.len() > 64, "{hello:?}");
    let far = Export::start(&["--ram", "16MiB", "--hold", "1s"]);
    for length in 0..hello.len() {
        let mut stream = TcpStream::connect(&far.address).unwrap();
        stream.write_all(&hello[..length]).unwrap();
    }
    assert_serves(&far.url());
    assert_eq!(far.said().matches("link up").count(), 1, "{}", far.said());
    // A host that goes after its Hello, perhaps without knowing that it has the device, does not
    // keep other hosts waiting.
    TcpStream::connect(&far.address).unwrap().write_all(&hello).unwrap();
    far.wait_for("interrupted");
    assert_serves(&far.url());
}

#[test]
fn a_second_host_learns_that_the_device_is_in_use_and_not_by_whom() {
    let far = Export::start(&["--ram", "16MiB"]);
    let first = verified(&far.url(), "2s", &[]);
    far.wait_for("link up");
    let said = fail(&["measure", "ping", &far.url()]);
    assert!(said.contains("in use; the far end's status names the user"), "{said}");
    assert!(said.contains("one host at a time"), "{said}");
    assert_verified(first);
    assert_serves(&far.url());
}

#[test]
fn a_host_that_is_killed_makes_the_next_one_wait_for_the_hold_time_only() {
    let disk = Disk::new();
    // So long that the next host can come within it on a busy machine, too.
    let far = Export::start(&["--namespace", &disk.spec, "--hold", "4s"]);
    let load = verified(&far.url(), "60s", &[]);
    disk.wait_for_writes();
    drop(load);
    far.wait_for("interrupted");
    let said = fail(&["measure", "ping", &far.url(), "--timeout", "1s"]);
    assert!(said.contains("held for a host whose connection was lost"), "{said}");
    assert_serves(&far.url());
    assert!(far.said().contains("link down: no connection for 4 s"), "{}", far.said());
}

#[test]
fn a_host_that_is_interrupted_leaves_in_order_and_the_next_one_need_not_wait() {
    let disk = Disk::new();
    // The hold is longer than this test may take.
    let far = Export::start(&["--namespace", &disk.spec, "--hold", "10min"]);
    let load = verified(&far.url(), "60s", &[]);
    disk.wait_for_writes();
    load.signal("INT");
    let said = load.fail();
    assert!(said.contains("interrupted"), "{said}");
    far.wait_for("closed by the peer");
    assert_serves(&far.url());
}

#[test]
fn a_host_that_comes_right_behind_a_goodbye_finds_the_device_free() {
    let far = Export::start(&["--ram", "16MiB", "--hold", "10min"]);
    let load = verified(&far.url(), "60s", &[]);
    far.wait_for("link up");
    // The far end finds both at once when it goes on: the goodbye first, then the new host.
    signal(far.id(), "STOP");
    load.signal("INT");
    load.fail();
    let next = Running::start(&["measure", "ping", &far.url(), "--count", "10", "--json"]);
    sleep(Duration::from_millis(500));
    signal(far.id(), "CONT");
    assert_eq!(next.json().0["count"], 10);
}

#[test]
fn a_far_end_that_is_interrupted_says_goodbye() {
    let disk = Disk::new();
    let mut far = disk.export("127.0.0.1:0");
    let load = verified(&far.url(), "60s", &["--timeout", "1s"]);
    disk.wait_for_writes();
    let (status, said) = far.end_by("INT");
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("the far end has shut down"), "{said}");
    let said = load.fail();
    assert!(said.contains("closed by the peer: the far end is shutting down"), "{said}");
}

#[test]
fn no_process_listens_there() {
    let said = fail(&["measure", "ping", &crate::support::unused_url(), "--timeout", "300ms"]);
    assert!(said.contains("no far end answers at") && said.contains("farlane export"), "{said}");
}

#[test]
fn something_else_listens_there() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            let _ = stream.shutdown(Shutdown::Write);
        }
    });
    let said = fail(&["measure", "ping", &url]);
    assert!(said.contains("no Welcome") && said.contains("is it a farlane export"), "{said}");
}

/// The root that `lspci` finds while it waits a second for a far end that never comes. The other
/// far end is lost meanwhile and back two seconds later.
fn found_behind_a_break() -> Value {
    let far = Export::start(&["--ram", "1MiB"]);
    let relay = Relay::to(&far.address);
    let absent = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("tcp://{}", relay.address);
    let lspci = Running::start(&["observe", "lspci", "--json", &url, &format!("tcp://{absent}")]);
    // The far end's registers have been read: the link is up.
    wait_until("the far end is there", || relay.passed() > 1024);
    relay.cut();
    sleep(Duration::from_secs(2));
    relay.join();
    let (mut found, _) = lspci.json();
    found["roots"][0].take()
}

#[test]
fn a_far_end_that_is_away_when_its_host_enumerates_is_waited_for() {
    // A machine may be too busy to break the connection within that second: try again.
    let mut tries = (0..5).map(|_| found_behind_a_break());
    let root = tries.find(|root| root["shadow"]["retries"].as_u64().unwrap() > 0).expect("a break in time");
    let port = &root["children"][0]["children"][0];
    let ssd = &port["children"][0];
    assert_eq!((&ssd["class"], &ssd["enabled"]), (&"010802".into(), &true.into()), "{root}");
    assert_eq!(ssd["faults"], Value::Array(Vec::new()), "{root}");
}

#[test]
fn a_command_that_waits_for_a_far_end_prints_why_after_a_second() {
    let said = fail(&["measure", "ping", &crate::support::unused_url(), "--timeout", "1500ms"]);
    let (reported, failed) = said.split_once("error: ").unwrap_or_else(|| panic!("{said}"));
    assert!(reported.contains("refused") && reported.contains("trying for 1.500 s"), "{said}");
    assert!(failed.contains("help: start a far end"), "{said}");
}

#[test]
fn a_host_of_nvme_tcp_that_meets_a_far_end_says_what_is_there() {
    let far = Export::start(&["--ram", "1MiB"]);
    for command in ["discover", "identify"] {
        let url = format!("nvme-tcp://{}/nqn.2026-01.io.farlane:disk", far.address);
        let url = if command == "discover" { url.rsplit_once('/').unwrap().0 } else { &url };
        let said = fail(&[command, url, "--timeout", "2s"]);
        assert!(said.contains("does not speak NVMe/TCP") && said.contains("tcp://HOST:PORT"), "{said}");
    }
}
