//! What a far SSD's configuration reads and commands take over the network of a link file, simulated: the column beside
//! what `farlane emulate` shows with the same file.
//!
//! `cargo run -p farlane-scenarios --example predict -- [--lookahead] LINK.toml`

#![allow(missing_docs, reason = "a program that is run by hand")]

use engine::{Nanos, Rng};
use scenarios::file::link::Link;
use scenarios::rig::{Kind, Rig, Setup, Task};

const SEED: u64 = 1;
const COUNT: u64 = 500;
/// From one to the next, half of it to three halves: no schedule of the link is met in step.
const GAP: Nanos = Nanos::from_millis(10);
const LIMIT: Nanos = Nanos::from_secs(3_600);

fn main() -> Result<(), String> {
    let lookahead = std::env::args().any(|argument| argument == "--lookahead");
    for path in std::env::args().skip(1).filter(|argument| argument != "--lookahead") {
        let link = Link::read(path.as_ref())?;
        let setup = Setup { lookahead, ..Setup::published(SEED) };
        let mut rig = Rig::new(&setup, Some(link.network(&Rng::from_seed(SEED))));
        rig.boot()?;
        let reads = Task::ConfigReads { count: COUNT, gap: GAP };
        let command =
            |kind| Task::Commands { kind, count: COUNT, bytes: 4096, depth: 1, gap: GAP, random: true };
        for (name, task) in [
            ("configuration reads", reads),
            ("4 KiB reads", command(Kind::Read)),
            ("4 KiB writes", command(Kind::Write)),
        ] {
            let outcome = rig.run(task, LIMIT).ok_or("it does not end")?;
            let mut times = outcome.times;
            times.sort_unstable();
            if times.is_empty() {
                return Err(format!("{path}: no {name} ended"));
            }
            let at = |percent: usize| times[(times.len() - 1) * percent / 100];
            let most = times.last().expect("there are some");
            println!("{path}: {name}: p50 {}, p99 {}, max {most}", at(50), at(99));
        }
        if let Some(statistics) = rig.lookahead() {
            println!("{path}: {statistics:?}");
        }
    }
    Ok(())
}
