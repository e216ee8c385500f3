//! "Composable Edge Cloud Systems With NVMe-over-5G URLLC": the distributed switch over two 5G
//! modems, with USB gigabit adapters for reference.

mod chain;

use engine::{Nanos, Rng};
use network_models::network::{self, Network};
use network_models::nr5g::{Core, Downlink, Uplink};
use network_models::stage::{Settings, Stage};
use network_models::{AnyHop, Path};
use pcie::requester::CompletionTimeout;

use super::constants::Constants;
use super::nvme_tsn::gigabit;
use super::{Effort, Measure, Report, Row, decimal, mean};
use crate::test_bench::{self, Setup, Task, TestBench};

const EXPERIMENT: &str = "nvme-5g";
/// Number of reads of the main run. The published run took 54 minutes: one read each 32.4 ms, half
/// of which is the read itself.
const READS: u64 = 100_000;
const GAP: Nanos = Nanos::from_micros(16_200);
/// Number of reads of the reference run.
const READS_GIGABIT: u64 = 10_000;
/// How long any task may take in virtual time.
const LIMIT: Nanos = Nanos::from_secs(40_000);
/// The names of the rows that other rows follow.
const READ_GIGABIT: &str = "pcie_bar0_read_gbe";
const READ_RADIO: &str = "pcie_bar0_read_5g";
/// Size in MiB of the file whose writing is predicted; [`FILE_PART_MIB`] of it are simulated.
const FILE_MIB: u64 = 1_024;
const FILE_PART_MIB: u64 = 4;

/// One of the two boxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The box at the host.
    Upstream,
    /// The box at the device.
    Downstream,
}

impl Place {
    /// Routing in the box. A processor routes one packet after the other.
    const fn routing(self, constants: &Constants) -> Settings {
        Settings::busy(constants.routing[self as usize])
    }

    /// The USB stack of the box.
    const fn usb(self, constants: &Constants) -> Settings {
        Settings::pipeline(constants.usb[self as usize])
    }
}

/// The link that joins the two boxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Middle {
    Gigabit,
    Radio,
}

impl Middle {
    /// The hops of one direction between two modems or adapters.
    fn hops(self, constants: &Constants, rng: &Rng) -> Vec<AnyHop> {
        let Constants { cell, core, .. } = *constants;
        match self {
            Self::Gigabit => vec![gigabit(constants.port, Vec::new()).into()],
            Self::Radio => vec![
                Uplink::new(cell, rng.fork("up")).into(),
                Core::new(core, rng.fork("core")).into(),
                Downlink::new(cell, rng.fork("down")).into(),
            ],
        }
    }

    /// The path from the logic of one box to the logic of the other box.
    fn path(self, constants: &Constants, [from, to]: [Place; 2], rng: &Rng) -> Path {
        let stage = |settings| AnyHop::from(Stage::new(settings));
        let dma = Constants::stage(constants.dma);
        let mut hops = vec![stage(dma), stage(from.routing(constants)), stage(from.usb(constants))];
        hops.extend(self.hops(constants, rng));
        hops.extend([stage(to.usb(constants)), stage(to.routing(constants)), stage(dma)]);
        Path::new(hops)
    }

    fn network(self, constants: &Constants, seed: u64) -> Network {
        let rng = Rng::from_seed(seed);
        let there = self.path(constants, [Place::Upstream, Place::Downstream], &rng.fork("there"));
        let back = self.path(constants, [Place::Downstream, Place::Upstream], &rng.fork("back"));
        let config = network::Config { tcp: [constants.tcp(); 2], ..network::Config::default() };
        Network::new(config, [there, back])
    }
}

/// The experiment, with the values of its constants.
#[derive(Clone, Copy)]
struct Experiment<'a> {
    constants: &'a Constants,
    effort: Effort,
    seed: u64,
}

impl Experiment<'_> {
    fn bench(&self, middle: Middle, timeout: CompletionTimeout, queue_entries: u32) -> TestBench {
        // The published driver has four entries; a deeper queue is that of a driver of our own.
        let rings_for_each = queue_entries == 4;
        let Constants { host, ssd, link, pipeline, .. } = *self.constants;
        let published = Setup::published(self.seed);
        let setup = Setup { host, ssd, link, pipeline, queue_entries, rings_for_each, timeout, ..published };
        TestBench::new(&setup, Some(middle.network(self.constants, self.seed)))
    }
}

