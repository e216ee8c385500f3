//! Stations over wires: packets of every length, peers that go, and peers that write nonsense.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use engine::{Instant, Nanos, Rng};
use lines::MEMORY_BYTES;
use niq::{HostConfig, PACKET_MAX, Path, registers};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use vfio_user::RegionIndex;
use vfio_user::client::Answer;

use super::client::CardClient;
use super::served::CardDriver;
use super::station::{Place, Station, StationError};
use super::wire::{Wire, WireUrl};
use super::{floor, new_memory, shm, udp};
use crate::reactor::{Reactor, Stop};
use crate::sys::clock::Clock;
use crate::sys::unix::{Connection, Listener};

const SPIN: Nanos = Nanos::from_micros(50);
const PATIENCE: Nanos = Nanos::from_secs(10);

fn station(place: &Place, last: u8) -> Station {
    let config = HostConfig { head: 20, ..HostConfig::default() };
    Station::open(place, [2, 0, 0, 0, 0, last], config, SPIN).unwrap()
}

fn shm_wire(folder: &tempfile::TempDir) -> WireUrl {
    WireUrl::Shm(folder.path().join("wire"))
}

/// Waits until both stations see each other.
fn meet(stations: [&mut Station; 2]) {
    let [near, far] = stations;
    let start = near.clock().now();
    // Each has to look, or the other sees nothing.
    while !(near.is_up().unwrap() & far.is_up().unwrap()) {
        assert!(near.clock().now() - start < PATIENCE, "they do not meet");
        thread::sleep(Duration::from_millis(1));
    }
}

fn packet(rng: &mut Rng, length: usize) -> Vec<u8> {
    let random = std::iter::repeat_with(|| rng.next_u64().to_le_bytes()).flatten();
    [0xff; 6].into_iter().chain(random).take(length).collect()
}

/// Sends packets of many lengths, by turns, and compares the received ones.
fn exchange(near: &mut Station, far: &mut Station) {
    let mut rng = Rng::from_seed(7);
    let mut bytes = vec![0; PACKET_MAX];
    for length in [14, 59, 60, 61, 64, 240, 241, 300, 1500, 9000, PACKET_MAX, 60, 14] {
        for inline_max in [60, 0] {
            near.set_inline_max(inline_max);
            let sent = packet(&mut rng, length);
            assert!(near.send(&sent).unwrap());
            let deadline = far.clock().now() + PATIENCE;
            let received = far.wait(&mut bytes, deadline, || {
                // A long packet may need its sender to go on with it.
                let _ = near.poll(&mut [0; PACKET_MAX]);
                false
            });
            let received = received.unwrap().unwrap_or_else(|| panic!("{length} B do not come"));
            assert_eq!(bytes[..received.length], sent, "{length} B");
            assert_eq!(received.path, if length <= 60 { Path::Inline } else { Path::Dma });
        }
    }
}

#[test]
fn packets_of_every_length_pass_each_wire() {
    let folder = tempfile::tempdir().unwrap();
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for url in [shm_wire(&folder), WireUrl::Udp(port)] {
        let place = Place::Wire(url);
        let (mut near, mut far) = (station(&place, 1), station(&place, 2));
        meet([&mut near, &mut far]);
        exchange(&mut near, &mut far);
        exchange(&mut far, &mut near);
    }
}

#[test]
fn a_wire_that_is_full_makes_the_sender_wait() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::Wire(shm_wire(&folder));
    let (mut near, mut far) = (station(&place, 1), station(&place, 2));
    meet([&mut near, &mut far]);
    let mut rng = Rng::from_seed(1);
    let mut sent = 0;
    for _ in 0..3_000 {
        sent += u32::from(near.send(&packet(&mut rng, 1500)).unwrap());
    }
    assert!(sent < 3_000, "no station receives, so there is an end of the room");
    let mut bytes = vec![0; PACKET_MAX];
    let mut came = 0;
    for _ in 0..20_000 {
        if let Some(received) = far.poll(&mut bytes).unwrap() {
            assert_eq!(received.length, 1500);
            came += 1;
        }
        near.poll(&mut [0; PACKET_MAX]).unwrap();
    }
    assert_eq!(came, sent, "taken packets come, and whole");
    exchange(&mut near, &mut far);
}

