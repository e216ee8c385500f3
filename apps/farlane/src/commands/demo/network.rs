//! The network of a link file between the two ends: emulated in a thread of its own, and simulated.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use distribution::Distribution;
use engine::{Nanos, Rng};
use live::carrier::tcp::Listener;
use live::drivers::emulate::relay::{Counters, Event, Relay};
use live::reactor::{Reactor, Stop};
use live::sys::clock::Clock;
use scenarios::file::link::Link;
use scenarios::file::scenario::Scenario;
use scenarios::test_bench::{Kind, Task};
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::Error;
use crate::whole_file;

/// How long the emulator spins after it last had something to do.
const SPIN: Nanos = Nanos::from_micros(100);
/// Number of simulated operations of each kind.
const SIMULATED: u64 = 500;

/// A link file, and the seed of its random events.
#[derive(Clone, Debug)]
pub(super) struct Described {
    pub(super) path: PathBuf,
    text: String,
    link: Link,
    pub(super) seed: u64,
}

/// Reads the link file at `path`.
pub(super) fn read(path: &Path, seed: u64) -> Result<Described, Error> {
    let text = whole_file::read(path, texts::FILE_MAX)?;
    let link = Link::parse(&text).map_err(|why| Error::Link { path: path.to_owned(), why })?;
    Ok(Described { path: path.to_owned(), text, link, seed })
}

/// The account of an emulated network.
#[derive(Clone, Debug)]
pub(super) struct Carried {
    pub(super) counters: Counters,
    /// How late bytes were written, compared with their time in the model.
    pub(super) late: Distribution,
}

/// An emulated network, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Network {
    address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<io::Result<Carried>>>,
}

impl Network {
    /// Starts the network that is `described`, in front of `to`.
    pub(super) fn start(described: &Described, to: SocketAddr) -> Result<Self, Error> {
        let Described { link, seed, .. } = described.clone();
        let (say, said) = channel();
        let thread = std::thread::spawn(move || {
            let clock = Clock::start();
            let listener = Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
            let mut reactor = Reactor::new(clock, SPIN)?;
            // Without a receiver, the thread's owner has gone.
            let _ = say.send((listener.address(), reactor.stop()));
            let mut late = Distribution::new();
            let network = link.network(&Rng::from_seed(seed));
            let mut relay = Relay::new(clock.now(), network, listener, vec![to], |event| {
                if let Event::Written(by) = event {
                    late.record(by);
                }
            });
            reactor.run(&mut relay)?;
            let counters = relay.counters();
            drop(relay);
            Ok(Carried { counters, late })
        });
        match said.recv() {
            Ok((address, stop)) => Ok(Self { address, stop, thread: Some(thread) }),
            Err(_) => Err(failed(outcome(thread).err().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into()))),
        }
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the network, and returns its account.
    pub(super) fn end(mut self) -> Result<Carried, Error> {
        self.stop.ask();
        let thread = self.thread.take().expect("it ends once");
        outcome(thread).map_err(failed)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.stop.ask();
        // The thread's user has noticed an error in it already.
        let _ = self.thread.take().map(outcome);
    }
}

fn outcome(thread: JoinHandle<io::Result<Carried>>) -> io::Result<Carried> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn failed(error: io::Error) -> Error {
    Error::Child { what: "the emulated network", error }
}

/// The simulation's prediction for the same network with an SSD behind it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct Simulated {
    pub(super) config_read_ns: Distribution,
    pub(super) read_4k_ns: Distribution,
    pub(super) write_4k_ns: Distribution,
}

/// Simulates the measured operations, one after the other. The SSD is as the file describes it, or
/// the usual one; the switch looks ahead with `lookahead`.
pub(super) fn simulate(described: &Described, lookahead: bool) -> Result<Simulated, Error> {
    let wrong = |why: String| Error::Simulation(format!("{}: {why}", described.path.display()));
    let (count, gap) = (SIMULATED, Nanos::ZERO);
    let command = |kind| Task::Commands { kind, count, bytes: 4096, depth: 1, gap, random: true };
    let tasks = [
        ("config-read", Task::ConfigReads { count, gap }),
        ("read", command(Kind::Read)),
        ("write", command(Kind::Write)),
    ];
    let mut scenario = Scenario::with_tasks(&described.text, &tasks).map_err(wrong)?;
    scenario.look_ahead(lookahead);
    let played = scenario.play(described.seed, false).map_err(wrong)?;
    let mut times = played.tasks.into_iter().map(|task| task.outcome.times.into_iter().collect());
    let mut next = || times.next().ok_or_else(|| wrong("a task was not played".to_owned()));
    Ok(Simulated { config_read_ns: next()?, read_4k_ns: next()?, write_4k_ns: next()? })
}
