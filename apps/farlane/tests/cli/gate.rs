//! Strangers at far ends: their resources are bounded, are given back, and are no host's.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use datagrams::Endpoint;
use engine::{Buffer, Entropy, Rng};
use live::sys::clock::Clock;
use serde_json::Value;

use crate::support::load::assert_verified;
use crate::support::running::{Running, wait_until};
use crate::support::{Export, FARLANE, json};

/// The first byte of a TLS record with a part of a handshake.
pub(crate) const HANDSHAKE: u8 = 0x16;
/// Descriptors that a far end may have beyond those of the strangers that wait.
pub(crate) const SPARE: usize = 8;
/// The longest time for one message of a stranger.
const PATIENCE: Duration = Duration::from_secs(30);

/// A far end with a list of one host, and the keys of both.
pub(crate) struct Guarded {
    folder: tempfile::TempDir,
    pub(crate) far: Export,
    fingerprint: String,
}

impl Guarded {
    pub(crate) fn start(further: &[&str]) -> Self {
        Self::start_within(None, further)
    }

    /// Starts a far end that may have `descriptors`, if a limit is given.
    fn start_within(descriptors: Option<u32>, further: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let key =
            |name| json(&["setup", "key", "new", &path(name), "--json"])["key"].as_str().unwrap().to_owned();
        let (fingerprint, host) = (key("far"), key("host"));
        let mut command = std::process::Command::new("sh");
        let limit = descriptors.map_or_else(String::new, |limit| format!("ulimit -n {limit}; "));
        command.args(["-c", &format!("{limit}exec \"$@\""), "sh", &FARLANE]);
        command.args(["export", "--listen", "127.0.0.1:0", "--json", "--ram", "16MiB"]);
        command.args(["--key", &path("far"), "--allow", &host, "--control", &path("control")]).args(further);
        Self { far: Export::of(command), folder, fingerprint }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    pub(crate) fn url(&self, scheme: &str, address: &str) -> String {
        format!("{scheme}://{address}?key={}", self.fingerprint)
    }

    pub(crate) fn descriptors(&self) -> usize {
        descriptors(&self.far)
    }

    /// The fate of the strangers.
    pub(crate) fn strangers(&self) -> Value {
        let status = json(&["observe", "status", &self.path("control"), "--json"]);
        status["far_ends"][0]["strangers"].clone()
    }

    /// A verified load of the host for `length` by `url`.
    pub(crate) fn load(&self, url: &str, length: &str) -> Running {
        let load = ["bench", url, "--rw", "randrw", "--iodepth", "4", "--size", "8MiB", "--verify"];
        Running::start(&[&load[..], &["--runtime", length, "--key", &self.path("host"), "--json"]].concat())
    }

    /// Waits until the host's load has a session.
    pub(crate) fn wait_for_host(&self) {
        wait_until("the host has a session", || self.strangers()["admitted"].as_u64() > Some(0));
    }
}

/// The number of descriptors that a far end has.
fn descriptors(far: &Export) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", far.id())).unwrap().count()
}

/// Connects and sends `bytes`; the far end may have closed the connection before.
pub(crate) fn knock(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let _ = stream.write_all(bytes);
    stream
}

#[test]
fn handshakes_that_are_begun_and_left_leave_nothing_behind() {
    let guarded = Guarded::start(&[]);
    let address: SocketAddr = guarded.far.address.parse().unwrap();
    let before = guarded.descriptors();
    let load = guarded.load(&guarded.url("tcp", &guarded.far.address), "6s");
    guarded.wait_for_host();
    let beginning = [HANDSHAKE, 3, 1, 0, 200, 1];
    for round in 1..=3 {
        let held: Vec<_> =
            (0..500).map(|index| knock(address, &beginning[..1 + index % beginning.len()])).collect();
        // Strangers that hold on are shown the door, all but those that have places.
        wait_until("only a share of the strangers is left", || {
            let strangers = guarded.strangers();
            let has_come = strangers["accepted"].as_u64() > Some(500 * round);
            has_come
                && strangers["waiting"].as_u64() <= Some(16)
                && guarded.descriptors() <= before + 16 + SPARE
        });
        drop(held);
    }
    wait_until("everything is given back", || guarded.descriptors() <= before + SPARE);
    assert!(guarded.strangers()["displaced"].as_u64() > Some(1000), "{}", guarded.strangers());
    assert_verified(load);
}

/// The first record that a host of the far end sends: its ClientHello.
pub(crate) fn client_hello(guarded: &Guarded) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = guarded.url("tcp", &listener.local_addr().unwrap().to_string());
    let ping = ["ping", &url, "--key", &guarded.path("host"), "--count", "1"];
    let host = Running::start(&ping);
    let (mut stream, _) = listener.accept().unwrap();
    let mut record = vec![0; 5];
    stream.read_exact(&mut record).unwrap();
    let mut rest = vec![0; usize::from(u16::from_be_bytes([record[3], record[4]]))];
    stream.read_exact(&mut rest).unwrap();
    record.extend(rest);
    drop(host);
    record
}

