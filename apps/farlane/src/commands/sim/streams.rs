//! The results of streams in the report of `farlane model sim`.

use engine::Nanos;
use network_models::network::Side;
use scenarios::file::scenario::StreamDone;
use scenarios::summary::{Summary, Waits};
use serde_json::{Value, json};

/// The direction in which a stream crosses the link, as in a scenario's file.
const fn direction(stream: &StreamDone) -> &'static str {
    match stream.from {
        Side::Near => "there",
        Side::Far => "back",
    }
}

pub(super) fn text(stream: &StreamDone) -> String {
    let of = Summary::of(&stream.done);
    let (name, class, direction) = (&stream.done.name, stream.class.number(), direction(stream));
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

pub(super) fn to_json(stream: &StreamDone) -> Value {
    let of = Summary::of(&stream.done);
    let hop = |(name, waits): &(String, Vec<Nanos>)| {
        let of = Waits::of(waits);
        json!({
            "name": name,
            "wait_mean_ns": of.mean.get(),
            "wait_p50_ns": of.median.get(),
            "wait_p99_ns": of.p99.get(),
            "wait_p999_ns": of.p999.get(),
            "wait_max_ns": of.longest.get(),
        })
    };
    json!({
        "stream": stream.done.name,
        "direction": direction(stream),
        "class": stream.class.number(),
        "sent": stream.sent,
        "received": of.count,
        "lost": of.failed,
        "bytes": of.bytes,
        "bits_per_second": of.rate,
        "mean_ns": of.mean.get(),
        "min_ns": of.shortest.get(),
        "p50_ns": of.median.get(),
        "p99_ns": of.p99.get(),
        "p999_ns": of.p999.get(),
        "max_ns": of.longest.get(),
        "hops": stream.hops.iter().map(hop).collect::<Vec<_>>(),
    })
}
