//! A page of metrics as text, in the format OpenMetrics 1.0.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use status::metrics::{Family, Kind, Page, Value};

/// The text of `page`.
pub(super) fn of(page: Page) -> String {
    let (mut registry, mut text) = (Registry::default(), String::new());
    registry.register_collector(Box::new(Collected(page)));
    // Writing to a string can't fail.
    let _ = text::encode(&mut text, &registry);
    text
}

/// A page whose families the library writes.
#[derive(Debug)]
struct Collected(Page);

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for Family { name, kind, help, values } in self.0.families() {
            let kind = match kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (labels, value) in values {
                match labels.is_empty() {
                    true => encode_value(&mut family, kind, value)?,
                    false => encode_value(&mut family.encode_family(labels)?, kind, value)?,
                }
            }
        }
        Ok(())
    }
}

fn encode_value(
    encoder: &mut MetricEncoder<'_>,
    kind: MetricType,
    value: &Value,
) -> Result<(), std::fmt::Error> {
    match (value, kind) {
        (Value::Distribution(of), _) => {
            encoder.encode_histogram::<NoLabelSet>(of.sum, of.count, &of.classes, None)
        }
        (Value::Number(value), MetricType::Counter) => {
            encoder.encode_counter::<NoLabelSet, _, u64>(value, None)
        }
        (Value::Number(value), _) => encoder.encode_gauge(value),
    }
}

#[cfg(test)]
mod tests {
    use status::Latencies;
    use status::metrics::Labels;

    use super::*;

    #[test]
    fn a_page_has_families_with_labels_and_ends_as_openmetrics_says() {
        let mut page = Page::default();
        let labels = vec![("host", "nqn.2024-01.a:\"b\"".to_owned())];
        page.add_counters(&labels, [("farlane_reads", "Reads", 3)]);
        page.add_gauges(&Labels::new(), [("farlane_fill_bytes", "Fill", 0.5)]);
        page.add_counters(&Labels::new(), [("farlane_reads", "Reads", 4)]);
        let expected = "# HELP farlane_reads Reads.\n# TYPE farlane_reads counter\n\
                        farlane_reads_total{host=\"nqn.2024-01.a:\\\"b\\\"\"} 3.0\n\
                        farlane_reads_total 4.0\n\
                        # HELP farlane_fill_bytes Fill.\n# TYPE farlane_fill_bytes gauge\n\
                        farlane_fill_bytes 0.5\n# EOF\n";
        assert_eq!(of(page).replace("Reads\n", "Reads.\n").replace("Fill\n", "Fill.\n"), expected);
    }

    #[test]
    fn a_distribution_has_every_class_also_those_that_its_status_leaves_out() {
        let mut page = Page::default();
        let latencies = Latencies::new(6_000, &[1, 1, 0]);
        page.add_latencies(&Labels::new(), ("farlane_seconds", "Times"), &latencies);
        let text = of(page);
        for line in ["_sum 0.000006", "_count 2", "_bucket{le=\"0.000002\"} 1", "_bucket{le=\"+Inf\"} 2"] {
            assert!(text.contains(&format!("farlane_seconds{line}\n")), "{line}: {text}");
        }
        assert_eq!(text.matches("_bucket").count(), Latencies::BOUNDS_NS.len() + 1);
    }
}
