//! Strangers at a target: connections whose hosts have no key, and the resources that they can take
//! away from a host that has one.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use engine::{Entropy, Rng};
use live::drivers::fabrics::Socket;
use nvme_fabrics::authentication::{Controller, Credentials, Group, Host, Names, Secret, Step};
use nvme_fabrics::wire::AuthenticationCommand;
use serde_json::Value;

use crate::support::load::short_load;
use crate::support::running::wait_until;
use crate::support::{Export, FARLANE, fail, farlane, json};

const HOST: &str = "nqn.2014-08.org.example:known";
const HOST_ID: &str = "01010101-0101-0101-0101-010101010101";
const DISK: &str = "nqn.2026-01.io.farlane:strangers";
const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";
const SECRET: &str = "DHHC-1:01:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:";
/// The limit of descriptors of a target.
const LIMIT: usize = 256;
/// The share of strangers.
const SHARE: usize = LIMIT / 8;
/// Descriptors that come and go with unmeasured parts, such as the control socket.
const OWN: usize = 12;

/// A target with one subsystem, which lets in [`HOST`] alone.
struct Bench {
    folder: tempfile::TempDir,
    target: Export,
    url: String,
}

impl Bench {
    /// A target with these further options, with a secret for the host or a TLS key.
    fn new(with_tls: bool, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (key, control) = (path("key"), path("control"));
        let option = if with_tls {
            assert!(farlane(&["setup", "key", "tls", &key]).status.success());
            "tls-key-file"
        } else {
            fs::write(&key, format!("{SECRET}\n")).unwrap();
            fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
            "dhchap-secret-file"
        };
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {LIMIT}; exec \"$0\" \"$@\""), &FARLANE]);
        command.args(["target", "--json", "--listen", "127.0.0.1:0", "--nqn", DISK, "--ram", "32MiB"]);
        command.args(["--host", HOST, &format!("--{option}"), &key, "--control", &control]).args(more);
        let target = Export::of(command);
        let address = &target.address;
        let url = format!("nvme-tcp://{address}/{DISK}?hostnqn={HOST}&hostid={HOST_ID}&{option}={key}");
        Self { folder, target, url }
    }

    fn control(&self) -> String {
        self.folder.path().join("control").to_str().unwrap().to_owned()
    }

    fn status(&self) -> Value {
        json(&["target", "status", "--json", "--control", &self.control()])
    }

    fn strangers(&self) -> Value {
        self.status()["strangers"].clone()
    }

    /// The host connects with several queues, and its load is right.
    fn serves(&self) {
        let (passed, text) = short_load(&format!("{}&queues=4", self.url), "randrw", &["--timeout", "20s"]);
        assert!(passed, "{text}\n{}", self.target.said());
    }

    fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.target.id())).unwrap().count()
    }

    /// Number of the target's sockets that are in CLOSE_WAIT; see proc_net_tcp(5).
    fn in_close_wait(&self) -> usize {
        let port: u16 = self.target.address.rsplit(':').next().unwrap().parse().unwrap();
        let local = format!(":{port:04X}");
        let table = fs::read_to_string(format!("/proc/{}/net/tcp", self.target.id())).unwrap();
        let is_one = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            words.nth(1).is_some_and(|address| address.ends_with(&local)) && words.nth(1) == Some("08")
        };
        table.lines().filter(|line| is_one(line)).count()
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.target.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// The resources of strangers are the target's again.
    fn recovers(&self, before: usize) {
        wait_until("the descriptors are back", || self.descriptors() <= before + OWN);
        wait_until("no socket waits to be closed", || self.in_close_wait() == 0);
        wait_until("no stranger is left", || self.strangers()["connections"] == 0);
    }
}

/// A command capsule that carries `data`.
fn capsule(entry: [u8; 64], data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(72 + data.len()).unwrap();
    let mut pdu = vec![4, 0, 72, if data.is_empty() { 0 } else { 72 }];
    pdu.extend(length.to_le_bytes());
    pdu.extend(entry);
    pdu.extend(data);
    pdu
}

/// A Connect of [`HOST`], without a Keep Alive Timeout.
fn connect(subsystem: &str, queue: u8, controller: u16) -> Vec<u8> {
    let mut entry = [0; 64];
    (entry[0], entry[1]) = (0x7f, 0x40);
    entry[4] = 1;
    entry[32..36].copy_from_slice(&1024_u32.to_le_bytes());
    (entry[39], entry[42], entry[44]) = (1, queue, 31);
    let mut data = [0; 1024];
    data[..16].fill(1);
    data[16..18].copy_from_slice(&controller.to_le_bytes());
    data[256..256 + subsystem.len()].copy_from_slice(subsystem.as_bytes());
    data[512..512 + HOST.len()].copy_from_slice(HOST.as_bytes());
    capsule(entry, &data)
}

