//! The results, as text and as JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use distribution::Distribution;
use engine::Nanos;
use live::client::Url;
use schemars::JsonSchema;
use serde::Serialize;

use super::filtered;
use crate::args::{MeasureArgs, names};
use crate::hops::Hops;
use crate::picture;
use crate::workload::rate;

/// The subject of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A configuration read, or a Property Get of a fabric.
    RoundTrip,
    Command {
        is_write: bool,
        bytes: u32,
        depth: u32,
    },
}

impl What {
    /// The operation, in a word for a table.
    pub(super) const fn operation(self) -> &'static str {
        match self {
            Self::RoundTrip => "round trip",
            Self::Command { is_write: false, .. } => "read",
            Self::Command { is_write: true, .. } => "write",
        }
    }
    /// Bytes of a command's data; 0 for a round trip.
    pub(super) const fn bytes(self) -> u32 {
        match self {
            Self::RoundTrip => 0,
            Self::Command { bytes, .. } => bytes,
        }
    }
    pub(super) const fn depth(self) -> u32 {
        match self {
            Self::RoundTrip => 1,
            Self::Command { depth, .. } => depth,
        }
    }
}

/// A number of bytes as people write it.
pub(super) fn size(bytes: u32) -> String {
    match bytes {
        0 => String::new(),
        bytes if bytes.is_multiple_of(1024) => format!("{} KiB", bytes / 1024),
        bytes => format!("{bytes} B"),
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RoundTrip => f.write_str("round trip"),
            Self::Command { bytes, depth: 1, .. } => {
                write!(f, "{} {}, idle", self.operation(), size(*bytes))
            }
            Self::Command { bytes, depth, .. } => {
                write!(f, "{} {}, {depth} at once", self.operation(), size(*bytes))
            }
        }
    }
}

/// The samples of one device at one point.
#[derive(Clone, Debug, Default)]
pub(super) struct Sampled {
    pub(super) latency: Distribution,
    pub(super) elapsed: Nanos,
    pub(super) bytes: u64,
}

/// A point, with the samples of each device.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) what: What,
    pub(super) samples: Vec<Sampled>,
}

/// A device that was measured.
#[derive(Clone, Debug)]
pub(super) struct Device {
    pub(super) url: Url,
    pub(super) name: String,
    /// Where the time of its reads goes, if there is a tunnel.
    pub(super) hops: Option<Hops>,
}

impl Device {
    fn printed(&self) -> PrintedDevice<'_> {
        let hops = self.hops.as_ref().map(|hops| {
            let times = hops.pictured().into_iter().zip(&hops.times);
            let times = times.map(|(hop, (_, ns))| PrintedHop { place: hop.place, name: hop.name, ns });
            PrintedHops { clock_error_ns: hops.clock_error.map(Nanos::get), of_read_4k: times.collect() }
        });
        PrintedDevice { url: self.url.to_string(), device: &self.name, hops }
    }
}

/// A measurement.
#[derive(Clone, Debug)]
pub(super) struct Report {
    /// The time when it ended, and its machine.
    pub(super) machine: Vec<(&'static str, String)>,
    /// The requested method, in words.
    pub(super) method: String,
    pub(super) devices: Vec<Device>,
    pub(super) points: Vec<Point>,
    /// The time that the measurement was expected to take at least.
    pub(super) expected: Nanos,
    pub(super) early: Early,
}

/// Latency of one device or several: each point of each device, and the hops of a tunnel.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Printed<'a> {
    /// The machine, and the time when the measurement ended.
    machine: BTreeMap<String, &'a str>,
    /// The method, in words.
    method: &'a str,
    /// Whether the measurement ended before its last point.
    interrupted: bool,
    /// The time that the measurement was expected to take at least.
    expected_s: f64,
    /// The points that were planned and not measured.
    missing: &'a [String],
    devices: Vec<PrintedDevice<'a>>,
    points: Vec<PrintedPoint<'a>>,
}

/// A device that was measured.
#[derive(Serialize, JsonSchema)]
struct PrintedDevice<'a> {
    url: String,
    /// The device's name for itself.
    device: &'a str,
    /// Where the time of its reads goes; none without a tunnel.
    hops: Option<PrintedHops<'a>>,
}

/// Where the time of reads of 4 KiB goes.
#[derive(Serialize, JsonSchema)]
struct PrintedHops<'a> {
    /// The largest error of the alignment of both ends' clocks; none if unknown.
    clock_error_ns: Option<u64>,
    of_read_4k: Vec<PrintedHop<'a>>,
}

/// A stretch of a read's time.
#[derive(Serialize, JsonSchema)]
struct PrintedHop<'a> {
    /// Where the time was spent: `near`, `tunnel` or `far`.
    place: Cow<'static, str>,
    name: Cow<'static, str>,
    ns: &'a Distribution,
}

/// The samples of one device at one point.
#[derive(Serialize, JsonSchema)]
struct PrintedPoint<'a> {
    url: String,
    /// `round trip`, `read` or `write`.
    operation: &'static str,
    /// Bytes of a command's data; 0 for a round trip.
    bytes: u32,
    /// Commands under way at once.
    depth: u32,
    elapsed_s: f64,
    /// Commands or round trips per second.
    rate: f64,
    latency_ns: &'a Distribution,
    /// The latencies within three standard deviations of the mean.
    filtered_ns: Distribution,
    /// The number of latencies that `filtered_ns` leaves out.
    left_out: u64,
}

/// The cost of an early end.
#[derive(Clone, Debug)]
pub(super) struct Early {
    /// Whether the measurement ended before its last point.
    pub(super) is_early: bool,
    /// The points that were planned and not measured.
    pub(super) missing: Vec<String>,
}

