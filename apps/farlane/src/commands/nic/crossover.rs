//! Times by the size of packets, inline beside DMA: as a table with bars, and as a picture.

use std::fmt::Write as _;

use distribution::Distribution;
use engine::Nanos;

use super::latency::{Floor, Latency};
use crate::drawing::{BLACK, COLOURS, Drawing, GREY, PALE, Style};

/// Columns of the longest bar.
const WIDTH: u64 = 40;
/// Bars of the histogram.
const BARS: u64 = 16;

/// Size of the picture, and of the margins around its plot, in pixels.
const SIZE: (u32, u32) = (760, 420);
const LEFT: f64 = 70.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;

fn bar(length: Nanos, longest: Nanos) -> String {
    let columns = length.get() * WIDTH / longest.get().max(1);
    "█".repeat(usize::try_from(columns.clamp(1, WIDTH)).unwrap_or(1))
}

/// The report for people: the floors, each size, where inline pays, and a histogram.
pub(super) fn text(card: &str, sizes: &[Latency], floor: &Floor) -> String {
    let mut text = format!("one way, half of the round trip, through {card}\n\n");
    let floors = [&floor.crossing_ns, &floor.round_trip_ns, &floor.kernel_udp_one_way_ns];
    let all = sizes.iter().map(|one| &one.one_way_ns).chain(floors).chain(&floor.wake_ns);
    let longest = all.map(Distribution::median).max().unwrap_or(Nanos::new(1));
    let mut line = |name: String, path: &str, of: &Distribution| {
        let (p50, p99) = (of.median(), of.quantile(0.99));
        let _ = writeln!(
            text,
            "  {name:<30} {path:<7} p50 {:>9}  p99 {:>9}  {}",
            p50.to_string(),
            p99.to_string(),
            bar(p50, longest)
        );
    };
    line("floor: a line crosses".into(), "", &floor.crossing_ns);
    line("floor: two lines cross".into(), "", &floor.round_trip_ns);
    line("the kernel's UDP, 60 B".into(), "", &floor.kernel_udp_one_way_ns);
    if let Some(wakes) = &floor.wake_ns {
        line("a thread is woken by an eventfd".into(), "", wakes);
    }
    for one in sizes {
        line(format!("{} B", one.size), one.path, &one.one_way_ns);
    }
    if let Some(lost) =
        sizes.iter().map(|one| one.lost).reduce(|one, other| one + other).filter(|lost| *lost > 0)
    {
        let _ = writeln!(text, "\n  {lost} packets did not come back");
    }
    if let Some((inline, dma)) = compared(sizes) {
        let ratio = dma.get() * 100 / inline.get().max(1);
        let _ = writeln!(
            text,
            "\n  the largest packet in a line is sent in {inline}; by DMA it takes {}.{:02} x as long",
            ratio / 100,
            ratio % 100
        );
    }
    if let Some(largest) = sizes.iter().filter(|one| one.path == "inline").max_by_key(|one| one.size) {
        let _ = writeln!(text, "\n  {} B inline, one way:", largest.size);
        text.push_str(&histogram(largest));
    }
    text
}

/// The largest size that was measured in both ways: its medians inline and by DMA.
fn compared(sizes: &[Latency]) -> Option<(Nanos, Nanos)> {
    let of = |path: &'static str| sizes.iter().filter(move |one| one.path == path);
    let inline = of("inline").max_by_key(|one| one.size)?;
    let dma = of("dma").find(|one| one.size == inline.size)?;
    Some((inline.one_way_ns.median(), dma.one_way_ns.median()))
}

