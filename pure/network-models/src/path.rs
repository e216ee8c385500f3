//! Hops in series.

use alloc::vec::Vec;

use engine::{Instant, Rng};

use crate::faults::Behaviour;
use crate::streams::{Measured, Order, Streams};
use crate::trail::Crossing;
use crate::tsn::traffic::Source;
use crate::{AnyHop, Counts, Faults, Frame, Hop};

/// Hops in series for one direction; a frame enters the first hop first. A path without hops takes
/// no time.
///
/// A frame that is damaged at the end of the path is dropped there, as in every receiver's MAC.
#[derive(Clone, Debug, Default)]
pub struct Path {
    stages: Vec<Stage>,
    /// Cached result of [`Path::find`], which is needed more often than it changes.
    earliest: Option<(usize, Instant)>,
    /// Frames in a path without hops.
    through: alloc::collections::VecDeque<(Instant, Frame)>,
    entered: u64,
    left: u64,
    /// Frames that were damaged at the end, or found a path without hops full.
    lost: u64,
    /// Which frames left which place ([`Path::places`]), while the path is watched.
    crossings: Option<Vec<Crossing>>,
    /// Whether the last stage is the one of [`Path::faults`].
    has_faults: bool,
    /// Streams that are measured.
    streams: Streams,
}

#[derive(Clone, Debug)]
struct Stage {
    hop: AnyHop,
    /// The hop's number among the places of the path ([`Path::places`]).
    place: usize,
    /// Cached result of `hop.next()`, since each event looks at all stages.
    next: Option<Instant>,
}

impl Stage {
    fn refresh(&mut self) {
        self.next = self.hop.next();
    }
}

impl Path {
    /// Maximum number of hops in a path.
    pub const HOPS_MAX: usize = 256;
    /// Maximum number of frames that a path without hops holds until it is polled; further frames
    /// are lost.
    pub const THROUGH_MAX: usize = 1 << 18;

    /// A path through `hops`.
    ///
    /// # Panics
    /// When there are more than [`Path::HOPS_MAX`] hops.
    pub fn new(hops: impl IntoIterator<Item = AnyHop>) -> Self {
        let mut path = Self::default();
        hops.into_iter().for_each(|hop| path.push(hop));
        assert!(path.stages.len() <= Self::HOPS_MAX, "a path of {} hops", path.stages.len());
        path.earliest = path.find();
        path
    }

    /// Adds `hop` at the end.
    fn push(&mut self, hop: AnyHop) {
        let place = self.places_count() + hop.inner_places();
        self.stages.push(Stage { next: hop.next(), hop, place });
    }

    /// The number of places ([`Path::places`]).
    pub(crate) fn places_count(&self) -> usize {
        self.stages.last().map_or(0, |last| last.place + 1)
    }

    /// The path with a stream from each of the sources, from time 0 on. The random values of each
    /// stream come from its own generator.
    ///
    /// # Panics
    /// When the path has no hops.
    #[must_use]
    pub fn with_streams(mut self, sources: impl IntoIterator<Item = (Source, Rng)>) -> Self {
        self.streams = Streams::new(sources);
        assert!(!self.stages.is_empty() || self.streams.next().is_none(), "streams need a hop");
        self
    }

    /// Gives all streams an order.
    pub fn order_streams(&mut self, order: Order) {
        self.streams.order(order);
    }

    /// The measurements of each stream.
    pub fn measured(&self) -> impl ExactSizeIterator<Item = &Measured> {
        self.streams.measured()
    }

    /// The hops of the path; frames enter the first one first.
    pub fn hops(&self) -> impl ExactSizeIterator<Item = &AnyHop> {
        self.stages.iter().map(|stage| &stage.hop)
    }

    /// Starts or stops recording when frames leave the hops, and the hops within hops. The caller
    /// that starts it takes [`Path::crossings`].
    pub fn watch(&mut self, on: bool) {
        self.crossings = on.then(Vec::new);
        self.stages.iter_mut().for_each(|stage| stage.hop.watch(on));
    }

