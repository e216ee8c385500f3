//! "Composable Edge Cloud Systems With NVMe-over-5G URLLC": the distributed switch over two 5G
//! modems, with USB gigabit adapters for reference.

mod chain;

use engine::{Nanos, Rng};
use network_models::network::{self, Network};
use network_models::nr5g::{Cell, Core, CoreSettings, Downlink, Uplink};
use network_models::stage::{Settings, Stage};
use network_models::{AnyHop, Path, tcp};
use pcie::requester::CompletionTimeout;

use super::nvme_tsn::{PIPELINE, gigabit};
use super::{Kind, Report, Row, decimal, mean};
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
/// Size in MiB of the file whose writing is predicted; [`FILE_PART_MIB`] of it are simulated.
const FILE_MIB: u64 = 1_024;
const FILE_PART_MIB: u64 = 4;

/// Times of the stages of a box, as published (component_us) by direction or by packet size.
struct Box {
    iptables: Settings,
    usb: Settings,
}

/// The DMA interface between the logic and the processor of a box.
const FAKE_ETHERNET: Settings = Settings::DMA;
const UPSTREAM: Box = Box { iptables: Settings::ROUTING_UPSTREAM, usb: Settings::USB_UPSTREAM };
const DOWNSTREAM: Box = Box { iptables: Settings::ROUTING_DOWNSTREAM, usb: Settings::USB_DOWNSTREAM };

/// The link that joins the two boxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Middle {
    Gigabit,
    Radio,
}

impl Middle {
    /// The hops of one direction between two modems or adapters.
    fn hops(self, rng: &Rng) -> Vec<AnyHop> {
        match self {
            Self::Gigabit => vec![gigabit(Vec::new()).into()],
            Self::Radio => vec![
                Uplink::new(Cell::CAMPUS, rng.fork("up")).into(),
                Core::new(CoreSettings::CAMPUS, rng.fork("core")).into(),
                Downlink::new(Cell::CAMPUS, rng.fork("down")).into(),
            ],
        }
    }

    /// The path from the logic of one box to the logic of the other box.
    fn path(self, from: &Box, to: &Box, rng: &Rng) -> Path {
        let stage = |settings| AnyHop::from(Stage::new(settings));
        let mut hops = vec![stage(FAKE_ETHERNET), stage(from.iptables), stage(from.usb)];
        hops.extend(self.hops(rng));
        hops.extend([stage(to.usb), stage(to.iptables), stage(FAKE_ETHERNET)]);
        Path::new(hops)
    }

    fn network(self, seed: u64) -> Network {
        let rng = Rng::from_seed(seed);
        let there = self.path(&UPSTREAM, &DOWNSTREAM, &rng.fork("there"));
        let back = self.path(&DOWNSTREAM, &UPSTREAM, &rng.fork("back"));
        let config = network::Config { tcp: [tcp::Parameters::NPAP; 2], ..network::Config::default() };
        Network::new(config, [there, back])
    }

    fn bench(self, seed: u64, timeout: CompletionTimeout, queue_entries: u32) -> TestBench {
        // The published driver has four entries; a deeper queue is that of a driver of our own.
        let rings_for_each = queue_entries == 4;
        let setup =
            Setup { queue_entries, rings_for_each, timeout, pipeline: PIPELINE, ..Setup::published(seed) };
        TestBench::new(&setup, Some(self.network(seed)))
    }
}

pub(super) fn run(seed: u64) -> Result<Report, String> {
    let mut report = Report::default();
    chain::rows(&mut report, seed);
    gigabit_rows(&mut report, seed)?;
    radio_rows(&mut report, seed)?;
    boot_rows(&mut report, seed);
    file_row(&mut report, seed)?;
    Ok(report)
}

fn row(
    report: &mut Report,
    row: &str,
    published: Option<f64>,
    ours: f64,
    unit: &'static str,
    kind: Kind,
    source: &'static str,
) {
    report.rows.push(Row { experiment: EXPERIMENT, row: row.into(), published, ours, unit, kind, source });
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
    let mut bench = Middle::Radio.bench(seed, CompletionTimeout::D2, 4);
    let times = reads(&mut bench, count, GAP)?;
    Ok(Reads { times, events: bench.events(), digest: bench.digest() })
}