/// The card of this process holds the packets for which the wire has no room, and is lost with the
/// process.
#[test]
fn a_station_knows_when_its_last_packet_has_left() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::Wire(shm_wire(&folder));
    let (mut near, mut far) = (station(&place, 1), station(&place, 2));
    meet([&mut near, &mut far]);
    let mut rng = Rng::from_seed(2);
    for length in [60, 1500] {
        let mut sent = 0;
        while sent < 3_000 && near.send(&packet(&mut rng, length)).unwrap() {
            sent += 1;
        }
        assert!(sent < 3_000 && !near.has_left().unwrap(), "no station receives");
        let taken = near.taken();
        let (mut bytes, mut came, mut last) = (vec![0; PACKET_MAX], 0, false);
        for _ in 0..20_000 {
            last = last || near.send_last(&packet(&mut rng, length)).unwrap();
            if last && near.has_left().unwrap() {
                break;
            }
            came += u32::from(far.poll(&mut bytes).unwrap().is_some());
        }
        assert!(near.has_left().unwrap() && came > 0, "{came} of {sent} came");
        assert!(near.taken() > taken, "{taken} packets were taken before");
        drain(&mut far, sent + 1 - came);
    }
}

/// Takes `count` packets that are on the wire.
fn drain(station: &mut Station, count: u32) {
    let (mut bytes, mut came) = (vec![0; PACKET_MAX], 0);
    for _ in 0..20_000 {
        came += u32::from(station.poll(&mut bytes).unwrap().is_some());
    }
    assert_eq!(came, count);
}

/// The last of many packets finds room for its beginning alone. Its receiver sends a packet before
/// the rest has come.
#[test]
fn a_packet_that_comes_in_parts_is_not_mixed_with_one_that_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::Wire(shm_wire(&folder));
    let (mut near, mut far) = (station(&place, 1), station(&place, 2));
    meet([&mut near, &mut far]);
    let mut rng = Rng::from_seed(2);
    // A ring of 1,024 lines, of which a packet of 60 bytes takes one and one of 100 bytes three.
    let lengths = [60; 2].into_iter().chain([100; 341]);
    let sent: Vec<Vec<u8>> = lengths.map(|length| packet(&mut rng, length)).collect();
    for one in &sent {
        assert!(near.send(one).unwrap());
    }
    let mut bytes = vec![0; PACKET_MAX];
    let (last, others) = sent.split_last().unwrap();
    for one in others {
        let received = far.poll(&mut bytes).unwrap().unwrap();
        assert!(bytes[..received.length] == one[..]);
    }
    assert_eq!(far.poll(&mut bytes).unwrap(), None, "its end has found no room");
    assert!(far.send(&packet(&mut rng, 300)).unwrap());
    let deadline = far.clock().now() + PATIENCE;
    let received = far.wait(&mut bytes, deadline, || {
        // The sender goes on with the packet.
        let _ = near.poll(&mut [0; PACKET_MAX]);
        false
    });
    let received = received.unwrap().expect("the rest comes");
    assert!(bytes[..received.length] == last[..], "its beginning is still there");
}

#[test]
fn a_peer_that_goes_is_missed_and_a_new_one_is_met() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::Wire(shm_wire(&folder));
    let (mut first, mut second) = (station(&place, 1), station(&place, 2));
    meet([&mut first, &mut second]);
    drop(second);
    assert!(!first.is_up().unwrap());
    let mut third = station(&place, 3);
    meet([&mut first, &mut third]);
    exchange(&mut third, &mut first);
    // The one that listened goes; the other listens in its place.
    drop(first);
    assert!(!third.is_up().unwrap());
    let mut fourth = station(&place, 4);
    meet([&mut third, &mut fourth]);
    exchange(&mut third, &mut fourth);
}

/// Has ends look, in a time of their own, until `is_so`.
fn look<const COUNT: usize>(mut ends: [&mut Wire; COUNT], mut is_so: impl FnMut([bool; COUNT]) -> bool) {
    static LOOKS: AtomicU64 = AtomicU64::new(1);
    for _ in 0..100 {
        let now = Instant::ZERO + Nanos::from_millis(100) * LOOKS.fetch_add(1, Ordering::Relaxed);
        ends.iter_mut().for_each(|end| end.tend(now).unwrap());
        if is_so(ends.each_ref().map(|end| end.is_up())) {
            return;
        }
    }
    panic!("it does not come to that: {ends:?}");
}

