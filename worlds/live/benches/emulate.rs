//! How exact an emulated network is: ways through it beside what its model says they take.
//!
//! `cargo bench -p farlane-live --bench emulate`

#![allow(missing_docs, reason = "a program that is run by hand")]

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::spawn;
use std::time::{Duration, Instant};

use engine::Nanos;
use link::network::{Config, Network};
use link::{AnyHop, Path, Rate, Wire};
use live::clock::Clock;
use live::emulate::relay::{Event, Relay};
use live::reactor::{Reactor, pin};
use live::tcp::Listener;

/// How long a measurement takes, about, and its ways at least and at most.
const RUNTIME: Nanos = Nanos::from_secs(2);
const WAYS: std::ops::Range<u64> = 100..3_000;
/// Data of each message; its frame is that and 70 bytes of headers.
const MESSAGE: usize = 64;
/// Messages before it counts.
const WARM: usize = 20;

/// What the emulator says of itself.
type Late = Arc<Mutex<Vec<u64>>>;

/// An emulated network before `to`, for as long as the program runs.
fn emulated(latency: Nanos, rate: Rate, to: SocketAddr, late: Late) -> SocketAddr {
    let (say, said) = channel();
    spawn(move || -> io::Result<()> {
        let _ = pin(1);
        let clock = Clock::start();
        let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let _ = say.send(listener.address());
        let mut reactor = Reactor::new(clock, Nanos::from_micros(100))?;
        let paths = [(); 2].map(|()| Path::new([AnyHop::from(Wire::new(latency, Some(rate)))]));
        let network = Network::new(Config { line: [Some(rate); 2], ..Config::default() }, paths);
        let mut emulator = Relay::new(clock.now(), network, listener, vec![to], |event| {
            if let Event::Written(by) = event {
                late.lock().unwrap_or_else(PoisonError::into_inner).push(by.get());
            }
        });
        reactor.run(&mut emulator).map(|_| ())
    });
    said.recv().expect("it listens")
}

/// Whether who waits for a message spins until it is there, or sleeps and is woken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    Awake,
    Asleep,
}

/// A connection to `address`, which leads to `listener`: both ends.
fn both_ends(address: SocketAddr, listener: &TcpListener) -> io::Result<[TcpStream; 2]> {
    let near = TcpStream::connect(address)?;
    let (far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    Ok([near, far])
}

/// What messages take one way, sorted, in nanoseconds, in a thread of its own.
fn ways(ends: [TcpStream; 2], how: Ends, count: usize, pause: Nanos) -> io::Result<Vec<u64>> {
    let measure = move || match how {
        Ends::Awake => awake(ends, count, pause),
        Ends::Asleep => asleep(ends, count, pause),
    };
    let mut times = spawn(measure).join().expect("a measurement has no panics")?;
    times.drain(..WARM);
    times.sort_unstable();
    Ok(times)
}

/// One thread has both ends, and nobody sleeps: there and back in turn, each after looking for nothing for `pause`.
fn awake(mut ends: [TcpStream; 2], count: usize, pause: Nanos) -> io::Result<Vec<u64>> {
    let _ = pin(0);
    ends.iter().try_for_each(|end| end.set_nonblocking(true))?;
    let mut times = Vec::new();
    for _ in 0..WARM + count {
        let [from, to] = &mut ends;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from(pause) {
            if !to.read(&mut [0; MESSAGE]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
                return Err(ErrorKind::InvalidData.into());
            }
        }
        let sent = Instant::now();
        from.write_all(&[7; MESSAGE])?;
        read(to)?;
        times.push(nanoseconds(sent.elapsed()));
        ends.reverse();
    }
    Ok(times)
}

/// Reads a whole message from a socket that does not wait.
fn read(stream: &mut TcpStream) -> io::Result<()> {
    let (mut message, mut filled) = ([0; MESSAGE], 0);
    while filled < MESSAGE {
        match stream.read(&mut message[filled..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A thread at either end, there only; the sender sleeps for `pause` before each message, and the receiver all the time.
fn asleep([mut near, mut far]: [TcpStream; 2], count: usize, pause: Nanos) -> io::Result<Vec<u64>> {
    let start = Instant::now();
    let receiver = spawn(move || -> io::Result<Vec<u64>> {
        let _ = pin(0);
        let (mut times, mut message) = (Vec::new(), [0; MESSAGE]);
        for _ in 0..WARM + count {
            far.read_exact(&mut message)?;
            let now = nanoseconds(start.elapsed());
            let sent = message.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            times.push(now.saturating_sub(sent));
        }
        Ok(times)
    });
    // Who is woken is on the other processor.
    let _ = pin(1);
    for _ in 0..WARM + count {
        std::thread::sleep(pause.into());
        let mut message = [7; MESSAGE];
        message[..8].copy_from_slice(&nanoseconds(start.elapsed()).to_le_bytes());
        near.write_all(&message)?;
    }
    receiver.join().expect("a receiver has no panics")
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The median and the 99th percentile of sorted values.
fn quantiles(sorted: &[u64]) -> [u64; 2] {
    [50, 99].map(|percent| sorted.get(sorted.len() * percent / 100).copied().unwrap_or(0))
}

fn main() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let direct = listener.local_addr()?;
    println!(
        "Messages of {MESSAGE} B, one way at a time, in µs: median, 99 %. 'over' is what they take beyond the model's time,"
    );
    println!(
        "'without' what they take on this machine with no model in between, 'late' what the emulator says of itself."
    );
    println!("A sleeping end has to be woken, which is no part of the model: it is so without one, too.");
    let head =
        ["over", "without", "late", "asleep: over", "without", "late"].map(|word| format!("{word:>15}"));
    println!("{:20} {:>9} {}", "", "model", head.concat());
    for (latency, megabits) in
        [(100, 100), (1_000, 100), (5_000, 100), (10_000, 100), (20_000, 100), (100, 1_000), (1_000, 1_000)]
    {
        let rate = Rate::from_megabits(megabits);
        let latency = Nanos::from_micros(latency);
        // Ethernet, IP, TCP with time stamps, and the preamble.
        let model = latency + rate.time_of(14 + 20 + 20 + 12 + 4 + 8 + MESSAGE as u64);
        let count = (RUNTIME.get() / model.get()).clamp(WAYS.start, WAYS.end);
        let count = usize::try_from(count).expect("it is small");
        let mut cells = Vec::new();
        for how in [Ends::Awake, Ends::Asleep] {
            let late = Late::default();
            let network = emulated(latency, rate, direct, late.clone());
            // The ends look for nothing, or sleep, for as long without a model as with one.
            let pause = if how == Ends::Asleep { model * 2 } else { model };
            let count = if how == Ends::Asleep { count / 2 } else { count };
            let own = if how == Ends::Asleep { pause } else { Nanos::ZERO };
            let through = ways(both_ends(network, &listener)?, how, count, own)?;
            let over: Vec<u64> = through.iter().map(|time| time.saturating_sub(model.get())).collect();
            let without = ways(both_ends(direct, &listener)?, how, count, pause)?;
            cells.extend([quantiles(&over), quantiles(&without)]);
            {
                let mut late = late.lock().unwrap_or_else(PoisonError::into_inner).clone();
                late.sort_unstable();
                cells.push(quantiles(&late));
            }
        }
        let cells: Vec<_> = cells
            .iter()
            .map(|[median, far]| format!("{:8.1},{:6.1}", micros(*median), micros(*far)))
            .collect();
        println!("{:20} {:9.1} {}", format!("{latency} at {rate}"), micros(model.get()), cells.concat());
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn micros(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}
