//! The results of streams in the report of `farlane model sim`.

use engine::Nanos;
use network_models::network::Side;
use scenarios::file::scenario::StreamDone;
use scenarios::summary::{Summary, Waits};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The direction in which a stream crosses the link, as in a scenario's file.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Direction {
    There,
    Back,
}

impl Direction {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::There => "there",
            Self::Back => "back",
        }
    }
}

impl From<Side> for Direction {
    fn from(sender: Side) -> Self {
        match sender {
            Side::Near => Self::There,
            Side::Far => Self::Back,
        }
    }
}

/// The results of a stream.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Stream {
    stream: String,
    direction: Direction,
    /// The class of the frames.
    class: u8,
    sent: u64,
    received: u64,
    lost: u64,
    bytes: u64,
    bits_per_second: u64,
    mean_ns: u64,
    min_ns: u64,
    p50_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    max_ns: u64,
    hops: Vec<HopWaits>,
}

/// How long frames waited at a hop.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct HopWaits {
    name: String,
    wait_mean_ns: u64,
    wait_p50_ns: u64,
    wait_p99_ns: u64,
    wait_p999_ns: u64,
    wait_max_ns: u64,
}

pub(super) fn text(stream: &StreamDone) -> String {
    let of = Summary::of(&stream.done);
    let (name, class, direction) =
        (&stream.done.name, stream.class.number(), Direction::from(stream.from).word());
    let mut text = format!(
        "  stream {name}, class {class}, {direction}: {} sent, {} received, {} lost\n    \
         mean {}, median {}, p99 {}, p99.9 {}, longest {}\n    {} bytes at {} kbit/s\n",
        stream.sent,
        of.count,
        of.failed,
        of.mean,
        of.median,
        of.p99,
        of.p999,
        of.longest,
        of.bytes,
        of.rate / 1000
    );
    for (number, (hop, waits)) in (1..).zip(&stream.hops) {
        let of = Waits::of(waits);
        text += &format!(
            "    waits at hop {number} ({hop}): mean {}, median {}, p99 {}, p99.9 {}, longest {}\n",
            of.mean, of.median, of.p99, of.p999, of.longest
        );
    }
    text
}

impl Stream {
    pub(super) fn of(stream: &StreamDone) -> Self {
        let of = Summary::of(&stream.done);
        let hop = |(name, waits): &(String, Vec<Nanos>)| {
            let of = Waits::of(waits);
            HopWaits {
                name: name.clone(),
                wait_mean_ns: of.mean.get(),
                wait_p50_ns: of.median.get(),
                wait_p99_ns: of.p99.get(),
                wait_p999_ns: of.p999.get(),
                wait_max_ns: of.longest.get(),
            }
        };
        Self {
            stream: stream.done.name.clone(),
            direction: stream.from.into(),
            class: stream.class.number(),
            sent: stream.sent,
            received: of.count,
            lost: of.failed,
            bytes: of.bytes,
            bits_per_second: of.rate,
            mean_ns: of.mean.get(),
            min_ns: of.shortest.get(),
            p50_ns: of.median.get(),
            p99_ns: of.p99.get(),
            p999_ns: of.p999.get(),
            max_ns: of.longest.get(),
            hops: stream.hops.iter().map(hop).collect(),
        }
    }
}
