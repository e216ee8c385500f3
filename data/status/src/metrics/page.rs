//! Families of metrics: their names and types, and their values by labels.

use crate::Latencies;

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A count that only grows as long as the process runs. Its name gets the suffix `_total`.
    Counter,
    /// A value that rises and falls.
    Gauge,
    /// A distribution of times.
    Histogram,
}

/// The labels that distinguish a value from others of its family.
pub type Labels = Vec<(&'static str, String)>;

/// One value of a family.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number.
    Number(f64),
    /// A distribution of times.
    Distribution(Distribution),
}

/// A distribution of times, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// All times added.
    pub sum: f64,
    /// The number of times.
    pub count: u64,
    /// Each class: its upper bound, which is infinite for the last one, and its number of times.
    pub classes: Vec<(f64, u64)>,
}

impl From<&Latencies> for Distribution {
    fn from(latencies: &Latencies) -> Self {
        let bounds = Latencies::BOUNDS_NS.into_iter().map(seconds).chain([f64::INFINITY]);
        let counts = latencies.counts.iter().copied().chain(std::iter::repeat(0));
        Self {
            sum: seconds(latencies.sum_ns),
            count: latencies.counts.iter().sum(),
            classes: bounds.zip(counts).collect(),
        }
    }
}

/// Values of one name, which labels distinguish.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// The name, which begins with `farlane_`.
    pub name: &'static str,
    /// The type.
    pub kind: Kind,
    /// A description in one sentence.
    pub help: &'static str,
    /// The values, each with its labels.
    pub values: Vec<(Labels, Value)>,
}

/// All metrics of a process at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    families: Vec<Family>,
}

impl Page {
    /// The families, in the order in which they were added.
    pub fn families(&self) -> &[Family] {
        &self.families
    }

    /// Adds one value to each family of `rows`: its kind, name and help, and the value.
    pub fn add(
        &mut self,
        labels: &Labels,
        rows: impl IntoIterator<Item = (Kind, &'static str, &'static str, f64)>,
    ) {
        for (kind, name, help, value) in rows {
            self.family(kind, name, help).values.push((labels.clone(), Value::Number(value)));
        }
    }

    /// Adds one count to each counter of `rows`: its name and help, and the count.
    pub fn add_counters(
        &mut self,
        labels: &Labels,
        rows: impl IntoIterator<Item = (&'static str, &'static str, u64)>,
    ) {
        self.add(
            labels,
            rows.into_iter().map(|(name, help, value)| (Kind::Counter, name, help, count(value))),
        );
    }

    /// Adds one value to each gauge of `rows`: its name and help, and the value.
    pub fn add_gauges(
        &mut self,
        labels: &Labels,
        rows: impl IntoIterator<Item = (&'static str, &'static str, f64)>,
    ) {
        self.add(labels, rows.into_iter().map(|(name, help, value)| (Kind::Gauge, name, help, value)));
    }

    /// Adds a distribution of times.
    pub fn add_latencies(
        &mut self,
        labels: &Labels,
        (name, help): (&'static str, &'static str),
        latencies: &Latencies,
    ) {
        let value = Value::Distribution(latencies.into());
        self.family(Kind::Histogram, name, help).values.push((labels.clone(), value));
    }

    /// The family called `name`, which is begun if the page has none.
    fn family(&mut self, kind: Kind, name: &'static str, help: &'static str) -> &mut Family {
        let known = self.families.iter().position(|family| family.name == name);
        let index = known.unwrap_or_else(|| {
            self.families.push(Family { name, kind, help, values: Vec::new() });
            self.families.len() - 1
        });
        &mut self.families[index]
    }
}

/// A count as a value.
pub(super) const fn count(count: u64) -> f64 {
    count as f64
}

/// A length of time in seconds, the unit of all times in OpenMetrics.
pub(super) const fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// 1 for yes and 0 for no.
pub(super) fn flag(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}
