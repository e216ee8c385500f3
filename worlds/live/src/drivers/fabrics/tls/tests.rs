//! Records between both ends of this code, with s2n-tls at the other end, and of hostile peers.

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::task::Poll;

use engine::Rng;
use nvme_fabrics::authentication::Hash;
use nvme_fabrics::tls::{Derivation, IdentityVersion, Psk, TlsKey};
use s2n_tls::connection::Connection;
use s2n_tls::enums::PeerKeyUpdate;
use zeroize::Zeroizing;

use super::keys::{Suite, TrafficKey};
use super::records::{DATA, HANDSHAKE, KEY_UPDATE, Records};
use super::{Acceptor, End, Handshake, State, Tls, fuzz};

/// Both ends of a connection by `suite`.
fn ends(name: &str) -> [Records; 2] {
    let suite = Suite::of_name(name).unwrap();
    let length = if name.ends_with("384") { 48 } else { 32 };
    let key = |byte| TrafficKey::new(suite, Zeroizing::new(vec![byte; length])).unwrap();
    [Records::new(key(1), key(2)), Records::new(key(2), key(1))]
}

/// A random number below `bound`.
fn below(rng: &mut Rng, bound: usize) -> usize {
    usize::try_from(rng.below(bound as u64)).unwrap()
}

/// A direction of a connection that takes and gives a random number of bytes at a time.
#[derive(Default)]
struct Way(VecDeque<u8>);

impl Way {
    fn write(&mut self, bytes: &[u8], rng: &mut Rng) -> io::Result<usize> {
        let most = below(rng, 90_000);
        if most == 0 || self.0.len() > 200_000 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = bytes.len().min(most);
        self.0.extend(&bytes[..count]);
        Ok(count)
    }

    fn read(&mut self, room: &mut [u8], rng: &mut Rng) -> io::Result<usize> {
        let count = room.len().min(self.0.len()).min(below(rng, 90_000));
        if count == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        for (byte, come) in room.iter_mut().zip(self.0.drain(..count)) {
            *byte = come;
        }
        Ok(count)
    }
}

fn stream(length: usize) -> Vec<u8> {
    (0..length).map(|index| u8::try_from(index % 251).unwrap()).collect()
}

/// The pieces of an outbox: `bytes`, cut at random places.
fn pieces<'a>(mut bytes: &'a [u8], rng: &mut Rng) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    while !bytes.is_empty() {
        let most = [30, 5_000, 16_384, 70_000][below(rng, 4)];
        let (piece, rest) = bytes.split_at(bytes.len().min(1 + below(rng, most)));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

#[test]
fn every_byte_comes_once_for_any_division_into_pieces_places_and_reads() {
    let suites = ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];
    for (seed, suite) in (0..60).zip(suites.into_iter().cycle()) {
        let mut rng = Rng::from_seed(seed);
        let [mut one, mut other] = ends(suite);
        let bytes = stream(600_000);
        let (mut sent, mut way, mut come) = (0, Way::default(), Vec::new());
        while come.len() < bytes.len() {
            let rest = &bytes[sent..];
            // Bytes at the front stay until they are sent, and others may follow.
            let cut = pieces(rest, &mut rng);
            sent += one.send(cut.into_iter(), |bytes| way.write(bytes, &mut rng)).unwrap();
            let mut place = vec![0; 1 + below(&mut rng, 140_000)];
            match other.receive(&mut place, |room| way.read(room, &mut rng)) {
                Ok(count) => come.extend_from_slice(&place[..count]),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "seed {seed}"),
            }
            if rng.below(10) == 0 {
                one.rest();
                other.rest();
            }
        }
        assert!(come == bytes, "seed {seed}");
        one.close(|bytes| {
            way.0.extend(bytes);
            Ok(bytes.len())
        });
        let mut place = [0; 64];
        let closed = loop {
            match other.receive(&mut place, |room| way.read(room, &mut rng)) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => break result,
            }
        };
        assert_eq!(closed.unwrap(), 0, "seed {seed}");
    }
}

#[test]
fn no_changed_record_is_opened_and_no_bytes_behind_it() {
    for seed in 0..300 {
        let mut rng = Rng::from_seed(seed);
        let [mut one, mut other] = ends("TLS_AES_128_GCM_SHA256");
        let bytes = stream(40_000);
        let mut way = Vec::new();
        one.send(std::iter::once(&bytes[..]), |sealed| {
            way.extend_from_slice(sealed);
            Ok(sealed.len())
        })
        .unwrap();
        let at = below(&mut rng, way.len());
        way[at] ^= 1 << rng.below(8);
        let (mut from, mut come) = (0, Vec::new());
        let error = loop {
            let mut place = vec![0; 1 + below(&mut rng, 40_000)];
            let received = other.receive(&mut place, |room| {
                let count = room.len().min(way.len() - from);
                room[..count].copy_from_slice(&way[from..from + count]);
                from += count;
                Ok(count)
            });
            match received {
                Ok(count) => come.extend_from_slice(&place[..count]),
                Err(error) => break error,
            }
        };
        assert!(error.kind() != ErrorKind::WouldBlock, "{error}");
        // What is in front of the changed record is whole, and nothing of the rest came. The second
        // byte of a version counts for nothing but as a part of what is authenticated.
        assert_eq!(come.len() % 16_384, 0, "byte {at}");
        assert!(come.len() <= at && come == bytes[..come.len()], "byte {at}");
        let again = other.receive(&mut [0; 8], |_| Ok(0));
        assert!(again.is_err(), "a broken connection stays broken");
    }
}

