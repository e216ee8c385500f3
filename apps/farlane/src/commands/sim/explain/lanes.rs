//! The latency chain as a picture: a lane for each place from the host to the device, with time
//! running right.

use engine::Nanos;
use network_models::trail::Part;
use scenarios::explain::{Explained, thousandths};
use scenarios::test_bench::Place;

use super::legs;
use crate::drawing::{BLACK, COLOURS, Colour, Drawing, GREY, PALE, Style, width_of};

const WIDTH: u32 = 960;
/// Where the lanes begin, in pixels from the left.
const LEFT: f64 = 235.0;
/// Where the lanes end, in pixels from the left.
const RIGHT: f64 = 800.0;
/// Height of a lane in pixels.
const LANE: f64 = 22.0;
/// Height in pixels of the part above the lanes: the title, and the packets' names on three lines.
const ABOVE: f64 = 86.0;
/// Height in pixels of the part below the lanes: the time, and the legend of the colours.
const BELOW: f64 = 44.0;
const NAMES_LINES: usize = 3;
/// Least width in pixels of a stretch, so that it can be seen.
const WIDTH_MIN: f64 = 1.5;

const PARTS: [(Part, Colour); 4] = [
    (Part::Processing, COLOURS[0]),
    (Part::Waiting, COLOURS[1]),
    (Part::Serialisation, COLOURS[2]),
    (Part::Propagation, COLOURS[3]),
];

/// Draws all operations in one picture, one below the other.
pub(super) fn draw(explained: &[Explained], which: &str) -> Drawing {
    let explained: Vec<_> = explained.iter().map(|one| without_idle(one, explained)).collect();
    let heights: Vec<f64> = explained.iter().map(|one| ABOVE + LANE * lanes(one) + BELOW).collect();
    let all: f64 = heights.iter().sum::<f64>() + 34.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some thousand pixels")]
    let mut drawing = Drawing::new(WIDTH, all.ceil() as u32);
    let mut top = 0.0;
    for (one, height) in explained.iter().zip(heights) {
        operation(&mut drawing, one, which, top);
        top += height;
    }
    let mut x = LEFT;
    for (part, colour) in PARTS {
        drawing.rectangle((x, top + 8.0), (14.0, 12.0), colour);
        drawing.text((x + 20.0, top + 18.0), part.name(), Style::START);
        x += 40.0 + width_of(part.name());
    }
    drawing
}

/// An operation without the places at which no operation of the picture spends time. The hops of a
/// way that brought no frame first stay.
fn without_idle(one: &Explained, all: &[Explained]) -> Explained {
    let spends = |one: &Explained, place: Place| {
        one.chain.segments.iter().any(|segment| segment.place == place && segment.length > Nanos::ZERO)
    };
    let mut one = one.clone();
    let beaten = |place: &Place| one.ways.iter().any(|way| way.won == 0 && way.hops.contains(place));
    one.places.retain(|(place, _)| beaten(place) || all.iter().any(|one| spends(one, *place)));
    one
}

fn lanes(one: &Explained) -> f64 {
    u32::try_from(one.places.len()).map_or(0.0, f64::from)
}

#[expect(clippy::cast_precision_loss, reason = "a pixel is coarser than the lost precision")]
const fn decimal(time: Nanos) -> f64 {
    time.get() as f64
}

