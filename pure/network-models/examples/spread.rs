//! The effect of spreading commands over several connections on their tail latency. The commands
//! have 4 KiB and take one round trip each. Only the network and the TCP at both ends are
//! simulated: 10 ms each way at 1 Gbit/s, with a given number of lost frames in a million, or 5G.
//!
//! `cargo run -p farlane-network-models --example spread -- 1000` (or another number, or `5g`)

#![allow(missing_docs, reason = "a program that is run by hand")]

use std::collections::VecDeque;

use engine::{Buffer, Engine, Instant, Nanos, Rng};
use farlane_network_models::faults::{Behaviour, Faults};
use farlane_network_models::network::{Config, ConnectionId, Input, Network, Output, Side};
use farlane_network_models::nr5g::{Cell, Core, CoreSettings, Downlink, Uplink};
use farlane_network_models::tcp::Parameters;
use farlane_network_models::{AnyHop, Chance, Path, Rate, Wire};

const SEEDS: u64 = 4;
/// Simulated time of each seed.
const LENGTH: Nanos = Nanos::from_secs(100);
/// Time that is not counted, while connections find their pace.
const WARM_UP: Nanos = Nanos::from_secs(2);
/// Number of commands under way at once, if each is followed by the next.
const DEPTH: usize = 32;
/// Commands per second, if they begin at even intervals.
const RATE: u64 = 400;
/// Bytes of a command with data, and of one without: doorbell, entry, completion, with their
/// frames.
const HEAVY: usize = 4096 + 250;
const LIGHT: usize = 150;

/// The network with this name.
fn network(name: &str, rng: &Rng) -> Result<Network, String> {
    if name == "5g" {
        let path = |rng: &Rng| {
            Path::new([
                AnyHop::from(Uplink::new(Cell::CAMPUS, rng.fork("up"))),
                Core::new(CoreSettings::CAMPUS, rng.fork("core")).into(),
                Downlink::new(Cell::CAMPUS, rng.fork("down")).into(),
            ])
        };
        return Ok(Network::new(
            Config { tcp: [Parameters::NPAP; 2], ..Config::default() },
            [path(&rng.fork("a")), path(&rng.fork("b"))],
        ));
    }
    let lost: u32 = name.parse().map_err(|error| format!("{name}: {error}"))?;
    let path = |rng: &Rng| {
        Path::new([
            AnyHop::from(Wire::new(Nanos::from_millis(10), Some(Rate::from_megabits(1000)))),
            AnyHop::from(Faults::new(
                Behaviour { loss: Chance::parts_per_million(lost), ..Behaviour::default() },
                rng.fork("f"),
            )),
        ])
    };
    Ok(Network::new(Config::default(), [path(&rng.fork("a")), path(&rng.fork("b"))]))
}

#[derive(Default)]
struct Line {
    id: Option<ConnectionId>,
    open: bool,
    /// Start times of the commands whose request has not fully arrived, and of those whose answer
    /// has not.
    asked: VecDeque<Instant>,
    answered: VecDeque<Instant>,
    arrived: [usize; 2],
}

struct Trial {
    network: Network,
    lines: Vec<Line>,
    /// Bytes of a command, down and up.
    sizes: [usize; 2],
    turn: usize,
    waiting: usize,
    times: Vec<Nanos>,
}

impl Trial {
    fn new(network: Network, connections: usize, sizes: [usize; 2]) -> Self {
        let mut trial = Self {
            network,
            lines: (0..connections).map(|_| Line::default()).collect(),
            sizes,
            turn: 0,
            waiting: 0,
            times: Vec::new(),
        };
        for line in 0..connections {
            trial.lines[line].id = trial.network.open(Instant::ZERO, Side::Near);
        }
        trial
    }