#[test]
fn a_stream_that_is_cut_is_no_closed_one() {
    let [mut one, mut other] = ends("TLS_AES_128_GCM_SHA256");
    let mut way = Vec::new();
    one.send(std::iter::once(&b"bytes"[..]), |sealed| {
        way.extend_from_slice(sealed);
        Ok(sealed.len())
    })
    .unwrap();
    let mut place = [0; 64];
    let mut left = &way[..];
    let mut read = |room: &mut [u8]| io::Read::read(&mut left, room);
    assert_eq!(other.receive(&mut place, &mut read).unwrap(), 5);
    assert_eq!(other.receive(&mut place, &mut read).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn records_of_hostile_peers_are_survived() {
    let (mut ends, mut bytes, mut keys, mut going) = (BTreeSet::new(), 0, 0, 0);
    for seed in 0..500 {
        let mut rng = Rng::from_seed(seed);
        let length = 20 + below(&mut rng, 300);
        let mut input: Vec<u8> = (0..length).map(|_| u8::try_from(rng.below(256)).unwrap()).collect();
        // Steps of data and new keys alone, and such with a bad one among them.
        const HONEST: [&[u8]; 4] = [&[0, 2, 0], &[3, 1, 0], &[7, 200, 9, 0, 1], &[6, 1, 1]];
        const BAD: [&[u8]; 4] =
            [&[2, 0x81, 2, 0, 1, 0], &[2, 0x81, 2, 0, 2, 40], &[1, 4, 0xfd, 0x3f], &[3, 39, 4]];
        if seed % 3 > 0 {
            input = vec![0];
            for _ in 0..length / 3 {
                let is_bad = seed % 3 == 1 && rng.one_in(8);
                input.extend(if is_bad { BAD } else { HONEST }[below(&mut rng, 4)]);
            }
        }
        let outcome = fuzz::tls_records(&input);
        bytes += outcome.bytes;
        keys += outcome.keys;
        going += u32::from(outcome.end.is_none());
        ends.extend(outcome.end);
    }
    assert!(
        ends.len() >= 6 && bytes > 100_000 && keys > 100 && going > 100,
        "{ends:?}, {bytes} B, {keys} keys, {going}"
    );
}

#[test]
fn a_stream_may_be_cut_at_every_byte() {
    let stream = |way: &mut Vec<u8>| {
        let [mut one, other] = ends("TLS_AES_128_GCM_SHA256");
        let sealer = &mut one.sending;
        sealer.seal_record(DATA, b"first").unwrap();
        sealer.seal_record(0, &[b"padded", &[DATA][..], &[0; 40]].concat()).unwrap();
        // A ticket in two parts, and the next key.
        sealer.seal_record(HANDSHAKE, &[4, 0, 0, 3, 1]).unwrap();
        sealer.seal_record(HANDSHAKE, &[2, 3]).unwrap();
        sealer.seal_record(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 1]).unwrap();
        sealer.key.update().unwrap();
        sealer.seal_record(DATA, b"last").unwrap();
        one.close(|bytes| {
            way.extend_from_slice(bytes);
            Ok(bytes.len())
        });
        other
    };
    let length = {
        let mut way = Vec::new();
        stream(&mut way);
        way.len()
    };
    for cut in 0..=length {
        let mut way = Vec::new();
        let mut other = stream(&mut way);
        let (mut come, mut place) = (Vec::new(), [0; 7]);
        for part in [&way[..cut], &way[cut..]] {
            let mut left: VecDeque<u8> = part.iter().copied().collect();
            loop {
                let received = other.receive(&mut place, |room| match io::Read::read(&mut left, room)? {
                    0 => Err(ErrorKind::WouldBlock.into()),
                    count => Ok(count),
                });
                match received {
                    Ok(0) => break,
                    Ok(count) => come.extend_from_slice(&place[..count]),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::WouldBlock, "cut at {cut}");
                        break;
                    }
                }
            }
        }
        assert_eq!(come, b"firstpaddedlast", "cut at {cut}");
        assert_eq!(
            other.receive(&mut place, |_| Ok(0)).unwrap(),
            0,
            "cut at {cut}: the end is a closed side"
        );
    }
}

