//! A target and hosts that it would be better off without.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::relay::Relay;
use crate::support::running::{times, wait_until};
use crate::support::{Export, FARLANE, json};

const NQN: &str = "nqn.2026-01.io.farlane:bad-days";
/// Number of hosts that come and go.
const HOSTS: u32 = 10_000;
/// Most KiB by which a target's memory may have grown after the hosts have gone.
const GROWTH_MAX: u64 = 4 << 10;
/// Most bytes that a host sends while it reads nothing.
const SENT_MAX: usize = 64 << 20;
/// How long a target takes nothing until it counts as stopped.
const STALL: Duration = Duration::from_secs(1);

/// Length in bytes of a command capsule's PDU header and submission queue entry.
const CAPSULE: usize = 8 + 64;

fn target() -> Export {
    let mut command = Command::new(&*FARLANE);
    command.args(["target", "--json", "--listen", "127.0.0.1:0", "--nqn", NQN, "--ram", "16MiB"]);
    Export::of(command)
}

fn url(target: &Export) -> String {
    format!("nvme-tcp://{}/{NQN}", target.address)
}

/// Resident memory of the target in KiB; see proc_pid_status(5).
fn resident(target: &Export) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", target.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

/// An Initialize Connection Request (ICReq) without digests.
fn initialize() -> [u8; 128] {
    let mut request = [0; 128];
    (request[2], request[4]) = (128, 128);
    request
}

/// A command capsule that carries `data`.
fn capsule(entry: [u8; 64], data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(CAPSULE + data.len()).unwrap();
    let mut pdu = vec![4, 0, 72, if data.is_empty() { 0 } else { 72 }];
    pdu.extend(length.to_le_bytes());
    pdu.extend(entry);
    pdu.extend(data);
    pdu
}

/// A Connect for the Admin Queue, with 32 entries.
fn connect() -> Vec<u8> {
    connect_queue(0, 0xffff, 31)
}

/// A Connect for a queue of `controller`, with `size` + 1 entries and without a Keep Alive Timeout.
fn connect_queue(queue: u8, controller: u16, size: u8) -> Vec<u8> {
    let mut entry = [0; 64];
    (entry[0], entry[1], entry[4]) = (0x7f, 0x40, 1);
    entry[32..36].copy_from_slice(&1024_u32.to_le_bytes());
    (entry[39], entry[42], entry[44]) = (1, queue, size);
    let mut data = [0; 1024];
    data[0] = 7;
    data[16..18].copy_from_slice(&controller.to_le_bytes());
    data[256..256 + NQN.len()].copy_from_slice(NQN.as_bytes());
    let host = b"nqn.2026-01.io.farlane:stranger";
    data[512..512 + host.len()].copy_from_slice(host);
    capsule(entry, &data)
}

/// A Property Set of Controller Configuration (CC): enabled, with entries of the usual sizes.
fn enable() -> Vec<u8> {
    let mut entry = [0; 64];
    (entry[0], entry[1], entry[2], entry[4]) = (0x7f, 0x40, 1, 0);
    entry[44] = 0x14;
    entry[48..52].copy_from_slice(&0x0046_0001_u32.to_le_bytes());
    capsule(entry, &[])
}

/// A Read of 128 KiB, the most that one command may transfer.
fn read_much(id: u8) -> Vec<u8> {
    let mut entry = [0; 64];
    (entry[0], entry[1], entry[2], entry[4]) = (2, 0x40, id, 1);
    entry[32..36].copy_from_slice(&(128_u32 << 10).to_le_bytes());
    (entry[39], entry[48]) = (0x5a, 0xff);
    capsule(entry, &[])
}

/// Sends a command that transfers no data to the host, and returns DW0 of the target's response.
fn ask(host: &mut TcpStream, command: &[u8]) -> u32 {
    host.write_all(command).unwrap();
    let mut response = [0; 24];
    host.read_exact(&mut response).unwrap();
    assert_eq!(response[22..24], [0, 0], "{response:x?}");
    u32::from_le_bytes(response[8..12].try_into().unwrap())
}

