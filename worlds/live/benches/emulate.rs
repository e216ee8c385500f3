//! How exact an emulated network is: measures one-way times through it and compares them with the
//! times of its model.
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
use live::carrier::tcp::Listener;
use live::drivers::emulate::relay::{Event, Relay};
use live::reactor::{Reactor, pin};
use live::sys::clock::Clock;
use network_models::network::{Config, Network};
use network_models::{AnyHop, Path, Rate, Wire};

/// About how long a measurement takes; the number of messages is kept within [`WAYS`].
const RUNTIME: Nanos = Nanos::from_secs(2);
const WAYS: std::ops::Range<u64> = 100..3_000;
/// Length of each message's data in bytes; the frame has 70 more bytes of headers.
const MESSAGE: usize = 64;
/// Number of messages that are sent before the measurement begins.
const WARM: usize = 20;

/// How late the emulator says it wrote each message, in nanoseconds.
type Late = Arc<Mutex<Vec<u64>>>;

/// Starts an emulated network in front of `to`, which runs as long as the program.
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

/// Whether the ends spin for a message, or sleep until they are woken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    Awake,
    Asleep,
}

/// Both ends of a connection to `address`, which leads to `listener`.
fn both_ends(address: SocketAddr, listener: &TcpListener) -> io::Result<[TcpStream; 2]> {
    let near = TcpStream::connect(address)?;
    let (far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    Ok([near, far])
}

/// Measures one-way times in a thread of its own; sorted, in nanoseconds.
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

/// One thread drives both ends and never sleeps. Messages go there and back in turn, each after the
/// thread has polled the idle receiver for `pause`.
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

/// Reads a whole message from a non-blocking socket.
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

/// One thread drives each end, and messages go one way only. The sender sleeps for `pause` before
/// each message; the receiver sleeps whenever nothing arrives.
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
    // The woken receiver runs on the other processor.
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
        "Messages of {MESSAGE} B, one way at a time, in µs: median, 99 %. 'over' is their time beyond the model's,"
    );
    println!(
        "'without' their time on this machine with no model in between, 'late' the emulator's own report."
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
        // Headers of Ethernet, IP and TCP with time stamps, the frame check sequence and the
        // preamble.
        let model = latency + rate.time_of(14 + 20 + 20 + 12 + 4 + 8 + MESSAGE as u64);
        let count = (RUNTIME.get() / model.get()).clamp(WAYS.start, WAYS.end);
        let count = usize::try_from(count).expect("it is small");
        let mut cells = Vec::new();
        for how in [Ends::Awake, Ends::Asleep] {
            let late = Late::default();
            let network = emulated(latency, rate, direct, late.clone());
            // The ends poll or sleep for equally long without a model and with one.
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
