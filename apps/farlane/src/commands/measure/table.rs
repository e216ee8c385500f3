//! A row for each point of each device.

use distribution::Distribution;
use parquet::data_type::ByteArray;

use super::filtered;
use super::report::{Report, Sampled, What};
use crate::columns::{Column, to_parquet};

/// A column of numbers: its name and its value.
type Figure = (&'static str, fn(What, &Sampled, &Distribution) -> u64);

/// A mean or deviation in whole nanoseconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "latencies are positive, and short"
)]
fn whole(nanos: f64) -> u64 {
    nanos.round() as u64
}

const FIGURES: [Figure; 16] = [
    ("bytes", |what, _, _| what.bytes().into()),
    ("depth", |what, _, _| what.depth().into()),
    ("elapsed_ns", |_, sampled, _| sampled.elapsed.get()),
    ("samples", |_, sampled, _| sampled.latency.count()),
    ("mean_ns", |_, sampled, _| whole(sampled.latency.mean())),
    ("deviation_ns", |_, sampled, _| whole(sampled.latency.deviation())),
    ("min_ns", |_, sampled, _| sampled.latency.min().get()),
    ("p50_ns", |_, sampled, _| sampled.latency.median().get()),
    ("p90_ns", |_, sampled, _| sampled.latency.quantile(0.9).get()),
    ("p99_ns", |_, sampled, _| sampled.latency.quantile(0.99).get()),
    ("p999_ns", |_, sampled, _| sampled.latency.quantile(0.999).get()),
    ("max_ns", |_, sampled, _| sampled.latency.quantile(1.0).get()),
    ("filtered_samples", |_, _, kept| kept.count()),
    ("filtered_mean_ns", |_, _, kept| whole(kept.mean())),
    ("filtered_deviation_ns", |_, _, kept| whole(kept.deviation())),
    ("filtered_max_ns", |_, _, kept| kept.quantile(1.0).get()),
];

pub(super) fn csv(report: &Report) -> String {
    let mut text = format!("url,operation,{}\n", FIGURES.map(|(name, _)| name).join(","));
    for (device, what, sampled) in report.rows() {
        let kept = filtered(&sampled.latency);
        let figures = FIGURES.map(|(_, value)| value(what, sampled, &kept).to_string());
        // A URL may have commas between addresses.
        text += &format!("\"{}\",{},{}\n", device.url, what.operation(), figures.join(","));
    }
    text
}

pub(super) fn parquet(report: &Report) -> Result<Vec<u8>, String> {
    let words = |text: &str| ByteArray::from(text);
    let urls = report.rows().map(|(device, ..)| words(&device.url.to_string())).collect();
    let operations = report.rows().map(|(_, what, _)| words(what.operation())).collect();
    let mut columns = vec![Column::Words(urls), Column::Words(operations)];
    for (_, value) in FIGURES {
        let numbers = report.rows().map(|(_, what, sampled)| {
            i64::try_from(value(what, sampled, &filtered(&sampled.latency))).unwrap_or(i64::MAX)
        });
        columns.push(Column::Numbers(numbers.collect()));
    }
    let names = ["url", "operation"].into_iter().chain(FIGURES.map(|(name, _)| name));
    to_parquet("measure", &names.collect::<Vec<_>>(), &columns)
}