/// A connection to the target that has been initialised.
fn connection(target: &Export) -> TcpStream {
    let mut host = TcpStream::connect(&target.address).unwrap();
    host.write_all(&initialize()).unwrap();
    host.read_exact(&mut [0; 128]).unwrap();
    host
}

/// An Identify Controller: 72 B that ask for 4 KiB.
fn identify(id: u8) -> Vec<u8> {
    let mut entry = [0; 64];
    (entry[0], entry[1], entry[2]) = (6, 0x40, id);
    entry[32..36].copy_from_slice(&4096_u32.to_le_bytes());
    (entry[39], entry[40]) = (0x5a, 1);
    capsule(entry, &[])
}

fn works(target: &Export) {
    let found = json(&["nvme", "identify", "--json", &url(target)]);
    assert_eq!(found["controller"]["subnqn"].as_str(), Some(NQN), "{found}");
}

/// The hosts leave at different points: at once, in the middle of the first PDU, behind it, in the
/// middle of Connect, and behind Connect.
#[test]
fn ten_thousand_hosts_that_come_and_go_leave_nothing_behind() {
    let target = target();
    let whole = [&initialize()[..], &connect()].concat();
    let stops = [0, 1, 64, 128, 200, whole.len()];
    let visit = |number: u32| {
        let mut stream = TcpStream::connect(&target.address).unwrap();
        let stop = stops[number as usize % stops.len()];
        stream.write_all(&whole[..stop]).unwrap();
    };
    (0..HOSTS / 4).for_each(visit);
    works(&target);
    let before = resident(&target);
    (HOSTS / 4..HOSTS).for_each(visit);
    works(&target);
    wait_until("the memory of hosts that have gone is free", || resident(&target) < before + GROWTH_MAX);
}

/// The host asks for 57 times as many bytes as it sends. The target's debt to the host is bounded
/// by the number of commands that may be under way.
#[test]
fn a_host_that_reads_nothing_is_owed_little() {
    let target = target();
    works(&target);
    let before = resident(&target);
    let mut host = TcpStream::connect(&target.address).unwrap();
    host.write_all(&initialize()).unwrap();
    host.read_exact(&mut [0; 128]).unwrap();
    for command in [connect(), enable()] {
        host.write_all(&command).unwrap();
        let mut response = [0; 24];
        host.read_exact(&mut response).unwrap();
        assert_eq!(response[22..24], [0, 0], "{response:x?}");
    }
    host.set_nonblocking(true).unwrap();
    let commands: Vec<u8> = (0..=255).flat_map(identify).collect();
    let (mut sent, mut last) = (0, Instant::now());
    let mut most = before;
    while last.elapsed() < STALL && sent < SENT_MAX {
        match host.write(&commands[sent % commands.len()..]) {
            Ok(count) => (sent, last) = (sent + count, Instant::now()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(5));
            }
            // The target has closed the connection, which is as well.
            Err(_) => break,
        }
        most = most.max(resident(&target));
    }
    assert!(most < before + 4 * GROWTH_MAX, "{before} KiB became {most} KiB while {sent} B were sent");
    // Other hosts are served meanwhile.
    works(&target);
    drop(host);
    works(&target);
}

#[test]
fn a_host_may_have_sixty_four_queues() {
    let target = target();
    let url = format!("{}?queues=64", url(&target));
    let arguments =
        ["bench", "--json", "--rw", "randwrite", "--verify", "--iodepth", "128", "--runtime", "500ms", &url];
    let report = json(&arguments);
    assert_eq!(report["errors"].as_u64(), Some(0), "{report}");
    // The log names the first queues one by one, and the number of the others 10 s later.
    for queue in 1..=10 {
        assert!(target.said().contains(&format!("has queue {queue}, ")), "{}", target.said());
    }
    wait_until("every queue is logged", || times(&target.said(), "has queue") == 64);
}

