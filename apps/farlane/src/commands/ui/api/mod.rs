//! The questions that pages ask, and their answers as JSON: docs/schemas/ui describes each.

mod commands;
mod decode;
mod frames;
mod histogram;
mod part;
pub(super) mod query;
mod series;

use std::sync::Arc;

use captures::Times;
use serde_json::{Value, json};

use super::captures::Capture;
use super::index::{Index, Kind};
use super::live::Live;
use super::simulator::Simulator;
use crate::commands::trace::{advice, compared};
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
            (["captures"], None) => Ok(json!({ "captures":
                self.captures.iter().map(Capture::as_json).collect::<Vec<_>>() })),
            (["captures", number, rest @ ..], None) => self.of_capture(number, rest, &query),
            (["histogram"], None) => {
                let captures = self.side_by_side(&query)?;
                histogram::of(&captures.iter().map(|one| &**one).collect::<Vec<_>>(), &query)
            }
            (["compare"], None) => self.compare(&query),
            (["scenarios"], None) => Ok(self.simulator.list()),
            (["scenarios", number], Some(body)) => self.simulator.play(parse("scenario", number)?, body),
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
            ["kinds"] => Ok(kinds(&index, query)),
            ["series"] => series::of(&index, query),
            ["commands"] => commands::list(&index, query),
            ["commands", number] => commands::one(&index, parse("command", number)?, query),
            ["frames"] => frames::list(&index, query),
            ["frames", number] => frames::one(&index, parse("frame", number)?, query),
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
        let rows = compared(populations.each_ref());
        Ok(json!({ "first": first.path, "second": second.path, "rows": rows }))
    }
}

/// A number that is a part of a path.
fn parse(what: &str, text: &str) -> Result<u64, Refusal> {
    text.parse().map_err(|_| Refusal::value(what, text, "a whole number"))
}

/// Where the time of each kind of command went.
fn kinds(index: &Index, query: &Query) -> Value {
    let filter = query.flag("three_sigma");
    let one = |kind: &Kind| {
        let mut of = kind.population.clone();
        // Shares are of all time, with or without a filter.
        let shares: Vec<f64> = of.steps.keys().map(|step| of.share(*step)).collect();
        let dominates = advice(&of);
        if filter {
            of.filter();
        }
        let steps = of.steps.iter().zip(shares).map(|((step, Times { times, packets }), share)| {
            json!({ "step": step.name(), "way": part::way(*step), "share": share, "packets": packets, "ns": times })
        });
        json!({ "command": kind.name, "count": of.count, "bytes": of.bytes, "latency_ns": of.latency,
            "whole_ns": of.whole, "steps": steps.collect::<Vec<_>>(), "dominates": dominates })
    };
    json!({ "kinds": index.kinds.iter().map(one).collect::<Vec<_>>() })
}
