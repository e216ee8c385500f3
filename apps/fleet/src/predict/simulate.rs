//! A scenario, played with the two loads that classes are about.

use engine::Nanos;
use scenarios::file::scenario::Scenario;
use scenarios::summary::Summary;
use scenarios::test_bench::{Kind, Task};

/// The longest scenario in bytes.
const SCENARIO_MAX: usize = 256 << 10;
/// Reads of 4 KiB, one after the other, of which the 99th percentile is taken.
const READS: u64 = 2000;
/// Reads of 128 KiB, of which the rate is taken, and how many of them are under way at once.
const LARGE_READS: u64 = 400;
const LARGE_DEPTH: u32 = 16;

/// The service that a simulation predicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Simulated {
    /// The time within which 99 of 100 reads of 4 KiB end.
    pub(super) p99: Nanos,
    /// Bytes a second of reads of 128 KiB, 16 at a time.
    pub(super) bandwidth: u64,
    /// The seed that was played.
    pub(super) seed: u64,
}

/// Plays a scenario.
///
/// # Errors
/// When the text is no scenario, or its device does not come up.
pub(super) fn play(text: &str) -> Result<Simulated, String> {
    if text.len() > SCENARIO_MAX {
        return Err(format!("the scenario has {} bytes: expected {SCENARIO_MAX} at most", text.len()));
    }
    let reads = |count, bytes, depth| Task::Commands {
        kind: Kind::Read,
        count,
        bytes,
        depth,
        gap: Nanos::ZERO,
        random: true,
    };
    let tasks = [("small", reads(READS, 4 << 10, 1)), ("large", reads(LARGE_READS, 128 << 10, LARGE_DEPTH))];
    let scenario = Scenario::with_tasks(text, &tasks)?;
    let seed = scenario.seed;
    let played = scenario.play(seed, false)?;
    let mut figures = played.tasks.iter().map(Summary::of);
    let (Some(small), Some(large)) = (figures.next(), figures.next()) else {
        return Err("the simulator has played no reads".to_owned());
    };
    if small.failed + large.failed > 0 {
        return Err(format!("{} simulated reads have failed", small.failed + large.failed));
    }
    Ok(Simulated { p99: small.p99, bandwidth: large.rate / 8, seed })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAN: &str = "[fabric]\nkind = \"tcp\"\nmedium = \"memory\"\n[[link.hop]]\nkind = \"ethernet\"\nrate = \"10Gbit/s\"\ncable = \"3m\"\n";

    #[test]
    fn a_slower_link_is_predicted_to_be_slower() {
        let lan = play(LAN).unwrap();
        let slow = play(&LAN.replace("10Gbit/s", "1Gbit/s")).unwrap();
        assert!(lan.p99 < slow.p99, "{lan:?} {slow:?}");
        assert!(lan.bandwidth > slow.bandwidth && slow.bandwidth < 125_000_000, "{lan:?} {slow:?}");
        assert_eq!(play(LAN), Ok(lan), "the same seed has the same result");
    }

    #[test]
    fn nonsense_is_no_scenario() {
        assert!(play("nonsense = 1").is_err());
        assert!(play(&"#".repeat(SCENARIO_MAX + 1)).unwrap_err().contains("at most"));
    }
}
