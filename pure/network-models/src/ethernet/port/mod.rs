//! A port that sends frames over a link.

mod sending;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Buffer, Instant, Nanos, Rng};

use super::settings::{Forwarding, PortSettings};
use crate::leaving::take_due;
use crate::tsn::credit::Credit;
use crate::tsn::traffic::Running;
use crate::{Class, Counts, Frame, Hop, Transmitter};
use sending::Sending;

/// One direction of a port and its link: queues, gates, shapers, preemption, the MACs and PHYs of
/// both ends, and the cable. A frame that leaves has arrived at the next node.
///
/// Background traffic takes part only while a frame is inside, so a link without frames has no
/// events.
#[derive(Clone, Debug)]
pub struct Port {
    settings: PortSettings,
    /// Frames on their way to a queue, in the order of arrival there.
    arriving: VecDeque<(Instant, Frame)>,
    queues: [VecDeque<Waiting>; Class::COUNT],
    /// Queues that have frames; bit n is queue n.
    occupied: u8,
    sources: Vec<Running>,
    /// Time of the first frame of any background source.
    source_next: Option<Instant>,
    credits: [Option<Credit>; Class::COUNT],
    transmitter: Transmitter,
    /// The preemptable frame, or piece of one, that is being sent.
    sending: Option<Sending>,
    /// The frame that was interrupted.
    suspended: Option<Suspended>,
    /// When to choose the next frame.
    decide: Option<Instant>,
    /// Frames on their way to the next node, in the order of arrival there.
    leaving: VecDeque<(Instant, Frame)>,
    /// Number of frames inside that are neither background traffic nor leaving.
    own: usize,
    counts: Counts,
}

/// A frame in a queue.
#[derive(Clone, Debug)]
struct Waiting {
    frame: Frame,
    /// Whether the frame is background traffic.
    foreign: bool,
}

/// The rest of an interrupted frame.
#[derive(Clone, Debug)]
struct Suspended {
    waiting: Waiting,
    queue: usize,
    /// Number of bytes that still have to be sent, including the check sequence.
    left: u32,
}

impl Port {
    /// How much background traffic is made up for after a time without frames.
    const CATCH_UP: Nanos = Nanos::from_millis(10);
    /// Maximum number of frames on their way to a queue; further frames are lost.
    pub const ARRIVING_MAX: usize = 1 << 16;

    /// A port with `settings`. Random values of the background traffic come from `rng`.
    ///
    /// # Panics
    /// When a class has a queue that does not exist.
    pub fn new(settings: PortSettings, rng: &Rng) -> Self {
        assert!(settings.queue_of.iter().all(|queue| *queue < Class::COUNT), "a port has eight queues");
        let sources: Vec<_> = settings
            .background
            .iter()
            .scan(rng.fork("background"), |rng, source| {
                let seed = rng.next_u64();
                Some(Running::new(*source, Rng::from_seed(seed)))
            })
            .collect();
        let gates = settings.gates.as_ref();
        let credit = |queue: usize| settings.idle_slopes[queue].map(|slope| Credit::new(slope, gates, queue));
        Self {
            credits: core::array::from_fn(credit),
            source_next: sources.iter().filter_map(Running::next).min(),
            settings,
            arriving: VecDeque::new(),
            queues: Default::default(),
            occupied: 0,
            sources,
            transmitter: Transmitter::IDLE,
            sending: None,
            suspended: None,
            decide: None,
            leaving: VecDeque::new(),
            own: 0,
            counts: Counts::default(),
        }
    }

    /// The settings that the port was built with.
    pub const fn settings(&self) -> &PortSettings {
        &self.settings
    }

    /// When `frame` counts as arrived at this port, after its processing.
    fn arrival(&self, now: Instant, frame: &Frame) -> Instant {
        let arrived = match self.settings.forwarding {
            Forwarding::StoreAndForward => now + frame.tail,
            // Not before the frame could be sent without a gap: the last bit must arrive in time.
            Forwarding::CutThrough if frame.tail > Nanos::ZERO => {
                let takes = self.settings.rate.time_of(sending::bytes_of(frame.length));
                now.max(Instant::ZERO + ((now + frame.tail) - (Instant::ZERO + takes)))
            }
            Forwarding::CutThrough => now,
        };
        arrived + self.settings.processing
    }

    /// Time of the next event that matters to frames inside.
    fn event(&self) -> Option<Instant> {
        let arrival = self.arriving.front().map(|(at, _)| *at);
        let sent = self.sending.as_ref().map(|sending| sending.end);
        [arrival, sent, self.decide, self.source_next].into_iter().flatten().min()
    }