/// The receiver has no processor between the sender's last packet and its end.
#[test]
fn what_an_end_sent_before_it_went_comes() {
    let folder = tempfile::tempdir().unwrap();
    let url = shm_wire(&folder);
    let mut rng = Rng::from_seed(8);
    let sent = [14, 60, 61, 1500, PACKET_MAX].map(|length| packet(&mut rng, length));
    for dialler_sends in [true, false] {
        let (mut listener, mut dialler) = (Wire::open(&url).unwrap(), Wire::open(&url).unwrap());
        look([&mut listener, &mut dialler], |up| up == [true; 2]);
        let (mut from, mut to) = if dialler_sends { (dialler, listener) } else { (listener, dialler) };
        sent.iter().for_each(|packet| from.send(packet));
        drop(from);
        look([&mut to], |up| up == [false]);
        to.send(&sent[0]);
        assert!(to.has_room(), "packets without a receiver are dropped");
        let mut bytes = vec![0; shm::ROOM];
        for packet in &sent {
            assert_eq!(to.receive(&mut bytes), Some(packet.len()));
            assert!(bytes[..packet.len()] == packet[..], "{} B", packet.len());
        }
        assert_eq!(to.receive(&mut bytes), None);
        let mut next = Wire::open(&url).unwrap();
        look([&mut to, &mut next], |up| up == [true; 2]);
    }
    // A station that only looks whether the other end is there takes them, too.
    let place = Place::Wire(url);
    let (mut near, mut far) = (station(&place, 1), station(&place, 2));
    meet([&mut near, &mut far]);
    sent.iter().for_each(|packet| assert!(far.send(packet).unwrap()));
    drop(far);
    assert!(!near.is_up().unwrap());
    let mut next = station(&place, 3);
    meet([&mut near, &mut next]);
    let mut bytes = vec![0; PACKET_MAX];
    for packet in &sent {
        let received = near.poll(&mut bytes).unwrap().expect("its card has it");
        assert!(bytes[..received.length] == packet[..], "{} B", packet.len());
    }
}

#[test]
fn a_third_end_is_turned_away_and_disturbs_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::Wire(shm_wire(&folder));
    let (mut near, mut far) = (station(&place, 1), station(&place, 2));
    meet([&mut near, &mut far]);
    let mut third = station(&place, 3);
    assert!(near.is_up().unwrap());
    let start = third.clock().now();
    while third.is_up().unwrap() {
        assert!(third.clock().now() - start < PATIENCE, "the third is still there");
        near.is_up().unwrap();
    }
    exchange(&mut near, &mut far);
}

/// Until the first end has taken the memory of the one that came, neither can send.
#[test]
fn an_end_is_up_when_the_other_has_taken_it() {
    let folder = tempfile::tempdir().unwrap();
    let url = shm_wire(&folder);
    let [mut near, mut far, mut third] = [(); 3].map(|()| Wire::open(&url).unwrap());
    let mut looks = 0;
    look([&mut far, &mut third], |up| {
        assert_eq!(up, [false; 2]);
        looks += 1;
        looks == 20
    });
    look([&mut near, &mut far], |up| up == [true; 2]);
    look([&mut near, &mut far, &mut third], |up| {
        assert_eq!(up, [true, true, false]);
        looks += 1;
        looks == 100
    });
    // It is let in once another end has gone and that end's packets are taken.
    far.send(&[0xff; 60]);
    drop(far);
    look([&mut near, &mut third], |up| {
        assert_eq!(up, [false; 2]);
        looks += 1;
        looks == 120
    });
    let mut bytes = vec![0; shm::ROOM];
    assert_eq!((near.receive(&mut bytes), near.receive(&mut bytes)), (Some(60), None));
    look([&mut near, &mut third], |up| up == [true; 2]);
}