/// An Initialize Connection Request (ICReq) without digests.
fn initialize() -> [u8; 128] {
    let mut request = [0; 128];
    (request[2], request[4]) = (128, 128);
    request
}

/// A response capsule's status and DW0, behind data that may come before it. `None` when the
/// connection was closed.
fn response(stream: &mut TcpStream) -> Option<(u16, u32)> {
    loop {
        let mut header = [0; 8];
        stream.read_exact(&mut header).ok()?;
        let length = u32::from_le_bytes(header[4..8].try_into().unwrap()) as usize;
        let mut rest = vec![0; length - 8];
        stream.read_exact(&mut rest).ok()?;
        if header[0] == 5 {
            let dw0 = u32::from_le_bytes(rest[..4].try_into().unwrap());
            return Some((u16::from_le_bytes(rest[14..16].try_into().unwrap()) >> 1, dw0));
        }
    }
}

/// A connection that has sent its Connect, and the answer.
fn connected(address: &str, connect: &[u8]) -> Option<(TcpStream, (u16, u32))> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    stream.write_all(&initialize()).ok()?;
    stream.read_exact(&mut [0; 128]).ok()?;
    stream.write_all(connect).ok()?;
    let answer = response(&mut stream)?;
    Some((stream, answer))
}

/// Begins of a TLS handshake of one to six bytes, held and then closed, half-closed or reset.
#[test]
fn handshakes_that_end_early_leave_nothing_behind() {
    let bench = Bench::new(true, &[]);
    bench.serves();
    wait_until("the host has gone", || bench.strangers()["connections"] == 0);
    let before = bench.descriptors();
    let hello = [22, 3, 1, 0, 200, 1];
    for round in 0..3 {
        let mut held = Vec::new();
        for number in 0..500 {
            let mut stream = bench.connect();
            // The target may have closed it already, for a later one.
            let _ = stream.write_all(&hello[..1 + number % hello.len()]);
            held.push(stream);
        }
        assert!(bench.descriptors() <= before + SHARE + OWN, "{}", bench.descriptors());
        bench.serves();
        match round {
            0 => drop(held),
            1 => {
                for stream in &held {
                    // The target may have closed it already.
                    let _ = stream.shutdown(Shutdown::Write);
                }
                bench.recovers(before);
            }
            _ => held.into_iter().filter_map(|stream| Socket::new(stream).ok()).for_each(Socket::abort),
        }
        bench.recovers(before);
    }
    bench.serves();
    let dropped = &bench.strangers()["dropped"];
    assert!(dropped["crowded"].as_u64().is_some_and(|count| count > 0), "{dropped}");
    assert_eq!(bench.target.said().matches("have not authenticated").count(), 1, "{}", bench.target.said());
}

/// Strangers of every kind hold all that they can, and say nothing more.
#[test]
fn a_host_connects_while_strangers_hold_everything() {
    let bench = Bench::new(false, &[]);
    let before = bench.descriptors();
    let commands = [
        Vec::new(),
        vec![0],
        initialize()[..64].to_vec(),
        [&initialize()[..], &connect(DISK, 0, 0xffff)[..100]].concat(),
        [&initialize()[..], &connect(DISK, 0, 0xffff)].concat(),
        [&initialize()[..], &connect(DISCOVERY, 0, 0xffff)].concat(),
        [&initialize()[..], &connect("nqn.2026-01.io.farlane:none", 0, 0xffff)].concat(),
    ];
    let mut held = Vec::new();
    for number in 0..3 * LIMIT {
        let mut stream = bench.connect();
        let _ = stream.write_all(&commands[number % commands.len()]);
        held.push(stream);
        if number % 256 == 200 {
            bench.serves();
        }
    }
    bench.serves();
    assert!(bench.descriptors() <= before + SHARE + OWN, "{}", bench.descriptors());
    let strangers = bench.strangers();
    assert!(strangers["connections"].as_u64().unwrap() <= SHARE as u64, "{strangers}");
    assert!(strangers["refused"]["unknown_subsystem"].as_u64().unwrap() > 0, "{strangers}");
    drop(held);
    bench.recovers(before);
}