    fn begin(&mut self, now: Instant) {
        self.turn = (self.turn + 1) % self.lines.len();
        let line = &mut self.lines[self.turn];
        line.asked.push_back(now);
        let connection = line.id.expect("it was opened");
        let data = Buffer::from(vec![0; self.sizes[0]]);
        self.network.handle_input(now, Input::Send { connection, side: Side::Near, data });
    }

    fn on_output(&mut self, now: Instant, output: Output, again: bool) {
        match output {
            Output::Incoming { connection, .. } => self.network.handle_input(now, Input::Accept(connection)),
            Output::Opened { connection, side: Side::Near } => {
                let line = self.lines.iter_mut().find(|line| line.id == Some(connection));
                line.expect("it was opened").open = true;
            }
            Output::Data { connection, side, data } => {
                let index =
                    self.lines.iter().position(|line| line.id == Some(connection)).expect("it was opened");
                let bytes = data.len();
                self.network.handle_input(now, Input::Consume { connection, side, bytes });
                let line = &mut self.lines[index];
                let far = side == Side::Far;
                let size = self.sizes[usize::from(!far)];
                let arrived = &mut line.arrived[usize::from(!far)];
                *arrived += bytes;
                while *arrived >= size {
                    *arrived -= size;
                    if far {
                        let begun = line.asked.pop_front().expect("it was asked");
                        line.answered.push_back(begun);
                        let data = Buffer::from(vec![0; self.sizes[1]]);
                        self.network.handle_input(now, Input::Send { connection, side, data });
                    } else {
                        let begun = line.answered.pop_front().expect("it was answered");
                        if begun >= Instant::ZERO + WARM_UP {
                            self.times.push(now - begun);
                        }
                        self.waiting += usize::from(again);
                    }
                }
            }
            _ => {}
        }
    }

    /// Runs the trial: commands begin at `rate` per second, or each begins when another ends.
    fn run(mut self, rate: Option<u64>) -> Vec<Nanos> {
        let end = Instant::ZERO + LENGTH;
        let mut next = Instant::ZERO + Nanos::from_secs(1);
        let mut begun = false;
        loop {
            let due = self.network.poll_timeout();
            let Some(now) = due.into_iter().chain(rate.is_some().then_some(next)).min() else { break };
            if now >= end {
                break;
            }
            if due.is_some_and(|due| due <= now) {
                self.network.handle_timeout(now);
            }
            if rate.is_none() && !begun && self.lines.iter().all(|line| line.open) {
                begun = true;
                self.waiting = DEPTH;
            }
            if let Some(rate) = rate
                && now >= next
            {
                self.begin(now);
                next = next + Nanos::new(1_000_000_000 / rate);
            }
            loop {
                while let Some(output) = self.network.poll_output() {
                    self.on_output(now, output, rate.is_none());
                }
                if self.waiting == 0 {
                    break;
                }
                self.waiting -= 1;
                self.begin(now);
            }
        }
        self.times
    }
}

fn main() -> Result<(), String> {
    for name in std::env::args().skip(1) {
        for (what, sizes) in [("read", [LIGHT, HEAVY]), ("write", [HEAVY, LIGHT])] {
            for rate in [None, Some(RATE)] {
                for connections in [1, 2, 4, 8] {
                    let mut times = Vec::new();
                    for seed in 1..=SEEDS {
                        let network = network(&name, &Rng::from_seed(seed))?;
                        times.extend(Trial::new(network, connections, sizes).run(rate));
                    }
                    times.sort_unstable();
                    let at = |share: usize| times[(times.len() - 1) * share / 10_000];
                    let load = rate.map_or(format!("depth {DEPTH}"), |rate| format!("{rate}/s"));
                    let most = times.last().ok_or("nothing ended")?;
                    println!(
                        "{name}: {what}, {load}, {connections} connections: {} commands, p50 {}, p99 {}, p99.9 {}, max {most}",
                        times.len(),
                        at(5_000),
                        at(9_900),
                        at(9_990),
                    );
                }
            }
        }
    }
    Ok(())
}