/// A peer that has the memory writes anything anywhere, over many seeds.
#[test]
fn a_peer_that_scribbles_is_lost_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let url = shm_wire(&folder);
    let WireUrl::Shm(path) = &url else { panic!() };
    let mut near = station(&Place::Wire(url.clone()), 1);
    let mut bytes = vec![0; PACKET_MAX];
    let mut rng = Rng::from_seed(3);
    let mut lost = 0;
    for seed in 0..60 {
        let (memory, file) = new_memory("scribbles", MEMORY_BYTES).unwrap();
        let mut peer = Connection::connect(path).unwrap();
        peer.send(shm::GREETING.to_vec().into(), vec![file]).unwrap();
        peer.flush().unwrap();
        let start = near.clock().now();
        while !near.is_up().unwrap() {
            assert!(near.clock().now() - start < PATIENCE, "seed {seed}: they do not meet");
        }
        for _ in 0..200 {
            let place = match rng.below(3) {
                0 => 4096 + rng.below(4 * 64),
                1 => rng.below(64),
                _ => rng.below(MEMORY_BYTES as u64 - 8),
            } & !7;
            memory.write(place, &rng.next_u64().to_le_bytes()).unwrap();
            near.poll(&mut bytes).unwrap();
            near.send(&packet(&mut rng, 100)).unwrap();
        }
        lost += u32::from(!near.is_up().unwrap());
        drop(peer);
        near.is_up().unwrap();
    }
    assert!(lost > 20, "{lost} of 60 peers were found out");
    let mut far = station(&Place::Wire(url), 2);
    meet([&mut near, &mut far]);
    exchange(&mut far, &mut near);
}

#[test]
fn a_peer_that_greets_with_nonsense_is_turned_away() {
    let folder = tempfile::tempdir().unwrap();
    let url = shm_wire(&folder);
    let WireUrl::Shm(path) = &url else { panic!() };
    let mut near = station(&Place::Wire(url.clone()), 1);
    for greeting in [&b"GET / HTTP/1.0\r\n"[..], shm::GREETING] {
        // The right greeting comes without memory.
        let mut peer = Connection::connect(path).unwrap();
        peer.send(greeting.to_vec().into(), Vec::new()).unwrap();
        peer.flush().unwrap();
        let start = near.clock().now();
        while !peer.is_closed_by_peer() {
            assert!(!near.is_up().unwrap());
            assert!(near.clock().now() - start < PATIENCE, "it is still there");
        }
    }
    let mut far = station(&Place::Wire(url), 2);
    meet([&mut near, &mut far]);
}

#[test]
fn a_peer_that_says_nothing_does_not_keep_the_wire() {
    let folder = tempfile::tempdir().unwrap();
    let url = shm_wire(&folder);
    let WireUrl::Shm(path) = &url else { panic!() };
    let mut near = Wire::open(&url).unwrap();
    let silent = Connection::connect(path).unwrap();
    look([&mut near], |_| true);
    let mut far = Wire::open(&url).unwrap();
    look([&mut near, &mut far], |up| {
        assert!(up == [false; 2] || silent.is_closed_by_peer(), "one end at a time");
        up == [true; 2]
    });
}

#[test]
fn strangers_on_a_wire_of_udp_are_not_heard() {
    let address = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let place = Place::Wire(WireUrl::Udp(address));
    let (mut near, mut far) = (station(&place, 1), station(&place, 2));
    meet([&mut near, &mut far]);
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..100 {
        stranger.send_to(&[0xff; 60], address).unwrap();
    }
    exchange(&mut far, &mut near);
    let mut bytes = vec![0; PACKET_MAX];
    assert!(near.poll(&mut bytes).unwrap().is_none());
}

/// A busy end looks for the first time when both are there.
#[test]
fn a_packet_behind_the_first_hello_is_taken() {
    let peer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut near = station(&Place::Wire(WireUrl::Udp(peer.local_addr().unwrap())), 1);
    assert!(!near.is_up().unwrap());
    let mut bytes = vec![0; PACKET_MAX];
    let (_, address) = peer.recv_from(&mut bytes).unwrap();
    for datagram in [udp::HELLO, &[0xff; 60]] {
        peer.send_to(datagram, address).unwrap();
    }
    let start = near.clock().now();
    let received = near.wait(&mut bytes, start + PATIENCE, || false).unwrap();
    assert_eq!(received.map(|one| one.length), Some(60));
}

