//! Activity over time: packets, bytes, commands and their depth, in as many bins as a chart has
//! columns.

use captures::held;
use engine::{Instant, Nanos};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::query::{Query, Refusal};
use crate::commands::ui::index::{Class, Counts, Index, Row};

/// The most bins of an answer.
const BINS_MAX: u64 = 4096;
/// The most blocks of frames that are read again to be exact.
const EXACT_BLOCKS: usize = 256;

/// The events over time, a number for each bin. Where it is not exact, frames between two marks of
/// the index count as evenly spread.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Series {
    from_ns: u64,
    to_ns: u64,
    /// The number of bins.
    bins: u64,
    /// The time of a bin.
    width_ns: f64,
    exact: bool,
    frames: Frames,
    bytes_down: Vec<Short>,
    bytes_up: Vec<Short>,
    /// Commands that ended.
    commands: Vec<Short>,
    command_bytes: Vec<Short>,
    failed: Vec<Short>,
    /// Commands under way, on average.
    depth: Vec<Short>,
    latency_mean_ns: Vec<Short>,
    latency_max_ns: Vec<Short>,
}

/// Frames by their class.
#[derive(Serialize, JsonSchema)]
struct Frames {
    reads: Vec<Short>,
    writes: Vec<Short>,
    completions: Vec<Short>,
    others: Vec<Short>,
    segments: Vec<Short>,
    foreign: Vec<Short>,
}

/// A number that is printed with three decimals at most.
#[derive(JsonSchema)]
#[schemars(inline)]
struct Short(f64);

impl Serialize for Short {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rounded = (self.0 * 1000.0).round() / 1000.0;
        if rounded == 0.0 { serializer.serialize_u64(0) } else { serializer.serialize_f64(rounded) }
    }
}

/// A stretch of time, divided into bins.
struct Bins {
    from: Instant,
    to: Instant,
    /// Nanoseconds of each.
    width: f64,
    count: usize,
}

impl Bins {
    /// The place of a time, in bins from the beginning. It may lie outside.
    fn place(&self, at: Instant) -> f64 {
        let after = at.as_nanos() as f64 - self.from.as_nanos() as f64;
        after / self.width
    }

    fn index(&self, at: Instant) -> Option<usize> {
        let is_within = at >= self.from && at < self.to;
        let place = self.place(at).floor();
        is_within.then(|| whole(place).min(self.count - 1))
    }

    /// Shows each bin that a stretch covers, with the share of the stretch in it.
    fn spread(&self, first: Instant, last: Instant, mut show: impl FnMut(usize, f64)) {
        let (start, end) = (self.place(first), self.place(last));
        if end - start < 1e-9 {
            self.index(first).into_iter().for_each(|index| show(index, 1.0));
            return;
        }
        let (least, most) = (start.max(0.0), end.min(self.count as f64));
        let mut index = whole(least.floor());
        while index < self.count && (index as f64) < most {
            let within = most.min((index + 1) as f64) - least.max(index as f64);
            show(index, within.max(0.0) / (end - start));
            index += 1;
        }
    }
}

/// A number that is not negative, as an index.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
fn whole(number: f64) -> usize {
    number.max(0.0) as usize
}

/// Commands over time.
struct Commands {
    ended: Vec<f64>,
    bytes: Vec<f64>,
    failed: Vec<f64>,
    /// Sums and largest of the latencies of ended commands, in nanoseconds.
    latency: Vec<f64>,
    latency_max: Vec<f64>,
    /// Commands under way, on average.
    depth: Vec<f64>,
    /// The change of `depth` from one bin to the next.
    steps: Vec<f64>,
}

impl Commands {
    fn new(count: usize) -> Self {
        let zeros = || vec![0.0; count];
        Self {
            ended: zeros(),
            bytes: zeros(),
            failed: zeros(),
            latency: zeros(),
            latency_max: zeros(),
            depth: zeros(),
            steps: vec![0.0; count + 1],
        }
    }

    fn add(&mut self, bins: &Bins, row: &Row) {
        let end = row.begun + row.latency;
        if let Some(index) = bins.index(end) {
            self.ended[index] += 1.0;
            self.bytes[index] += row.bytes as f64;
            self.failed[index] += f64::from(u8::from(row.is_failed()));
            let latency = row.latency.get() as f64;
            self.latency[index] += latency;
            self.latency_max[index] = self.latency_max[index].max(latency);
        }
        let (start, end) = (bins.place(row.begun).max(0.0), bins.place(end).min(self.depth.len() as f64));
        if start >= end {
            return;
        }
        // Whole bins change the steps only, so that a long command costs no more than a short one.
        let (first, last) = (whole(start.floor()), whole(end.floor()));
        if first == last {
            self.depth[first] += end - start;
            return;
        }
        self.depth[first] += (first + 1) as f64 - start;
        self.steps[first + 1] += 1.0;
        self.steps[last] -= 1.0;
        if let Some(depth) = self.depth.get_mut(last) {
            *depth += end - last as f64;
        }
    }