    /// Takes the crossings recorded since the last call.
    pub fn crossings(&mut self) -> impl Iterator<Item = Crossing> + use<'_> {
        let all = self.crossings.iter_mut().flat_map(|crossings| crossings.drain(..));
        all.filter(|crossing| !Streams::owns(crossing.frame))
    }

    /// Faults at the end of the path, in addition to its hops, for callers that change a path in
    /// use. There are no faults at first. Random values come from `rng`, which only the first call
    /// uses.
    pub fn faults(&mut self, rng: impl FnOnce() -> Rng) -> &mut Faults {
        if !self.has_faults {
            self.push(Faults::new(Behaviour::default(), rng()).into());
            self.has_faults = true;
        }
        match self.stages.last_mut() {
            Some(Stage { hop: AnyHop::Faults(faults), .. }) => faults,
            other => unreachable!("the last stage is faults, not {other:?}"),
        }
    }

    /// The stage with the next event, and the time of the event. If several stages have events at
    /// the same time, the last of these stages goes first: a frame that leaves makes room for one
    /// that comes.
    fn find(&self) -> Option<(usize, Instant)> {
        let mut earliest: Option<(usize, Instant)> = None;
        for (index, stage) in self.stages.iter().enumerate().rev() {
            if let Some(at) = stage.next
                && earliest.is_none_or(|(_, before)| at < before)
            {
                earliest = Some((index, at));
            }
        }
        earliest
    }

    /// Handles a frame that is at the end of the path at `now`.
    fn arrive(&mut self, now: Instant, frame: Frame) -> Option<Frame> {
        if !frame.intact {
            self.lost += 1;
            return None;
        }
        self.left += 1;
        if Streams::owns(frame.id) {
            self.streams.arrived(now, &frame);
            return None;
        }
        Some(frame)
    }

    /// Sends the frame of a stream that is due at `at`.
    fn send(&mut self, at: Instant) {
        let Some(frame) = self.streams.send(at) else { return };
        let Some(first) = self.stages.first_mut() else { return };
        self.entered += 1;
        first.hop.enter(at, frame);
        first.refresh();
        self.earliest = self.find();
    }
}

impl<H: Into<AnyHop>> FromIterator<H> for Path {
    fn from_iter<I: IntoIterator<Item = H>>(hops: I) -> Self {
        Self::new(hops.into_iter().map(Into::into))
    }
}

impl Hop for Path {
    fn enter(&mut self, now: Instant, frame: Frame) {
        while let Some(at) = self.streams.next().filter(|at| *at <= now) {
            self.send(at);
        }
        self.entered += 1;
        match self.stages.first_mut() {
            Some(first) => {
                first.hop.enter(now, frame);
                first.refresh();
                self.earliest = self.find();
            }
            None if self.through.len() >= Self::THROUGH_MAX => self.lost += 1,
            None => self.through.push_back((now, frame)),
        }
    }

    fn poll(&mut self, now: Instant) -> Option<Frame> {
        while self.through.front().is_some_and(|(at, _)| *at <= now) {
            let (at, frame) = self.through.pop_front()?;
            if let Some(frame) = self.arrive(at, frame) {
                return Some(frame);
            }
        }
        // Every event happens at its own time, however late the caller is.
        loop {
            let sends = self.streams.next().filter(|at| *at <= now);
            if let Some(at) = sends.filter(|at| self.earliest.is_none_or(|(_, event)| *at < event)) {
                self.send(at);
                continue;
            }
            let (index, at) = self.earliest.filter(|(_, at)| *at <= now)?;
            let stage = &mut self.stages[index];
            let frame = stage.hop.poll(at);
            stage.refresh();
            if let Some(crossings) = &mut self.crossings {
                stage.hop.take_crossings(stage.place - stage.hop.inner_places(), crossings);
                crossings.extend(frame.iter().map(|frame| Crossing {
                    frame: frame.id,
                    hop: stage.place,
                    at,
                }));
            }
            let mut out = None;
            match &frame {
                None => assert!(stage.next.is_none_or(|next| next > at), "a hop stands still: {stage:?}"),
                Some(frame) => self.streams.crossed(at, frame, index, &stage.hop),
            }
            match frame {
                None => {}
                Some(frame) => match self.stages.get_mut(index + 1) {
                    Some(following) => {
                        following.hop.enter(at, frame);
                        following.refresh();
                    }
                    None => out = Some(frame),
                },
            }
            self.earliest = self.find();
            if let Some(frame) = out.and_then(|frame| self.arrive(at, frame)) {
                return Some(frame);
            }
        }
    }