/// A packet is there each time that the station waits for one, so it never has to wait.
#[test]
fn an_end_of_udp_says_hello_although_packets_come_all_the_time() {
    let peer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.set_nonblocking(true).unwrap();
    let mut near = station(&Place::Wire(WireUrl::Udp(peer.local_addr().unwrap())), 1);
    let mut bytes = vec![0; PACKET_MAX];
    let start = near.clock().now();
    let mut from = None;
    while !near.is_up().unwrap() {
        assert!(near.clock().now() - start < PATIENCE, "they do not meet");
        if let Ok((_, address)) = peer.recv_from(&mut bytes) {
            peer.send_to(udp::HELLO, address).unwrap();
            from = Some(address);
        }
    }
    let (start, mut hellos) = (near.clock().now(), 0);
    while hellos < 4 {
        assert!(near.clock().now() - start < PATIENCE, "{hellos} hellos");
        peer.send_to(&[0xff; 60], from.unwrap()).unwrap();
        let received = near.wait(&mut bytes, start + PATIENCE, || false).unwrap();
        assert_eq!(received.map(|one| one.length), Some(60));
        while let Ok((length, _)) = peer.recv_from(&mut bytes) {
            hellos += u32::from(bytes[..length] == *udp::HELLO);
        }
    }
}

/// Opens a station at `place` in a thread that sends back received packets, for `count` packets.
fn echo(place: Place, count: usize) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut far = drowsy(&place, 2);
        let mut bytes = vec![0; PACKET_MAX];
        for _ in 0..count {
            // The other end may need all of its patience until it is there.
            let deadline = far.clock().now() + PATIENCE * 3;
            let received = far.wait(&mut bytes, deadline, || false).unwrap().expect("a packet comes");
            assert!(far.send(&bytes[..received.length]).unwrap());
        }
        // The card belongs to this thread, so it stays until the last packet was taken.
        thread::sleep(Duration::from_millis(200));
    })
}

/// Packets come so rarely that both ends sleep. An end that missed a wake-up would look again only
/// after a tenth of a second.
fn wakes(near: &Place, far: Place) {
    const COUNT: usize = 60;
    let answers = echo(far, COUNT);
    let mut near = drowsy(near, 1);
    let (mut rng, clock) = (Rng::from_seed(5), near.clock());
    let start = clock.now();
    while !near.is_up().unwrap() {
        assert!(clock.now() - start < PATIENCE, "they do not meet");
        thread::sleep(Duration::from_millis(1));
    }
    let mut bytes = vec![0; PACKET_MAX];
    let mut times: Vec<Nanos> = (0..COUNT)
        .map(|number| {
            thread::sleep(Duration::from_millis(3));
            let (sent, start) = (packet(&mut rng, if number % 2 == 0 { 60 } else { 1500 }), clock.now());
            assert!(near.send(&sent).unwrap());
            let received = near.wait(&mut bytes, start + PATIENCE, || false).unwrap();
            assert_eq!(received.map(|one| bytes[..one.length].to_vec()), Some(sent), "{number}");
            clock.now() - start
        })
        .collect();
    times.sort_unstable();
    answers.join().unwrap();
    let slow = times[COUNT * 3 / 4];
    assert!(slow < Nanos::from_millis(50), "a quarter of the packets take {slow} and more: {times:?}");
}

fn drowsy(place: &Place, last: u8) -> Station {
    Station::open(place, [2, 0, 0, 0, 0, last], HostConfig::default(), Nanos::ZERO).unwrap()
}

#[test]
fn stations_that_sleep_are_woken_by_their_packets() {
    let folder = tempfile::tempdir().unwrap();
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for url in [shm_wire(&folder), WireUrl::Udp(port)] {
        wakes(&Place::Wire(url.clone()), Place::Wire(url));
    }
}

#[test]
fn a_served_card_that_sleeps_is_woken_and_interrupts() {
    let folder = tempfile::tempdir().unwrap();
    let url = shm_wire(&folder);
    let socket = folder.path().join("card");
    let listener = Listener::bind(&socket).unwrap();
    let mut reactor = Reactor::new(Clock::start(), Nanos::ZERO).unwrap();
    let stop = reactor.stop();
    let served_url = url.clone();
    let server = thread::spawn(move || {
        let wire = Wire::open(&served_url).unwrap();
        let mut driver = CardDriver::new(listener, wire, [2, 0, 0, 0, 0, 9], Nanos::ZERO, |_| ()).unwrap();
        reactor.run(&mut driver).unwrap();
    });
    wakes(&Place::Socket(socket), Place::Wire(url));
    stop.ask();
    server.join().unwrap();
}

