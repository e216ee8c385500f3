//! "Latency Analysis for NVMe/TSN" (Technical Brief 20210529): an SSD on the host's own link, and
//! the SSD behind the distributed switch over 1 Gigabit Ethernet, without and with a TSN MAC.

use engine::{Nanos, Rng};
use network_models::ethernet::medium::{Cable, Medium, PortLatency};
use network_models::ethernet::{FifoStage, Port, PortSettings};
use network_models::network::{self, Network};
use network_models::{Path, Rate, tcp};

use super::{Kind, Report, Row, decimal, mean};
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

    fn setup(self, seed: u64) -> Setup {
        // "In the TSN topology the data of a read travelled as 32 writes of 128 B."
        let payload_size = if self == Self::Tsn { 128 } else { 256 };
        Setup { payload_size, pipeline: PIPELINE, ..Setup::published(seed) }
    }

    /// A metre of cable between two ports of FPGAs, with the TCP stack in hardware at both ends.
    /// Each TLP travels in a segment of its own.
    fn network(self) -> Option<Network> {
        let stages = match self {
            Self::Direct => return None,
            Self::Tcp => Vec::new(),
            Self::Tsn => vec![FifoStage::TSN_MAC],
        };
        let path = || [gigabit(stages.clone())].into_iter().collect::<Path>();
        let config = network::Config { tcp: [tcp::Parameters::NPAP; 2], ..network::Config::default() };
        Some(Network::new(config, [path(), path()]))
    }
}

/// A Gigabit Ethernet port of an FPGA with a metre of cable, and `stages` as additional buffers.
pub(super) fn gigabit(stages: Vec<FifoStage>) -> Port {
    let settings = PortSettings {
        latency: PortLatency::FPGA_1G,
        cable: Cable::metres(Medium::TwistedPair, 1),
        stages,
        ..PortSettings::new(Rate::from_gigabits(1))
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

pub(super) fn run(seed: u64) -> Result<Report, String> {
    let mut report = Report::default();
    let mut measured = Vec::new();
    for topology in Topology::ALL {
        measured.push(measure(topology, seed, &mut report)?);
    }
    let [direct, tcp, tsn] = &measured[..] else { unreachable!("there are three topologies") };
    config_rows(&mut report, [direct, tcp, tsn]);
    timeline_rows(&mut report, direct);
    for (topology, measured) in Topology::ALL.into_iter().zip(&measured) {
        let (read, write) = match topology {
            Topology::Direct => (Some(99_920.0), Some(51_712.0)),
            // The publication leaves these figures out on purpose, so the rows are predictions.
            Topology::Tcp | Topology::Tsn => (None, None),
        };
        let kind = if topology == Topology::Direct { Kind::Calibrated } else { Kind::Predicted };
        let source = if topology == Topology::Direct {
            "the analyser's time lines of the direct-attached SSD"
        } else {
            "the TLP sequence, the direct time lines, and links calibrated on configuration reads"
        };
        let name = topology.name();
        report.rows.push(row(format!("read_4k {name}"), read, measured.read, kind, source));
        report.rows.push(row(format!("write_4k {name}"), write, measured.write, kind, source));
    }
    Ok(report)
}

fn row(row: String, published: Option<f64>, ours: f64, kind: Kind, source: &'static str) -> Row {
    Row { experiment: EXPERIMENT, row, published, ours, unit: "ns", kind, source }
}

fn measure(topology: Topology, seed: u64, report: &mut Report) -> Result<Measured, String> {
    let mut bench = TestBench::new(&topology.setup(seed), topology.network());
    bench.boot().map_err(|error| format!("{EXPERIMENT}, {}: {error}", topology.name()))?;
    let mut task = |task| {
        bench.analyse(true);
        let outcome = bench.run(task, LIMIT).filter(|outcome| outcome.failed == 0);
        let seen = bench.analyse(false);
        let outcome = outcome.ok_or_else(|| format!("{EXPERIMENT}, {}: {task:?} failed", topology.name()));
        outcome.map(|outcome| (mean(&outcome.times), seen))
    };
    let (config, _) = task(Task::ConfigReads { count: CONFIG_READS, gap: GAP })?;
    let command =
        |kind| Task::Commands { kind, count: COMMANDS, bytes: 4096, depth: 1, gap: GAP, random: true };
    let (read, read_seen) = task(command(test_bench::Kind::Read))?;
    let (write, write_seen) = task(command(test_bench::Kind::Write))?;
    report.add(bench.events(), bench.digest());
    Ok(Measured { config, read, write, read_seen, write_seen })
}

fn config_rows(report: &mut Report, [direct, tcp, tsn]: [&Measured; 3]) {
    let response = "the device's response and the link, from this row";
    let network = "the switch's pipeline, from this row; stack, MAC, PHY and cable as everywhere";
    let mac = "the TSN MAC's FIFO stages, from this row";
    for (topology, measured, published, source) in [
        ("direct", direct, 280.0, response),
        ("tcp_1g", tcp, 6_022.0, network),
        ("tsn_1g", tsn, 7_091.2, mac),
    ] {
        let name = format!("config_read_rtt {topology}");
        report.rows.push(row(name, Some(published), measured.config, Kind::Calibrated, source));
    }
    for (topology, measured, published) in [("tcp_1g", tcp, 2_870.0), ("tsn_1g", tsn, 3_405.0)] {
        let ours = (measured.config - direct.config) / 2.0;
        let source = "(RTT through the tunnel - RTT direct) / 2";
        report.rows.push(row(
            format!("t_tunnel {topology}"),
            Some(published),
            ours,
            Kind::Calibrated,
            source,
        ));
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
        report.rows.push(row(name.into(), Some(published), ours, Kind::Calibrated, source));
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
