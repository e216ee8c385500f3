//! How exact an emulated network is: round trips through it beside what its model says they take.
//!
//! `cargo bench -p farlane-live --bench emulate`

#![allow(missing_docs, reason = "a program that is run by hand")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::thread::spawn;
use std::time::Instant;

use engine::Nanos;
use link::network::{Config, Network};
use link::{AnyHop, Path, Rate, Wire};
use live::clock::Clock;
use live::emulate::Emulator;
use live::reactor::Reactor;
use live::tcp::Listener;

const ROUND_TRIPS: usize = 2_000;
/// Data of each message; its frame is that and 70 bytes of headers.
const MESSAGE: usize = 64;

/// Answers everything with itself.
fn echo() -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.set_nodelay(true);
            spawn(move || {
                let mut piece = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut piece) {
                    if stream.write_all(&piece[..count]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    Ok(address)
}

/// An emulated network before `to`, for as long as the program runs.
fn emulated(latency: Nanos, rate: Rate, to: SocketAddr) -> SocketAddr {
    let (say, said) = channel();
    spawn(move || -> std::io::Result<()> {
        let clock = Clock::start();
        let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let _ = say.send(listener.address());
        let mut reactor = Reactor::new(clock, Nanos::from_micros(200))?;
        let paths = [(); 2].map(|()| Path::new([AnyHop::from(Wire::new(latency, Some(rate)))]));
        let network = Network::new(Config { line: [Some(rate); 2], ..Config::default() }, paths);
        let mut emulator = Emulator::new(clock.now(), network, listener, vec![to], |_| {});
        reactor.run(&mut emulator).map(|_| ())
    });
    said.recv().expect("it listens")
}

/// Round trips of messages, each after a `pause`, sorted, in nanoseconds.
fn round_trips(address: SocketAddr, pause: Nanos) -> std::io::Result<Vec<u64>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let (message, mut answer) = ([7; MESSAGE], [0; MESSAGE]);
    let mut times = Vec::new();
    for round in 0..ROUND_TRIPS + 100 {
        if pause > Nanos::ZERO {
            std::thread::sleep(pause.into());
        }
        let sent = Instant::now();
        stream.write_all(&message)?;
        stream.read_exact(&mut answer)?;
        if round >= 100 {
            times.push(u64::try_from(sent.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
    }
    times.sort_unstable();
    Ok(times)
}

fn main() -> std::io::Result<()> {
    let echo = echo()?;
    let (us, median, late) =
        (|nanoseconds: u64| nanoseconds / 1_000, ROUND_TRIPS / 2, ROUND_TRIPS * 99 / 100);
    println!(
        "Round trips of {MESSAGE} B in us, median and 99 %. Whoever waits for longer is asleep and has to be woken, which is"
    );
    println!(
        "no part of the model: it is measured without one, after a pause as long as the model's round trip."
    );
    println!("{:22} {:>7} {:>15} {:>15} {:>15}", "", "model", "measured", "without a model", "added");
    for (latency, megabits) in [(100, 100), (1_000, 100), (5_000, 100), (100, 1_000), (1_000, 1_000)] {
        let rate = Rate::from_megabits(megabits);
        let latency = Nanos::from_micros(latency);
        // Ethernet, IP, TCP with time stamps, and the preamble.
        let frame = rate.time_of(14 + 20 + 20 + 12 + 4 + 8 + MESSAGE as u64);
        let model = ((latency + frame) * 2).get();
        let pause = if latency > Nanos::from_micros(100) { latency * 2 } else { Nanos::ZERO };
        let own = round_trips(echo, pause)?;
        let times = round_trips(emulated(latency, rate, echo), Nanos::ZERO)?;
        let added = |at: usize| us(times[at]).saturating_sub(us(model)).saturating_sub(us(own[at]));
        println!(
            "{:22} {:7} {:8} {:6} {:8} {:6} {:8} {:6}",
            format!("{latency} at {rate}"),
            us(model),
            us(times[median]),
            us(times[late]),
            us(own[median]),
            us(own[late]),
            added(median),
            added(late),
        );
    }
    Ok(())
}
