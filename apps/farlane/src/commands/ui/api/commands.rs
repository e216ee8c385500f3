//! The list of a capture's commands, a page at a time, and one command with its packets.

use engine::{Instant, Nanos};
use serde_json::{Value, json};
use trace::Hop;

use super::frames::{self, Wanted};
use super::part::{Part, way};
use super::query::{Query, Refusal};
use crate::commands::ui::index::{Index, Key, Row};

/// The most rows of an answer.
const PAGE_MAX: u64 = 1000;
/// The most packets of a command that are shown at once.
pub(super) const MEMBERS_MAX: u64 = 512;

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
pub(super) fn list(index: &Index, query: &Query) -> Result<Value, Refusal> {
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
    Ok(json!({ "commands": count, "matched": matched, "offset": offset, "rows": page }))
}

/// A row as JSON. Its number counts from 1, as `trace chain --command` does.
fn row(index: &Index, place: usize) -> Value {
    let row = &index.commands.rows()[place];
    json!({
        "number": place + 1, "begun_ns": (row.begun - index.first).get(),
        "command": index.kinds[usize::from(row.kind)].name, "kind": row.kind,
        "queue": row.queue(), "id": row.id(), "nsid": row.namespace(), "lba": row.lba(),
        "blocks": row.blocks(), "bytes": row.bytes, "packets": row.packets, "status": row.status(),
        "failed": row.is_failed(), "latency_ns": row.latency.get(), "whole_ns": row.whole.get(),
    })
}

/// Answers a request for the command `number`: its fields, its steps, and its packets from the one
/// that `query` names.
pub(super) fn one(index: &Index, number: u64, query: &Query) -> Result<Value, Refusal> {
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
    let mut answer = row(index, place);
    answer["steps"] = chain(&found, &steps.hops);
    answer["frames"] = frames::lines(index, &wanted)?.into();
    answer["frames_from"] = first.into();
    answer["frames_known"] = steps.members.len().into();
    Ok(answer)
}

/// The steps in the order of their ends. Times count from the beginning of the command; `ns` is
/// from the end of the step before, and all of these add up to the whole.
fn chain(row: &Row, hops: &[Hop]) -> Value {
    let mut hops = hops.to_vec();
    hops.sort_by_key(|hop| (hop.last, hop.step));
    let mut before = row.begun;
    let after = |at: Instant| (at - row.begun).get();
    let one = |hop: Hop| {
        let length: Nanos = hop.last - before;
        before = hop.last;
        json!({ "step": hop.step.name(), "way": way(hop.step), "ns": length.get(),
            "first_ns": after(hop.first), "last_ns": after(hop.last), "packets": hop.packets })
    };
    hops.into_iter().map(one).collect()
}