    /// Handles everything that happens until `until`.
    fn advance(&mut self, until: Instant) {
        while let Some(at) = self.event().filter(|at| *at <= until) {
            // Ends come before arrivals, and arrivals before choices, so that a frame that arrives
            // in time can be chosen.
            if self.sending.as_ref().is_some_and(|sending| sending.end <= at) {
                self.end_piece(at);
            }
            while self.arriving.front().is_some_and(|(before, _)| *before <= at) {
                if let Some((_, frame)) = self.arriving.pop_front() {
                    self.queue(at, Waiting { frame, foreign: false });
                }
            }
            while self.source_next.is_some_and(|before| before <= at) {
                self.background(at);
            }
            if self.decide.is_some_and(|before| before <= at) {
                self.choose(at);
            }
        }
    }

    /// Queues the next frame of background traffic.
    fn background(&mut self, now: Instant) {
        let due = |source: &&mut Running| source.next().is_some_and(|at| at <= now);
        if let Some(source) = self.sources.iter_mut().find(due) {
            let frame = Frame::new(0, source.source.length, source.source.class, Buffer::EMPTY);
            source.advance();
            self.queue(now, Waiting { frame, foreign: true });
        }
        self.source_next = self.sources.iter().filter_map(Running::next).min();
    }

    /// Skips background traffic after a time without own frames, since its effects can't be seen
    /// any more.
    fn skip(&mut self, now: Instant) {
        let from = Instant::from_nanos(now.as_nanos().saturating_sub(Self::CATCH_UP.get()));
        for source in &mut self.sources {
            source.skip_to(from);
        }
        self.source_next = self.sources.iter().filter_map(Running::next).min();
    }

    /// Puts a frame in its queue, if there is room.
    fn queue(&mut self, now: Instant, waiting: Waiting) {
        let queue = self.settings.queue_of[waiting.frame.class.index()];
        let frames = &self.queues[queue];
        let full = frames.len() >= usize::try_from(self.settings.queue_frames).unwrap_or(usize::MAX);
        if full || waiting.frame.length > self.settings.frame_max() {
            self.drop(&waiting);
            return;
        }
        let was_empty = frames.is_empty() && !self.is_suspended(queue);
        if let Some(credit) = &mut self.credits[queue]
            && was_empty
        {
            credit.settle(now, false, self.settings.gates.as_ref(), queue);
        }
        self.queues[queue].push_back(waiting);
        self.occupied |= 1 << queue;
        self.reconsider(now);
    }

    fn drop(&mut self, waiting: &Waiting) {
        if !waiting.foreign {
            self.own -= 1;
            self.counts.lost += 1;
        }
    }

    fn is_suspended(&self, queue: usize) -> bool {
        self.suspended.as_ref().is_some_and(|suspended| suspended.queue == queue)
    }

    /// Passes on a frame whose last bit is at the other end of the link at `end`, and its header at
    /// `header`.
    fn leave(&mut self, waiting: Waiting, header: Option<Instant>, end: Instant) {
        if waiting.foreign {
            return;
        }
        self.own -= 1;
        let mut frame = waiting.frame;
        let passage = self.settings.passage(frame.length);
        let at = header.unwrap_or(end);
        frame.tail = end - at;
        // A frame that fills a buffer faster than the frame before must not overtake that frame.
        let at = (at + passage).max(self.leaving.back().map_or(Instant::ZERO, |(before, _)| *before));
        self.leaving.push_back((at, frame));
    }
}

impl Hop for Port {
    fn enter(&mut self, now: Instant, mut frame: Frame) {
        self.counts.entered += 1;
        if !frame.intact && self.settings.forwarding == Forwarding::StoreAndForward {
            self.counts.lost += 1;
            return;
        }
        if self.own == 0 && self.source_next.is_some() {
            self.skip(now);
        }
        self.advance(now);
        if self.arriving.len() >= Self::ARRIVING_MAX {
            self.counts.lost += 1;
            return;
        }
        let at = self.arrival(now, &frame);
        frame.tail = Nanos::ZERO;
        self.own += 1;
        self.arriving.push_back((at, frame));
        self.advance(now);
    }

    fn poll(&mut self, now: Instant) -> Option<Frame> {
        if self.own > 0 {
            self.advance(now);
        }
        take_due(&mut self.leaving, &mut self.counts, now)
    }

    fn next(&self) -> Option<Instant> {
        let leaving = self.leaving.front().map(|(at, _)| *at);
        let event = if self.own > 0 { self.event() } else { None };
        match (leaving, event) {
            (Some(leaving), Some(event)) => Some(leaving.min(event)),
            (leaving, event) => leaving.or(event),
        }
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}
