//! `farlane model explain SCENARIO`: the latency chain of an operation, hop by hop.

mod lanes;

use std::fmt::Write as _;

use engine::Nanos;
use network_models::network::Side;
use scenarios::explain::{Explained, Way, explain};
use scenarios::test_bench::Segment;
use serde_json::{Value, json};

use super::read_scenario;
use crate::args::ExplainArgs;
use crate::commands::{print, print_json};
use crate::drawing::Form;
use crate::error::Error;
use crate::picture::{self, Hop};

pub(crate) fn run(args: &ExplainArgs) -> Result<(), Error> {
    let name = args.scenario.display().to_string();
    let wrong = |error| Error::Simulation(format!("{name}: {error}"));
    args.plot.iter().try_for_each(|path| Form::of(path).map(|_| ()))?;
    let scenario = read_scenario(&args.scenario)?;
    let seed = args.seed.unwrap_or(scenario.seed);
    let explained = explain(&scenario, seed, args.percentile).map_err(wrong)?;
    let which = which(args.percentile);
    let drawing = lanes::draw(&explained, &which);
    args.plot.iter().try_for_each(|path| drawing.write(path))?;
    if args.output.json {
        let operations: Vec<_> = explained.iter().map(|one| operation_json(one, args.percentile)).collect();
        return print_json(&json!({ "scenario": name, "seed": seed, "operations": operations }));
    }
    let mut text = format!("{name}, seed {seed}\n");
    for one in &explained {
        text += &operation_text(one, &which);
    }
    print(&text)
}

/// Which operation is explained, in words.
fn which(thousandths: usize) -> String {
    match (thousandths, thousandths / 10, thousandths % 10) {
        (0, ..) => "fastest".into(),
        (500, ..) => "median".into(),
        (1000, ..) => "slowest".into(),
        (_, percent, 0) => format!("{percent} % point"),
        (_, percent, tenth) => format!("{percent}.{tenth} % point"),
    }
}

/// The stretches that took time, each under the name of the packet that it begins with or follows.
fn legs(one: &Explained) -> Vec<(String, Vec<&Segment>)> {
    let mut legs: Vec<(String, Vec<&Segment>)> = Vec::new();
    for segment in &one.chain.segments {
        if let Some(packet) = &segment.packet {
            legs.push((packet.name(), Vec::new()));
        } else if legs.is_empty() {
            legs.push(("before it".into(), Vec::new()));
        }
        if let Some((_, leg)) = legs.last_mut().filter(|_| segment.length > Nanos::ZERO) {
            leg.push(segment);
        }
    }
    legs.retain(|(_, segments)| !segments.is_empty());
    legs
}

fn what(segment: &Segment) -> String {
    match segment.what {
        "" => segment.part.name().to_owned(),
        what => format!("{}: {what}", segment.part.name()),
    }
}

/// The time that was spent at each place, without places that took none.
fn by_place(one: &Explained) -> Vec<(&str, Nanos)> {
    let spent = |place| {
        let of = one.chain.segments.iter().filter(|segment| segment.place == place);
        of.fold(Nanos::ZERO, |sum, segment| sum + segment.length)
    };
    let all = one.places.iter().map(|(place, name)| (name.as_str(), spent(*place)));
    all.chain([("other operations", spent(scenarios::test_bench::Place::Others))])
        .filter(|(_, time)| *time > Nanos::ZERO)
        .collect()
}

fn operation_text(one: &Explained, which: &str) -> String {
    let mut text =
        format!("\n{}: {}, the {which} of {}: {}\n", one.task, one.operation, one.count, one.chain.latency);
    let hop = |segment: &&Segment| Hop {
        place: one.name(segment.place).to_owned().into(),
        name: what(segment).into(),
        length: segment.length,
    };
    let legs: Vec<_> = legs(one)
        .into_iter()
        .map(|(packet, leg)| (packet, leg.iter().map(hop).collect::<Vec<_>>()))
        .collect();
    text += &picture::draw_legs(&legs);
    text += "\n  by place\n";
    let places = by_place(one);
    let sum = |(name, time): &(&str, Nanos)| Hop {
        place: (*name).to_owned().into(),
        name: "".into(),
        length: *time,
    };
    text += &picture::draw(&places.iter().map(sum).collect::<Vec<_>>());
    if !one.ways.is_empty() {
        text += "\n  ways of replicated frames\n";
    }
    for way in &one.ways {
        let hops = hops_of(one, way).join(" > ");
        let _ = writeln!(text, "  {}, won {} of {}: {hops}", direction(way.side), way.won, way.of);
    }
    text
}

/// The direction of the frames that `side` sends, as in the names of hops.
const fn direction(side: Side) -> &'static str {
    match side {
        Side::Near => "there",
        Side::Far => "back",
    }
}

/// The names of the hops of `way`, in the order in which frames pass them.
fn hops_of<'a>(one: &'a Explained, way: &Way) -> Vec<&'a str> {
    way.hops.iter().map(|place| one.name(*place)).collect()
}

fn operation_json(one: &Explained, thousandths: usize) -> Value {
    let mut packet = None;
    let segments: Vec<_> = one
        .chain
        .segments
        .iter()
        .filter_map(|segment| {
            packet = segment.packet.map(|packet| packet.name()).or(packet.take());
            (segment.length > Nanos::ZERO).then(|| {
                json!({
                    "packet": packet,
                    "place": one.name(segment.place),
                    "part": segment.part.name(),
                    "what": segment.what,
                    "start_ns": segment.start.get(),
                    "length_ns": segment.length.get(),
                    "share_percent": percent(segment.length, one.chain.latency),
                })
            })
        })
        .collect();
    let places: Vec<_> = by_place(one)
        .into_iter()
        .map(|(name, time)| {
            json!({ "place": name, "length_ns": time.get(), "share_percent": percent(time, one.chain.latency) })
        })
        .collect();
    let ways: Vec<_> = one
        .ways
        .iter()
        .map(|way| {
            json!({
                "direction": direction(way.side),
                "way": way.way.number,
                "hops": hops_of(one, way),
                "won": way.won,
                "of": way.of,
            })
        })
        .collect();
    json!({
        "task": one.task,
        "operation": one.operation,
        "count": one.count,
        "percentile": f64::from(u32::try_from(thousandths).unwrap_or(0)) / 10.0,
        "number": one.chain.number,
        "latency_ns": one.chain.latency.get(),
        "segments": segments,
        "places": places,
        "ways": ways,
    })
}

/// The share of `part` in `whole` in percent, to one decimal.
fn percent(part: Nanos, whole: Nanos) -> f64 {
    let thousandths = scenarios::explain::thousandths(part, whole);
    f64::from(u32::try_from(thousandths).unwrap_or(u32::MAX)) / 10.0
}