pub(super) fn run(seed: u64, constants: &Constants, effort: Effort) -> Result<Report, String> {
    let mut report = Report::default();
    let experiment = Experiment { constants, effort, seed };
    chain::rows(&mut report, experiment);
    gigabit_rows(&mut report, experiment)?;
    radio_rows(&mut report, experiment)?;
    boot_rows(&mut report, experiment);
    file_row(&mut report, experiment)?;
    Ok(report)
}

fn row(
    row: &str,
    published: Option<f64>,
    ours: f64,
    unit: &'static str,
    measure: Measure,
    source: &'static str,
) -> Row {
    let follows = Vec::new();
    Row { experiment: EXPERIMENT, row: row.into(), published, ours, unit, measure, follows, source }
}

/// The results of register reads, and the amount of simulation behind them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reads {
    /// The time that each read took.
    pub times: Vec<Nanos>,
    /// Number of events of the world, the boot's included.
    pub events: u64,
    /// A fingerprint of the world's events.
    pub digest: u64,
}

/// The experiment's main run alone: `count` register reads over 5G.
///
/// # Errors
/// When the bench does not come up, or a register is not read.
pub fn register_reads_over_5g(seed: u64, count: u64) -> Result<Reads, String> {
    let constants = &Constants::default();
    Experiment { constants, effort: Effort::Full, seed }.register_reads(count)
}

impl Experiment<'_> {
    fn register_reads(&self, count: u64) -> Result<Reads, String> {
        let mut bench = self.bench(Middle::Radio, CompletionTimeout::D2, 4);
        let times = reads(&mut bench, count, GAP)?;
        Ok(Reads { times, events: bench.events(), digest: bench.digest() })
    }
}

fn reads(bench: &mut TestBench, count: u64, gap: Nanos) -> Result<Vec<Nanos>, String> {
    bench.boot().map_err(|error| format!("{EXPERIMENT}: {error}"))?;
    let outcome = bench.run(Task::ConfigReads { count, gap }, LIMIT).filter(|outcome| outcome.failed == 0);
    Ok(outcome.ok_or_else(|| format!("{EXPERIMENT}: a register was not read"))?.times)
}

fn gigabit_rows(report: &mut Report, experiment: Experiment<'_>) -> Result<(), String> {
    let mut bench = experiment.bench(Middle::Gigabit, CompletionTimeout::D2, 4);
    let times = reads(&mut bench, experiment.effort.of(READS_GIGABIT), Nanos::from_millis(1))?;
    report.add(bench.events(), bench.digest());
    let source = "the published components, and the switch and TCP of nvme-tsn";
    let ours = mean(&times) / 1e3;
    report.rows.push(row(READ_GIGABIT, Some(186.3), ours, "us", Measure::Total, source));
    Ok(())
}

/// Mean and standard deviation of `times`, in nanoseconds.
fn moments(times: &[Nanos]) -> (f64, f64) {
    let mean = mean(times);
    let squares: f64 = times.iter().map(|time| (decimal(time.get()) - mean).powi(2)).sum();
    (mean, (squares / decimal(times.len() as u64)).sqrt())
}

