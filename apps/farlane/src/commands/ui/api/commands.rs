//! The list of a capture's commands, a page at a time, and one command with its packets.

use engine::{Instant, Nanos};
use schemars::JsonSchema;
use serde::Serialize;
use trace::Hop;

use super::frames::{self, Wanted};
use super::part::{Part, Way, way};
use super::query::{Query, Refusal};
use crate::commands::ui::index::{Index, Key, Row};

/// The most rows of an answer.
const PAGE_MAX: u64 = 1000;
/// The most packets of a command that are shown at once.
pub(super) const MEMBERS_MAX: u64 = 512;

/// A page of the list of commands.
#[derive(Serialize, JsonSchema)]
pub(crate) struct List {
    /// The number of all commands.
    commands: usize,
    /// The number of wanted commands.
    matched: u64,
    /// The number of wanted commands before this page.
    offset: u64,
    rows: Vec<Line>,
}

/// A command in a line.
#[derive(Serialize, JsonSchema)]
struct Line {
    /// Counts from 1, as `trace chain --command` does.
    number: usize,
    begun_ns: u64,
    command: String,
    /// The number of the kind.
    kind: u16,
    queue: Option<u32>,
    id: Option<u32>,
    nsid: Option<u32>,
    lba: Option<u64>,
    blocks: Option<u32>,
    bytes: u64,
    packets: u32,
    /// The status of the completion.
    status: Option<u32>,
    failed: bool,
    /// The time until the completion.
    latency_ns: u64,
    /// The time until the last packet.
    whole_ns: u64,
}

/// One command, its steps, and its packets. The times of its steps add up to the whole; first and
/// last count from its beginning.
#[derive(Serialize, JsonSchema)]
pub(crate) struct One {
    #[serde(flatten)]
    line: Line,
    steps: Vec<Passed>,
    frames: Vec<frames::Line>,
    /// The number of frames before the first one of `frames`.
    frames_from: u64,
    /// The number of known frames.
    frames_known: usize,
}

/// A step of a command.
#[derive(Serialize, JsonSchema)]
struct Passed {
    step: &'static str,
    way: Way,
    /// The time since the end of the step before.
    ns: u64,
    first_ns: u64,
    last_ns: u64,
    packets: u32,
}

/// Which commands are wanted.
struct Filter {
    kind: Option<u64>,
    queue: Option<u64>,
    /// The block that it reads or writes.
    lba: Option<u64>,
    /// The least and the largest latency in nanoseconds.
    latency: (u64, u64),
    /// Between which times it begins.
    begun: (Instant, Instant),
    failed: bool,
}

impl Filter {
    fn of(index: &Index, query: &Query) -> Result<Self, Refusal> {
        let all = 0..=u64::MAX;
        let begun = |name, default| -> Result<Instant, Refusal> {
            let after = query.number(name, 0..=u64::MAX)?;
            Ok(after
                .map_or(default, |after| Instant::from_nanos(index.first.as_nanos().saturating_add(after))))
        };
        Ok(Self {
            kind: query.number("kind", all.clone())?,
            queue: query.number("queue", all.clone())?,
            lba: query.number("lba", all.clone())?,
            latency: (
                query.number("longer", all.clone())?.unwrap_or(0),
                query.number("shorter", all)?.unwrap_or(u64::MAX),
            ),
            begun: (begun("from", Instant::ZERO)?, begun("to", Instant::from_nanos(u64::MAX))?),
            failed: query.flag("failed"),
        })
    }

    fn takes(&self, row: &Row) -> bool {
        let has_block = |wanted: u64| {
            row.lba().is_some_and(|first| {
                let blocks = u64::from(row.blocks().unwrap_or(1));
                wanted >= first && wanted - first < blocks
            })
        };
        let (least, most) = self.latency;
        let latency = row.latency.get();
        self.kind.is_none_or(|kind| kind == u64::from(row.kind))
            && self.queue.is_none_or(|queue| row.queue().is_some_and(|of| u64::from(of) == queue))
            && self.lba.is_none_or(has_block)
            && (least..=most).contains(&latency)
            && (self.begun.0..=self.begun.1).contains(&row.begun)
            && (!self.failed || row.is_failed())
    }
}

