//! The questions that pages ask, and their answers as JSON: docs/schemas/ui describes each.

pub(crate) mod commands;
mod decode;
pub(crate) mod frames;
pub(crate) mod histogram;
mod part;
pub(crate) mod query;
pub(crate) mod series;

use std::sync::Arc;

use captures::Times;
use distribution::Distribution;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use trace::Step;

use super::captures::{Capture, List};
use super::index::{Index, Kind};
use super::live::Live;
use super::simulator::Simulator;
use crate::commands::trace::{Compared, advice};
use part::Way;
use query::{Query, Refusal};

/// The most captures of one answer.
const SIDE_BY_SIDE: usize = 2;

/// Answers requests. It may be asked by many threads at once.
#[derive(Debug)]
pub(super) struct Api {
    captures: Arc<[Capture]>,
    simulator: Simulator,
    live: Live,
}

impl Api {
    pub(super) fn new(captures: Arc<[Capture]>, simulator: Simulator) -> Self {
        Self { captures, simulator, live: Live::default() }
    }

    /// Answers a request for `path`, without its first slash. `body` is there if something is to be
    /// done rather than shown.
    pub(super) fn answer(&self, path: &str, query: &str, body: Option<&[u8]>) -> Result<Value, Refusal> {
        let query = Query::parse(query);
        let parts: Vec<_> = path.split('/').collect();
        match (parts.as_slice(), body) {
            (["captures"], None) => {
                value(&List { captures: self.captures.iter().map(Capture::entry).collect() })
            }
            (["captures", number, rest @ ..], None) => self.of_capture(number, rest, &query),
            (["histogram"], None) => {
                let captures = self.side_by_side(&query)?;
                value(&histogram::of(&captures.iter().map(|one| &**one).collect::<Vec<_>>(), &query)?)
            }
            (["compare"], None) => self.compare(&query),
            (["scenarios"], None) => value(&self.simulator.list()),
            (["scenarios", number], Some(body)) => {
                value(&self.simulator.play(parse("scenario", number)?, body)?)
            }
            (["live"], None) => Ok(self.live.now()),
            _ => Err(Refusal::nothing("such page")),
        }
    }

    fn capture(&self, number: u64) -> Result<Arc<Index>, Refusal> {
        let found = usize::try_from(number).ok().and_then(|number| self.captures.get(number));
        found.ok_or_else(|| Refusal::nothing(&format!("capture {number}")))?.index()
    }

    fn of_capture(&self, number: &str, rest: &[&str], query: &Query) -> Result<Value, Refusal> {
        let index = self.capture(parse("capture", number)?)?;
        match *rest {
            ["kinds"] => value(&Kinds::of(&index, query)),
            ["series"] => value(&series::of(&index, query)?),
            ["commands"] => value(&commands::list(&index, query)?),
            ["commands", number] => value(&commands::one(&index, parse("command", number)?, query)?),
            ["frames"] => value(&frames::list(&index, query)?),
            ["frames", number] => value(&frames::one(&index, parse("frame", number)?, query)?),
            _ => Err(Refusal::nothing("such page")),
        }
    }

    /// The captures that `query` names as `of=0,1`; the first without that.
    fn side_by_side(&self, query: &Query) -> Result<Vec<Arc<Index>>, Refusal> {
        let all: Vec<_> = query.text("captures").unwrap_or("0").split(',').collect();
        if all.len() > SIDE_BY_SIDE {
            return Err(Refusal::value("captures", &all.join(","), "two numbers at most"));
        }
        all.into_iter().map(|number| self.capture(parse("capture", number)?)).collect()
    }

    fn compare(&self, query: &Query) -> Result<Value, Refusal> {
        let captures = self.side_by_side(query)?;
        let [first, second] = captures.as_slice() else {
            return Err(Refusal::value(
                "captures",
                query.text("captures").unwrap_or(""),
                "two numbers, such as 0,1",
            ));
        };
        let populations = [first, second].map(|one| one.populations(query.flag("three_sigma")));
        value(&Compared::of([&first.path, &second.path], populations.each_ref()))
    }
}

/// A number that is a part of a path.
fn parse(what: &str, text: &str) -> Result<u64, Refusal> {
    text.parse().map_err(|_| Refusal::value(what, text, "a whole number"))
}

/// The answer to a question as JSON.
fn value(answer: &impl Serialize) -> Result<Value, Refusal> {
    serde_json::to_value(answer).map_err(|_| Refusal::fault())
}

/// Where the time of each kind of command went. A share is of the time of all commands of the kind,
/// from 0 to 1.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Kinds<'a> {
    kinds: Vec<KindTimes<'a>>,
}

/// Where the time of a kind of command went.
#[derive(Serialize, JsonSchema)]
struct KindTimes<'a> {
    command: &'a str,
    count: u64,
    bytes: u64,
    latency_ns: Distribution,
    whole_ns: Distribution,
    steps: Vec<StepTimes>,
    /// The step that takes most of the time, in words.
    dominates: Option<String>,
}

/// A step of a kind of command.
#[derive(Serialize, JsonSchema)]
struct StepTimes {
    step: &'static str,
    way: Way,
    share: f64,
    packets: u64,
    ns: Distribution,
}

impl<'a> Kinds<'a> {
    fn of(index: &'a Index, query: &Query) -> Self {
        let filter = query.flag("three_sigma");
        Self { kinds: index.kinds.iter().map(|kind| KindTimes::of(kind, filter)).collect() }
    }
}

impl<'a> KindTimes<'a> {
    fn of(kind: &'a Kind, filter: bool) -> Self {
        let mut of = kind.population.clone();
        // Shares are of all time, with or without a filter.
        let shares: Vec<f64> = of.steps.keys().map(|step| of.share(*step)).collect();
        let dominates = advice(&of);
        if filter {
            of.filter();
        }
        let step = |((step, Times { times, packets }), share): ((Step, Times), f64)| StepTimes {
            step: step.name(),
            way: part::way(step),
            share,
            packets,
            ns: times,
        };
        Self {
            command: &kind.name,
            count: of.count,
            bytes: of.bytes,
            latency_ns: of.latency,
            whole_ns: of.whole,
            steps: of.steps.into_iter().zip(shares).map(step).collect(),
            dominates,
        }
    }
}
