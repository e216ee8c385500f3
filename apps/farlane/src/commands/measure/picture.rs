//! Latency by size: a panel for each operation, idle and under load; a curve for each device.

use super::report::{Report, Sampled, What, size};
use crate::drawing::scale::{decimal, logarithmic};
use crate::drawing::{COLOURS, Drawing, GREY, PALE, Style, pixels};

/// Width and height of a panel's area in pixels.
const PANEL: (f64, f64) = (520.0, 200.0);
/// Left edge of the panels, and upper edge of the first one.
const CORNER: (f64, f64) = (90.0, 60.0);
/// Height in pixels from one panel to the next.
const BELOW: f64 = 70.0;

/// The points of a panel, in the order of their sizes, with the samples of each device.
type Row<'a> = Vec<(What, &'a [Sampled])>;

fn panels(report: &Report) -> Vec<Row<'_>> {
    let mut panels: Vec<Row<'_>> = Vec::new();
    for point in &report.points {
        let What::Command { is_write, depth, .. } = point.what else { continue };
        let is_of = |row: &&mut Row<'_>| {
            matches!(row[0].0, What::Command { is_write: other, depth: another, .. }
                if (other, another) == (is_write, depth))
        };
        let one = (point.what, point.samples.as_slice());
        match panels.iter_mut().find(is_of) {
            Some(row) => row.push(one),
            None => panels.push(vec![one]),
        }
    }
    panels
}

pub(super) fn draw(report: &Report) -> Drawing {
    let panels = panels(report);
    let height = CORNER.1 + 20.0 * report.devices.len() as f64 + (PANEL.1 + BELOW) * panels.len() as f64;
    let mut drawing = Drawing::new(pixels(CORNER.0 + PANEL.0 + 30.0), pixels(height));
    drawing.text((20.0, 24.0), "Latency by size: median, and dashed the 99th percentile", Style::TITLE);
    for (place, device) in report.devices.iter().enumerate() {
        let style = Style::START.of(COLOURS[place % COLOURS.len()]);
        drawing.text((20.0, 46.0 + 20.0 * place as f64), device.url.to_string(), style);
    }
    let first = CORNER.1 + 20.0 * report.devices.len() as f64;
    for (place, row) in panels.iter().enumerate() {
        panel(&mut drawing, first + (PANEL.1 + BELOW) * place as f64, row);
    }
    drawing
}

fn panel(drawing: &mut Drawing, top: f64, row: &Row<'_>) {
    let (left, (width, height)) = (CORNER.0, PANEL);
    let bottom = top + height;
    let quantiles = |share: f64| {
        row.iter()
            .flat_map(move |(_, samples)| samples.iter().map(move |one| one.latency.quantile(share).get()))
    };
    let low = decimal(quantiles(0.5).min().unwrap_or(1).max(1));
    let high = decimal(quantiles(0.99).max().unwrap_or(1)).max(low * 2.0);
    let (range, ticks) = logarithmic(low, high);
    for tick in ticks {
        let y = bottom - height * range.share(tick);
        drawing.line(&[(left, y), (left + width, y)], PALE, 0.7);
        drawing.text((left - 8.0, y + 4.0), format!("{} µs", tick / 1e3), Style::END);
    }
    let x = |place: usize| left + width * (place as f64 + 0.5) / row.len() as f64;
    for (place, (what, _)) in row.iter().enumerate() {
        drawing.text((x(place), bottom + 18.0), size(what.bytes()), Style::MIDDLE);
    }
    drawing.line(&[(left, top), (left, bottom), (left + width, bottom)], GREY, 1.0);
    let title = match row[0].0 {
        What::Command { depth: 1, .. } => format!("{}, idle", row[0].0.operation()),
        what => format!("{}, {} at once", what.operation(), what.depth()),
    };
    drawing.text((left + width / 2.0, bottom + 36.0), title, Style::MIDDLE);
    for device in 0..row[0].1.len() {
        let curve = |share: f64| {
            let y = |latency: u64| bottom - height * range.share(decimal(latency.max(1))).clamp(0.0, 1.0);
            let points = row.iter().enumerate();
            points
                .map(|(place, (_, samples))| (x(place), y(samples[device].latency.quantile(share).get())))
                .collect::<Vec<_>>()
        };
        let colour = COLOURS[device % COLOURS.len()];
        drawing.line(&curve(0.5), colour, 1.8);
        curve(0.5).into_iter().for_each(|place| drawing.dot(place, 3.0, colour));
        drawing.dashes(&curve(0.99), colour, 1.2);
    }
}