    fn next(&self) -> Option<Instant> {
        let stage = match self.through.front() {
            Some((at, _)) => Some(*at),
            None => self.earliest.map(|(_, at)| at),
        };
        [stage, self.streams.next()].into_iter().flatten().min()
    }

    fn counts(&self) -> Counts {
        let inside = self.stages.iter().map(|stage| stage.hop.counts());
        let (lost, copied) =
            inside.fold((0, 0), |(lost, copied), counts| (lost + counts.lost, copied + counts.copied));
        Counts { entered: self.entered, left: self.left, lost: lost + self.lost, copied }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Class, Rate, Wire};
    use engine::{Buffer, Nanos};
    use proptest::prelude::*;

    fn wire(latency: u64, megabits: Option<u64>) -> Wire {
        Wire::new(Nanos::new(latency), megabits.map(Rate::from_megabits))
    }

    fn frame(id: u64, length: u32) -> Frame {
        Frame::new(id, length, Class::BEST_EFFORT, Buffer::EMPTY)
    }

    /// The times when frames come out, polled as soon as possible or only at the end.
    fn run(mut path: Path, entries: &[(u64, u32)], late: bool) -> Vec<(u64, u64)> {
        let mut out = Vec::new();
        let mut drain = |path: &mut Path, until: Instant| {
            while let Some(at) = path.next().filter(|at| *at <= until) {
                if let Some(frame) = path.poll(at) {
                    out.push((frame.id, at.as_nanos()));
                }
            }
        };
        for (id, (at, length)) in (0..).zip(entries) {
            let at = Instant::from_nanos(*at);
            if !late {
                drain(&mut path, at);
            }
            path.enter(at, frame(id, *length));
        }
        drain(&mut path, Instant::from_nanos(u64::MAX));
        let counts = path.counts();
        assert_eq!((counts.entered, counts.left), (entries.len() as u64, out.len() as u64));
        assert_eq!(path.next(), None);
        out
    }

    #[test]
    fn latencies_and_transmissions_add_up() {
        // 1518 B and 20 B of preamble and gap at 1 Gbit/s are 12.304 µs. The gap is not part of the
        // delay: 12.208 µs.
        let path: Path =
            [wire(1_000, Some(1_000)), wire(50, None), wire(0, Some(1_000))].into_iter().collect();
        let out = run(path, &[(0, 1518), (0, 1518)], false);
        assert_eq!(out, [(0, 1_050 + 2 * 12_208), (1, 1_050 + 2 * 12_208 + 12_304)]);
    }

    #[test]
    fn a_path_of_no_hops_takes_no_time() {
        assert_eq!(run(Path::default(), &[(5, 64), (9, 64)], false), [(0, 5), (1, 9)]);
    }

    #[test]
    fn a_damaged_frame_is_dropped_at_the_end() {
        let mut path: Path = [wire(10, None)].into_iter().collect();
        path.enter(Instant::ZERO, Frame { intact: false, ..frame(0, 64) });
        assert!(path.poll(Instant::from_nanos(100)).is_none());
        assert_eq!(path.counts(), Counts { entered: 1, lost: 1, ..Counts::default() });
    }

    proptest! {
        #[test]
        fn a_late_poll_returns_the_same_times(
            gaps in proptest::collection::vec((0_u64..20_000, 64_u32..1519), 1..50),
        ) {
            let entries: Vec<_> = gaps.iter().scan(0, |at, (gap, length)| {
                *at += gap;
                Some((*at, *length))
            }).collect();
            let path = || [wire(100, Some(1_000)), wire(7_000, Some(100)), wire(3, None)].into_iter().collect::<Path>();
            let nested = Path::new([AnyHop::from(path()), AnyHop::from(Path::default())]);
            let punctual = run(path(), &entries, false);
            prop_assert_eq!(&punctual, &run(path(), &entries, true));
            prop_assert_eq!(&punctual, &run(nested, &entries, true));
        }
    }
}