    fn finish(&mut self) {
        let mut under_way = 0.0;
        for (depth, step) in self.depth.iter_mut().zip(&self.steps) {
            under_way += step;
            *depth += under_way;
        }
        for (sum, count) in self.latency.iter_mut().zip(&self.ended) {
            *sum = if *count > 0.0 { *sum / count } else { 0.0 };
        }
    }
}

/// Answers a request for bins of a stretch of time.
pub(super) fn of(index: &Index, query: &Query) -> Result<Series, Refusal> {
    let span = (index.last - index.first).get().saturating_add(1);
    let from = query.number("from", 0..=span)?.unwrap_or(0);
    let to = query.number("to", 0..=span)?.unwrap_or(span);
    let count = query.number("bins", 1..=BINS_MAX)?.unwrap_or(600);
    let kind = query.number("kind", 0..=u64::from(u16::MAX))?;
    if to <= from {
        return Err(Refusal::value("to", &to.to_string(), &format!("more than from, {from}")));
    }
    // Bins of less than a nanosecond would be empty.
    let count = count.min(to - from);
    let bins = Bins {
        from: index.first + Nanos::new(from),
        to: index.first + Nanos::new(to),
        width: (to - from) as f64 / count as f64,
        count: usize::try_from(count).unwrap_or(1),
    };
    let (frames, is_exact) = frames(index, &bins)?;
    let mut commands = Commands::new(bins.count);
    let is_wanted = |row: &&Row| kind.is_none_or(|kind| kind == u64::from(row.kind));
    index.commands.rows().iter().filter(is_wanted).for_each(|row| commands.add(&bins, row));
    commands.finish();
    let of_class = |class: Class| frames.iter().map(|counts| Short(counts.frames[class as usize])).collect();
    let all = |values: &[f64]| values.iter().map(|value| Short(*value)).collect();
    let bytes = |way: usize| frames.iter().map(|counts| Short(counts.bytes[way])).collect();
    Ok(Series {
        from_ns: from,
        to_ns: to,
        bins: count,
        width_ns: bins.width,
        exact: is_exact,
        frames: Frames {
            reads: of_class(Class::Read),
            writes: of_class(Class::Write),
            completions: of_class(Class::Completion),
            others: of_class(Class::Other),
            segments: of_class(Class::Segment),
            foreign: of_class(Class::Foreign),
        },
        bytes_down: bytes(0),
        bytes_up: bytes(1),
        commands: all(&commands.ended),
        command_bytes: all(&commands.bytes),
        failed: all(&commands.failed),
        depth: all(&commands.depth),
        latency_mean_ns: all(&commands.latency),
        latency_max_ns: all(&commands.latency_max),
    })
}

/// The traffic in each bin, and whether that is exact. Where it is not, the frames of a block count
/// as evenly spread over its time.
fn frames(index: &Index, bins: &Bins) -> Result<(Vec<Counts>, bool), Refusal> {
    let mut counts = vec![Counts::default(); bins.count];
    let found: Vec<_> = index.blocks.within(bins.from, bins.to).collect();
    let (Some((first, _)), Some((last, _))) = (found.first(), found.last()) else {
        return Ok((counts, true));
    };
    if last - first >= EXACT_BLOCKS {
        for (_, block) in &found {
            // A block whose frames passed at once has a nanosecond.
            let end = block.last + Nanos::new(1);
            bins.spread(block.first, end, |bin, share| counts[bin].add_share(&block.counts, share));
        }
        return Ok((counts, false));
    }
    let [start, end] = [*first, *last + 1].map(|block| index.blocks.start_of(block as u64));
    // Which segments are of NVMe/TCP is known of the whole capture alone.
    let has_pdus = index.statistics.pdus != 0;
    index.blocks.read_from(&index.path, start, |frame| {
        if frame.number >= end {
            return false;
        }
        let held = held(&frame);
        if let Some(bin) = bins.index(frame.at) {
            counts[bin].add(&held, Class::of(&held, has_pdus));
        }
        true
    })?;
    Ok((counts, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bins() -> Bins {
        Bins { from: Instant::from_nanos(100), to: Instant::from_nanos(200), width: 10.0, count: 10 }
    }

    #[test]
    fn a_stretch_is_shared_among_its_bins() {
        let at = Instant::from_nanos;
        let of = |first, last| {
            let mut shares = Vec::new();
            bins().spread(at(first), at(last), |bin, share| shares.push((bin, (share * 100.0).round())));
            shares
        };
        assert_eq!(of(105, 125), [(0, 25.0), (1, 50.0), (2, 25.0)]);
        assert_eq!(of(80, 120), [(0, 25.0), (1, 25.0)], "half of it is before the first bin");
        assert_eq!(of(195, 295), [(9, 5.0)]);
        assert_eq!(of(150, 150), [(5, 100.0)]);
        assert_eq!((of(0, 90), of(300, 400)), (vec![], vec![]));
    }
}
