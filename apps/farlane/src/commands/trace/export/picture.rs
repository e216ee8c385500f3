//! Where the time of each kind of command went, as bars.

use std::collections::BTreeMap;

use captures::Population;
use trace::Step;

use crate::drawing::{COLOURS, Colour, Drawing, GREY, Style, pixels};

/// Width of the longest bar, and height of each, in pixels.
const BAR: (f64, f64) = (640.0, 26.0);
/// Where the bars begin: from the left, and the first one from the top, in pixels.
const CORNER: (f64, f64) = (40.0, 110.0);
/// From one bar to the next, in pixels.
const BELOW: f64 = 64.0;
/// The width of an entry of the legend, in pixels.
const ENTRY: f64 = 136.0;

/// The colour of a step. The ten steps share eight colours; steps next to each other differ.
fn colour(step: Step) -> Colour {
    let place = Step::ALL.iter().position(|other| *other == step).unwrap_or_default();
    COLOURS[place % COLOURS.len()]
}

/// A bar for each kind of command, as long as its mean, with a part for each step.
pub(super) fn draw(kinds: &BTreeMap<String, Population>) -> Drawing {
    let height = CORNER.1 + BELOW * kinds.len() as f64;
    let mut drawing = Drawing::new(pixels(CORNER.0 + BAR.0 + 40.0), pixels(height));
    drawing.text((CORNER.0, 24.0), "Where the time of commands went (means)", Style::TITLE);
    for (place, step) in Step::ALL.into_iter().enumerate() {
        let (column, row) = (place % 5, place / 5);
        let at = (CORNER.0 + ENTRY * column as f64, 44.0 + 20.0 * row as f64);
        drawing.rectangle(at, (12.0, 12.0), colour(step));
        drawing.text((at.0 + 18.0, at.1 + 11.0), step.name(), Style::START);
    }
    let longest = kinds.values().map(|of| of.whole.mean()).fold(1.0, f64::max);
    for (place, (name, of)) in kinds.iter().enumerate() {
        let (mut left, top) = (CORNER.0, CORNER.1 + BELOW * place as f64);
        let mean = of.whole.mean() / 1e3;
        let title = format!("{name}: {} of {mean:.3} µs, until the host has taken the completion", of.count);
        drawing.text((left, top - 8.0), title, Style::START.of(GREY));
        for step in Step::ALL {
            let width = BAR.0 * of.share(step) * of.whole.mean() / longest;
            drawing.rectangle((left, top), (width, BAR.1), colour(step));
            left += width;
        }
    }
    drawing
}
