//! Strangers in their thousands at a far end, beside a host whose session is cut and resumes.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::gate::{Guarded, HANDSHAKE, SPARE, Silent, client_hello, knock};
use crate::support::load::assert_verified;
use crate::support::outage::Outage;
use crate::support::proxy::Proxy;
use crate::support::running::wait_until;

/// The attempts of a flood.
const ATTEMPTS: usize = 10_000;
/// How many connections a stranger holds.
const HELD: usize = 500;
/// How often the host's network is cut beside each flood.
const CUTS: u64 = 4;
/// Length in bytes of the longest TLS record.
const RECORD_MAX: u16 = 16_384;

/// What a stranger does with a connection: the bytes that it sends, one write each, and whether it
/// keeps the connection afterwards.
type Attack<'a> = (&'static str, Vec<&'a [u8]>, bool);

/// Makes attempts until there are [`ATTEMPTS`] of them or `over` is set; returns their number.
fn flood(far: SocketAddr, attack: &Attack<'_>, over: &AtomicBool) -> usize {
    let (_, writes, is_held) = attack;
    let mut held = std::collections::VecDeque::new();
    for number in 0..ATTEMPTS {
        if over.load(Ordering::Relaxed) {
            return number;
        }
        let mut stream = knock(far, writes[0]);
        for bytes in &writes[1..] {
            if stream.write_all(bytes).is_err() {
                break;
            }
        }
        if *is_held {
            held.push_back(stream);
            held.truncate(HELD);
        }
    }
    ATTEMPTS
}

/// The far end serves a host beside each flood, and the host's session resumes as often as its
/// network is cut.
#[test]
fn a_session_resumes_amid_ten_thousand_handshakes() {
    let guarded = Guarded::start(&[]);
    let far: SocketAddr = guarded.far.address.parse().unwrap();
    let before = guarded.descriptors();
    let hello = client_hello(&guarded);
    let long = [HANDSHAKE, 3, 1, RECORD_MAX.to_be_bytes()[0], RECORD_MAX.to_be_bytes()[1]];
    let too_long = [&[HANDSHAKE, 3, 1, 0xff, 0xff][..], &[0; 60_000]].concat();
    let dribble: Vec<&[u8]> = std::iter::once(&long[..]).chain(hello[5..].chunks(1)).collect();
    let attacks: [Attack<'_>; 6] = [
        ("begun and held", vec![&hello[..6]], true),
        ("begun and closed", vec![&hello[..6]], false),
        ("said as a whole, and closed", vec![&hello], false),
        ("a record byte by byte, and held", dribble, true),
        ("a record that is too long", vec![&too_long], false),
        ("no TLS", vec![b"GET / HTTP/1.1\r\n\r\n"], true),
    ];
    for attack in &attacks {
        let proxy = Proxy::cutting(&guarded.far.address, CUTS, 2 << 20, 7);
        let (over, made) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            scope.spawn(|| made.store(flood(far, attack, &over), Ordering::Relaxed));
            // As many loads as a busy machine needs to move the bytes between the cuts.
            while proxy.cuts() < CUTS {
                assert_verified(guarded.load(&guarded.url("tcp", &proxy.address.to_string()), "2s"));
            }
            over.store(true, Ordering::Relaxed);
        });
        let made = made.load(Ordering::Relaxed);
        assert!(made > 50, "{}: {made} attempts are no flood", attack.0);
        wait_until(attack.0, || guarded.descriptors() <= before + SPARE);
    }
    // And all at once, without a pause.
    let over = AtomicBool::new(false);
    assert_eq!(flood(far, &attacks[1], &over), ATTEMPTS);
    wait_until("everything is given back", || guarded.descriptors() <= before + SPARE);
    assert_verified(guarded.load(&guarded.url("tcp", &guarded.far.address), "300ms"));
}

