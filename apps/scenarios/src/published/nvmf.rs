//! "NVMe over Fabrics" (HGST and Mellanox, 2015): prototypes of host and controller over
//! InfiniBand, 4 KiB at a depth of 1, with interrupts and polled.
//!
//! Two constants were fitted to two rows: the time of each of four steps of software to the polled
//! row, and the time of an interrupt to the row with interrupts. Card, PCIe, link and memory have
//! their times from elsewhere ([`Card::CONNECTX_3`]), but for two
//! that were chosen again when the first result was too high.

use engine::Nanos;
use network_models::ethernet::medium::{Cable, Medium as Material};
use network_models::lossless::{Lossless, Settings};
use network_models::{Path, Rate};
use sim::models::hca::{Card, Driver};

use super::constants::Constants;
use super::{Effort, Measure, Report, Row, decimal, mean};
use crate::fabric_bench::{FabricBench, Medium, Setup, Software, Transport};
use crate::test_bench::{self, Task};

const EXPERIMENT: &str = "nvmf";
/// Number of commands of each kind.
const COMMANDS: u64 = 500;
/// The mean time between two commands, in which the machines are idle.
const GAP: Nanos = Nanos::from_micros(100);
/// How long a task may take in virtual time.
const LIMIT: Nanos = Nanos::from_secs(60);
const BYTES: u32 = 4096;

/// How a prototype is used.
#[derive(Clone, Copy)]
struct Case {
    /// Bytes of a command's data.
    bytes: u32,
    /// The mean time between two commands.
    gap: Nanos,
    /// How long both ends poll before they sleep.
    poll: Nanos,
    /// Data of a capsule in bytes at most.
    capsule_data: u32,
    data_in_response: bool,
}

impl Case {
    const INTERRUPTS: Self =
        Self { bytes: BYTES, gap: GAP, poll: Nanos::ZERO, capsule_data: 0, data_in_response: false };
    const POLLED: Self = Self { poll: Nanos::MAX, ..Self::INTERRUPTS };
    const IN_RESPONSE: Self = Self { data_in_response: true, ..Self::POLLED };

    fn driver(self, constants: &Constants) -> Driver {
        Driver { poll: self.poll, interrupt: constants.interrupt, ..constants.driver }
    }

    /// The mean time in nanoseconds of commands of `kind`.
    fn measure(
        self,
        kind: test_bench::Kind,
        seed: u64,
        (constants, effort): (&Constants, Effort),
        report: &mut Report,
    ) -> Result<f64, String> {
        let rate = Settings::infiniband("fdr").unwrap_or(Rate::from_gigabits(54));
        let link = Settings {
            rate,
            processing: Nanos::ZERO,
            propagation: Cable::metres(Material::Twinax, 3).latency() + Settings::PHYSICAL,
            buffer: Settings::BUFFER,
            cut_through: true,
            is_ethernet: false,
        };
        let card = Card { data_in_response: self.data_in_response, ..constants.card };
        let software = constants.software;
        let setup = Setup {
            seed,
            transport: Transport::Rdma([card; 2], [Some(rate); 2]),
            drivers: [self.driver(constants); 2],
            software: Software { submit: software, complete: software, command: software, respond: software },
            medium: Medium::Memory { rate: constants.card.copy_rate },
            namespace_bytes: 64 << 20,
            queue_size: 32,
            capsule_data_max: self.capsule_data,
        };
        let path = || [Lossless::new([link])].into_iter().collect::<Path>();
        let mut bench = FabricBench::new(&setup, [path(), path()]);
        bench.boot().map_err(|error| format!("{EXPERIMENT}: {error}"))?;
        let task = Task::Commands {
            kind,
            count: effort.of(COMMANDS),
            bytes: self.bytes,
            depth: 1,
            gap: self.gap,
            random: true,
        };
        let outcome = bench.run(task, LIMIT).filter(|outcome| outcome.failed == 0);
        let outcome = outcome.ok_or_else(|| format!("{EXPERIMENT}: {task:?} failed"))?;
        report.add(bench.events(), bench.digest());
        Ok(mean(&outcome.times))
    }
}

pub(super) fn run(seed: u64, constants: &Constants, effort: Effort) -> Result<Report, String> {
    use test_bench::Kind::{Read, Write};
    let mut report = Report::default();
    let mut time = |case: Case, kind| {
        case.measure(kind, seed, (constants, effort), &mut report).map(|time| time / 1_000.0)
    };
    let polled = time(Case::POLLED, Read)?;
    let interrupts = time(Case::INTERRUPTS, Read)?;
    let short = time(Case { poll: Nanos::from_micros(3), gap: Nanos::ZERO, ..Case::POLLED }, Read)?;
    let within = time(Case::IN_RESPONSE, Read)?;
    let [block, block_within] = [Case::POLLED, Case::IN_RESPONSE].map(|case| Case { bytes: 512, ..case });
    let [block, block_within] = [time(block, Read)?, time(block_within, Read)?];
    let by_key = time(Case::POLLED, Write)?;
    let in_capsule = time(Case { capsule_data: BYTES, ..Case::POLLED }, Write)?;
    // A local device: the host's software, the copy, and one interrupt unless the host polls.
    let copy = u64::from(BYTES) * 1_000_000_000 / constants.card.copy_rate.max(1);
    let local = decimal(2 * constants.software.get() + copy) / 1_000.0;
    let woken = decimal(constants.interrupt.get()) / 1_000.0;

    let software = "the software's steps, from this row; card, PCIe, link and copy from elsewhere";
    let interrupt = "an interrupt, from this row; everything else as polled";
    let rest = "the constants of the calibrated rows";
    let below = "the row above less a local device's time: host's software, copy, interrupt";
    use Measure::{Added, Bound, Total};
    for (row, published, ours, measure, source) in [
        ("read 4 KiB, polled", Some(8.0), polled, Total, software),
        ("read 4 KiB, interrupts", Some(13.0), interrupts, Total, interrupt),
        ("network's part, polled (published: below)", Some(7.0), polled - local, Bound, below),
        (
            "network's part, interrupts (published: below)",
            Some(10.0),
            interrupts - local - woken,
            Bound,
            below,
        ),
        ("read 4 KiB, 3 us of polling, one after the other", None, short, Total, rest),
        ("write 4 KiB, polled, read by key", None, by_key, Total, rest),
        ("write 4 KiB, polled, data in the capsule", None, in_capsule, Total, rest),
        ("saved by data in the capsule", None, by_key - in_capsule, Added, rest),
        ("read 4 KiB, polled, data in the response", None, within, Total, rest),
        ("saved by data in the response, 4 KiB", None, polled - within, Added, rest),
        ("read 512 B, polled", None, block, Total, rest),
        ("saved by data in the response, 512 B", None, block - block_within, Added, rest),
    ] {
        let row = row.to_owned();
        let (experiment, unit, follows) = (EXPERIMENT, "us", Vec::new());
        report.rows.push(Row { experiment, row, published, ours, unit, measure, follows, source });
    }
    Ok(report)
}
