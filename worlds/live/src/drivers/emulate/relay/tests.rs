//! Bytes through a modelled network between sockets of this machine.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{JoinHandle, spawn};
use std::time::{self, Duration};

use engine::{Nanos, Rng};
use network_models::faults::{Behaviour, Faults};
use network_models::network::Config;
use network_models::{AnyHop, Chance, Path, Rate, Wire};

use super::*;
use crate::reactor::{Reactor, Stop};
use crate::sys::clock::Clock;

/// An emulator in a thread of its own, which ends when dropped.
struct Emulated {
    address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<Counters>>,
    said: Receiver<String>,
}

impl Emulated {
    fn between(paths: impl FnOnce() -> [Path; 2] + Send + 'static, to: SocketAddr) -> Self {
        let (announce, announced) = channel();
        let (say, said) = channel();
        let thread = spawn(move || {
            let clock = Clock::start();
            let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let mut reactor = Reactor::new(clock, Nanos::from_micros(200)).unwrap();
            announce.send((listener.address(), reactor.stop())).unwrap();
            let network = Network::new(Config::default(), paths());
            let mut emulator = Relay::new(clock.now(), network, listener, vec![to], |event| {
                let _ = say.send(format!("{event:?}"));
            });
            reactor.run(&mut emulator).unwrap();
            emulator.counters()
        });
        let (address, stop) = announced.recv().unwrap();
        Self { address, stop, thread: Some(thread), said }
    }

    fn end(&mut self) -> Counters {
        self.stop.ask();
        self.thread.take().unwrap().join().unwrap()
    }

    fn wait_for(&self, words: &str) {
        let deadline = time::Instant::now() + Duration::from_secs(20);
        while !self.said.recv_timeout(deadline - time::Instant::now()).unwrap().contains(words) {}
    }
}

fn wires(latency: Nanos, rate: Rate) -> impl FnOnce() -> [Path; 2] + Send + 'static {
    move || [(); 2].map(|()| Path::new([AnyHop::from(Wire::new(latency, Some(rate)))]))
}

/// Answers everything with itself until the other side closes, then closes.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            spawn(move || {
                let mut piece = vec![0; 64 << 10];
                while let Ok(count @ 1..) = stream.read(&mut piece) {
                    stream.write_all(&piece[..count]).unwrap();
                }
                let _ = stream.shutdown(Shutdown::Write);
            });
        }
    });
    address
}

fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Rng::from_seed(1).fill(&mut bytes);
    bytes
}

/// Sends `bytes` and closes; returns the received bytes.
fn there_and_back(address: SocketAddr, bytes: Vec<u8>) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let writing = spawn(move || {
        writer.write_all(&bytes).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    writing.join().unwrap();
    back
}

#[test]
fn bytes_and_closes_pass_in_order_and_late() {
    let mut emulated = Emulated::between(wires(Nanos::from_millis(10), Rate::from_gigabits(1)), echo());
    let mut stream = TcpStream::connect(emulated.address).unwrap();
    let mut piece = [0; 4];
    // The first bytes wait for the model's handshake: one and a half round trips, and half of one
    // back. Nothing is early.
    for least in [40, 20, 20] {
        let asked = time::Instant::now();
        stream.write_all(b"ping").unwrap();
        stream.read_exact(&mut piece).unwrap();
        assert!(asked.elapsed() >= Duration::from_millis(least), "{:?}", asked.elapsed());
    }
    let sent = noise(3 << 20);
    assert!(there_and_back(emulated.address, sent.clone()) == sent);
    emulated.wait_for("Written(");
    emulated.wait_for("Closed");
    let counters = emulated.end();
    assert_eq!(counters.connections, 2);
    assert_eq!(counters.there.bytes, (3 << 20) + 12);
    assert!(counters.there.frames > 2_000);
}

#[test]
fn what_a_bad_path_loses_arrives_all_the_same() {
    let behaviour = Behaviour { loss: Chance::percent(2), ..Behaviour::default() };
    let paths = move || {
        [3, 4].map(|seed| {
            let wire = Wire::new(Nanos::from_millis(1), Some(Rate::from_megabits(200)));
            Path::new([AnyHop::from(wire), AnyHop::from(Faults::new(behaviour, Rng::from_seed(seed)))])
        })
    };
    let mut emulated = Emulated::between(paths, echo());
    let sent = noise(1 << 20);
    assert!(there_and_back(emulated.address, sent.clone()) == sent);
    let counters = emulated.end();
    assert!(counters.there.lost > 0 && counters.retransmitted > 0, "{counters:?}");
}

#[test]
fn many_connections_pass_at_once() {
    let emulated = Emulated::between(wires(Nanos::from_millis(1), Rate::from_gigabits(10)), echo());
    let address = emulated.address;
    let clients: Vec<_> = (1..100)
        .map(|index| spawn(move || there_and_back(address, noise(index * 1_000)).len() == index * 1_000))
        .collect();
    assert!(clients.into_iter().all(|client| client.join().unwrap()));
}

#[test]
fn an_unused_other_end_is_a_reset() {
    let absent = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let emulated = Emulated::between(wires(Nanos::from_millis(1), Rate::from_gigabits(1)), absent);
    let mut stream = TcpStream::connect(emulated.address).unwrap();
    let error = stream.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    emulated.wait_for("Refused");
}

#[test]
fn a_reset_is_passed_on() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let emulated = Emulated::between(
        wires(Nanos::from_millis(1), Rate::from_gigabits(1)),
        listener.local_addr().unwrap(),
    );
    let mut near = TcpStream::connect(emulated.address).unwrap();
    let (far, _) = listener.accept().unwrap();
    socket2::SockRef::from(&far).set_linger(Some(Duration::ZERO)).unwrap();
    drop(far);
    let error = near.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    emulated.wait_for("Reset");
}

#[test]
fn a_reader_that_rests_stops_the_writer() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let emulated = Emulated::between(wires(Nanos::from_micros(100), Rate::from_gigabits(10)), to);
    let mut near = TcpStream::connect(emulated.address).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    near.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let (mut written, piece) = (0_usize, noise(1 << 20));
    // Writes until nothing more is taken: the buffers of two kernels and of the model are full.
    while let Ok(count) = near.write(&piece) {
        written += count;
        assert!(written < 200 << 20, "nothing holds the writer");
    }
    near.shutdown(Shutdown::Write).unwrap();
    let mut read = Vec::new();
    far.read_to_end(&mut read).unwrap();
    assert_eq!(read.len(), written);
}
