//! A picture of a sweep: latency over the first axis, a colour for each value of the second, and a
//! panel for each combination of the others.

pub(super) mod scale;

use scenarios::file::sweep::Axis;

use super::table::Line;
use crate::drawing::{BLACK, COLOURS, Colour, Drawing, GREY, PALE, Style, pixels, width_of};
use scale::{Across, Up};

/// Most panels in a row.
const PANELS_MAX: usize = 3;
/// Width and height in pixels of the area of curves in each of several panels.
const PANEL: (f64, f64) = (300.0, 250.0);
/// Width and height in pixels of the area of curves in the only panel.
const ALONE: (f64, f64) = (520.0, 330.0);
/// Width in pixels of the area to the left of all panels: the scale of latencies and its name.
const LEFT: f64 = 100.0;
/// Width in pixels between two panels beside each other.
const GAP: f64 = 24.0;
/// Height in pixels of the title above all panels.
const TITLE: f64 = 44.0;
/// Height in pixels of the part above a panel: its name.
const ABOVE: f64 = 26.0;
/// Height in pixels of the part below a panel: the values of its axis.
const BELOW: f64 = 30.0;
/// Height in pixels of the part below the last row: the name of the axis.
const NAME: f64 = 26.0;

/// Draws the median and the 99th percentile of `task`, or of the first task.
pub(super) fn draw(
    axes: &[Axis],
    lines: &[Line],
    task: Option<&str>,
    scenario: &str,
) -> Result<Drawing, String> {
    let first = lines.first().map(|line| line.task.clone()).unwrap_or_default();
    let task = task.unwrap_or(&first).to_owned();
    let known: Vec<_> = distinct(&lines.iter().collect::<Vec<_>>(), |line| format!("'{}'", line.task));
    let known = known.join(", ");
    let lines: Vec<&Line> = lines.iter().filter(|line| line.task == task).collect();
    if lines.is_empty() {
        return Err(format!("--task {task}: the scenario has {known}"));
    }
    let roles = Roles::of(axes);
    let panels = distinct(&lines, |line| roles.panel(line));
    let series = distinct(&lines, |line| roles.series(line));
    let size = if panels.len() == 1 { ALONE } else { PANEL };
    let columns = panels.len().min(PANELS_MAX);
    let rows = panels.len().div_ceil(columns);
    let legend = legend_entries(roles.colour.map(|axis| &axes[axis]), &series);
    let legend_width = legend.iter().map(|text| width_of(text)).fold(0.0, f64::max) + 70.0;
    let place = |column: usize, row: usize| {
        (LEFT + count(column) * (size.0 + GAP), TITLE + ABOVE + count(row) * (size.1 + ABOVE + BELOW))
    };
    let right = place(columns - 1, 0).0 + size.0;
    let bottom = place(0, rows - 1).1 + size.1 + BELOW + NAME;
    let high_enough = TITLE + ABOVE + 24.0 * count(legend.len());
    let mut drawing = Drawing::new(pixels(right + legend_width), pixels(bottom.max(high_enough)));
    let title = format!("{scenario}: latency of {task}");
    drawing.text((LEFT, 26.0), title, Style::TITLE);
    let up = Up::of(&lines);
    let across = Across::of(&axes[roles.across].values);
    for (index, panel) in panels.iter().enumerate() {
        let (column, row) = (index % columns, index / columns);
        let corner = place(column, row);
        let area = Panel { corner, size, up: &up, across: &across };
        area.frame(&mut drawing, column == 0);
        let last = index + columns >= panels.len();
        if last {
            let middle = (corner.0 + size.0 / 2.0, corner.1 + size.1 + BELOW + 10.0);
            drawing.text(middle, axes[roles.across].path.clone(), Style::MIDDLE);
        }
        let name: Vec<_> = roles
            .panels
            .iter()
            .zip(panel)
            .map(|(axis, value)| format!("{} = {value}", axes[*axis].path))
            .collect();
        drawing.text((corner.0 + size.0 / 2.0, corner.1 - 9.0), name.join(", "), Style::MIDDLE);
        for (number, own) in series.iter().enumerate() {
            let of = |line: &&&Line| roles.panel(line) == *panel && roles.series(line) == *own;
            let own: Vec<&Line> = lines.iter().filter(of).copied().collect();
            let style = (roles.across, COLOURS[number % COLOURS.len()]);
            area.curves(&mut drawing, &own, style);
        }
    }
    let middle = TITLE + ABOVE + (bottom - BELOW - NAME - TITLE - ABOVE) / 2.0;
    let upwards = Style { upwards: true, ..Style::MIDDLE };
    drawing.text((20.0, middle), format!("latency, {}", up.unit()), upwards);
    legend_at(&mut drawing, &legend, right + 16.0);
    Ok(drawing)
}

/// The role of each axis in the drawing. An axis with one value is not drawn.
struct Roles {
    across: usize,
    colour: Option<usize>,
    panels: Vec<usize>,
}

impl Roles {
    fn of(axes: &[Axis]) -> Self {
        let mut several = (0..axes.len()).filter(|axis| axes[*axis].values.len() > 1);
        let (across, colour) = (several.next().unwrap_or(0), several.next());
        Self { across, colour, panels: several.collect() }
    }

    fn series(&self, line: &Line) -> Option<String> {
        self.colour.map(|axis| line.point[axis].clone())
    }

    fn panel(&self, line: &Line) -> Vec<String> {
        self.panels.iter().map(|axis| line.point[*axis].clone()).collect()
    }
}

