//! "Latency Analysis for NVMe/TSN" (Technical Brief 20210529): an SSD on the host's own link, and
//! the SSD behind the distributed switch over 1 Gigabit Ethernet, without and with a TSN MAC.

use engine::{Nanos, Rng};
use network_models::ethernet::medium::{Cable, Medium, PortLatency};
use network_models::ethernet::{FifoStage, Port, PortSettings};
use network_models::network::{self, Network};
use network_models::{Path, Rate};

use super::constants::Constants;
use super::{Effort, Measure, Report, Row, decimal, mean};
use crate::test_bench::{self, Seen, Setup, Task, TestBench, What};

const EXPERIMENT: &str = "nvme-tsn";
/// Number of configuration reads in each topology.
const CONFIG_READS: u64 = 1_000;
/// Number of commands of each kind in each topology.
const COMMANDS: u64 = 500;
/// The mean time between two operations, in which the system is idle.
const GAP: Nanos = Nanos::from_micros(500);
/// How long any task may take in virtual time.
const LIMIT: Nanos = Nanos::from_secs(60);

/// The rate of the Ethernet.
const GIGABIT: Rate = Rate::from_gigabits(1);

/// The time that a packet takes in either end of the switch: the FPGA's PCIe block, its clock
/// crossings, the switch and the framing. Calibrated on the configuration reads over TCP, and used
/// everywhere.
pub(crate) const PIPELINE: Nanos = Nanos::new(700);

/// How the SSD is attached to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Topology {
    Direct,
    Tcp,
    Tsn,
}

impl Topology {
    const ALL: [Self; 3] = [Self::Direct, Self::Tcp, Self::Tsn];

    const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Tcp => "tcp_1g",
            Self::Tsn => "tsn_1g",
        }
    }

    fn setup(self, seed: u64, constants: &Constants) -> Setup {
        // "In the TSN topology the data of a read travelled as 32 writes of 128 B."
        let payload_size = if self == Self::Tsn { 128 } else { 256 };
        let Constants { host, ssd, link, pipeline, .. } = *constants;
        Setup { host, ssd, link, payload_size, pipeline, ..Setup::published(seed) }
    }

    /// A metre of cable between two ports of FPGAs, with the TCP stack in hardware at both ends.
    /// A TLP goes in a segment of its own while the line is idle; TLPs that come while the line is
    /// busy share a segment.
    fn network(self, constants: &Constants) -> Option<Network> {
        let stages = match self {
            Self::Direct => return None,
            Self::Tcp => Vec::new(),
            Self::Tsn => vec![constants.tsn_mac],
        };
        let path = || [gigabit(constants.port, stages.clone())].into_iter().collect::<Path>();
        let (tcp, line) = ([constants.tcp(); 2], [Some(GIGABIT); 2]);
        let config = network::Config { tcp, line, ..network::Config::default() };
        Some(Network::new(config, [path(), path()]))
    }
}

/// A Gigabit Ethernet port of an FPGA with a metre of cable, and `stages` as additional buffers.
pub(super) fn gigabit(latency: PortLatency, stages: Vec<FifoStage>) -> Port {
    let settings = PortSettings {
        latency,
        cable: Cable::metres(Medium::TwistedPair, 1),
        stages,
        ..PortSettings::new(GIGABIT)
    };
    Port::new(settings, &Rng::from_seed(0))
}

/// The means of one topology in nanoseconds, and the packets that the analyser saw.
struct Measured {
    config: f64,
    read: f64,
    write: f64,
    read_seen: Vec<Seen>,
    write_seen: Vec<Seen>,
}

pub(super) fn run(seed: u64, constants: &Constants, effort: Effort) -> Result<Report, String> {
    let mut report = Report::default();
    let mut measured = Vec::new();
    for topology in Topology::ALL {
        measured.push(measure(topology, seed, constants, effort, &mut report)?);
    }
    let [direct, tcp, tsn] = &measured[..] else { unreachable!("there are three topologies") };
    config_rows(&mut report, [direct, tcp, tsn]);
    timeline_rows(&mut report, direct);
    command_rows(&mut report, &measured);
    Ok(report)
}