#[test]
fn who_proves_nothing_in_time_is_closed() {
    let bench = Bench::new(false, &["--prove-within", "300ms"]);
    let mut silent = bench.connect();
    let mut claiming = bench.connect();
    claiming.write_all(&[&initialize()[..], &connect(DISK, 0, 0xffff)].concat()).unwrap();
    for stream in [&mut silent, &mut claiming] {
        let started = Instant::now();
        let _ = stream.read_to_end(&mut Vec::new());
        assert!(started.elapsed() < Duration::from_secs(15));
    }
    wait_until("both were late", || bench.strangers()["dropped"]["late"] == 2);
    bench.serves();
    let said = fail(&["target", "--nqn", DISK, "--ram", "1MiB", "--prove-within", "1h"]);
    assert!(said.contains("expected 100ms to 2min"), "{said}");
}

/// The host's names pass in the clear. Strangers connect each of its queues before the host does.
#[test]
fn strangers_take_no_queue_of_a_host() {
    let bench = Bench::new(false, &[]);
    let (over, taken) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for first in 1..=4 {
            let (bench, over, taken) = (&bench, &over, &taken);
            scope.spawn(move || {
                let mut held = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    for queue in [first, first % 4 + 1] {
                        for controller in 1..=12 {
                            let connect = connect(DISK, queue, controller);
                            let Some((stream, (status, dw0))) = connected(&bench.target.address, &connect)
                            else {
                                continue;
                            };
                            // The host must authenticate: bit 17.
                            if status == 0 && dw0 & 1 << 17 != 0 {
                                taken.fetch_add(1, Ordering::Relaxed);
                                held.push(stream);
                            }
                        }
                    }
                    held.truncate(4);
                }
            });
        }
        for _ in 0..4 {
            bench.serves();
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(taken.load(Ordering::Relaxed) > 0, "no queue was ever claimed: this tests nothing");
    bench.serves();
}

#[test]
fn discovery_without_a_key_is_bounded() {
    let bench = Bench::new(false, &[]);
    let before = bench.descriptors();
    let address = bench.target.address.clone();
    let held: Vec<_> = (0..1471)
        .filter_map(|_| connected(&address, &connect(DISCOVERY, 0, 0xffff)))
        .map(|(stream, (status, _))| {
            assert_eq!(status, 0);
            stream
        })
        .collect();
    assert!(held.len() > SHARE);
    let strangers = bench.strangers();
    let number = |name: &str| usize::try_from(strangers[name].as_u64().unwrap()).unwrap();
    let (count, most) = (number("discovery"), number("discovery_most"));
    assert!(count <= most && most <= SHARE / 2 && count > 0, "{strangers}");
    bench.serves();
    let records = json(&["use", "discover", "--json", &format!("nvme-tcp://{address}")]);
    assert_eq!(records["records"][0]["subnqn"], DISCOVERY, "{records}");
    assert!(bench.descriptors() <= before + SHARE + OWN);
    drop(held);
    bench.recovers(before);
    // A persistent discovery controller stays.
    let mut entry = connect(DISCOVERY, 0, 0xffff);
    entry[8 + 48..8 + 52].copy_from_slice(&2_000_u32.to_le_bytes());
    let (mut persistent, _) = connected(&address, &entry).unwrap();
    let keep_alive = {
        let mut entry = [0; 64];
        (entry[0], entry[1]) = (0x18, 0x40);
        capsule(entry, &[])
    };
    let enable = {
        let mut entry = [0; 64];
        (entry[0], entry[1], entry[44]) = (0x7f, 0x40, 0x14);
        entry[48..52].copy_from_slice(&0x0046_0001_u32.to_le_bytes());
        capsule(entry, &[])
    };
    persistent.write_all(&enable).unwrap();
    assert_eq!(response(&mut persistent), Some((0, 0)));
    for _ in 0..3 {
        let others: Vec<_> =
            (0..2).filter_map(|_| connected(&address, &connect(DISCOVERY, 0, 0xffff))).collect();
        persistent.write_all(&keep_alive).unwrap();
        assert_eq!(response(&mut persistent), Some((0, 0)));
        drop(others);
    }
}

