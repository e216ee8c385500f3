//! `farlane model explain SCENARIO`: the latency chain of an operation, hop by hop.

mod lanes;

use std::fmt::Write as _;

use engine::Nanos;
use scenarios::explain::{Explained, Way, explain};
use scenarios::test_bench::Segment;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::read_scenario;
use super::streams::Direction;
use crate::args::ExplainArgs;
use crate::commands::{print, print_json};
use crate::drawing::Form;
use crate::error::Error;
use crate::picture::{self, Hop};

/// Where the time of each operation goes.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Json {
    scenario: String,
    seed: u64,
    pub(crate) operations: Vec<Operation>,
}

/// Where the time of an operation goes.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Operation {
    task: String,
    /// The operation in words, such as `read of 4 KiB`.
    operation: String,
    /// The number of operations of the task.
    count: usize,
    /// The percentile of the operation among them.
    percentile: f64,
    /// The operation's number in its task, from 0.
    number: u64,
    latency_ns: u64,
    /// The stretches of the operation's time, in their order.
    segments: Vec<Stretch>,
    /// The time that was spent at each place.
    places: Vec<Spent>,
    /// The ways of replicated frames.
    ways: Vec<WayReport>,
}

/// A stretch of an operation's time.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Stretch {
    /// The packet under way; none before the first one.
    packet: Option<String>,
    place: String,
    /// The kind of time: waiting, processing and so on.
    part: String,
    /// The step in words.
    what: String,
    start_ns: u64,
    length_ns: u64,
    share_percent: f64,
}

/// The time that was spent at a place.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Spent {
    place: String,
    length_ns: u64,
    share_percent: f64,
}

/// A way of replicated frames.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct WayReport {
    direction: Direction,
    /// The number of the way.
    way: usize,
    /// The hops in the order in which frames pass them.
    hops: Vec<String>,
    /// The number of frames that arrived over this way first.
    won: usize,
    /// The number of frames that were replicated.
    of: usize,
}

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
        let operations = explained.iter().map(|one| Operation::of(one, args.percentile)).collect();
        return print_json(&Json { scenario: name, seed, operations });
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
        let _ =
            writeln!(text, "  {}, won {} of {}: {hops}", Direction::from(way.side).word(), way.won, way.of);
    }
    text
}

/// The names of the hops of `way`, in the order in which frames pass them.
fn hops_of<'a>(one: &'a Explained, way: &Way) -> Vec<&'a str> {
    way.hops.iter().map(|place| one.name(*place)).collect()
}

impl Operation {
    fn of(one: &Explained, thousandths: usize) -> Self {
        let latency = one.chain.latency;
        let spent = |(name, time): (&str, Nanos)| Spent {
            place: name.to_owned(),
            length_ns: time.get(),
            share_percent: percent(time, latency),
        };
        let way = |way: &Way| WayReport {
            direction: way.side.into(),
            way: way.way.number,
            hops: hops_of(one, way).into_iter().map(str::to_owned).collect(),
            won: way.won,
            of: way.of,
        };
        Self {
            task: one.task.clone(),
            operation: one.operation.clone(),
            count: one.count,
            percentile: f64::from(u32::try_from(thousandths).unwrap_or(0)) / 10.0,
            number: one.chain.number,
            latency_ns: latency.get(),
            segments: stretches(one),
            places: by_place(one).into_iter().map(spent).collect(),
            ways: one.ways.iter().map(way).collect(),
        }
    }
}

/// The stretches of an operation that took time, each with the packet under way.
fn stretches(one: &Explained) -> Vec<Stretch> {
    let mut packet = None;
    let mut stretches = Vec::new();
    for segment in &one.chain.segments {
        packet = segment.packet.map(|packet| packet.name()).or(packet);
        if segment.length > Nanos::ZERO {
            stretches.push(Stretch {
                packet: packet.clone(),
                place: one.name(segment.place).to_owned(),
                part: segment.part.name().to_owned(),
                what: segment.what.to_owned(),
                start_ns: segment.start.get(),
                length_ns: segment.length.get(),
                share_percent: percent(segment.length, one.chain.latency),
            });
        }
    }
    stretches
}

/// The share of `part` in `whole` in percent, to one decimal.
fn percent(part: Nanos, whole: Nanos) -> f64 {
    let thousandths = scenarios::explain::thousandths(part, whole);
    f64::from(u32::try_from(thousandths).unwrap_or(u32::MAX)) / 10.0
}
