//! Streams of frames that are measured from one end of a path to the other.
//!
//! A [`Path`](crate::Path) with streams sends their frames itself, at the times of their sources
//! and whether other frames are inside or not. The frames share every hop with those that enter the
//! path, and are taken out at its end.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use engine::{Buffer, Instant, Nanos, Rng};

use crate::trail::Part;
use crate::tsn::traffic::{Running, Source};
use crate::{AnyHop, Frame};

/// Set in the numbers of streams' frames.
const OWN: u64 = 1 << 63;
/// Where the number of the stream is in a frame's number.
const STREAM_SHIFT: u32 = 48;
/// Number of frames of a stream that are followed at a time. Beyond this the oldest count as lost.
const UNDER_WAY_MAX: usize = 1 << 18;

/// An order to the streams of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Frames count that are sent from now on.
    Measure,
    /// No frame is sent any more.
    Stop,
}

/// The measurements of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Number of frames that were sent.
    pub sent: u64,
    /// The time from sending to arrival of each frame that arrived, in the order of arrivals.
    pub latencies: Vec<Nanos>,
    /// For each hop, how long each frame that arrived waited there, in the order of arrivals: for
    /// the link, a gate, a grant, a slot, or another transmission.
    pub waits: Vec<Vec<Nanos>>,
    /// When the first frame was sent.
    pub began: Instant,
    /// When the last frame arrived.
    pub ended: Instant,
    /// Whether there were more than [`Measured::FRAMES_MAX`] frames; those beyond do not count.
    pub is_full: bool,
}

impl Measured {
    /// Number of frames of a stream that are measured at most.
    pub const FRAMES_MAX: u64 = 1 << 22;
}

/// A frame on its way.
#[derive(Clone, Debug)]
struct Flight {
    sent: Instant,
    /// When the frame left the hop before.
    at: Instant,
    waits: Vec<Nanos>,
}

#[derive(Clone, Debug)]
struct Stream {
    running: Running,
    frames: u64,
    under_way: BTreeMap<u64, Flight>,
    measured: Measured,
}

impl Stream {
    /// When the next frame is sent. A saturated source has no such time, and sends nothing.
    fn next(&self) -> Option<Instant> {
        self.running.next()
    }
}

/// The streams of a path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Streams {
    streams: Vec<Stream>,
    /// Cached time of the next frame of any stream.
    next: Option<Instant>,
    /// Whether frames that are sent now count.
    measures: bool,
}

impl Streams {
    /// Maximum number of streams of a path.
    const STREAMS_MAX: usize = 1 << 12;

    pub(crate) fn new(sources: impl IntoIterator<Item = (Source, Rng)>) -> Self {
        let stream = |(source, rng)| Stream {
            running: Running::new(source, rng),
            frames: 0,
            under_way: BTreeMap::new(),
            measured: Measured::default(),
        };
        let streams: Vec<_> = sources.into_iter().map(stream).collect();
        assert!(streams.len() <= Self::STREAMS_MAX, "a path with {} streams", streams.len());
        let mut all = Self { streams, ..Self::default() };
        all.refresh();
        all
    }

    /// Whether the frame with this number belongs to a stream.
    pub(crate) const fn owns(frame: u64) -> bool {
        frame & OWN != 0
    }

    pub(crate) fn order(&mut self, order: Order) {
        match order {
            Order::Measure => {
                self.measures = true;
                for stream in &mut self.streams {
                    stream.under_way.clear();
                    stream.measured = Measured::default();
                }
            }
            Order::Stop => {
                self.measures = false;
                self.next = None;
            }
        }
    }

    /// When the next frame is sent.
    pub(crate) const fn next(&self) -> Option<Instant> {
        self.next
    }

    fn refresh(&mut self) {
        self.next = self.streams.iter().filter_map(Stream::next).min();
    }

    /// The frame that is sent at `now`, the time of [`Streams::next`].
    pub(crate) fn send(&mut self, now: Instant) -> Option<Frame> {
        let due = |stream: &&mut Stream| stream.next().is_some_and(|at| at <= now);
        let (number, stream) = (0_u64..).zip(&mut self.streams).find(|(_, stream)| due(stream))?;
        let Source { class, length, .. } = stream.running.source;
        let id = OWN | number << STREAM_SHIFT | stream.frames;
        let mut frame = Frame::new(id, length, class, Buffer::EMPTY);
        frame.sent = now;
        stream.frames += 1;
        stream.running.advance();
        let measured = &mut stream.measured;
        measured.is_full |= self.measures && measured.sent >= Measured::FRAMES_MAX;
        if self.measures && !measured.is_full {
            if measured.sent == 0 {
                (measured.began, measured.ended) = (now, now);
            }
            measured.sent += 1;
            if stream.under_way.len() >= UNDER_WAY_MAX {
                stream.under_way.pop_first();
            }
            stream.under_way.insert(id, Flight { sent: now, at: now, waits: Vec::new() });
        }
        self.refresh();
        Some(frame)
    }

    fn stream_of(&mut self, frame: &Frame) -> Option<&mut Stream> {
        let number = (frame.id & !OWN) >> STREAM_SHIFT;
        self.streams.get_mut(usize::try_from(number).ok()?)
    }

