//! "Low Latency Network Interfaces": both one-way budgets and the card's reads, and predictions for
//! other sizes, links and networks.

use engine::{Nanos, Rng};
use sim::models::nic::{CacheLine, Generation, Parameters, read_ticks};
use sim::nic::{one_way, total};

use super::constants::Constants;
use super::{Effort, Measure, Report, Row, decimal};

const EXPERIMENT: &str = "niq";
/// Number of reads in each state of the cache.
const READS: u64 = 10_000;
/// The largest packet in bytes that travels in a line.
const INLINE_MAX: usize = 60;

/// The largest packet in bytes.
const PACKET_MAX: u64 = 9216;
/// Where the rows about packets of several lines come from.
const CROSSOVER: &str = "the processor stores lines as fast as the link takes them; 9180 B were tried";

/// A published component: the name of the step, and its time.
type Component = (&'static str, u64);

const INLINE: [Component; 9] = [
    ("PCIe write", 484),
    ("NIC logic, transmit", 150),
    ("MAC, transmit", 202),
    ("PHY, transmit", 135),
    ("cable", 15),
    ("PHY, receive", 135),
    ("MAC, receive", 438),
    ("NIC logic, receive", 150),
    ("PCIe reply", 280),
];

/// The published card's note lies in host memory, and each of two cache misses takes half of 100
/// ns. Our card's note is the answer to a poll, right behind the data: it stands beside the
/// first miss.
const DMA: [Component; 12] = [
    ("PCIe write", 484),
    ("PCIe read", 850),
    ("NIC logic, transmit", 260),
    ("MAC, transmit", 202),
    ("PHY, transmit", 135),
    ("cable", 15),
    ("PHY, receive", 135),
    ("MAC, receive", 438),
    ("NIC logic, receive", 160),
    ("PCIe write, receive", 280),
    ("PCIe reply", 50),
    ("cache misses", 50),
];

pub(super) fn run(seed: u64, constants: &Constants, effort: Effort) -> Result<Report, String> {
    let mut report = Report::default();
    budgets(&mut report, &constants.nic);
    reads(&mut report, &constants.nic, seed, effort.of(READS));
    predictions(&mut report, &constants.nic);
    Ok(report)
}

fn row(row: String, published: Option<f64>, ours: f64, measure: Measure, source: &'static str) -> Row {
    Row { experiment: EXPERIMENT, row, published, ours, unit: "ns", measure, follows: Vec::new(), source }
}

fn budgets(report: &mut Report, parameters: &Parameters) {
    let published: [(&str, usize, &[Component], u64); 2] =
        [("one_way_60b_inline", 60, &INLINE, 1_989), ("one_way_64b_dma", 64, &DMA, 3_059)];
    for (name, bytes, components, sum) in published {
        let steps = one_way(parameters, bytes, INLINE_MAX);
        let mut names = Vec::new();
        for (component, time) in components {
            let of = |step: &str| -> u64 {
                steps.iter().filter(|(name, _)| *name == step).map(|(_, time)| time.get()).sum()
            };
            let source = "the transaction's bytes, and the times of host, card and network";
            let (time, ours) = (decimal(*time), decimal(of(component)));
            let row = row(format!("{name}: {component}"), Some(time), ours, Measure::Phase, source);
            names.push(row.row.clone());
            report.rows.push(row);
        }
        let source = "the steps that the engines of host and card take";
        let ours = decimal(total(&steps).get());
        let row = row(format!("{name}: total"), Some(decimal(sum)), ours, Measure::Total, source);
        report.rows.push(row.following(names.iter().map(String::as_str)));
    }
}

fn reads(report: &mut Report, parameters: &Parameters, seed: u64, count: u64) {
    let mut rng = Rng::from_seed(seed).fork(EXPERIMENT);
    let states: [(&'static str, CacheLine, [f64; 4]); 3] = [
        ("cpu_idle", CacheLine::Idle, [768.0, 1.90, 764.0, 776.0]),
        ("cpu_read", CacheLine::Read, [768.0, 2.02, 764.0, 784.0]),
        ("cpu_write", CacheLine::Written, [756.0, 8.59, 736.0, 772.0]),
    ];
    for (name, line, published) in states {
        let times: Vec<Nanos> = (0..count).map(|_| read_ticks(parameters, line, &mut rng)).collect();
        let mean = super::mean(&times);
        let squares: f64 = times.iter().map(|time| (decimal(time.get()) - mean).powi(2)).sum();
        let deviation = (squares / decimal(count)).sqrt();
        let extreme = |time: Option<&Nanos>| time.map_or(0.0, |time| decimal(time.get()));
        let ours = [mean, deviation, extreme(times.iter().min()), extreme(times.iter().max())];
        for ((figure, published), ours) in
            ["mean", "deviation", "min", "max"].into_iter().zip(published).zip(ours)
        {
            let source = "two clocks of 4 ns, and the state of the line";
            let name = format!("pcie_4b_read {name}: {figure}");
            report.rows.push(row(name, Some(published), ours, Measure::Total, source));
        }
    }
    report.add(count * 3, rng.next_u64());
}

/// Predictions beyond the publication: sizes, faster networks and links, and how far a line pays.
fn predictions(report: &mut Report, parameters: &Parameters) {
    let source = "the same times; only transfers over links and networks scale";
    let mut predict =
        |name: String, ours: u64| report.rows.push(row(name, None, decimal(ours), Measure::Total, source));
    for bytes in [1, 16, 32, 60, 61, 64, 128, 256] {
        // A packet shorter than an Ethernet header is sent with one.
        let steps = one_way(parameters, bytes.max(14), INLINE_MAX);
        predict(format!("one way, {bytes} B"), total(&steps).get());
    }
    predict("one way, 60 B by DMA".into(), total(&one_way(parameters, 60, 0)).get());
    let links = [("Gen 1", Generation::One), ("Gen 4", Generation::Four), ("Gen 5", Generation::Five)];
    let mut crossovers = Vec::new();
    let networks = [("10 GbE", 10_000), ("25 GbE", 25_000), ("100 GbE", 100_000)];
    for (link, generation) in links {
        for (network, mbit_s) in networks {
            let parameters = Parameters { generation, mbit_s, ..*parameters };
            for (bytes, how) in [(60, "inline"), (64, "DMA"), (256, "DMA")] {
                let steps = one_way(&parameters, bytes, INLINE_MAX);
                predict(format!("one way, {network}, PCIe {link}: {bytes} B {how}"), total(&steps).get());
            }
        }
        let parameters = Parameters { generation, ..*parameters };
        let name = format!("PCIe {link}: sending in lines pays up to");
        let pays = row(name, None, decimal(crossover(&parameters)), Measure::Total, CROSSOVER);
        crossovers.push(Row { unit: "B", ..pays });
    }
    report.rows.extend(crossovers);
}

/// Up to how many bytes a card that takes packets of several lines would send them faster in lines
/// than by DMA, if only the link limits the processor's stores.
fn crossover(parameters: &Parameters) -> u64 {
    let line = INLINE_MAX as u64;
    let pays = |lines: &u64| {
        let logic = parameters.logic_dma.0 - parameters.logic_inline;
        let read = parameters.dma_read(lines * line, CacheLine::Written);
        parameters.store_lines(*lines).get() < parameters.store_lines(1).get() + read.get() + logic
    };
    (1..=PACKET_MAX / line).take_while(pays).last().unwrap_or(0) * line
}
