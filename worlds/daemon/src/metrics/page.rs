//! The answer to one request: families of figures, in the format OpenMetrics 1.0.

use engine::Nanos;
use nvme::subsystem::{LATENCY_BOUNDS, Latencies};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

/// A length of time in seconds, the unit of all times in OpenMetrics.
pub const fn seconds(length: Nanos) -> f64 {
    length.get() as f64 / 1e9
}

/// The type of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A count that only grows as long as the process runs. Its name gets the suffix `_total`.
    Counter,
    /// A value that rises and falls.
    Gauge,
    /// A distribution of times.
    Histogram,
}

#[derive(Clone, Debug)]
enum Value {
    Number(f64),
    Latencies(Box<Latencies>),
}

/// The labels that distinguish a figure from others of its family.
pub type Labels = Vec<(&'static str, String)>;

/// Figures of one name, which labels distinguish.
#[derive(Debug)]
pub struct Family {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    figures: Vec<(Labels, Value)>,
}

impl Family {
    /// Adds a figure.
    pub fn add(&mut self, labels: &Labels, value: f64) {
        self.figures.push((labels.clone(), Value::Number(value)));
    }

    /// Adds a distribution of times.
    pub fn add_latencies(&mut self, labels: &Labels, latencies: &Latencies) {
        self.figures.push((labels.clone(), Value::Latencies(Box::new(*latencies))));
    }
}

/// All that one request is answered with.
#[derive(Debug, Default)]
pub struct Page {
    families: Vec<Family>,
}

impl Page {
    /// The family called `name`, which is begun if the page has none.
    pub fn family(&mut self, kind: Kind, name: &'static str, help: &'static str) -> &mut Family {
        let known = self.families.iter().position(|family| family.name == name);
        let index = known.unwrap_or_else(|| {
            self.families.push(Family { name, kind, help, figures: Vec::new() });
            self.families.len() - 1
        });
        &mut self.families[index]
    }

    /// Adds one figure for each row: its kind, name, help and value.
    pub fn add_rows(
        &mut self,
        labels: &Labels,
        rows: impl IntoIterator<Item = (Kind, &'static str, &'static str, f64)>,
    ) {
        for (kind, name, help, value) in rows {
            self.family(kind, name, help).add(labels, value);
        }
    }

    /// The page as the text of an answer.
    pub(super) fn text(self) -> String {
        let (mut registry, mut page) = (Registry::default(), String::new());
        registry.register_collector(Box::new(self));
        // Writing to a string can't fail.
        let _ = text::encode(&mut page, &registry);
        page
    }
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for Family { name, kind, help, figures } in &self.families {
            let kind = match kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (labels, value) in figures {
                match labels.is_empty() {
                    true => encode_figure(&mut family, kind, value)?,
                    false => encode_figure(&mut family.encode_family(labels)?, kind, value)?,
                }
            }
        }
        Ok(())
    }
}

fn encode_figure(
    encoder: &mut MetricEncoder<'_>,
    kind: MetricType,
    value: &Value,
) -> Result<(), std::fmt::Error> {
    match (value, kind) {
        (Value::Latencies(latencies), _) => {
            let bounds = LATENCY_BOUNDS.iter().map(|bound| seconds(*bound)).chain([f64::INFINITY]);
            let classes: Vec<_> = bounds.zip(*latencies.counts()).collect();
            let count = latencies.counts().iter().sum();
            encoder.encode_histogram::<NoLabelSet>(seconds(latencies.sum()), count, &classes, None)
        }
        (Value::Number(value), MetricType::Counter) => {
            encoder.encode_counter::<NoLabelSet, _, u64>(value, None)
        }
        (Value::Number(value), _) => encoder.encode_gauge(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_families_with_labels_and_ends_as_openmetrics_says() {
        let mut page = Page::default();
        let labels = vec![("host", "nqn.2024-01.a:\"b\"".to_owned())];
        page.family(Kind::Counter, "farlane_reads", "Reads").add(&labels, 3.0);
        page.family(Kind::Gauge, "farlane_fill_bytes", "Fill").add(&Labels::new(), 0.5);
        page.family(Kind::Counter, "farlane_reads", "Reads").add(&Labels::new(), 4.0);
        let expected = "# HELP farlane_reads Reads.\n# TYPE farlane_reads counter\n\
                        farlane_reads_total{host=\"nqn.2024-01.a:\\\"b\\\"\"} 3.0\n\
                        farlane_reads_total 4.0\n\
                        # HELP farlane_fill_bytes Fill.\n# TYPE farlane_fill_bytes gauge\n\
                        farlane_fill_bytes 0.5\n# EOF\n";
        assert_eq!(page.text().replace("Reads\n", "Reads.\n").replace("Fill\n", "Fill.\n"), expected);
    }
}
