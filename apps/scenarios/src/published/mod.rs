//! Published experiments, repeated: each of our figures stands beside the published one.
//!
//! One set of physical parameters serves every row ([`constants`]). The class of a row follows from
//! the rows that constants were taken from, not from the result: see [`Class`]. A row without a
//! published figure is a prediction that others may check. [`score`] sums the classes up.

mod class;
pub mod constants;
mod niq;
mod nvme_5g;
mod nvme_tsn;
mod nvmf;
pub mod score;
mod streamer;

use engine::Nanos;

pub use class::Class;
use constants::Constants;
pub use nvme_5g::{Reads, register_reads_over_5g};
pub(crate) use nvme_tsn::PIPELINE;

/// The kind of quantity that a row compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// One step, or a part of a time line.
    Phase,
    /// A whole operation from end to end, a rate, or a distribution's parameter.
    Total,
    /// The part of a total that the network adds: the time through the tunnel less the direct one.
    Added,
    /// The published figure is an upper bound.
    Bound,
    /// Yes is 1, no is 0.
    Verdict,
}

impl Measure {
    /// All measures.
    pub const ALL: [Self; 5] = [Self::Phase, Self::Total, Self::Added, Self::Bound, Self::Verdict];

    /// The name of the measure, as it is printed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Phase => "phase",
            Self::Total => "total",
            Self::Added => "added",
            Self::Bound => "bound",
            Self::Verdict => "verdict",
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
    /// The kind of quantity.
    pub measure: Measure,
    /// The rows of the same experiment that the published figure is the sum or the difference of.
    pub follows: Vec<String>,
    /// Where the parameters behind the row come from.
    pub source: &'static str,
}

impl Row {
    /// The difference between our figure and the published one, in percent of the published one;
    /// `None` if nothing or zero was published, or if a bound was.
    pub fn error_percent(&self) -> Option<f64> {
        self.published
            .filter(|published| *published != 0.0 && self.measure != Measure::Bound)
            .map(|published| (self.ours - published) / published * 100.0)
    }

    /// Whether a bound or a verdict comes out as published; `None` for other measures, or if
    /// nothing was published.
    pub fn agrees(&self) -> Option<bool> {
        let published = self.published?;
        match self.measure {
            Measure::Bound => Some(self.ours < published),
            Measure::Verdict => Some((self.ours - published).abs() < 0.5),
            Measure::Phase | Measure::Total | Measure::Added => None,
        }
    }

    /// The class of the row.
    pub fn class(&self) -> Class {
        Class::of(self)
    }

    /// The row, with a figure that is the sum or the difference of the figures of other rows.
    fn following<'a>(mut self, rows: impl IntoIterator<Item = &'a str>) -> Self {
        self.follows = rows.into_iter().map(str::to_owned).collect();
        self
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

/// The number of operations that an experiment measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// As many as were published.
    Full,
    /// A twentieth, to compare runs with each other.
    Quick,
}

impl Effort {
    /// How many of `count` operations are measured.
    const fn of(self, count: u64) -> u64 {
        match self {
            Self::Full => count,
            Self::Quick => count.div_ceil(20),
        }
    }
}

/// Repeats the experiment `name`; everything random follows from `seed`.
///
/// # Errors
/// When there is no such experiment, or part of it does not come up.
pub fn run(name: &str, seed: u64) -> Result<Report, String> {
    run_with(name, seed, &Constants::default(), Effort::Full)
}

/// Repeats the experiment `name` with other values of its constants.
///
/// # Errors
/// As [`run`].
pub fn run_with(name: &str, seed: u64, constants: &Constants, effort: Effort) -> Result<Report, String> {
    match name {
        "nvme-tsn" => nvme_tsn::run(seed, constants, effort),
        "nvme-5g" => nvme_5g::run(seed, constants, effort),
        "nvmf" => nvmf::run(seed, constants, effort),
        "niq" => niq::run(seed, constants, effort),
        "streamer" => streamer::run(seed, constants, effort),
        _ => known(&[name]).map(|()| Report::default()),
    }
}

/// Checks that there are experiments with these names.
///
/// # Errors
/// The first name that no experiment has, and the names that there are.
pub fn known(names: &[&str]) -> Result<(), String> {
    let known = EXPERIMENTS.map(|(name, _)| name);
    match names.iter().find(|name| !known.contains(name)) {
        None => Ok(()),
        Some(name) => Err(format!("there is no experiment called {name:?}; there are {}", known.join(", "))),
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