fn operation(drawing: &mut Drawing, one: &Explained, which: &str, top: f64) {
    let latency = one.chain.latency;
    let x = |time: Nanos| LEFT + (RIGHT - LEFT) * decimal(time) / decimal(latency).max(1.0);
    let first = top + ABOVE;
    let bottom = first + LANE * lanes(one);
    let y = |place: Place| {
        let index = one.places.iter().position(|(known, _)| *known == place)?;
        Some(first + LANE * u32::try_from(index).map_or(0.0, f64::from))
    };
    let title = format!("{}: {}, the {which} of {}: {latency}", one.task, one.operation, one.count);
    drawing.text((20.0, top + 24.0), title, Style::TITLE);
    axis(drawing, latency, (first, bottom));
    packets(drawing, one, (top, bottom), x);
    for (place, name) in &one.places {
        let Some(at) = y(*place) else { continue };
        drawing.line(&[(LEFT, at + LANE), (RIGHT, at + LANE)], PALE, 0.5);
        drawing.text((LEFT - 10.0, at + LANE * 0.7), name.clone(), Style::END);
        let own = one.chain.segments.iter().filter(|segment| segment.place == *place);
        let time = own.fold(Nanos::ZERO, |sum, segment| sum + segment.length);
        if time > Nanos::ZERO {
            let share = thousandths(time, latency);
            let text = format!("{time}, {}.{} %", share / 10, share % 10);
            drawing.text((RIGHT + 10.0, at + LANE * 0.7), text, Style::START);
        } else if let Some(way) = one.ways.iter().find(|way| way.won == 0 && way.hops.contains(place)) {
            let text = format!("won 0 of {}", way.of);
            drawing.text((RIGHT + 10.0, at + LANE * 0.7), text, Style::START.of(GREY));
        }
    }
    let mut way = Vec::new();
    for segment in one.chain.segments.iter().filter(|segment| segment.length > Nanos::ZERO) {
        let Some(at) = y(segment.place) else { continue };
        let (from, to) = (x(segment.start), x(segment.start + segment.length));
        way.extend([(from, at + LANE / 2.0), (to, at + LANE / 2.0)]);
    }
    drawing.line(&way, GREY, 0.7);
    for segment in one.chain.segments.iter().filter(|segment| segment.length > Nanos::ZERO) {
        let Some(at) = y(segment.place) else { continue };
        let (from, to) = (x(segment.start), x(segment.start + segment.length));
        let colour =
            PARTS.iter().find(|(part, _)| *part == segment.part).map_or(BLACK, |(_, colour)| *colour);
        drawing.rectangle((from, at + 4.0), ((to - from).max(WIDTH_MIN), LANE - 8.0), colour);
    }
}

/// Draws vertical lines at round times, each with its time below.
fn axis(drawing: &mut Drawing, latency: Nanos, (first, bottom): (f64, f64)) {
    let step = round_step(latency.get());
    let mut time = 0;
    while time <= latency.get() {
        let x = LEFT + (RIGHT - LEFT) * decimal(Nanos::new(time)) / decimal(latency).max(1.0);
        drawing.line(&[(x, first), (x, bottom + 4.0)], PALE, 0.7);
        drawing.text((x, bottom + 18.0), Nanos::new(time).to_string(), Style::MIDDLE.of(GREY));
        time += step;
    }
}

/// A step of 1, 2 or 5 times a power of ten that fits into `whole` three to eight times.
fn round_step(whole: u64) -> u64 {
    let least = (whole / 8).max(1);
    let power = 10_u64.pow(least.ilog10());
    [1, 2, 5, 10].into_iter().map(|times| times * power).find(|step| *step >= least).unwrap_or(power)
}

/// Draws where packets set out, with their names where there is room.
fn packets(drawing: &mut Drawing, one: &Explained, (top, bottom): (f64, f64), x: impl Fn(Nanos) -> f64) {
    let mut ends = [f64::MIN; NAMES_LINES];
    for (name, leg) in legs(one) {
        let Some(begin) = leg.first().map(|segment| x(segment.start)) else { continue };
        let Some(line) = ends.iter().position(|end| *end < begin) else { continue };
        ends[line] = begin + width_of(&name) + 10.0;
        let at = top + 44.0 + 13.0 * u32::try_from(line).map_or(0.0, f64::from);
        drawing.line(&[(begin, at - 9.0), (begin, bottom)], PALE, 1.0);
        drawing.text((begin + 3.0, at), name, Style::START.of(GREY));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_to_eight_round_times_fit() {
        for whole in [7, 280, 99_159, 153_469, 16_160_000, 999_999_999] {
            let (step, count) = (round_step(whole), whole / round_step(whole));
            assert!((3..=8).contains(&count), "{whole}: {step}, {count} times");
        }
    }
}