/// The different values of `of` among `lines`, in the order of `lines`.
fn distinct<T: PartialEq>(lines: &[&Line], of: impl Fn(&Line) -> T) -> Vec<T> {
    let mut found = Vec::new();
    for line in lines {
        let value = of(line);
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(0.0, f64::from)
}

/// A panel of the picture: where it is, and its axes.
struct Panel<'a> {
    /// Left and upper edge.
    corner: (f64, f64),
    /// Width and height.
    size: (f64, f64),
    up: &'a Up,
    across: &'a Across,
}

impl Panel<'_> {
    /// Draws the panel without its curves.
    fn frame(&self, drawing: &mut Drawing, labelled: bool) {
        let Self { corner: (left, top), size: (width, height), up, across } = *self;
        for (share, text) in up.ticks() {
            let y = top + height * (1.0 - share);
            drawing.line(&[(left, y), (left + width, y)], PALE, 0.7);
            if labelled {
                drawing.text((left - 8.0, y + 4.0), text, Style::END);
            }
        }
        let mut end = f64::MIN;
        for (share, text) in across.ticks() {
            let x = left + width * share;
            drawing.line(&[(x, top + height), (x, top + height + 4.0)], GREY, 1.0);
            let half = width_of(&text) / 2.0;
            if x - half > end {
                drawing.text((x, top + height + 18.0), text, Style::MIDDLE);
                end = x + half + 4.0;
            }
        }
        let corners = [
            (left, top),
            (left + width, top),
            (left + width, top + height),
            (left, top + height),
            (left, top),
        ];
        drawing.line(&corners, GREY, 1.0);
    }

    /// Draws the median as a line, and the 99th percentile as a dashed line.
    fn curves(&self, drawing: &mut Drawing, lines: &[&Line], (axis, colour): (usize, Colour)) {
        let Self { corner: (left, top), size: (width, height), up, across } = *self;
        let points = |of: fn(&Line) -> engine::Nanos| -> Vec<(f64, f64)> {
            let place = |line: &&Line| {
                let x = left + width * across.share(&line.point[axis])?;
                Some((x, top + height * (1.0 - up.share(of(line)))))
            };
            lines.iter().filter_map(place).collect()
        };
        let (median, late) = (points(|line| line.summary.median), points(|line| line.summary.p99));
        drawing.dashes(&late, colour, 1.2);
        drawing.line(&median, colour, 2.0);
        median.iter().for_each(|point| drawing.dot(*point, 3.2, colour));
        late.iter().for_each(|point| drawing.dot(*point, 2.0, colour));
    }
}

/// The legend's entries: the two kinds of line, then the axis that the colours stand for, then
/// its values.
fn legend_entries(colour: Option<&Axis>, series: &[Option<String>]) -> Vec<String> {
    let mut entries = vec!["median".to_owned(), "99th percentile".to_owned()];
    if let Some(axis) = colour {
        entries.push(axis.path.clone());
        entries.extend(series.iter().flatten().cloned());
    }
    entries
}

fn legend_at(drawing: &mut Drawing, entries: &[String], left: f64) {
    let mut y = TITLE + ABOVE + 10.0;
    for (index, text) in entries.iter().enumerate() {
        let sample = [(left, y), (left + 28.0, y)];
        match index {
            0 => drawing.line(&sample, BLACK, 2.0),
            1 => drawing.dashes(&sample, BLACK, 1.2),
            2 => {}
            _ => {
                let colour = COLOURS[(index - 3) % COLOURS.len()];
                drawing.line(&sample, colour, 2.0);
                drawing.dot((left + 14.0, y), 3.2, colour);
            }
        }
        let x = if index == 2 { left } else { left + 36.0 };
        drawing.text((x, y + 4.0), text.clone(), Style::START);
        y += if index == 1 { 32.0 } else { 20.0 };
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::line;
    use super::*;

    fn sweep() -> (Vec<Axis>, Vec<Line>) {
        let axes: Vec<Axis> =
            ["link.rate=100Mbit/s,1Gbit/s,10Gbit/s", "task.0.depth=1,8", "pcie.payload=128,256"]
                .map(|axis| axis.parse().unwrap())
                .into();
        let mut lines = Vec::new();
        for (factor, rate) in (1..).zip(&axes[0].values) {
            for (index, depth) in (1..).zip(&axes[1].values) {
                for payload in &axes[2].values {
                    lines.push(line(&[rate, depth, payload], 1_000_000 / factor / factor * index));
                }
            }
        }
        (axes, lines)
    }

    #[test]
    fn three_axes_are_a_scale_colours_and_panels() {
        let (axes, lines) = sweep();
        let drawing = draw(&axes, &lines, None, "tcp-1g.toml").unwrap();
        let svg = drawing.svg();
        for text in [
            "pcie.payload = 128",
            "pcie.payload = 256",
            "link.rate",
            "task.0.depth",
            "10Gbit/s",
            "latency, µs",
            "median",
            "99th percentile",
            "tcp-1g.toml: latency of read, 4 KiB",
        ] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        // Two panels with two colours each, every one with a median and a 99th percentile, and
        // the legend.
        assert_eq!(svg.matches("stroke-width=\"2\"").count(), 4 + 3);
        assert_eq!(svg.matches("stroke-dasharray").count(), 4 + 1);
        assert!(tiny_skia::Pixmap::decode_png(&drawing.png().unwrap()).is_ok());
    }

    #[test]
    fn a_task_that_is_not_there_is_reported() {
        let (axes, lines) = sweep();
        let error = draw(&axes, &lines, Some("erase"), "tcp-1g.toml").unwrap_err();
        assert!(error.contains("--task erase"), "{error}");
    }
}
