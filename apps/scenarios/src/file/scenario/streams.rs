//! `[[stream]]`: frames that cross the link beside everything else, and are measured.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use engine::{Instant, Nanos, Rng};
use network_models::frame::{CHECK_SEQUENCE, FRAME_MIN, HEADER, TAG};
use network_models::network::Side;
use network_models::streams::{Measured, Order};
use network_models::tsn::traffic::{Pattern, Source};
use network_models::{Class, Hop, Path};
use serde::Deserialize;
use sim::Digest;
use toml::Spanned;

use super::super::Wrong;
use super::super::text::{Text, one_of};
use super::{Done, Link, Played, Scenario};
use crate::fabric_bench::FabricBench;
use crate::test_bench::{Outcome, TestBench};

/// The largest number of streams.
const STREAMS_MAX: usize = 64;
/// Allowed numbers of frames that a stream sends at least.
const COUNTS: RangeInclusive<u64> = 1..=1_000_000;
/// Number of frames that a stream sends at least, where the file gives none.
const COUNT: u64 = 10_000;
/// Allowed numbers of frames of a burst.
const BURSTS: RangeInclusive<u32> = 1..=1_024;
/// Allowed times from one frame to the next on average.
const INTERVALS: RangeInclusive<Nanos> = Nanos::new(100)..=Nanos::from_secs(100);
/// How long frames have after the last one was sent until they count as lost.
const STRAGGLERS: Nanos = Nanos::from_secs(10);

/// A stream of a file.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    name: String,
    from: Side,
    source: Source,
    /// Number of frames that are sent at least.
    count: u64,
    /// The time from one frame to the next on average.
    interval: Nanos,
}

impl Stream {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Refuses more frames than can be measured.
    fn check(&self, sent: u64) -> Result<(), String> {
        if sent <= Measured::FRAMES_MAX {
            return Ok(());
        }
        Err(format!(
            "stream '{}' sends {sent} frames until all loads and streams have ended, and {} can be measured; \
             expected a longer period or mean, a lower count of the other streams, or less of other loads",
            self.name,
            Measured::FRAMES_MAX
        ))
    }
}

/// The measurements of a stream.
#[derive(Clone, Debug)]
pub struct StreamDone {
    /// The name, and the latencies of the frames that arrived. Frames that were lost have failed.
    pub done: Done,
    /// The side that sends.
    pub from: Side,
    /// The class of the frames.
    pub class: Class,
    /// Number of frames that were sent.
    pub sent: u64,
    /// For each hop its name, and how long each frame waited there.
    pub hops: Vec<(String, Vec<Nanos>)>,
}

/// The table `[[stream]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamTable {
    name: Spanned<String>,
    direction: Option<Spanned<String>>,
    class: Option<Spanned<u8>>,
    /// Length of a frame from the destination address to the check sequence.
    length: Spanned<u32>,
    /// The time between two bursts.
    period: Option<Spanned<Text<Nanos>>>,
    /// The time of the first burst.
    offset: Option<Spanned<Text<Nanos>>>,
    /// Number of frames of a burst.
    frames: Option<Spanned<u32>>,
    /// The largest delay of a burst.
    jitter: Option<Spanned<Text<Nanos>>>,
    /// The mean time between random frames.
    mean: Option<Spanned<Text<Nanos>>>,
    count: Option<Spanned<u64>>,
}

/// The streams of a file, which cross its `link`.
pub(super) fn streams(
    tables: &[Spanned<StreamTable>],
    link: Option<&Link>,
    others: &[String],
) -> Result<Vec<Stream>, Wrong> {
    let Some(first) = tables.first() else { return Ok(Vec::new()) };
    let Some(link) = link else {
        return Err(Wrong::at(first, "stream", "expected a [link] that carries the stream"));
    };
    if let Some(extra) = tables.get(STREAMS_MAX) {
        return Err(Wrong::at(extra, "stream", format!("expected {STREAMS_MAX} streams at most")));
    }
    let mut names: BTreeSet<&str> = others.iter().map(String::as_str).collect();
    for place in tables {
        let name = &place.get_ref().name;
        if !names.insert(name.get_ref()) {
            let why = format!("expected a name that no other result has, not '{}'", name.get_ref());
            return Err(Wrong::at(name, "name", why));
        }
    }
    tables.iter().map(|place| stream(place, link)).collect()
}

fn stream(place: &Spanned<StreamTable>, link: &Link) -> Result<Stream, Wrong> {
    let table = place.get_ref();
    let from = match &table.direction {
        None => Side::Near,
        Some(direction) => one_of(direction.get_ref(), &[("there", Side::Near), ("back", Side::Far)])
            .map_err(|why| Wrong::at(direction, "direction", why))?,
    };
    let class = match &table.class {
        None => Class::BEST_EFFORT,
        Some(class) => Class::new(*class.get_ref())
            .ok_or_else(|| Wrong::at(class, "class", format!("expected 0 to 7, not {}", class.get_ref())))?,
    };
    let lengths = FRAME_MIN..=link.config().mtu.saturating_add(HEADER + TAG + CHECK_SEQUENCE);
    let length = *table.length.get_ref();
    if !lengths.contains(&length) {
        let range = format!("{} to {} bytes", lengths.start(), lengths.end());
        let why =
            format!("expected {range}, header and check sequence included (mtu of [link]), not {length}");
        return Err(Wrong::at(&table.length, "length", why));
    }
    let (pattern, interval) = pattern(place)?;
    let count = super::super::within(table.count.as_ref(), COUNT, "count", &COUNTS)?;
    let name = table.name.get_ref().clone();
    Ok(Stream { name, from, source: Source { class, length, pattern }, count, interval })
}