#[test]
fn a_target_that_is_killed_ends_a_load_within_its_patience_and_with_few_words() {
    let mut target = target();
    let load = ["bench", &url(&target), "--rw", "randread", "--runtime", "60s", "--timeout", "3s"];
    let load = crate::support::running::Running::start(&load);
    // The load has queues and is at work.
    target.wait_for("has queue 1, ");
    std::thread::sleep(Duration::from_millis(300));
    target.kill();
    // Three seconds of patience, and the rest for a busy machine.
    let output = load.output_within(Duration::from_secs(20));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("could not be reached again in time"), "{said}");
    assert!(said.lines().count() < 12, "{said}");
}

/// Each flipped bit ends a connection or fails a command, which is sent again: reads return the
/// written data.
#[test]
fn bits_that_flip_in_transit_change_nothing_that_is_read() {
    let target = target();
    let relay = Relay::to(&target.address);
    let url = format!("nvme-tcp://{}/{NQN}?queues=2&fast-io-fail-tmo=40", relay.address);
    let load =
        ["--rw", "randrw", "--iodepth", "8", "--size", "4MiB", "--timeout", "40s", "--verify", "--json"];
    // Bits flip seldom enough for a command to get through in one of its tries.
    for (size, every) in [("4k", 150_001), ("64k", 1_500_007)] {
        relay.flip_every(every);
        let arguments = [&["bench", &url, "--bs", size, "--runtime", "2s"][..], &load].concat();
        let done = json(&arguments);
        assert_eq!((done["errors"].as_u64(), done["verified"].as_bool()), (Some(0), Some(true)), "{done}");
        assert!(done["compared"].as_u64() > Some(0), "{done}");
    }
    assert!(relay.flipped() > 20, "{} bits have flipped", relay.flipped());
}

/// The namespace is in a file, so that commands that wait take memory of their own.
#[test]
fn three_hundred_queues_that_are_not_read_hold_what_they_may_and_others_are_served() {
    const BUDGET: u64 = 64 << 10;
    let directory = tempfile::tempdir().unwrap();
    let control = directory.path().join("control");
    let control = control.to_str().unwrap();
    let disk = format!("{},size=64MiB", directory.path().join("disk").display());
    let mut command = Command::new(&*FARLANE);
    command.args(["target", "--json", "--listen", "127.0.0.1:0", "--nqn", NQN, "--memory-max", "64MiB"]);
    command.args(["--namespace", &disk, "--control", control]);
    let target = Export::of(command);
    works(&target);
    let before = resident(&target);
    let bench = [
        "bench",
        "--json",
        "--rw",
        "randrw",
        "--verify",
        "--iodepth",
        "4",
        "--size",
        "16MiB",
        "--runtime",
        "12s",
        &url(&target),
    ];
    let host = crate::support::running::Running::start(&bench);
    let (mut most, mut queues) = (0, Vec::new());
    for _ in 0..6 {
        let mut admin = connection(&target);
        let controller = u16::try_from(ask(&mut admin, &connect()) & 0xffff).unwrap();
        ask(&mut admin, &enable());
        queues.push(admin);
        for queue in 1..=50 {
            let mut queue_of_it = connection(&target);
            ask(&mut queue_of_it, &connect_queue(queue, controller, 63));
            // The queue may be full, or over, before the target has taken all commands.
            queue_of_it.set_nonblocking(true).unwrap();
            let commands: Vec<u8> = (0..63).flat_map(read_much).collect();
            let _ = queue_of_it.write(&commands);
            queues.push(queue_of_it);
            most = most.max(resident(&target));
        }
    }
    let status = json(&["target", "status", "--json", "--control", control]);
    let memory = &status["memory"];
    assert_eq!(memory["budget_bytes"].as_u64(), Some(BUDGET << 10), "{memory}");
    assert!(memory["used_bytes"].as_u64().unwrap() > BUDGET << 7, "{memory}");
    let (report, said) = host.json();
    assert_eq!(report["errors"].as_u64(), Some(0), "{report} {said}");
    most = most.max(resident(&target));
    // Besides the memory that is counted, each connection has a receive buffer and tables.
    assert!(most < before + BUDGET + (96 << 10), "{before} KiB became {most} KiB");
    works(&target);
    drop(queues);
}