#[test]
fn a_sender_of_tiny_records_or_many_keys_holds_up_no_other() {
    let [mut one, mut other] = ends("TLS_AES_128_GCM_SHA256");
    let sealer = &mut one.sending;
    for _ in 0..20_000 {
        sealer.seal_record(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 1]).unwrap();
        sealer.key.update().unwrap();
        sealer.seal_record(DATA, b"1").unwrap();
    }
    let mut way = Vec::new();
    one.close(|bytes| {
        way.extend_from_slice(bytes);
        Ok(bytes.len())
    });
    let (mut left, mut place, mut come, mut calls) = (&way[..], vec![0; 100_000], 0, 0);
    loop {
        let count = other.receive(&mut place, |room| io::Read::read(&mut left, room)).unwrap();
        if count == 0 {
            break;
        }
        assert!(count <= 8, "{count} keys in one call");
        assert!(!other.has_all(), "more has come, so the caller must call again");
        (come, calls) = (come + count, calls + 1);
    }
    assert_eq!(come, 20_000, "{calls} calls");
    // However often the other end asked, one new key answers it.
    let mut answer = Vec::new();
    other
        .send(std::iter::once(&b"data"[..]), |bytes| {
            answer.extend_from_slice(bytes);
            Ok(bytes.len())
        })
        .unwrap();
    assert_eq!(answer.len(), 5 + 22 + 4 + 22);
}

/// A key that both ends have, of `hash`.
fn psk(hash: Hash) -> Psk {
    let text = match hash {
        Hash::Sha384 => {
            "NVMeTLSkey-1:02:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwP/w0S89ELi3W2LxIcLXVsDn8kXZQ==:"
        }
        _ => "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:",
    };
    let key: TlsKey = text.parse().unwrap();
    let [host, subsystem] = ["nqn.2014-08.org.example:host", "nqn.2014-08.org.example:disk"];
    key.psk(IdentityVersion::One, Derivation::Specified, &host.parse().unwrap(), &subsystem.parse().unwrap())
}

/// Two connected sockets that never wait.
fn sockets() -> [TcpStream; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let other = listener.accept().unwrap().0;
    [one, other].map(|socket| {
        socket.set_nonblocking(true).unwrap();
        socket
    })
}

/// A target's end of this code, and a host's end of the library, whose handshake is over.
fn beside_the_library(hash: Hash) -> (Tls, TcpStream, Connection, TcpStream) {
    let psk = psk(hash);
    let [near, far] = sockets();
    let host =
        Handshake::new(Connection::new_client(), End::Host, std::slice::from_ref(&psk), near.as_raw_fd());
    let mut host = host.unwrap().session;
    let mut target = Tls::target(&Acceptor([psk].into()), far.as_raw_fd()).unwrap();
    let mut is_over = false;
    while !(is_over && target.is_proved()) {
        is_over = match host.poll_negotiate() {
            Poll::Ready(result) => result.map(|_| true).unwrap(),
            Poll::Pending => false,
        };
        if let Some(identity) = target.shake_hands().unwrap() {
            assert_eq!(identity.host.as_str(), "nqn.2014-08.org.example:host");
        }
    }
    (target, far, host, near)
}

/// Receives `length` bytes at the target's end.
fn receive(target: &mut Tls, socket: &TcpStream, length: usize) -> Vec<u8> {
    let (mut come, mut place) = (Vec::new(), vec![0; 50_000]);
    while come.len() < length {
        match target.receive(socket, &mut place) {
            Ok(count @ 1..) => come.extend_from_slice(&place[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            result => panic!("{result:?} after {} bytes", come.len()),
        }
    }
    come
}

#[test]
fn records_are_those_of_another_library_and_its_new_keys_are_followed() {
    for hash in [Hash::Sha256, Hash::Sha384] {
        let (mut target, far, mut host, _near) = beside_the_library(hash);
        let bytes = stream(100_000);
        let mut sent = 0;
        for round in 0..4 {
            // The library renews the key by which it sends.
            if round % 2 == 1 {
                host.request_key_update(PeerKeyUpdate::KeyUpdateNotRequested).unwrap();
            }
            let mut come = Vec::new();
            while sent < bytes.len() {
                if let Poll::Ready(count) = host.poll_send(&bytes[sent..]) {
                    sent += count.unwrap();
                }
                let mut place = vec![0; 30_000];
                if let Ok(count) = target.receive(&far, &mut place) {
                    come.extend_from_slice(&place[..count]);
                }
            }
            come.extend(receive(&mut target, &far, bytes.len() - come.len()));
            assert!(come == bytes, "{hash:?}, round {round}");
            sent = 0;

            let State::Open(records) = &mut target.0 else { unreachable!() };
            let mut back = Vec::new();
            while back.len() < bytes.len() {
                let rest = std::iter::once(&bytes[sent..]);
                sent += records.send(rest, |sealed| io::Write::write(&mut &far, sealed)).unwrap();
                let mut place = vec![0; 30_000];
                if let Poll::Ready(count) = host.poll_recv(&mut place) {
                    back.extend_from_slice(&place[..count.unwrap()]);
                }
            }
            assert!(back == bytes, "{hash:?}, round {round}");
            sent = 0;
        }
        let _ = host.poll_shutdown_send();
        let closed = loop {
            match target.receive(&far, &mut [0; 16]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => break result,
            }
        };
        assert_eq!(closed.unwrap(), 0);
        target.close(&far);
        let mut place = [0; 16];
        let ended = loop {
            if let Poll::Ready(count) = host.poll_recv(&mut place) {
                break count;
            }
        };
        assert_eq!(ended.unwrap(), 0);
    }
}