/// Answers a request for a page of the list.
pub(super) fn list(index: &Index, query: &Query) -> Result<List, Refusal> {
    let filter = Filter::of(index, query)?;
    let key = query.one_of("sort", &Key::ALL, Key::name)?.unwrap_or(Key::Begun);
    let offset = query.number("offset", 0..=u64::from(u32::MAX))?.unwrap_or(0);
    let limit = query.number("limit", 1..=PAGE_MAX)?.unwrap_or(100);
    let (table, order) = (&index.commands, index.commands.order(key));
    let rows = table.rows();
    let count = rows.len();
    let place = |turn: usize| {
        let turn = if query.flag("descending") { count - 1 - turn } else { turn };
        order.as_ref().map_or(turn, |order| order[turn] as usize)
    };
    let (mut matched, mut page) = (0_u64, Vec::new());
    for place in (0..count).map(place).filter(|place| filter.takes(&rows[*place])) {
        if matched >= offset && matched - offset < limit {
            page.push(row(index, place));
        }
        matched += 1;
    }
    Ok(List { commands: count, matched, offset, rows: page })
}

fn row(index: &Index, place: usize) -> Line {
    let row = &index.commands.rows()[place];
    Line {
        number: place + 1,
        begun_ns: (row.begun - index.first).get(),
        command: index.kinds[usize::from(row.kind)].name.clone(),
        kind: row.kind,
        queue: row.queue(),
        id: row.id(),
        nsid: row.namespace(),
        lba: row.lba(),
        blocks: row.blocks(),
        bytes: row.bytes,
        packets: row.packets,
        status: row.status(),
        failed: row.is_failed(),
        latency_ns: row.latency.get(),
        whole_ns: row.whole.get(),
    }
}

/// Answers a request for the command `number`: its fields, its steps, and its packets from the one
/// that `query` names.
pub(super) fn one(index: &Index, number: u64, query: &Query) -> Result<One, Refusal> {
    let count = index.commands.rows().len();
    let place = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
    let place = place.filter(|place| *place < count);
    let place = place.ok_or_else(|| Refusal::nothing(&format!("command {number}: there are {count}")))?;
    let first = query.number("packets_from", 0..=u64::from(u32::MAX))?.unwrap_or(0);
    let found = index.commands.rows()[place];
    let steps = index.commands.steps_of(&found);
    let id = found.id().and_then(|id| u16::try_from(id).ok());
    let part = |step| Part { step: Some(step), id, is_admin: found.queue() == Some(0) };
    let wanted: Vec<_> = steps
        .members
        .iter()
        .skip(usize::try_from(first).unwrap_or(usize::MAX))
        .take(usize::try_from(MEMBERS_MAX).unwrap_or(usize::MAX))
        .map(|(number, step)| Wanted { number: *number, part: part(*step) })
        .collect();
    Ok(One {
        line: row(index, place),
        steps: chain(&found, &steps.hops),
        frames: frames::lines(index, &wanted)?,
        frames_from: first,
        frames_known: steps.members.len(),
    })
}

/// The steps in the order of their ends. Times count from the beginning of the command; `ns` is
/// from the end of the step before, and all of these add up to the whole.
fn chain(row: &Row, hops: &[Hop]) -> Vec<Passed> {
    let mut hops = hops.to_vec();
    hops.sort_by_key(|hop| (hop.last, hop.step));
    let mut before = row.begun;
    let after = |at: Instant| (at - row.begun).get();
    let one = |hop: Hop| {
        let length: Nanos = hop.last - before;
        before = hop.last;
        Passed {
            step: hop.step.name(),
            way: way(hop.step),
            ns: length.get(),
            first_ns: after(hop.first),
            last_ns: after(hop.last),
            packets: hop.packets,
        }
    };
    hops.into_iter().map(one).collect()
}