/// How many packets took how long, up to the 99th percentile or twice the median. Beyond these are
/// the pauses of a machine that had something else to do.
fn histogram(latency: &Latency) -> String {
    let times = &latency.one_way_ns;
    let (least, most) = (times.min().get(), times.quantile(0.99).min(times.median() * 2).get());
    let step = ((most - least.min(most)) / BARS).max(1);
    let counts: Vec<u64> = (0..=BARS)
        .map(|index| times.count_between(least + index * step, least + (index + 1) * step))
        .collect();
    let highest = counts.iter().copied().max().unwrap_or(1).max(1);
    let longer = times.count().saturating_sub(counts.iter().sum());
    let mut text = String::new();
    for (index, count) in (0..).zip(counts) {
        let columns = usize::try_from((count * WIDTH).div_ceil(highest)).unwrap_or(0);
        let from = Nanos::new(least + index * step);
        let _ = writeln!(text, "  {:>10}  {:<40} {count}", from.to_string(), "█".repeat(columns));
    }
    let _ = writeln!(text, "  {:>10}  {:<40} {longer}", "longer", "");
    text
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds and bytes far below 2^53")]
const fn decimal(value: u64) -> f64 {
    value as f64
}

/// Medians by size, inline and by DMA, over the floor.
pub(super) fn drawing(sizes: &[Latency], floor: &Floor) -> Drawing {
    let mut drawing = Drawing::new(SIZE.0, SIZE.1);
    let (right, bottom) = (f64::from(SIZE.0) - RIGHT, f64::from(SIZE.1) - BOTTOM);
    let largest = decimal(sizes.iter().map(|one| one.size as u64).max().unwrap_or(64).max(64)).log2();
    let longest = sizes.iter().map(|one| one.one_way_ns.median().get()).max().unwrap_or(1).max(1);
    // On a busy machine, the floor may be above all sizes.
    let crossing = decimal(floor.crossing_ns.median().get());
    let top = decimal(longest).max(crossing) * 1.1;
    // Sizes from 16 bytes on, each power of two as far from the next.
    let x = |size: u64| LEFT + (right - LEFT) * ((decimal(size.max(8)).log2() - 3.0) / (largest - 3.0));
    let y = |time: f64| bottom - (bottom - TOP) * (time / top);
    drawing.text((LEFT, 24.0), "One way by size of packet", Style::TITLE);
    for step in 0..=4_u32 {
        let time = top * f64::from(step) / 4.0;
        drawing.line(&[(LEFT, y(time)), (right, y(time))], PALE, 1.0);
        drawing.text((LEFT - 8.0, y(time) + 4.0), format!("{time:.0} ns"), Style::END.of(GREY));
    }
    let mut size = 16;
    while decimal(size).log2() <= largest {
        drawing.text((x(size), bottom + 18.0), size.to_string(), Style::MIDDLE.of(GREY));
        size *= 2;
    }
    drawing.text((f64::midpoint(LEFT, right), bottom + 38.0), "bytes", Style::MIDDLE.of(BLACK));
    for (path, colour) in [("inline", COLOURS[0]), ("dma", COLOURS[1])] {
        let points: Vec<_> = sizes
            .iter()
            .filter(|one| one.path == path)
            .map(|one| (x(one.size as u64), y(decimal(one.one_way_ns.median().get()))))
            .collect();
        drawing.line(&points, colour, 2.0);
        for point in &points {
            drawing.dot(*point, 3.0, colour);
        }
        if let Some((_, last)) = points.last() {
            let shift = if path == "dma" { 4.0 } else { 20.0 };
            drawing.text((right + 8.0, last + shift), path, Style::START.of(colour));
        }
    }
    drawing.dashes(&[(LEFT, y(crossing)), (right, y(crossing))], COLOURS[2], 1.5);
    drawing.text((right + 8.0, y(crossing) + 4.0), "a line crosses", Style::START.of(COLOURS[2]));
    drawing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_holds_a_floor_that_is_above_all_sizes() {
        let of = |time: u64| -> Distribution { [Nanos::new(time)].into_iter().collect() };
        let size = Latency { size: 60, path: "inline", one_way_ns: of(200), round_trip_ns: of(400), lost: 0 };
        let floor = Floor {
            round_trip_ns: of(20_000),
            crossing_ns: of(10_000),
            kernel_udp_one_way_ns: of(2_000),
            wake_ns: None,
        };
        let picture = drawing(&[size], &floor).svg();
        let lines: Vec<_> = picture.lines().filter(|line| line.starts_with("<polyline")).collect();
        assert!(lines.iter().any(|line| line.contains("dasharray")), "{picture}");
        for line in lines {
            let points = line.split('"').nth(1).unwrap();
            for point in points.split_whitespace() {
                let (_, y) = point.split_once(',').unwrap();
                let y: f64 = y.parse().unwrap();
                assert!((TOP..=f64::from(SIZE.1) - BOTTOM).contains(&y), "{line}");
            }
        }
    }
}
