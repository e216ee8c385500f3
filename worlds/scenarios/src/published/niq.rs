//! "Low Latency Network Interfaces": both one-way budgets and the register reads.

use engine::{Nanos, Rng};
use sim::models::nic::{Parameters, register_read};

use super::{Kind, Report, Row, decimal};

const EXPERIMENT: &str = "niq";
/// Number of register reads of each kind.
const READS: u64 = 10_000;

pub(super) fn run(seed: u64) -> Result<Report, String> {
    let mut report = Report::default();
    let mut add = |row: String, published: f64, ours: f64, kind, source| {
        let published = Some(published);
        report.rows.push(Row { experiment: EXPERIMENT, row, published, ours, unit: "ns", kind, source });
    };
    let published: [(&str, u32, &[u64], f64); 2] = [
        ("one_way_60b_inline", 60, &[484, 150, 202, 135, 15, 135, 438, 150, 280], 1_989.0),
        ("one_way_64b_dma", 64, &[484, 850, 260, 202, 135, 15, 135, 438, 160, 280, 100], 3_059.0),
    ];
    for (name, bytes, components, total) in published {
        let stages = Parameters::NIQ.one_way(bytes);
        for ((stage, time), component) in stages.iter().zip(components) {
            let row = format!("{name}: {stage}");
            let source = "the published component itself; the cable from its length";
            add(row, decimal(*component), decimal(time.get()), Kind::Calibrated, source);
        }
        let sum: u64 = stages.iter().map(|(_, time)| time.get()).sum();
        add(format!("{name}: total"), total, decimal(sum), Kind::Predicted, "the sum of the components");
    }
    let mut rng = Rng::from_seed(seed).fork(EXPERIMENT);
    for (load, (name, mean)) in
        [("cpu_idle", 768.0), ("cpu_read", 768.0), ("cpu_write", 756.0)].into_iter().enumerate()
    {
        let times: Vec<Nanos> = (0..READS).map(|_| register_read(&Parameters::NIQ, load, &mut rng)).collect();
        let source = "the published mean and deviation themselves";
        add(format!("pcie_4b_read {name}: mean"), mean, super::mean(&times), Kind::Calibrated, source);
    }
    report.add(READS * 3, rng.next_u64());
    Ok(report)
}