#[test]
fn discovery_is_keyed_or_closed_if_the_user_says_so() {
    for with_tls in [true, false] {
        let bench = Bench::new(with_tls, &["--discovery", "keyed"]);
        assert_eq!(bench.status()["discovery_access"], "keyed");
        let url = format!("nvme-tcp://{}", bench.target.address);
        let said = fail(&["use", "discover", &url]);
        assert!(said.contains("Connect Invalid Host") && said.contains("this host's name is nqn."), "{said}");
        assert!(said.contains("--dhchap-secret-file FILE") && said.contains("?hostnqn=NQN"), "{said}");
        bench.target.wait_for("the discovery service demands a key");
        bench.serves();
        let (_, (status, dw0)) = connected(&bench.target.address, &connect(DISCOVERY, 0, 0xffff))
            .unwrap_or_else(|| panic!("an answer: {}", bench.target.said()));
        match with_tls {
            // Connect Invalid Host, do not retry.
            true => assert_eq!(status, 0x4184),
            false => {
                assert!(status == 0 && dw0 & 1 << 17 != 0, "{status:#x} {dw0:#x}");
                let key = bench.folder.path().join("key");
                let url = format!("{url}?hostnqn={HOST}");
                let found =
                    json(&["use", "discover", "--json", &url, "--dhchap-secret-file", key.to_str().unwrap()]);
                assert_eq!(found["records"][0]["subnqn"], DISCOVERY, "{found}");
            }
        }
    }
    let bench = Bench::new(false, &["--discovery", "closed"]);
    let said = fail(&["use", "discover", &format!("nvme-tcp://{}", bench.target.address)]);
    assert!(said.contains("Connect Invalid Parameters"), "{said}");
    bench.serves();
    let said = fail(&["target", "--nqn", DISK, "--ram", "1MiB", "--mdns", "--discovery", "closed"]);
    assert!(said.contains("--discovery closed switches off"), "{said}");
}

/// An Authentication Send with its data, or an Authentication Receive of 4 KiB.
fn authenticate(message: Option<&[u8]>) -> Vec<u8> {
    let length = message.map_or(4096, |message| u32::try_from(message.len()).unwrap());
    let command = AuthenticationCommand::in_band(length);
    let emitted = match message {
        Some(_) => nvme_fabrics::wire::FabricsCommand::AuthenticationSend(command).emit(),
        None => nvme_fabrics::wire::FabricsCommand::AuthenticationReceive(command).emit(),
    };
    let mut entry = emitted.emit();
    entry[1] = 0x40;
    entry[32..36].copy_from_slice(&length.to_le_bytes());
    entry[39] = if message.is_some() { 0x01 } else { 0x5a };
    capsule(entry, message.unwrap_or_default())
}

/// The messages of a host with a wrong secret to a controller that takes the dearest group alone:
/// its negotiation and its reply, which can be said again and again.
fn dear_words() -> [Vec<u8>; 2] {
    let mut entropy = Entropy::from(Rng::from_seed(1));
    let mut credentials = Credentials::new(Secret::generate(None, &mut entropy));
    credentials.groups = vec![Group::Ffdhe8192];
    let names = Names { host: HOST.parse().unwrap(), subsystem: DISK.parse().unwrap() };
    let mut host = Host::new(names.clone(), credentials.clone(), 1, entropy.split());
    let now = engine::Instant::ZERO;
    let mut controller = Controller::new(now, names, credentials, None, entropy.split());
    let mut said = Vec::new();
    while said.len() < 2 {
        match host.step() {
            Step::Send(message) => {
                controller.on_message(now, &message);
                said.push(message);
            }
            Step::Receive => host.on_message(&controller.answer(now)),
            Step::Done(result) => panic!("{result:?}"),
        }
    }
    said.try_into().unwrap()
}

/// Exponentiations for strangers take 5 % of a processor, on a thread of their own.
#[test]
fn strangers_authenticate_at_little_cost() {
    let bench = Bench::new(false, &[]);
    let [negotiate, reply] = dear_words();
    let (over, said) = (AtomicBool::new(false), AtomicUsize::new(0));
    let started = Instant::now();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let connect = connect(DISK, 0, 0xffff);
                    let Some((mut stream, (0, _))) = connected(&bench.target.address, &connect) else {
                        continue;
                    };
                    for message in [Some(&negotiate[..]), None, Some(&reply), None] {
                        let said = stream.write_all(&authenticate(message)).is_ok();
                        if !said || response(&mut stream).is_none() {
                            break;
                        }
                    }
                    said.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        wait_until("strangers were refused", || {
            bench.strangers()["refused"]["not_authenticated"].as_u64().is_some_and(|count| count >= 3)
        });
        bench.serves();
        bench.serves();
        over.store(true, Ordering::Relaxed);
    });
    let work = bench.strangers()["exponentiations"].clone();
    let spent = Duration::from_nanos(work["processor_ns"].as_u64().unwrap());
    // 5 %, the saved share, the keys of a group, and the host's own.
    let most = started.elapsed().mul_f64(0.05) + Duration::from_secs(2);
    assert!(spent < most, "{spent:?} of {:?}: {work}", started.elapsed());
    assert!(said.load(Ordering::Relaxed) > 3);
}