fn reads(bench: &mut TestBench, count: u64, gap: Nanos) -> Result<Vec<Nanos>, String> {
    bench.boot().map_err(|error| format!("{EXPERIMENT}: {error}"))?;
    let outcome = bench.run(Task::ConfigReads { count, gap }, LIMIT).filter(|outcome| outcome.failed == 0);
    Ok(outcome.ok_or_else(|| format!("{EXPERIMENT}: a register was not read"))?.times)
}

fn gigabit_rows(report: &mut Report, seed: u64) -> Result<(), String> {
    let mut bench = Middle::Gigabit.bench(seed, CompletionTimeout::D2, 4);
    let times = reads(&mut bench, READS_GIGABIT, Nanos::from_millis(1))?;
    report.add(bench.events(), bench.digest());
    let source = "the published components, and the switch and TCP of nvme-tsn";
    row(report, "pcie_bar0_read_gbe", Some(186.3), mean(&times) / 1e3, "us", Kind::Predicted, source);
    Ok(())
}

/// Mean and standard deviation of `times`, in nanoseconds.
fn moments(times: &[Nanos]) -> (f64, f64) {
    let mean = mean(times);
    let squares: f64 = times.iter().map(|time| (decimal(time.get()) - mean).powi(2)).sum();
    (mean, (squares / decimal(times.len() as u64)).sqrt())
}

fn radio_rows(report: &mut Report, seed: u64) -> Result<(), String> {
    let Reads { times, events, digest } = register_reads_over_5g(seed, READS)?;
    report.add(events, digest);
    // As published, reads further than three deviations from the mean are dropped.
    let (mean, deviation) = moments(&times);
    let kept: Vec<Nanos> =
        times.iter().copied().filter(|time| (decimal(time.get()) - mean).abs() <= 3.0 * deviation).collect();
    let dropped = decimal((times.len() - kept.len()) as u64);
    let (mean, deviation) = moments(&kept);
    let late = times.iter().filter(|time| **time > Nanos::from_millis(200)).count();
    let late = decimal(late as u64) / decimal(times.len() as u64);
    let source = "the core network's time, from this row; slots, grants and HARQ as standardised";
    row(report, "pcie_bar0_read_5g", Some(16_161.0), mean / 1e3, "us", Kind::Calibrated, source);
    let source = "the core network's spread, from this row; slots, grants and HARQ as standardised";
    row(report, "pcie_bar0_read_5g_stddev", Some(3_230.0), deviation / 1e3, "us", Kind::Calibrated, source);
    let source = "the number that the three-sigma filter drops of 100,000";
    row(report, "reads dropped by the filter", Some(40.0), dropped, "reads", Kind::Predicted, source);
    let source = "frames that are lost, and TCP's timeout; published as an upper bound";
    row(report, "tail_over_200_ms_share", Some(1e-4), late, "", Kind::Predicted, source);
    let share = 100.0 * (mean - 1e3 * gigabit_mean(report)) / mean;
    let source = "the reads over 5G less those over Gigabit Ethernet";
    row(report, "share_of_5g_in_latency", Some(99.12), share, "%", Kind::Predicted, source);
    Ok(())
}

/// The simulated mean of a register read over Gigabit Ethernet, in µs.
fn gigabit_mean(report: &Report) -> f64 {
    report.rows.iter().find(|row| row.row == "pcie_bar0_read_gbe").map_or(0.0, |row| row.ours)
}

fn boot_rows(report: &mut Report, seed: u64) {
    let timeouts = [
        ("boots with a completion timeout of 100 µs", CompletionTimeout::A1, Some(0.0)),
        ("boots with a completion timeout of 10 ms", CompletionTimeout::A2, Some(0.0)),
        ("boots with a completion timeout of 50 ms", CompletionTimeout::Default, None),
        ("boots with a completion timeout of 64 s", CompletionTimeout::D2, None),
    ];
    for (name, timeout, published) in timeouts {
        let mut bench = Middle::Radio.bench(seed, timeout, 4);
        let boots = bench.boot().is_ok();
        report.add(bench.events(), bench.digest());
        let source =
            "enumeration and initialisation by the real engines; published: no boot at the host's default";
        row(report, name, published, f64::from(u8::from(boots)), "", Kind::Predicted, source);
    }
}

fn file_row(report: &mut Report, seed: u64) -> Result<(), String> {
    let mut bench = Middle::Radio.bench(seed, CompletionTimeout::D2, 64);
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
    row(report, "write of a 1 GiB file: rate", None, rate, "Mbit/s", Kind::Predicted, source);
    row(report, "write of a 1 GiB file: time", None, whole, "s", Kind::Predicted, source);
    Ok(())
}
