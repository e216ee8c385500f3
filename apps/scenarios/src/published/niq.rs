//! "Low Latency Network Interfaces": both one-way budgets and the card's reads, and predictions for
//! other sizes, links and networks.

use engine::{Nanos, Rng};
use sim::models::nic::{CacheLine, Generation, Parameters, read_ticks};
use sim::nic::{one_way, total};

use super::{Kind, Report, Row, decimal};

const EXPERIMENT: &str = "niq";
/// Number of reads in each state of the cache.
const READS: u32 = 10_000;
/// The largest packet in bytes that travels in a line.
const INLINE_MAX: usize = 60;

/// The largest packet in bytes.
const PACKET_MAX: u64 = 9216;
/// Where the rows about packets of several lines come from.
const CROSSOVER: &str = "the processor stores lines as fast as the link takes them; 9180 B were tried";

/// The parameters that were fitted, each to the row that its name in `sim::models::nic` says.
const FITTED: [&str; 15] = [
    "passes of a PCIe packet (PCIe read of 64 B)",
    "store",
    "inbound",
    "read",
    "logic, inline",
    "logic, DMA, out",
    "logic, DMA, in",
    "MAC out",
    "MAC in",
    "PHY",
    "cache miss",
    "wait beside an idle processor",
    "wait beside a reading one",
    "an owned line's head start",
    "period of stores",
];