/// Serves a card until its client has gone.
#[test]
fn a_served_card_is_used_through_its_window() {
    let folder = tempfile::tempdir().unwrap();
    let url = shm_wire(&folder);
    let socket = folder.path().join("card");
    let listener = Listener::bind(&socket).unwrap();
    let clock = Clock::start();
    let spin = Nanos::from_micros(200);
    let mut reactor = Reactor::new(clock, spin).unwrap();
    let stop = reactor.stop();
    let served_url = url.clone();
    let server = thread::spawn(move || {
        let wire = Wire::open(&served_url).unwrap();
        let mut reported = Vec::new();
        let address = [2, 0, 0, 0, 0, 9];
        let mut driver =
            CardDriver::new(listener, wire, address, spin, |event| reported.push(format!("{event:?}")))
                .unwrap();
        reactor.run(&mut driver).unwrap();
        drop(driver);
        reported
    });
    let mut far = station(&Place::Wire(url), 2);
    for round in 0..2 {
        let mut near = station(&Place::Socket(socket.clone()), 1);
        assert_eq!(near.address(), [2, 0, 0, 0, 0, 9], "round {round}");
        meet([&mut near, &mut far]);
        exchange(&mut near, &mut far);
        exchange(&mut far, &mut near);
    }
    let mut near = station(&Place::Socket(socket), 1);
    stop.ask();
    let reported = server.join().unwrap();
    let start = near.clock().now();
    let gone = loop {
        match near.is_up() {
            Err(gone) => break gone,
            Ok(_) => assert!(near.clock().now() - start < PATIENCE, "the server is still there"),
        }
    };
    assert!(matches!(gone, StationError::Gone(_)), "{gone}");
    let count = |what: &str| reported.iter().filter(|one| one.starts_with(what)).count();
    assert_eq!((count("Client"), count("Link(true)")), (3, 1), "{reported:?}");
    assert_eq!(count("Fault"), 0, "{reported:?}");
}

/// A card that a thread serves, and its events.
struct Served {
    reports: mpsc::Receiver<String>,
    stop: Stop,
    thread: thread::JoinHandle<()>,
}

impl Served {
    fn start(socket: &std::path::Path, url: &WireUrl) -> Self {
        let listener = Listener::bind(socket).unwrap();
        let mut reactor = Reactor::new(Clock::start(), SPIN).unwrap();
        let (stop, url) = (reactor.stop(), url.clone());
        let (sender, reports) = mpsc::channel();
        let thread = thread::spawn(move || {
            let wire = Wire::open(&url).unwrap();
            let report = |event| sender.send(format!("{event:?}")).unwrap();
            let mut driver = CardDriver::new(listener, wire, [2, 0, 0, 0, 0, 9], SPIN, report).unwrap();
            reactor.run(&mut driver).unwrap();
        });
        Self { reports, stop, thread }
    }

    /// Waits until the card reports an event that begins so.
    fn wait(&self, what: &str) -> String {
        loop {
            let reports = self.reports.recv_timeout(Duration::from(PATIENCE));
            let reports = reports.unwrap_or_else(|error| panic!("{what} is not reported: {error}"));
            if reports.starts_with(what) {
                return reports;
            }
        }
    }

    fn end(self) {
        self.stop.ask();
        self.thread.join().unwrap();
    }
}

#[test]
fn a_client_that_is_sent_away_is_reported_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("card");
    let served = Served::start(&socket, &WireUrl::Loopback);
    let mut stranger = Connection::connect(&socket).unwrap();
    stranger.send(vec![0xff; 64].into(), Vec::new()).unwrap();
    stranger.flush().unwrap();
    let reported = served.wait("Gone");
    assert!(reported.starts_with("Gone(Some(Header("), "{reported}");
    drop(CardClient::connect(&socket, 0, Clock::start()).unwrap());
    assert_eq!(served.wait("Gone"), "Gone(None)");
    served.end();
}

