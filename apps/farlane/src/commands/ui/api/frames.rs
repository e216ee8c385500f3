//! Frames of a capture, read again from the file.

use captures::{Frame, Held, held};
use engine::Instant;
use schemars::JsonSchema;
use serde::Serialize;
use trace::Step;

use super::decode;
use super::part::{Part, Way, way};
use super::query::{Query, Refusal};
use crate::commands::ui::index::Index;

/// The most frames of an answer.
const PAGE_MAX: u64 = 500;
/// Blocks without a frame that is wanted, up to which reading on is quicker than beginning anew.
const BLOCKS_BETWEEN: u64 = 16;

/// Frames that follow each other.
#[derive(Serialize, JsonSchema)]
pub(crate) struct List {
    /// The number of frames of the capture.
    frames: u64,
    /// The number of the first frame of the list.
    from: Option<u64>,
    rows: Vec<Line>,
}

/// A frame in a line.
#[derive(Serialize, JsonSchema)]
pub(super) struct Line {
    number: u64,
    at_ns: u64,
    direction: Option<Way>,
    /// The content in words.
    text: String,
    /// Bytes of payload.
    bytes: usize,
    /// The step of a command that the frame is a part of; none if that is not known.
    step: Option<&'static str>,
}

/// One frame: the fields of its packet or its PDUs with the bytes that have them, and its meaning.
#[derive(Serialize, JsonSchema)]
pub(crate) struct One {
    #[serde(flatten)]
    line: Line,
    #[serde(flatten)]
    whole: decode::Whole,
}

/// A frame that is wanted, and the part of a command that it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) number: u64,
    pub(super) part: Part,
}

/// A line for each frame of `wanted`, which are in their order.
pub(super) fn lines(index: &Index, wanted: &[Wanted]) -> Result<Vec<Line>, Refusal> {
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
            return Err(Refusal::conflict(format!("{} has changed", index.path.display())));
        }
    }
    Ok(lines)
}

/// A frame in a line. A segment passes as the step of which it is a part.
fn line(index: &Index, frame: &Frame<'_>, held: &Held<'_>, part: Part) -> Line {
    let step = part.step;
    Line {
        number: frame.number,
        at_ns: (frame.at - index.first).get(),
        direction: decode::direction(held).or(step.map(way)),
        text: decode::line(held, part),
        bytes: decode::payload_bytes(held),
        step: step.map(Step::name),
    }
}

/// Answers a request for frames that follow each other: from the number that `query` names, or from
/// a time on.
pub(super) fn list(index: &Index, query: &Query) -> Result<List, Refusal> {
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
    let first = lines.first().map_or(from, |line| Some(line.number));
    Ok(List { frames: index.blocks.frames(), from: first, rows: lines })
}

/// Answers a request for the frame `number`, which is a part of the step and the command that
/// `query` names.
pub(super) fn one(index: &Index, number: u64, query: &Query) -> Result<One, Refusal> {
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
            let (line, whole) = (line(index, &frame, &held, part), decode::whole(&held, frame.bytes, part));
            found = Some(One { line, whole });
        }
        false
    })?;
    let count = index.blocks.frames();
    found.ok_or_else(|| Refusal::nothing(&format!("frame {number}: there are {count}")))
}
