//! Frames that leave in the order in which they came, and hops that only delay them.

use alloc::collections::VecDeque;

use engine::Instant;

use crate::{Counts, Frame, Hop};

/// A hop that knows when a frame leaves as soon as the frame enters.
pub(crate) trait Delay {
    /// Maximum number of frames inside; further frames are lost.
    const INSIDE_MAX: usize;

    /// When a frame of `length` bytes leaves whose last bit arrives at `arrived`; `None` if the
    /// frame is lost.
    fn delay(&mut self, arrived: Instant, length: u32) -> Option<Instant>;

    fn leaving(&self) -> &Leaving;
    fn leaving_mut(&mut self) -> &mut Leaving;
}

impl<T: Delay> Hop for T {
    fn enter(&mut self, now: Instant, mut frame: Frame) {
        if !self.leaving_mut().admit(0, T::INSIDE_MAX) {
            return;
        }
        // The whole frame must have arrived.
        let arrived = now + core::mem::take(&mut frame.tail);
        match self.delay(arrived, frame.length) {
            Some(at) => self.leaving_mut().push(at, frame),
            None => self.leaving_mut().lose(),
        }
    }

    fn poll(&mut self, now: Instant) -> Option<Frame> {
        self.leaving_mut().poll(now)
    }

    fn next(&self) -> Option<Instant> {
        self.leaving().next()
    }

    fn counts(&self) -> Counts {
        self.leaving().counts()
    }
}

/// Frames inside a hop that knows when a frame leaves as soon as the frame enters, and the hop's
/// counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leaving {
    inside: VecDeque<(Instant, Frame)>,
    counts: Counts,
}

impl Leaving {
    /// No frame is inside.
    pub(crate) const fn new() -> Self {
        let counts = Counts { entered: 0, left: 0, lost: 0, copied: 0 };
        Self { inside: VecDeque::new(), counts }
    }

    /// Counts a frame that enters while `besides` other frames are elsewhere in the hop. Returns
    /// whether there is room, given that at most `most` frames may be inside. A frame without room
    /// is lost.
    pub(crate) fn admit(&mut self, besides: usize, most: usize) -> bool {
        self.counts.entered += 1;
        let room = self.inside.len() + besides < most;
        self.counts.lost += u64::from(!room);
        room
    }

    /// Counts an admitted frame as lost.
    pub(crate) const fn lose(&mut self) {
        self.counts.lost += 1;
    }

    /// Schedules `frame` to leave at `at`, or together with the frame before if that one leaves
    /// later.
    pub(crate) fn push(&mut self, at: Instant, frame: Frame) {
        let at = self.inside.back().map_or(at, |(last, _)| at.max(*last));
        self.inside.push_back((at, frame));
    }

    /// The next frame that has left by `now`.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Frame> {
        take_due(&mut self.inside, &mut self.counts, now)
    }

    /// When the next frame leaves.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.inside.front().map(|(at, _)| *at)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.inside.is_empty()
    }

    pub(crate) const fn counts(&self) -> Counts {
        self.counts
    }
}

/// Takes the next of the frames `inside` if it has left by `now`, and counts it.
pub(crate) fn take_due(
    inside: &mut VecDeque<(Instant, Frame)>,
    counts: &mut Counts,
    now: Instant,
) -> Option<Frame> {
    inside.front().filter(|(at, _)| *at <= now)?;
    counts.left += 1;
    inside.pop_front().map(|(_, frame)| frame)
}