/// When the frames of a stream are sent, and the time from one to the next on average.
fn pattern(place: &Spanned<StreamTable>) -> Result<(Pattern, Nanos), Wrong> {
    let table = place.get_ref();
    let interval = |value: &Spanned<Text<Nanos>>, key: &str, frames: u32| {
        let interval = Nanos::new(value.get_ref().0.get() / u64::from(frames));
        if INTERVALS.contains(&interval) {
            return Ok(interval);
        }
        let (least, most) = (*INTERVALS.start(), *INTERVALS.end());
        let why = format!("expected {least} to {most} for each frame, not {interval}");
        Err(Wrong::at(value, key, why))
    };
    match (&table.period, &table.mean) {
        (Some(period), None) => {
            let frames = super::super::within(table.frames.as_ref(), 1, "frames", &BURSTS)?;
            let each = interval(period, "period", frames)?;
            let time = |value: &Option<Spanned<Text<Nanos>>>| {
                value.as_ref().map_or(Nanos::ZERO, |time| time.get_ref().0)
            };
            let (period, offset, jitter) = (period.get_ref().0, time(&table.offset), time(&table.jitter));
            for (key, value) in [("offset", &table.offset), ("jitter", &table.jitter)] {
                if let Some(value) = value.as_ref().filter(|value| value.get_ref().0 >= period) {
                    let why = format!("expected less than the period of {period}, not {}", value.get_ref().0);
                    return Err(Wrong::at(value, key, why));
                }
            }
            Ok((Pattern::Periodic { period, offset, frames, jitter }, each))
        }
        (None, Some(mean)) => {
            let frames = table.frames.as_ref().map(|value| ("frames", value.span()));
            let times = [("offset", &table.offset), ("jitter", &table.jitter)];
            let times = times.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?.span())));
            if let Some((key, span)) = frames.into_iter().chain(times).next() {
                let why = "expected with period only: frames with a mean come singly, at random times";
                return Err(Wrong::at(&Spanned::new(span, ()), key, why));
            }
            let each = interval(mean, "mean", 1)?;
            Ok((Pattern::Random { mean: each }, each))
        }
        _ => Err(Wrong::at(place, "stream", "expected one of period and mean")),
    }
}

/// Machines and networks that streams cross.
pub(super) trait Carrier {
    /// Gives the streams an order.
    fn order(&mut self, order: Order);
    /// Lets this time pass.
    fn pass(&mut self, time: Nanos);
    /// Shows the measurements of the streams from `side`.
    fn measured(&self, side: Side, look: &mut dyn FnMut(&Measured));
    /// Number of events so far, and a fingerprint of all that happened.
    fn state(&self) -> (u64, u64);
}

impl Carrier for TestBench {
    fn order(&mut self, order: Order) {
        self.order_streams(order);
    }

    fn pass(&mut self, time: Nanos) {
        self.pass(time);
    }

    fn measured(&self, side: Side, look: &mut dyn FnMut(&Measured)) {
        self.network().into_iter().flat_map(|network| network.measured(side)).for_each(look);
    }

    fn state(&self) -> (u64, u64) {
        (self.events(), self.digest())
    }
}

impl Carrier for FabricBench {
    fn order(&mut self, order: Order) {
        self.order_streams(order);
    }

    fn pass(&mut self, time: Nanos) {
        self.pass(time);
    }

    fn measured(&self, side: Side, look: &mut dyn FnMut(&Measured)) {
        self.measured(side, look);
    }

    fn state(&self) -> (u64, u64) {
        (self.events(), self.digest())
    }
}

/// Paths that nothing else crosses.
#[derive(Debug)]
struct Alone {
    paths: [Path; 2],
    now: Instant,
    events: u64,
}

impl Carrier for Alone {
    fn order(&mut self, order: Order) {
        self.paths.iter_mut().for_each(|path| path.order_streams(order));
    }

    fn pass(&mut self, time: Nanos) {
        let end = self.now + time;
        while let Some(at) = self.paths.iter().filter_map(Path::next).min().filter(|at| *at <= end) {
            self.events += 1;
            for path in &mut self.paths {
                while path.poll(at).is_some() {}
            }
        }
        self.now = end;
    }

    fn measured(&self, side: Side, look: &mut dyn FnMut(&Measured)) {
        self.paths[side.index()].measured().for_each(look);
    }

    fn state(&self) -> (u64, u64) {
        (self.events, 0)
    }
}

impl Scenario {
    /// Whether the scenario has streams and nothing else.
    pub(super) fn is_streams_alone(&self) -> bool {
        !self.streams.is_empty() && self.tasks.is_empty() && self.workloads.is_empty()
    }