    /// A frame has left the hop with this index. Only the first of several copies counts.
    pub(crate) fn crossed(&mut self, now: Instant, frame: &Frame, index: usize, hop: &AnyHop) {
        let Some(stream) = self.stream_of(frame).filter(|_| Self::owns(frame.id)) else { return };
        let Some(flight) = stream.under_way.get_mut(&frame.id) else { return };
        if flight.waits.len() == index {
            let parts = hop.parts(frame.length, now - flight.at);
            let waits = parts.into_iter().filter(|(part, _)| *part == Part::Waiting);
            flight.waits.push(waits.fold(Nanos::ZERO, |sum, (_, time)| sum + time));
            flight.at = now;
        }
    }

    /// A frame has arrived at the end of the path. Only the first of several copies counts.
    pub(crate) fn arrived(&mut self, now: Instant, frame: &Frame) {
        let Some(stream) = self.stream_of(frame) else { return };
        let Some(flight) = stream.under_way.remove(&frame.id) else { return };
        let measured = &mut stream.measured;
        measured.latencies.push(now - flight.sent);
        measured.waits.resize_with(flight.waits.len().max(measured.waits.len()), Vec::new);
        for (all, wait) in measured.waits.iter_mut().zip(flight.waits) {
            all.push(wait);
        }
        measured.ended = now;
    }

    /// The measurements of each stream.
    pub(crate) fn measured(&self) -> impl ExactSizeIterator<Item = &Measured> {
        self.streams.iter().map(|stream| &stream.measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethernet::{Port, PortSettings};
    use crate::tsn::traffic::Pattern;
    use crate::{Class, Hop, Path, Rate, Wire};

    const PERIODIC: Pattern = Pattern::Periodic {
        period: Nanos::new(900),
        offset: Nanos::new(5),
        frames: 1,
        jitter: Nanos::new(99),
    };
    const RANDOM: Pattern = Pattern::Random { mean: Nanos::new(4_000) };

    fn path() -> Path {
        let port = Port::new(PortSettings::new(Rate::from_gigabits(1)), &Rng::from_seed(1));
        let sources = [(7, 64, PERIODIC), (0, 400, RANDOM)].map(|(class, length, pattern)| {
            let class = Class::new(class).expect("a class");
            (Source { class, length, pattern }, Rng::from_seed(u64::from(length)))
        });
        Path::new([AnyHop::from(port), Wire::new(Nanos::new(70), None).into()]).with_streams(sources)
    }

    /// Sends own frames and looks at the path each `step`. Returns the own frames that arrive, and
    /// the measurements.
    fn run(step: u64) -> (Vec<u64>, Vec<Measured>) {
        let (mut path, mut own) = (path(), Vec::new());
        path.order_streams(Order::Measure);
        for at in (0..200_000).step_by(20_000) {
            let mut now = at;
            path.enter(Instant::from_nanos(at), Frame::new(at, 100, Class::BEST_EFFORT, Buffer::EMPTY));
            while now < at + 19_999 {
                now = (now + step).min(at + 19_999);
                while let Some(frame) = path.poll(Instant::from_nanos(now)) {
                    own.push(frame.id);
                }
            }
        }
        path.order_streams(Order::Stop);
        while let Some(at) = path.next() {
            own.extend(path.poll(at).map(|frame| frame.id));
        }
        let counts = path.counts();
        assert_eq!((counts.entered, counts.lost), (counts.left, 0));
        (own, path.measured().cloned().collect())
    }

    #[test]
    fn a_late_poll_measures_the_same() {
        let (own, measured) = run(1);
        assert_eq!(own.len(), 10);
        let sent: Vec<_> = measured.iter().map(|stream| stream.sent).collect();
        assert!(sent[0] > 200 && sent[1] > 30, "{sent:?}");
        for stream in &measured {
            assert_eq!((stream.latencies.len() as u64, stream.waits.len()), (stream.sent, 2));
            // 64 B take 576 ns on the link, and the wire 70 ns.
            let least = stream.latencies.iter().min().copied();
            assert!(least >= Some(Nanos::new(646)), "{least:?}");
            assert!(stream.waits[0].iter().any(|wait| *wait > Nanos::ZERO));
            assert!(stream.waits[1].iter().all(|wait| *wait == Nanos::ZERO));
        }
        assert_eq!(run(19_999), (own, measured));
    }

    #[test]
    fn frames_count_between_the_orders_only() {
        let mut path = path();
        assert!(path.poll(Instant::from_nanos(50_000)).is_none());
        assert!(path.measured().all(|stream| stream.sent == 0));
        path.order_streams(Order::Measure);
        assert!(path.poll(Instant::from_nanos(100_000)).is_none());
        path.order_streams(Order::Stop);
        let sent: Vec<_> = path.measured().map(|stream| stream.sent).collect();
        assert!((54..=57).contains(&sent[0]), "{sent:?}");
        assert!(path.poll(Instant::from_nanos(200_000)).is_none());
        assert_eq!(path.next(), None);
        assert!(path.measured().zip(sent).all(|(stream, sent)| stream.sent == sent));
    }
}