/// Whole commands, and the time that the tunnel adds to each.
fn command_rows(report: &mut Report, measured: &[Measured]) {
    let direct = &measured[0];
    for (topology, measured) in Topology::ALL.into_iter().zip(measured) {
        let is_direct = topology == Topology::Direct;
        // The publication leaves the figures of the tunnel out on purpose: they are predictions.
        let [read, write] = [99_920.0, 51_712.0].map(|figure| is_direct.then_some(figure));
        let source = if is_direct {
            "the analyser's time lines of the direct-attached SSD"
        } else {
            "the TLP sequence, the direct time lines, and links calibrated on configuration reads"
        };
        let name = topology.name();
        for (kind, published, ours, alone, line) in [
            ("read_4k", read, measured.read, direct.read, "read timeline: cq_head_doorbell"),
            ("write_4k", write, measured.write, direct.write, "write timeline: cq_head_doorbell"),
        ] {
            let total = row(format!("{kind} {name}"), published, ours, Measure::Total, source);
            report.rows.push(if is_direct { total.following([line]) } else { total });
            if !is_direct {
                let name = format!("{kind} {name}, less direct");
                report.rows.push(row(name, None, ours - alone, Measure::Added, source));
            }
        }
    }
}

fn row(row: String, published: Option<f64>, ours: f64, measure: Measure, source: &'static str) -> Row {
    Row { experiment: EXPERIMENT, row, published, ours, unit: "ns", measure, follows: Vec::new(), source }
}

fn measure(
    topology: Topology,
    seed: u64,
    constants: &Constants,
    effort: Effort,
    report: &mut Report,
) -> Result<Measured, String> {
    let mut bench = TestBench::new(&topology.setup(seed, constants), topology.network(constants));
    bench.boot().map_err(|error| format!("{EXPERIMENT}, {}: {error}", topology.name()))?;
    let mut task = |task| {
        bench.analyse(true);
        let outcome = bench.run(task, LIMIT).filter(|outcome| outcome.failed == 0);
        let seen = bench.analyse(false);
        let outcome = outcome.ok_or_else(|| format!("{EXPERIMENT}, {}: {task:?} failed", topology.name()));
        outcome.map(|outcome| (mean(&outcome.times), seen))
    };
    let (config, _) = task(Task::ConfigReads { count: effort.of(CONFIG_READS), gap: GAP })?;
    let count = effort.of(COMMANDS);
    let command = |kind| Task::Commands { kind, count, bytes: 4096, depth: 1, gap: GAP, random: true };
    let (read, read_seen) = task(command(test_bench::Kind::Read))?;
    let (write, write_seen) = task(command(test_bench::Kind::Write))?;
    report.add(bench.events(), bench.digest());
    Ok(Measured { config, read, write, read_seen, write_seen })
}

fn config_rows(report: &mut Report, [direct, tcp, tsn]: [&Measured; 3]) {
    let response = "the device's response and the link, from this row";
    let network = "the switch's pipeline, from this row; stack, MAC, PHY and cable as everywhere";
    let mac = "the TSN MAC's FIFO stages, from this row";
    let name = |topology: &str| format!("config_read_rtt {topology}");
    for (topology, measured, published, source) in [
        ("direct", direct, 280.0, response),
        ("tcp_1g", tcp, 6_022.0, network),
        ("tsn_1g", tsn, 7_091.2, mac),
    ] {
        report.rows.push(row(name(topology), Some(published), measured.config, Measure::Total, source));
    }
    for (topology, measured, published) in [("tcp_1g", tcp, 2_870.0), ("tsn_1g", tsn, 3_405.0)] {
        let ours = (measured.config - direct.config) / 2.0;
        let source = "(RTT through the tunnel - RTT direct) / 2";
        let row = row(format!("t_tunnel {topology}"), Some(published), ours, Measure::Added, source);
        report.rows.push(row.following([name(topology).as_str(), name("direct").as_str()]));
    }
}