/// Strangers at four addresses want all places for connections by datagrams, while the path of the
/// host is cut.
#[test]
fn a_session_by_datagrams_resumes_amid_strangers() {
    let guarded = Guarded::start(&["--udp", "127.0.0.1:0"]);
    let udp = guarded.far.announcement["udp"].as_str().unwrap().to_owned();
    let far: SocketAddr = udp.parse().unwrap();
    let path = Outage::losing(&udp, u64::MAX);
    // The host dials from another port after the outage: no bit flips for that.
    path.flip_one_in(u64::MAX);
    let load = guarded.load(&guarded.url("udp", &path.address.to_string()), "9s");
    guarded.wait_for_host();
    let strangers = [2, 3, 4, 5].map(|last| Silent::start(&format!("127.0.0.{last}"), far, 100));
    thread::sleep(Duration::from_millis(500));
    path.set_out(true);
    thread::sleep(Duration::from_secs(6));
    path.set_out(false);
    assert_verified(load);
    drop(strangers);
}

/// The bytes that reach each of the addresses `127.NET.x.y`, and those that were sent from there.
fn exchange(far: SocketAddr, net: u8, count: u16, datagram: impl Fn(u16) -> Vec<u8>) -> (usize, usize) {
    let (mut came, mut sent) = (0, 0);
    let sockets: Vec<_> = (0..count)
        .map(|number| {
            let [a, b] = number.to_be_bytes();
            let socket = UdpSocket::bind((Ipv4Addr::new(127, net, a, b.max(1)), 0)).unwrap();
            let bytes = datagram(number);
            sent += bytes.len();
            socket.send_to(&bytes, far).unwrap();
            socket
        })
        .collect();
    // The far end repeats no answer to an address that says nothing: that would be seen by now.
    thread::sleep(Duration::from_secs(2));
    let mut room = [0; 65_536];
    for socket in sockets {
        socket.set_nonblocking(true).unwrap();
        while let Ok(length) = socket.recv(&mut room) {
            came += length;
        }
    }
    (sent, came)
}

/// Who sends from an address may have forged it: the machine that has the address is sent three
/// times the bytes at most, for any bytes of the stranger.
#[test]
fn an_address_is_sent_three_times_at_most_what_came_from_it() {
    let guarded = Guarded::start(&["--udp", "127.0.0.1:0", "--quic", "127.0.0.1:0"]);
    let at = |name: &str| guarded.far.announcement[name].as_str().unwrap().parse::<SocketAddr>().unwrap();
    let (udp, quic) = (at("udp"), at("quic"));
    let hello = |length: u16| {
        move |number: u16| {
            let mut bytes = vec![0; usize::from(length)];
            bytes[..2].copy_from_slice(&[1, 1]);
            bytes[2..4].copy_from_slice(&length.to_be_bytes());
            bytes[4..12].copy_from_slice(&(u64::from(number) | 1 << 40).to_be_bytes());
            bytes
        }
    };
    // Long headers: of a version that is not known, and of the first version, with nothing in them.
    let long = |version: u32, length: usize| {
        move |number: u16| {
            let mut bytes = vec![0; length];
            bytes[0] = 0xc0;
            bytes[1..5].copy_from_slice(&version.to_be_bytes());
            bytes[5] = 8;
            bytes[6..8].copy_from_slice(&number.to_be_bytes());
            bytes
        }
    };
    let mut answered = 0;
    let floods = [
        exchange(udp, 21, 1000, hello(1200)),
        exchange(udp, 22, 1000, hello(64)),
        exchange(quic, 23, 1000, long(0x0a0a_0a0a, 1200)),
        exchange(quic, 24, 1000, long(0x0a0a_0a0a, 30)),
        exchange(quic, 25, 1000, long(1, 1200)),
    ];
    for (number, (sent, came)) in floods.into_iter().enumerate() {
        assert!(came <= 3 * sent, "flood {number}: {came} bytes for {sent}");
        answered += came;
    }
    assert!(answered > 0, "no flood was answered: this measures nothing");
    assert_verified(guarded.load(&guarded.url("udp", &udp.to_string()), "300ms"));
    assert_verified(guarded.load(&guarded.url("quic", &quic.to_string()), "300ms"));
}