fn radio_rows(report: &mut Report, experiment: Experiment<'_>) -> Result<(), String> {
    let Reads { times, events, digest } = experiment.register_reads(experiment.effort.of(READS))?;
    report.add(events, digest);
    // As published, reads further than three deviations from the mean are dropped.
    let (mean, deviation) = moments(&times);
    let kept: Vec<Nanos> =
        times.iter().copied().filter(|time| (decimal(time.get()) - mean).abs() <= 3.0 * deviation).collect();
    let count = decimal(times.len() as u64);
    let dropped = 100_000.0 * decimal((times.len() - kept.len()) as u64) / count;
    let (mean, deviation) = moments(&kept);
    let late = times.iter().filter(|time| **time > Nanos::from_millis(200)).count();
    let late = decimal(late as u64) / count;
    let gigabit = 1e3 * gigabit_mean(report);
    let share = 100.0 * (mean - gigabit) / mean;
    use Measure::{Added, Bound, Total};
    for (name, published, ours, unit, measure, source) in [
        (
            READ_RADIO,
            Some(16_161.0),
            mean / 1e3,
            "us",
            Total,
            "the core network's time, from this row; slots, grants and HARQ as standardised",
        ),
        (
            "pcie_bar0_read_5g_stddev",
            Some(3_230.0),
            deviation / 1e3,
            "us",
            Total,
            "the core network's spread, from this row; slots, grants and HARQ as standardised",
        ),
        (
            "reads dropped by the filter",
            Some(40.0),
            dropped,
            "reads",
            Total,
            "the number that the three-sigma filter drops of 100,000",
        ),
        (
            "tail_over_200_ms_share",
            Some(1e-4),
            late,
            "",
            Bound,
            "frames that are lost, and TCP's timeout; published as an upper bound",
        ),
    ] {
        report.rows.push(row(name, published, ours, unit, measure, source));
    }
    let source = "the reads over 5G less those over Gigabit Ethernet";
    let share = row("share_of_5g_in_latency", Some(99.12), share, "%", Total, source);
    let added = Some(16_161.0 - 186.3);
    let added = row("pcie_bar0_read_5g, less gbe", added, (mean - gigabit) / 1e3, "us", Added, source);
    report.rows.extend([share, added].map(|row| row.following([READ_RADIO, READ_GIGABIT])));
    Ok(())
}

/// The simulated mean of a register read over Gigabit Ethernet, in µs.
fn gigabit_mean(report: &Report) -> f64 {
    report.rows.iter().find(|row| row.row == READ_GIGABIT).map_or(0.0, |row| row.ours)
}

fn boot_rows(report: &mut Report, experiment: Experiment<'_>) {
    let timeouts = [
        ("boots with a completion timeout of 100 µs", CompletionTimeout::A1, Some(0.0)),
        ("boots with a completion timeout of 10 ms", CompletionTimeout::A2, Some(0.0)),
        ("boots with a completion timeout of 50 ms", CompletionTimeout::Default, None),
        ("boots with a completion timeout of 64 s", CompletionTimeout::D2, None),
    ];
    for (name, timeout, published) in timeouts {
        let mut bench = experiment.bench(Middle::Radio, timeout, 4);
        let boots = bench.boot().is_ok();
        report.add(bench.events(), bench.digest());
        let source =
            "enumeration and initialisation by the real engines; published: no boot at the host's default";
        let boots = f64::from(u8::from(boots));
        report.rows.push(row(name, published, boots, "", Measure::Verdict, source));
    }
}

fn file_row(report: &mut Report, experiment: Experiment<'_>) -> Result<(), String> {
    let mut bench = experiment.bench(Middle::Radio, CompletionTimeout::D2, 64);
    bench.boot().map_err(|error| format!("{EXPERIMENT}: {error}"))?;
    let bytes = 128 << 10;
    let count = (FILE_PART_MIB << 20) / u64::from(bytes);
    let task = Task::Commands {
        kind: test_bench::Kind::Write,
        count,
        bytes,
        depth: 8,
        gap: Nanos::ZERO,
        random: false,
    };
    let outcome = bench.run(task, LIMIT).filter(|outcome| outcome.failed == 0);
    let outcome = outcome.ok_or_else(|| format!("{EXPERIMENT}: the file was not written"))?;
    report.add(bench.events(), bench.digest());
    let seconds = decimal((outcome.ended - outcome.began).get()) / 1e9;
    let rate = decimal(outcome.bytes) * 8.0 / 1e6 / seconds;
    let whole = seconds * decimal(FILE_MIB) / decimal(FILE_PART_MIB);
    let source = "128 KiB commands, eight at a time; the device's tags, TCP's window and the air";
    for (name, ours, unit) in
        [("write of a 1 GiB file: rate", rate, "Mbit/s"), ("write of a 1 GiB file: time", whole, "s")]
    {
        report.rows.push(row(name, None, ours, unit, Measure::Total, source));
    }
    Ok(())
}
