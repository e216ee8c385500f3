//! Records causes and effects: marks that the nodes of a bench make while one operation is
//! followed.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use engine::Instant;
use network_models::network::Side;
use network_models::trail::Part;
use pcie::wire::{Kind as TlpKind, Packet};

use super::chain::{Chain, Place, Segment};
use super::task::Seen;

/// Number of packets inside the tunnel that are remembered for each direction. A limit is needed
/// because the switch answers some packets itself, and these never come out.
const CROSSING_MAX: usize = 1 << 12;
/// The largest number of marks for one operation.
const MARKS_MAX: usize = 1 << 22;

/// Identifies a mark of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MarkId(usize);

/// The mark of the event that causes another one; `None` while no operation is followed.
pub(super) type Cause = Option<MarkId>;

/// The use of the time before a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) place: Place,
    pub(super) part: Part,
    pub(super) what: &'static str,
}

/// An event of the operation that is followed.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    /// The event that this one followed.
    after: Cause,
    /// For a packet that leaves the tunnel, the mark of its entry. A walk continues there when the
    /// marks of the packet's bytes end.
    origin: Cause,
    step: Step,
    /// The packet that begins its way with this event, if any.
    packet: Option<Seen>,
}

#[derive(Debug, Default)]
struct Inner {
    marks: Vec<Mark>,
    /// Number of marks of operations that were followed earlier, which packets in flight may still
    /// name.
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

/// The journal of a bench, shared by all its nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal(Rc<Shared>);

impl Journal {
    /// Asks for operation `number` of the next task to be followed.
    pub(super) fn want(&self, number: u64) {
        self.0.wanted.set(Some(number));
    }

    /// Takes the critical path of the operation, once it has ended.
    pub(super) fn take(&self) -> Option<Chain> {
        self.0.inner.borrow_mut().chain.take()
    }

    /// Whether an operation is followed, and marks are made.
    pub(super) fn is_on(&self) -> bool {
        self.0.on.get()
    }

    /// Notes that operation `number` begins. Marks are made from here on if the wanted operation is
    /// this one, or one of the `others` behind it.
    pub(super) fn begin(&self, number: u64, others: u64) {
        if self.0.wanted.get().is_some_and(|wanted| number + others >= wanted) {
            self.0.on.set(true);
        }
    }

    /// Marks an event at `at`, caused by `after`; the time between was spent on `step`.
    pub(super) fn mark(&self, after: Cause, at: Instant, step: Step) -> Cause {
        self.put(Mark { at, after, origin: None, step, packet: None })
    }

    /// Marks the beginning of a packet's way at `at`, caused by `after`.
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

    /// Notes that a packet enters the tunnel at `side`.
    pub(super) fn enter_tunnel(&self, side: Side, packet: &Packet, mark: Cause) {
        let Some(mark) = mark else { return };
        let crossing = &mut self.0.inner.borrow_mut().crossing[side.index()];
        if crossing.len() >= CROSSING_MAX {
            crossing.pop_front();
        }
        crossing.push_back((key(packet), mark));
    }

    /// Marks that a packet leaves the tunnel at `at`. The packet came from `side` in the bytes that
    /// `arrived` marks, or this end of the switch made it because of `local`.
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

    /// Ends operation `number`, which took from `begin` to `end` and ended because of `cause`.
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

    /// Walks from an operation's end back to its begin, always to the event that was waited for
    /// last.
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
    /// The segment between `from` and `to` of an operation that began at `begin`.
    fn segment(self, begin: Instant, from: Instant, to: Instant, packet: Option<Seen>) -> Segment {
        let Self { place, part, what } = self;
        Segment { start: from - begin, length: to - from, place, part, what, packet }
    }
}

/// The step of time that no mark explains.
const LOST: Step = Step { place: Place::Others, part: Part::Waiting, what: "for operations before it" };

/// A key that distinguishes a packet from the others in the tunnel; no switch changes the fields
/// that it is made of.
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