impl Early {
    /// A sentence about the missing points, if there are any.
    pub(super) fn sentence(&self) -> Option<String> {
        match (self.is_early, self.missing.is_empty()) {
            (false, true) => None,
            (true, true) => Some("The measurement was ended early.".to_owned()),
            (true, false) => {
                Some(format!("The measurement was ended early. Missing: {}.", self.missing.join("; ")))
            }
            (false, false) => Some(format!("Missing: {}.", self.missing.join("; "))),
        }
    }
}

/// The value of `key` in the file at `path`, whose form is that of `/proc/cpuinfo`.
fn proc(path: &str, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The words of the command line behind the program's name.
fn given() -> String {
    let words = names::given().into_iter().skip(1);
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

fn machine() -> Vec<(&'static str, String)> {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let model = proc("/proc/cpuinfo", "model name").unwrap_or_default();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
    vec![
        ("ended", humantime::format_rfc3339_seconds(SystemTime::now()).to_string()),
        ("version", format!("farlane {}", env!("CARGO_PKG_VERSION"))),
        ("kernel", kernel.trim().to_owned()),
        ("processors", format!("{processors} × {model}")),
        ("load average", load),
        ("command", given()),
    ]
}

impl Report {
    pub(super) fn new(
        args: &MeasureArgs,
        expected: Nanos,
        devices: Vec<Device>,
        points: Vec<Point>,
        early: Early,
    ) -> Self {
        let turns = if devices.len() > 1 { ", and the devices had turns of a second at most" } else { "" };
        let method = format!(
            "At least {} samples and {} for each point{turns}. Round trips are configuration reads (Property \
             Gets of a fabric). Commands go to random offsets, one at a time (idle) or {} at once. Latency runs \
             from the submission to the completion as the host's driver sees it. Filtered figures leave out values further from the mean than three standard deviations.",
            args.samples,
            Nanos::from(args.time),
            args.load
        );
        Self { machine: machine(), method, devices, points, expected, early }
    }

    /// Each point of each device.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&Device, What, &Sampled)> {
        self.points.iter().flat_map(|point| {
            self.devices.iter().zip(&point.samples).map(|(device, sampled)| (device, point.what, sampled))
        })
    }

    /// The report for machines.
    pub(super) fn printed<'a>(&'a self) -> Printed<'a> {
        let row = |(device, what, sampled): (&Device, What, &'a Sampled)| {
            let kept = filtered(&sampled.latency);
            PrintedPoint {
                url: device.url.to_string(),
                operation: what.operation(),
                bytes: what.bytes(),
                depth: what.depth(),
                elapsed_s: Duration::from(sampled.elapsed).as_secs_f64(),
                rate: rate(sampled.latency.count(), sampled.elapsed),
                left_out: sampled.latency.count() - kept.count(),
                latency_ns: &sampled.latency,
                filtered_ns: kept,
            }
        };
        Printed {
            machine: self
                .machine
                .iter()
                .map(|(key, value)| (key.replace(' ', "_"), value.as_str()))
                .collect(),
            method: &self.method,
            interrupted: self.early.is_early,
            expected_s: Duration::from(self.expected).as_secs_f64(),
            missing: &self.early.missing,
            devices: self.devices.iter().map(Device::printed).collect(),
            points: self.rows().map(row).collect(),
        }
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for device in &self.devices {
            text += &format!("{} ({})\n", device.url, device.name);
            text += &format!(
                "  {:26}{:>11}{:>12}{:>12}{:>12}{:>12}\n",
                "", "samples", "mean", "filtered", "median", "p99"
            );
            for (_, what, sampled) in self.rows().filter(|(other, ..)| std::ptr::eq(*other, device)) {
                let latency = &sampled.latency;
                let mean = |of: &Distribution| format!("{:.3} µs", of.mean() / 1e3);
                text += &format!(
                    "  {:26}{:>11}{:>12}{:>12}{:>12}{:>12}\n",
                    what.to_string(),
                    latency.count(),
                    mean(latency),
                    mean(&filtered(latency)),
                    latency.median().to_string(),
                    latency.quantile(0.99).to_string()
                );
            }
            if let Some(hops) = device.hops.as_ref().filter(|hops| !hops.times.is_empty()) {
                let error = hops.clock_error.map(|error| format!(", clocks aligned to +/- {error}"));
                text += &format!(
                    "\n  a 4 KiB read without lookahead (medians{}):\n\n{}",
                    error.unwrap_or_default(),
                    picture::draw(&hops.pictured())
                );
            }
            text += "\n";
        }
        if self.devices.len() == 2 {
            text += &self.difference();
        }
        text += &self.early.sentence().map(|sentence| sentence + "\n\n").unwrap_or_default();
        // A line for each sentence.
        text + &self.method.replace(". ", ".\n") + "\n"
    }

    /// The time that the second device takes beyond the first.
    fn difference(&self) -> String {
        let mut text = format!("{} beside {} (medians)\n", self.devices[1].url, self.devices[0].url);
        for point in &self.points {
            let [first, second] = [0, 1].map(|at| point.samples[at].latency.median().get());
            let more = second as f64 - first as f64;
            let ranks = point.samples[0].latency.ranks(&point.samples[1].latency);
            text += &format!(
                "  {:26}{:>+12.3} µs{:>8.2} ×   longer in {:.0} % of pairs\n",
                point.what.to_string(),
                more / 1e3,
                second as f64 / first.max(1) as f64,
                ranks.greater * 100.0
            );
        }
        text + "\n"
    }
}
