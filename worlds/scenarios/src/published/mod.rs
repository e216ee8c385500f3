//! Published experiments, done again: value beside value.
//!
//! One set of physical parameters serves every row. A row is *calibrated* where a parameter was chosen so that the
//! row comes out, and *predicted* where nothing was. A row without a published figure is a prediction that somebody
//! else may check.

mod niq;
mod nvme_5g;
mod nvme_tsn;

use engine::Nanos;

pub use nvme_5g::{Reads, register_reads_over_5g};
pub(crate) use nvme_tsn::PIPELINE;

/// Whether a row had a say in the parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A parameter comes from it.
    Calibrated,
    /// None does.
    Predicted,
}

impl Kind {
    /// As it is printed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Calibrated => "calibrated",
            Self::Predicted => "predicted",
        }
    }
}

/// One figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The experiment.
    pub experiment: &'static str,
    /// What it is of.
    pub row: String,
    /// What was published, where something was.
    pub published: Option<f64>,
    /// What comes out here.
    pub ours: f64,
    /// Of both.
    pub unit: &'static str,
    /// Whether it had a say in the parameters.
    pub kind: Kind,
    /// Where the parameters behind it come from.
    pub source: &'static str,
}

impl Row {
    /// How far ours is from what was published, in percent of that; where something was that is not zero.
    pub fn error_percent(&self) -> Option<f64> {
        self.published
            .filter(|published| *published != 0.0)
            .map(|published| (self.ours - published) / published * 100.0)
    }
}

/// An experiment's rows, and how much work they were.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The rows, in order.
    pub rows: Vec<Row>,
    /// Events of all its worlds.
    pub events: u64,
    /// A fingerprint of all that happened in them.
    pub digest: u64,
}

impl Report {
    /// Adds what one more world did.
    fn add(&mut self, events: u64, digest: u64) {
        self.events += events;
        self.digest = self.digest.rotate_left(7) ^ digest;
    }
}

/// The experiments by name, with what each is.
pub const EXPERIMENTS: [(&str, &str); 3] = [
    ("nvme-tsn", "an SSD behind a distributed PCIe switch over 1 Gigabit Ethernet, without and with TSN"),
    ("nvme-5g", "the same switch over two 5G modems, and over USB gigabit adapters for reference"),
    ("niq", "a low-latency network card, packets inline and by DMA"),
];

/// Does an experiment again, with `seed` deciding what is random in it.
///
/// # Errors
/// When there is no such experiment, or something in it does not come up.
pub fn run(name: &str, seed: u64) -> Result<Report, String> {
    match name {
        "nvme-tsn" => nvme_tsn::run(seed),
        "nvme-5g" => nvme_5g::run(seed),
        "niq" => niq::run(seed),
        _ => {
            let known: Vec<_> = EXPERIMENTS.iter().map(|(name, _)| *name).collect();
            Err(format!("there is no experiment called {name:?}; there are {}", known.join(", ")))
        }
    }
}

/// The mean in nanoseconds.
fn mean(times: &[Nanos]) -> f64 {
    let sum: u64 = times.iter().map(|time| time.get()).sum();
    decimal(sum) / decimal(times.len() as u64)
}

#[expect(clippy::cast_precision_loss, reason = "sums of nanoseconds stay far below 2^53")]
const fn decimal(value: u64) -> f64 {
    value as f64
}