#[test]
fn handshakes_that_are_cut_or_changed_anywhere_leave_nothing_behind() {
    let guarded = Guarded::start(&[]);
    let address: SocketAddr = guarded.far.address.parse().unwrap();
    let before = guarded.descriptors();
    let hello = client_hello(&guarded);
    assert_eq!(hello[0], HANDSHAKE);
    for place in 0..hello.len() {
        // One that ends there, one that is half closed there, and one with another byte there.
        drop(knock(address, &hello[..place]));
        let half = knock(address, &hello[..place]);
        let _ = half.shutdown(Shutdown::Write);
        let mut changed = hello.clone();
        changed[place] ^= 0x55;
        drop(knock(address, &changed));
    }
    wait_until("everything is given back", || guarded.descriptors() <= before + SPARE);
    assert_verified(guarded.load(&guarded.url("tcp", &guarded.far.address), "300ms"));
}

#[test]
fn a_handshake_that_takes_too_long_is_ended() {
    let guarded = Guarded::start(&[]);
    let before = guarded.descriptors();
    let mut slow = knock(guarded.far.address.parse().unwrap(), &[HANDSHAKE, 3]);
    slow.set_read_timeout(Some(PATIENCE)).unwrap();
    // The far end closes it, with no more than an alert.
    let mut said = Vec::new();
    let _ = slow.read_to_end(&mut said);
    assert!(said.len() < 16, "{said:?}");
    wait_until("its descriptor is given back", || guarded.descriptors() <= before + 1);
    assert_eq!(guarded.strangers()["late"], 1);
}

#[test]
fn few_descriptors_are_shared_with_strangers_and_one_is_left_for_the_host() {
    for limit in [64, 256, 1024] {
        let guarded = Guarded::start_within(Some(limit), &[]);
        let address: SocketAddr = guarded.far.address.parse().unwrap();
        let held: Vec<_> = (0..200).map(|_| knock(address, &[HANDSHAKE])).collect();
        wait_until("the strangers were heard", || guarded.strangers()["accepted"].as_u64() >= Some(200));
        assert!(guarded.strangers()["waiting"].as_u64() <= Some(u64::from(limit / 8)));
        assert_verified(guarded.load(&guarded.url("tcp", &guarded.far.address), "500ms"));
        drop(held);
    }
}

#[test]
fn silent_connections_of_this_machine_are_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("memory");
    let far = Export::start(&["--ram", "16MiB", "--shm", socket.to_str().unwrap()]);
    let before = descriptors(&far);
    for _ in 0..20 {
        let held: Vec<_> = (0..100).filter_map(|_| UnixStream::connect(&socket).ok()).collect();
        wait_until("only a share is left", || descriptors(&far) <= before + 16 + SPARE);
        drop(held);
    }
    wait_until("everything is given back", || descriptors(&far) <= before + SPARE);
    let url = format!("shm:{}", socket.display());
    assert_eq!(json(&["measure", "ping", &url, "--count", "10", "--json"])["count"], 10);
}

/// Strangers that make connections by datagrams, acknowledge what they are sent, and say nothing.
pub(crate) struct Silent {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Silent {
    /// As many as `count` connections from `from` to `far`.
    pub(crate) fn start(from: &str, far: SocketAddr, count: usize) -> Self {
        let socket = UdpSocket::bind((from, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let thread = std::thread::spawn(move || {
            let clock = Clock::start();
            let mut endpoint =
                Endpoint::new(Entropy::Seeded(Rng::from_seed(u64::from(far.port()))), 1200, None);
            let mut ids: Vec<_> = (0..count).map(|_| endpoint.connect(clock.now(), far, 0)).collect();
            let (mut bytes, mut room) = ([0; 2048], Vec::new());
            while !over.load(Ordering::Relaxed) {
                let now = clock.now();
                while let Some(to) = endpoint.poll_transmit(now, &mut room) {
                    let _ = socket.send_to(&room, to);
                    room.clear();
                }
                while let Ok((length, from)) = socket.recv_from(&mut bytes) {
                    endpoint.handle_datagram(clock.now(), from, &bytes[..length]);
                }
                endpoint.handle_timeout(clock.now());
                for id in &mut ids {
                    let ended = endpoint.get(*id).and_then(|connection| connection.ended());
                    if ended.is_some() {
                        endpoint.remove(*id);
                        *id = endpoint.connect(clock.now(), far, 0);
                    } else if let Some(connection) = endpoint.get(*id)
                        && connection.is_established()
                        && connection.counters().sent < 4
                    {
                        // A handshake that is begun.
                        connection.send(Buffer::copy_from_slice(&[HANDSHAKE]));
                    }
                }
            }
        });
        Self { is_over, thread: Some(thread) }
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[test]
fn strangers_by_datagrams_keep_no_host_out() {
    let guarded = Guarded::start(&["--udp", "127.0.0.1:0"]);
    let udp = guarded.far.announcement["udp"].as_str().unwrap().to_owned();
    let far: SocketAddr = udp.parse().unwrap();
    // One address that asks for all places, then four of them.
    for addresses in [&["127.0.0.2"][..], &["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"]] {
        let before = guarded.strangers()["accepted"].as_u64().unwrap();
        let strangers: Vec<_> = addresses.iter().map(|from| Silent::start(from, far, 100)).collect();
        wait_until("they have come", || {
            guarded.strangers()["accepted"].as_u64() > Some(before + 30 * addresses.len() as u64)
        });
        assert_verified(guarded.load(&guarded.url("udp", &udp), "1s"));
        assert_verified(guarded.load(&guarded.url("tcp", &guarded.far.address), "500ms"));
        drop(strangers);
    }
    wait_until("they are forgotten", || guarded.strangers()["waiting"] == 0);
}