/// The packets of one command on the root port's link; the submission doorbell is the first.
struct Line<'a>(&'a [Seen]);

impl Line<'_> {
    fn times(&self, down: bool, what: What, least: u32) -> impl Iterator<Item = f64> {
        let start = self.0[0].at;
        self.0
            .iter()
            .filter(move |seen| seen.down == down && seen.what == what && seen.bytes >= least)
            .map(move |seen| decimal((seen.at - start).get()))
    }
}

/// Splits the packets into commands, each of which begins with every other doorbell, and returns
/// the mean of `value` over the commands.
fn over(seen: &[Seen], value: impl Fn(&Line<'_>) -> Option<f64>) -> f64 {
    let mut starts = Vec::new();
    let mut doorbells = 0_usize;
    for (index, seen) in seen.iter().enumerate() {
        if seen.down && seen.what == What::MemoryWrite {
            if doorbells.is_multiple_of(2) {
                starts.push(index);
            }
            doorbells += 1;
        }
    }
    let ends = starts.iter().skip(1).copied().chain([seen.len()]);
    let values: Vec<f64> =
        starts.iter().zip(ends).filter_map(|(start, end)| value(&Line(&seen[*start..end]))).collect();
    values.iter().sum::<f64>() / decimal(values.len().max(1) as u64)
}

fn timeline_rows(report: &mut Report, direct: &Measured) {
    let source = "the device's and the host's times, from this time line";
    const DOWN: bool = true;
    const UP: bool = false;
    let mut add = |name: &str, published: f64, ours: f64| {
        report.rows.push(row(name.into(), Some(published), ours, Measure::Phase, source));
    };
    let of = |value: fn(&Line<'_>) -> Option<f64>| over(&direct.read_seen, value);
    add("read timeline: data_first_mwr", 81_592.0, of(|line| line.times(UP, What::MemoryWrite, 128).next()));
    add(
        "read timeline: data_phase_length",
        4_852.0,
        of(|line| {
            let data: Vec<f64> = line.times(UP, What::MemoryWrite, 128).collect();
            // Up to the end of the last packet: 280 bytes at 2 bytes a nanosecond.
            Some(data.last()? - data.first()? + 140.0)
        }),
    );
    add(
        "read timeline: cq_head_doorbell",
        99_708.0,
        of(|line| line.times(DOWN, What::MemoryWrite, 4).nth(1)),
    );
    let of = |value: fn(&Line<'_>) -> Option<f64>| over(&direct.write_seen, value);
    add("write timeline: sqe_fetch_mrd", 460.0, of(|line| line.times(UP, What::MemoryRead, 64).next()));
    add(
        "write timeline: sqe_fetch_rtt",
        2_232.0,
        of(|line| {
            let fetch = line.times(UP, What::MemoryRead, 64).next()?;
            Some(line.times(DOWN, What::Completion, 64).next()? - fetch)
        }),
    );
    add("write timeline: data_first_mrd", 25_136.0, of(|line| line.times(UP, What::MemoryRead, 256).next()));
    add(
        "write timeline: data_first_cpld_after",
        6_724.0,
        of(|line| {
            let read = line.times(UP, What::MemoryRead, 256).next()?;
            Some(line.times(DOWN, What::Completion, 128).next()? - read)
        }),
    );
    add(
        "write timeline: data_cpld_spacing",
        74.0,
        of(|line| {
            let data: Vec<f64> = line.times(DOWN, What::Completion, 128).collect();
            Some((data.last()? - data.first()?) / decimal(data.len() as u64 - 1))
        }),
    );
    add("write timeline: msix_interrupt", 34_956.0, of(|line| line.times(UP, What::Interrupt, 0).next()));
    add(
        "write timeline: cq_head_doorbell",
        51_500.0,
        of(|line| line.times(DOWN, What::MemoryWrite, 4).nth(1)),
    );
}