#[test]
fn a_reset_of_the_function_resets_its_configuration_and_its_vectors() {
    const COMMAND: u64 = 4;
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("card");
    let served = Served::start(&socket, &WireUrl::Loopback);
    let (mut client, ..) = CardClient::connect(&socket, 0, Clock::start()).unwrap();
    // The Vector Control of vector 0, and Memory Space and Bus Master of the function.
    let control = registers::MSIX_TABLE + 12;
    let command = |client: &mut CardClient| {
        let region = RegionIndex::CONFIG;
        match client.ask(|client, clock| client.read(clock.now(), region, COMMAND, 2)).unwrap() {
            Answer::Data(data) => data.to_vec(),
            other => panic!("{other:?}"),
        }
    };
    client.write(control, 0).unwrap();
    let region = RegionIndex::CONFIG;
    client.ask(|client, clock| client.write(clock.now(), region, COMMAND, &[6, 0])).unwrap();
    assert_eq!((client.read(control).unwrap(), command(&mut client)), (0, vec![6, 0]));
    client.ask(|client, clock| client.reset(clock.now())).unwrap();
    assert_eq!((client.read(control).unwrap(), command(&mut client)), (1, vec![0, 0]));
    served.end();
}

/// A limit of the process applies to all tests in it, so this test has a process of its own.
const CHILD: &str = "FARLANE_LIVE_TEST_NIC_CHILD";

#[test]
fn child_that_runs_out_of_descriptors() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let limit = |current| setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
    let leave = |count: u64| {
        let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd();
        limit(u64::try_from(next).ok().map(|next| next + count));
    };
    let restore = || limit(current);

    // A wire whose end finds no descriptor to meet another with.
    let folder = tempfile::tempdir().unwrap();
    let url = shm_wire(&folder);
    let WireUrl::Shm(path) = &url else { panic!() };
    let (first, mut second) = (Wire::open(&url).unwrap(), Wire::open(&url).unwrap());
    drop(first);
    leave(0);
    let mut looks = 0;
    look([&mut second], |_| {
        looks += 1;
        looks == 3
    });
    restore();
    let mut third = Wire::open(&url).unwrap();
    look([&mut second, &mut third], |up| up == [true; 2]);
    // Its listener finds none for one that comes, which is in this process, too.
    leave(1);
    let caller = Connection::connect(path).unwrap();
    look([&mut second, &mut third], |up| caller.is_closed_by_peer() && up == [true; 2]);
    restore();

    // A served card.
    let socket = folder.path().join("card");
    let served = Served::start(&socket, &WireUrl::Loopback);
    drop(CardClient::connect(&socket, 0, Clock::start()).unwrap());
    served.wait("Gone");
    leave(4);
    let caller = Connection::connect(&socket).unwrap();
    served.wait("AcceptFailed");
    restore();
    let start = std::time::Instant::now();
    while !caller.is_closed_by_peer() {
        assert!(start.elapsed() < Duration::from(PATIENCE), "it is turned away");
    }
    let client = CardClient::connect(&socket, 0, Clock::start()).unwrap();
    served.wait("Client");
    drop(client);
    served.end();
    println!("\nheld");
}

#[test]
fn a_card_without_descriptors_turns_its_clients_away_and_goes_on() {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["drivers::nic::tests::child_that_runs_out_of_descriptors", "--exact", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("\nheld\n"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_floors_are_measured() {
    assert_eq!(floor::crossings(100).unwrap().len(), 100);
    assert_eq!(floor::kernel_udp(60, 100).unwrap().len(), 100);
    assert_eq!(floor::wakes(100, Duration::from_micros(300)).unwrap().len(), 100);
}

#[test]
fn places_are_read_as_they_are_written() {
    for text in
        ["vfio-user:/run/card", "shm:/run/wire", "udp:127.0.0.1:4440", "udp:[::1]:4440", "eth:lo", "loop:"]
    {
        assert_eq!(text.parse::<Place>().unwrap().to_string(), text);
    }
    for text in ["shm:", "udp:nowhere", "eth:", "eth:lo+eth0", "loop:x", "vfio-user:", "tcp://a:1", ""] {
        assert!(text.parse::<Place>().is_err(), "{text}");
    }
    for (text, why) in [
        ("udp:nowhere", "expected an address and a port"),
        ("udp:127.0.0.1:0", "no peer can send to 127.0.0.1:0"),
        ("udp:0.0.0.0:4440", "no peer can send to 0.0.0.0:4440"),
        ("udp:[::]:4440", "no peer can send to [::]:4440"),
    ] {
        let said = text.parse::<Place>().unwrap_err();
        assert!(said.contains(why), "{text}: {said}");
    }
}
