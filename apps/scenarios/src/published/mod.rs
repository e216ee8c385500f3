//! Published experiments, repeated: each of our figures stands beside the published one.
//!
//! One set of physical parameters serves every row. A row is *calibrated* if a parameter was chosen
//! to match the row, and *predicted* otherwise. A row without a published figure is a prediction
//! that others may check.

mod niq;
mod nvme_5g;
mod nvme_tsn;
mod nvmf;
mod streamer;

use engine::Nanos;

pub use nvme_5g::{Reads, register_reads_over_5g};
pub(crate) use nvme_tsn::PIPELINE;

/// Whether a row was used to choose parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A parameter was chosen to match the row.
    Calibrated,
    /// No parameter was chosen to match the row.
    Predicted,
}

impl Kind {
    /// The name of the kind, as it is printed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Calibrated => "calibrated",
            Self::Predicted => "predicted",
        }
    }
}

/// One figure of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The name of the experiment.
    pub experiment: &'static str,
    /// The measured quantity.
    pub row: String,
    /// The published figure, if there is one.
    pub published: Option<f64>,
    /// The figure that the simulation gives.
    pub ours: f64,
    /// The unit of both figures.
    pub unit: &'static str,
    /// Whether the row was used to choose parameters.
    pub kind: Kind,
    /// Where the parameters behind the row come from.
    pub source: &'static str,
}

impl Row {
    /// The difference between our figure and the published one, in percent of the published one;
    /// `None` if nothing or zero was published.
    pub fn error_percent(&self) -> Option<f64> {
        self.published
            .filter(|published| *published != 0.0)
            .map(|published| (self.ours - published) / published * 100.0)
    }
}

/// An experiment's rows, and the amount of simulation behind them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The rows of the experiment, in order.
    pub rows: Vec<Row>,
    /// Number of events in all worlds of the experiment.
    pub events: u64,
    /// A fingerprint of all that happened in these worlds.
    pub digest: u64,
    /// The parameters that were fitted to rows, where each is named.
    pub fitted: &'static [&'static str],
}

impl Report {
    /// Adds the events and the fingerprint of one more world.
    fn add(&mut self, events: u64, digest: u64) {
        self.events += events;
        self.digest = self.digest.rotate_left(7) ^ digest;
    }
}

/// The names of the experiments, each with a description.
pub const EXPERIMENTS: [(&str, &str); 5] = [
    ("nvme-tsn", "an SSD behind a distributed PCIe switch over 1 Gigabit Ethernet, without and with TSN"),
    ("nvme-5g", "the same switch over two 5G modems, and over USB gigabit adapters for reference"),
    ("nvmf", "NVMe over Fabrics over InfiniBand, to memory, with interrupts and polled"),
    ("niq", "a low-latency network card, packets inline and by DMA"),
    ("streamer", "recording to a Samsung 960 EVO 250 GB, by the chunks of a session, and a full disk"),
];

/// Repeats the experiment `name`; everything random follows from `seed`.
///
/// # Errors
/// When there is no such experiment, or part of it does not come up.
pub fn run(name: &str, seed: u64) -> Result<Report, String> {
    match name {
        "nvme-tsn" => nvme_tsn::run(seed),
        "nvme-5g" => nvme_5g::run(seed),
        "nvmf" => nvmf::run(seed),
        "niq" => niq::run(seed),
        "streamer" => streamer::run(seed),
        _ => {
            let known: Vec<_> = EXPERIMENTS.iter().map(|(name, _)| *name).collect();
            Err(format!("there is no experiment called {name:?}; there are {}", known.join(", ")))
        }
    }
}

/// The mean of `times` in nanoseconds.
fn mean(times: &[Nanos]) -> f64 {
    let sum: u64 = times.iter().map(|time| time.get()).sum();
    decimal(sum) / decimal(times.len() as u64)
}

#[expect(clippy::cast_precision_loss, reason = "sums of nanoseconds stay far below 2^53")]
const fn decimal(value: u64) -> f64 {
    value as f64
}
