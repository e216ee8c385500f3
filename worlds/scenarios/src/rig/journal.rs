//! What happened because of what: marks that the nodes of a rig make while one operation is followed.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use engine::Instant;
use link::network::Side;
use link::trail::Part;
use pcie::wire::{Kind as TlpKind, Packet};

use super::chain::{Chain, Place, Segment};
use super::task::Seen;

/// Packets inside the tunnel that are remembered, each way; the switch itself answers some, which never come out.
const CROSSING_MAX: usize = 1 << 12;
/// Marks of one operation at most.
const MARKS_MAX: usize = 1 << 22;

/// A mark's place in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MarkId(usize);

/// The mark that something happens because of; none while nobody follows.
pub(super) type Cause = Option<MarkId>;

/// What the time until a mark was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) place: Place,
    pub(super) part: Part,
    pub(super) what: &'static str,
}

/// Something that happened.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    /// What it followed.
    after: Cause,
    /// What it, or the first of what it followed, was made of.
    origin: Cause,
    step: Step,
    /// A packet that begins its way.
    packet: Option<Seen>,
}

#[derive(Debug, Default)]
struct Inner {
    marks: Vec<Mark>,
    /// Marks of operations that were followed before: what is still under way may name them.
    forgotten: usize,
    /// Packets inside the tunnel, by the side at which they entered.
    crossing: [VecDeque<(u64, MarkId)>; 2],
    chain: Option<Chain>,
}

#[derive(Debug, Default)]
struct Shared {
    /// The operation to be followed.
    wanted: Cell<Option<u64>>,
    on: Cell<bool>,
    inner: RefCell<Inner>,
}

/// The journal of a rig; all its nodes have the same one.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal(Rc<Shared>);

impl Journal {
    /// Follows operation `number` of the next task.
    pub(super) fn want(&self, number: u64) {
        self.0.wanted.set(Some(number));
    }

    /// The operation's chain, once it has ended.
    pub(super) fn take(&self) -> Option<Chain> {
        self.0.inner.borrow_mut().chain.take()
    }

    /// Whether marks are made.
    pub(super) fn is_on(&self) -> bool {
        self.0.on.get()
    }

    /// Operation `number` begins, with `others` before it perhaps still under way.
    pub(super) fn begin(&self, number: u64, others: u64) {
        if self.0.wanted.get().is_some_and(|wanted| number + others >= wanted) {
            self.0.on.set(true);
        }
    }

    /// Something happened at `at`, because of `after`; the time between was spent on `step`.
    pub(super) fn mark(&self, after: Cause, at: Instant, step: Step) -> Cause {
        self.put(Mark { at, after, origin: None, step, packet: None })
    }

    /// The same, of a packet that begins its way.
    pub(super) fn packet(
        &self,
        after: Cause,
        at: Instant,
        step: Step,
        packet: impl FnOnce() -> Seen,
    ) -> Cause {
        if !self.is_on() {
            return None;
        }
        self.put(Mark { at, after, origin: None, step, packet: Some(packet()) })
    }

    fn put(&self, mark: Mark) -> Cause {
        if !self.is_on() {
            return None;
        }
        let inner = &mut *self.0.inner.borrow_mut();
        if inner.marks.len() >= MARKS_MAX {
            return None;
        }
        inner.marks.push(mark);
        Some(MarkId(inner.forgotten + inner.marks.len() - 1))
    }

    /// A packet enters the tunnel at `side`.
    pub(super) fn enter_tunnel(&self, side: Side, packet: &Packet, mark: Cause) {
        let Some(mark) = mark else { return };
        let crossing = &mut self.0.inner.borrow_mut().crossing[side.index()];
        if crossing.len() >= CROSSING_MAX {
            crossing.pop_front();
        }
        crossing.push_back((key(packet), mark));
    }

    /// A packet leaves the tunnel at `at`, having come from `side` with the bytes that `arrived` was the arrival of; or the switch
    /// here has made it because of `local`.
    pub(super) fn leave_tunnel(
        &self,
        side: Side,
        packet: &Packet,
        (arrived, local): (Cause, Cause),
        at: Instant,
    ) -> Cause {
        if !self.is_on() {
            return None;
        }
        let origin = {
            let crossing = &mut self.0.inner.borrow_mut().crossing[side.index()];
            let wanted = key(packet);
            let place = crossing.iter().position(|(key, _)| *key == wanted);
            place.and_then(|place| crossing.remove(place)).map(|(_, mark)| mark)
        };
        let (after, place) = match origin {
            Some(_) => (arrived, Place::Tunnel(side)),
            None => (local, Place::Switch(side.other())),
        };
        let step = Step { place, part: Part::Waiting, what: "in order" };
        self.put(Mark { at, after, origin, step, packet: None })
    }

    /// Operation `number`, measured from `begin` to `end`, has ended because of `cause`.
    pub(super) fn end(&self, number: u64, cause: Cause, begin: Instant, end: Instant) {
        if !self.is_on() || self.0.wanted.get() != Some(number) {
            return;
        }
        self.0.wanted.set(None);
        self.0.on.set(false);
        let inner = &mut *self.0.inner.borrow_mut();
        let segments = inner.walk(cause, begin, end);
        inner.chain = Some(Chain { number, latency: end - begin, segments });
        inner.forgotten += inner.marks.len();
        inner.marks = Vec::new();
        inner.crossing = Default::default();
    }
}

impl Inner {
    fn get(&self, cause: Cause) -> Option<&Mark> {
        let MarkId(index) = cause?;
        self.marks.get(index.checked_sub(self.forgotten)?)
    }

    /// Goes back from what ended an operation to its begin: whatever each thing waited for last.
    fn walk(&self, cause: Cause, begin: Instant, end: Instant) -> Vec<Segment> {
        let mut segments = Vec::new();
        let (mut upper, mut next, mut origin) = (end, self.get(cause), None);
        while let Some(mark) = next {
            origin = self.get(mark.origin).or(origin);
            next = self.get(mark.after).or_else(|| origin.take());
            let lower = next.map_or(begin, |before| before.at).clamp(begin, upper);
            let step = if next.is_some() || lower == upper { mark.step } else { LOST };
            segments.push(step.segment(begin, lower, upper, mark.packet));
            upper = lower;
            if mark.at <= begin {
                break;
            }
        }
        if upper > begin {
            segments.push(LOST.segment(begin, begin, upper, None));
        }
        segments.reverse();
        segments
    }
}

impl Step {
    /// From `from` to `to`, of an operation that began at `begin`.
    fn segment(self, begin: Instant, from: Instant, to: Instant, packet: Option<Seen>) -> Segment {
        let Self { place, part, what } = self;
        Segment { start: from - begin, length: to - from, place, part, what, packet }
    }
}

/// What is said of time of which nobody knows what it was spent on.
const LOST: Step = Step { place: Place::Others, part: Part::Waiting, what: "for operations before it" };

/// What tells a packet from others that are in the tunnel with it; a switch changes none of it.
fn key(packet: &Packet) -> u64 {
    let header = &packet.header;
    let (kind, place) = match header.kind {
        TlpKind::Memory(request) => (1, request.address),
        TlpKind::Config(request) => (2, u64::from(request.target.bits())),
        TlpKind::Completion(completion) => (3, u64::from(completion.byte_count)),
        _ => (4, 0),
    };
    let mut digest = sim::Digest::default();
    for word in [
        kind,
        place,
        u64::from(header.requester().bits()),
        u64::from(header.tag().get()),
        u64::from(header.length),
    ] {
        digest.word(word);
    }
    digest.value()
}
