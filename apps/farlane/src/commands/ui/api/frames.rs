//! Frames of a capture, read again from the file.

use captures::{Frame, Held, held};
use engine::Instant;
use serde_json::{Value, json};
use trace::Step;

use super::decode;
use super::part::{Part, way};
use super::query::{Query, Refusal};
use crate::commands::ui::index::Index;

/// The most frames of an answer.
const PAGE_MAX: u64 = 500;
/// Blocks without a frame that is wanted, up to which reading on is quicker than beginning anew.
const BLOCKS_BETWEEN: u64 = 16;

/// A frame that is wanted, and the part of a command that it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) number: u64,
    pub(super) part: Part,
}

/// A line for each frame of `wanted`, which are in their order.
pub(super) fn lines(index: &Index, wanted: &[Wanted]) -> Result<Vec<Value>, Refusal> {
    let mut lines = Vec::with_capacity(wanted.len());
    let mut rest = wanted;
    while let Some(first) = rest.first() {
        let before = lines.len();
        let mut reached = index.blocks.block_of(first.number);
        index.blocks.read_from(&index.path, first.number, |frame| {
            // A frame may be a part of two steps.
            while let Some(next) = rest.first().filter(|next| next.number == frame.number) {
                lines.push(line(index, &frame, &held(&frame), next.part));
                reached = index.blocks.block_of(frame.number);
                rest = &rest[1..];
            }
            rest.first().is_some_and(|next| index.blocks.block_of(next.number) - reached <= BLOCKS_BETWEEN)
        })?;
        if lines.len() == before {
            return Err(Refusal::conflict(format!("{} is not what it was", index.path.display())));
        }
    }
    Ok(lines)
}

/// A frame in a line. A segment passes as the step of which it is a part.
fn line(index: &Index, frame: &Frame<'_>, held: &Held<'_>, part: Part) -> Value {
    let step = part.step;
    json!({
        "number": frame.number, "at_ns": (frame.at - index.first).get(),
        "direction": decode::direction(held).or(step.map(way)), "text": decode::line(held, part),
        "bytes": decode::payload_bytes(held), "step": step.map(Step::name),
    })
}

/// Answers a request for frames that follow each other: from the number that `query` names, or from
/// a time on.
pub(super) fn list(index: &Index, query: &Query) -> Result<Value, Refusal> {
    let limit = query.number("limit", 1..=PAGE_MAX)?.unwrap_or(100);
    let (mut from, at) = (query.number("from", 0..=u64::MAX)?, query.number("at", 0..=u64::MAX)?);
    let mut not_before = Instant::ZERO;
    if let (None, Some(after)) = (from, at) {
        not_before = Instant::from_nanos(index.first.as_nanos().saturating_add(after));
        from = Some(index.blocks.first_at(not_before));
    }
    let mut lines = Vec::new();
    index.blocks.read_from(&index.path, from.unwrap_or(0), |frame| {
        // Times may run back: the search is for the first frame that is late enough.
        if frame.at >= not_before || !lines.is_empty() {
            lines.push(line(index, &frame, &held(&frame), Part::default()));
        }
        (lines.len() as u64) < limit
    })?;
    let first = lines.first().map_or(json!(from), |line| line["number"].clone());
    Ok(json!({ "frames": index.blocks.frames(), "from": first, "rows": lines }))
}

/// Answers a request for the frame `number`, which is a part of the step and the command that
/// `query` names.
pub(super) fn one(index: &Index, number: u64, query: &Query) -> Result<Value, Refusal> {
    let id = query.number("id", 0..=u16::MAX.into())?;
    let part = Part {
        step: query.one_of("step", &Step::ALL, Step::name)?,
        id: id.and_then(|id| u16::try_from(id).ok()),
        is_admin: query.flag("admin"),
    };
    let mut found = None;
    index.blocks.read_from(&index.path, number, |frame| {
        if frame.number == number {
            let held = held(&frame);
            let mut answer = line(index, &frame, &held, part);
            let whole = decode::whole(&held, frame.bytes, part);
            if let (Some(answer), Value::Object(whole)) = (answer.as_object_mut(), whole) {
                answer.extend(whole);
            }
            found = Some(answer);
        }
        false
    })?;
    let count = index.blocks.frames();
    found.ok_or_else(|| Refusal::nothing(&format!("frame {number}: there are {count}")))
}