/// A published component: the name of the step, its time, and whether a parameter was taken from it
/// in this row.
type Component = (&'static str, u64, bool);

const INLINE: [Component; 9] = [
    ("PCIe write", 484, true),
    ("NIC logic, transmit", 150, true),
    ("MAC, transmit", 202, true),
    ("PHY, transmit", 135, true),
    ("cable", 15, false),
    ("PHY, receive", 135, false),
    ("MAC, receive", 438, true),
    ("NIC logic, receive", 150, false),
    ("PCIe reply", 280, true),
];

/// The published card's note lies in host memory, and each of two cache misses takes half of 100
/// ns. Our card's note is the answer to a poll, right behind the data: it stands beside the
/// first miss.
const DMA: [Component; 12] = [
    ("PCIe write", 484, false),
    ("PCIe read", 850, true),
    ("NIC logic, transmit", 260, true),
    ("MAC, transmit", 202, false),
    ("PHY, transmit", 135, false),
    ("cable", 15, false),
    ("PHY, receive", 135, false),
    ("MAC, receive", 438, false),
    ("NIC logic, receive", 160, true),
    ("PCIe write, receive", 280, false),
    ("PCIe reply", 50, false),
    ("cache misses", 50, true),
];

pub(super) fn run(seed: u64) -> Result<Report, String> {
    let mut report = Report { fitted: &FITTED, ..Report::default() };
    budgets(&mut report);
    reads(&mut report, seed);
    predictions(&mut report);
    Ok(report)
}

fn add(
    report: &mut Report,
    row: String,
    published: Option<f64>,
    ours: f64,
    kind: Kind,
    source: &'static str,
) {
    report.rows.push(Row { experiment: EXPERIMENT, row, published, ours, unit: "ns", kind, source });
}

fn budgets(report: &mut Report) {
    let published: [(&str, usize, &[Component], u64); 2] =
        [("one_way_60b_inline", 60, &INLINE, 1_989), ("one_way_64b_dma", 64, &DMA, 3_059)];
    for (name, bytes, components, sum) in published {
        let steps = one_way(&Parameters::NIQ, bytes, INLINE_MAX);
        for (component, time, is_fitted) in components {
            let of = |step: &str| -> u64 {
                steps.iter().filter(|(name, _)| *name == step).map(|(_, time)| time.get()).sum()
            };
            let (kind, source) = match is_fitted {
                true => (Kind::Calibrated, "a time of the model was taken from it"),
                false => (Kind::Predicted, "the transaction's bytes and the times taken elsewhere"),
            };
            let (time, ours) = (decimal(*time), decimal(of(component)));
            add(report, format!("{name}: {component}"), Some(time), ours, kind, source);
        }
        let source = "the steps that the engines of host and card take";
        let ours = decimal(total(&steps).get());
        add(report, format!("{name}: total"), Some(decimal(sum)), ours, Kind::Predicted, source);
    }
}

fn reads(report: &mut Report, seed: u64) {
    use Kind::{Calibrated, Predicted};
    let mut rng = Rng::from_seed(seed).fork(EXPERIMENT);
    type State = (&'static str, CacheLine, [f64; 4], [Kind; 4]);
    let states: [State; 3] = [
        (
            "cpu_idle",
            CacheLine::Idle,
            [768.0, 1.90, 764.0, 776.0],
            [Calibrated, Predicted, Predicted, Calibrated],
        ),
        (
            "cpu_read",
            CacheLine::Read,
            [768.0, 2.02, 764.0, 784.0],
            [Predicted, Predicted, Predicted, Calibrated],
        ),
        (
            "cpu_write",
            CacheLine::Written,
            [756.0, 8.59, 736.0, 772.0],
            [Calibrated, Calibrated, Predicted, Predicted],
        ),
    ];
    for (name, line, published, kinds) in states {
        let times: Vec<Nanos> = (0..READS).map(|_| read_ticks(&Parameters::NIQ, line, &mut rng)).collect();
        let mean = super::mean(&times);
        let squares: f64 = times.iter().map(|time| (decimal(time.get()) - mean).powi(2)).sum();
        let deviation = (squares / f64::from(READS)).sqrt();
        let extreme = |time: Option<&Nanos>| time.map_or(0.0, |time| decimal(time.get()));
        let ours = [mean, deviation, extreme(times.iter().min()), extreme(times.iter().max())];
        let figures = ["mean", "deviation", "min", "max"].into_iter().zip(published).zip(ours).zip(kinds);
        for (((figure, published), ours), kind) in figures {
            let source = match kind {
                Calibrated => "a time of the model was taken from it",
                Predicted => "two clocks of 4 ns, and the state of the line",
            };
            add(report, format!("pcie_4b_read {name}: {figure}"), Some(published), ours, kind, source);
        }
    }
    report.add(u64::from(READS) * 3, rng.next_u64());
}

/// Predictions beyond the publication: sizes, faster networks and links, and how far a line pays.
fn predictions(report: &mut Report) {
    let source = "the same times; only transfers over links and networks scale";
    let mut predict = |row: String, ours: u64| add(report, row, None, decimal(ours), Kind::Predicted, source);
    for bytes in [1, 16, 32, 60, 61, 64, 128, 256] {
        // A packet shorter than an Ethernet header is sent with one.
        let steps = one_way(&Parameters::NIQ, bytes.max(14), INLINE_MAX);
        predict(format!("one way, {bytes} B"), total(&steps).get());
    }
    predict("one way, 60 B by DMA".into(), total(&one_way(&Parameters::NIQ, 60, 0)).get());
    let links = [("Gen 1", Generation::One), ("Gen 4", Generation::Four), ("Gen 5", Generation::Five)];
    let mut crossovers = Vec::new();
    let networks = [("10 GbE", 10_000), ("25 GbE", 25_000), ("100 GbE", 100_000)];
    for (link, generation) in links {
        for (network, mbit_s) in networks {
            let parameters = Parameters { generation, mbit_s, ..Parameters::NIQ };
            for (bytes, how) in [(60, "inline"), (64, "DMA"), (256, "DMA")] {
                let steps = one_way(&parameters, bytes, INLINE_MAX);
                predict(format!("one way, {network}, PCIe {link}: {bytes} B {how}"), total(&steps).get());
            }
        }
        let parameters = Parameters { generation, ..Parameters::NIQ };
        let (row, unit) = (format!("PCIe {link}: sending in lines pays up to"), "B");
        let (source, ours) = (CROSSOVER, decimal(crossover(&parameters)));
        crossovers.push(Row {
            experiment: EXPERIMENT,
            row,
            published: None,
            ours,
            unit,
            kind: Kind::Predicted,
            source,
        });
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