    /// The paths of the link with all streams; `None` without a link.
    pub(super) fn paths(&self, seed: u64) -> Option<[Path; 2]> {
        let paths = self.link.as_ref()?.paths(&Rng::from_seed(seed).fork("link"));
        let rng = Rng::from_seed(seed).fork("streams");
        let sources = |side: Side| {
            let own = self.streams.iter().filter(move |stream| stream.from == side);
            own.map(|stream| (stream.source, rng.fork(&stream.name))).collect::<Vec<_>>()
        };
        let [there, back] = paths;
        Some([there.with_streams(sources(Side::Near)), back.with_streams(sources(Side::Far))])
    }

    /// Plays streams without any other load.
    pub(super) fn play_streams(&self, seed: u64) -> Result<Played, String> {
        let paths = self.paths(seed).ok_or("there is no [link]")?;
        let mut alone = Alone { paths, now: Instant::ZERO, events: 0 };
        self.measure_streams(&mut alone);
        self.ended(&mut alone, Played::default())
    }

    /// Begins to measure the streams that cross `carrier`.
    pub(super) fn measure_streams(&self, carrier: &mut impl Carrier) {
        if !self.streams.is_empty() {
            carrier.order(Order::Measure);
        }
    }

    /// The other loads have ended: lets the streams end, and completes `played`.
    pub(super) fn ended(&self, carrier: &mut impl Carrier, mut played: Played) -> Result<Played, String> {
        self.end_streams(carrier)?;
        (played.events, played.digest) = carrier.state();
        if self.streams.is_empty() {
            return Ok(played);
        }
        let mut digest = Digest::default();
        digest.word(played.digest);
        let names = self.hop_names();
        for (stream, measured) in self.streams.iter().zip(self.look(carrier, Measured::clone)) {
            measured.latencies.iter().for_each(|latency| digest.word(latency.get()));
            played.streams.push(done(stream, measured, &names[stream.from.index()]));
        }
        played.digest = digest.value();
        Ok(played)
    }

    /// Lets each stream send its count of frames, and waits for those under way.
    fn end_streams(&self, carrier: &mut impl Carrier) -> Result<(), String> {
        if self.streams.is_empty() {
            return Ok(());
        }
        loop {
            let sent = self.look(carrier, |measured| measured.sent);
            let missing = self.streams.iter().zip(&sent).filter_map(|(stream, sent)| {
                let missing = stream.count.checked_sub(*sent).filter(|missing| *missing > 0)?;
                // The last frame of a regular stream is sent just before the end of this time.
                Some((stream.interval * missing).saturating_sub(Nanos::new(1)))
            });
            let time = missing.max();
            for (stream, sent) in self.streams.iter().zip(&sent) {
                let further = time.unwrap_or_default().get() / stream.interval.get();
                stream.check(sent.saturating_add(further))?;
            }
            let Some(time) = time else { break };
            carrier.pass(time.max(Nanos::new(1)));
        }
        carrier.order(Order::Stop);
        let (mut left, mut time) = (STRAGGLERS, Nanos::from_millis(1));
        let under_way = |measured: &Measured| measured.sent > measured.latencies.len() as u64;
        while left > Nanos::ZERO && self.look(carrier, under_way).contains(&true) {
            carrier.pass(time.min(left));
            left = left.saturating_sub(time);
            time = time * 2;
        }
        Ok(())
    }

    /// A value of each stream's measurements so far, in the order of the file.
    fn look<T>(&self, carrier: &impl Carrier, value: impl Fn(&Measured) -> T) -> Vec<T> {
        let mut sides = Side::BOTH.map(|side| {
            let mut values = Vec::new();
            carrier.measured(side, &mut |measured| values.push(value(measured)));
            values.into_iter()
        });
        self.streams.iter().filter_map(|stream| sides[stream.from.index()].next()).collect()
    }

    /// The names of the hops of each direction.
    fn hop_names(&self) -> [Vec<String>; 2] {
        let paths = self.link.as_ref().map(|link| link.paths(&Rng::from_seed(0))).unwrap_or_default();
        paths.map(|path| path.hops().map(|hop| hop.name().into_owned()).collect())
    }
}

/// The result of a stream over hops with these names.
fn done(stream: &Stream, measured: Measured, names: &[String]) -> StreamDone {
    let received = measured.latencies.len() as u64;
    let outcome = Outcome {
        numbers: (0..received).collect(),
        failed: measured.sent - received,
        bytes: received * u64::from(stream.source.length),
        times: measured.latencies,
        began: measured.began,
        ended: measured.ended,
        ends: Vec::new(),
    };
    // Faults that a [[fault]] adds are a hop behind those of the file.
    let names = names.iter().cloned().chain(std::iter::repeat("faults".to_owned()));
    StreamDone {
        done: Done { name: stream.name.clone(), kind: None, outcome, seen: Vec::new() },
        from: stream.from,
        class: stream.source.class,
        sent: measured.sent,
        hops: names.zip(measured.waits).collect(),
    }
}
