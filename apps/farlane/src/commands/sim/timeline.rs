//! Throughput and latency over time: as CSV, as Parquet, and as a picture.

use std::path::Path;

use engine::Nanos;
use scenarios::timeline::{Figures, Row, Timeline};

use crate::columns::{Column, to_parquet};
use crate::drawing::scale::{Range, decimal, linear, logarithmic};
use crate::drawing::{self, COLOURS, Colour, Drawing, GREY, PALE, Style, pixels};
use crate::error::Error;
use crate::whole_file;

/// Width and height in pixels of the area of curves in a panel.
const PANEL: (f64, f64) = (760.0, 200.0);
/// Left edge of the panels, and upper edge of the first one.
const CORNER: (f64, f64) = (90.0, 60.0);
/// Height in pixels from one panel to the next.
const BELOW: f64 = 50.0;
/// Width in pixels to the right of the panels.
const RIGHT: f64 = 20.0;

/// The file format of a time line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Csv,
    Parquet,
    Picture,
}

impl Form {
    /// The form that the extension of a file's name stands for.
    pub(super) fn of(path: &Path) -> Result<Self, Error> {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        match extension.to_ascii_lowercase().as_str() {
            "csv" => Ok(Self::Csv),
            "parquet" => Ok(Self::Parquet),
            _ if drawing::Form::of(path).is_ok() => Ok(Self::Picture),
            _ => {
                let path = path.display();
                let expected = "expected a name that ends in .csv, .parquet, .svg or .png";
                Err(Error::Simulation(format!("{path}: {expected}")))
            }
        }
    }
}

/// A column: its name and its value.
type Value = (&'static str, fn(&Row) -> u64);

const COLUMNS: [Value; 11] = [
    ("at_ns", |row| row.at.get()),
    ("read_bytes_per_second", |row| row.reads.rate),
    ("write_bytes_per_second", |row| row.writes.rate),
    ("reads", |row| row.reads.commands),
    ("writes", |row| row.writes.commands),
    ("read_p50_ns", |row| row.reads.median.get()),
    ("read_p99_ns", |row| row.reads.p99.get()),
    ("read_max_ns", |row| row.reads.longest.get()),
    ("write_p50_ns", |row| row.writes.median.get()),
    ("write_p99_ns", |row| row.writes.p99.get()),
    ("write_max_ns", |row| row.writes.longest.get()),
];

/// Writes the time line to the file at `path`, in the form that its name stands for.
pub(super) fn write(path: &Path, timeline: &Timeline, title: &str) -> Result<(), Error> {
    let rows: Vec<_> = timeline.rows().collect();
    match Form::of(path)? {
        Form::Csv => super::write(path, &csv(&rows)),
        Form::Parquet => {
            let wrong = |why: String| Error::Simulation(format!("{}: {why}", path.display()));
            let bytes = parquet(&rows).map_err(wrong)?;
            whole_file::replace(path, &bytes)
        }
        Form::Picture => draw(&rows, timeline.interval(), title).write(path),
    }
}

fn csv(rows: &[Row]) -> String {
    let mut text = COLUMNS.map(|(name, _)| name).join(",") + "\n";
    for row in rows {
        text += &(COLUMNS.map(|(_, value)| value(row).to_string()).join(",") + "\n");
    }
    text
}

fn parquet(rows: &[Row]) -> Result<Vec<u8>, String> {
    let column = |value: fn(&Row) -> u64| {
        Column::Numbers(rows.iter().map(|row| i64::try_from(value(row)).unwrap_or(i64::MAX)).collect())
    };
    to_parquet("timeline", &COLUMNS.map(|(name, _)| name), &COLUMNS.map(|(_, value)| column(value)))
}

/// The unit in which the greatest of times is shown.
fn unit(nanos: f64) -> (f64, &'static str) {
    let units = [(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")];
    units.into_iter().find(|(size, _)| nanos >= *size).unwrap_or((1.0, "ns"))
}

/// An axis: where values lie, its ticks, its unit and its quantity.
struct Scale {
    range: Range,
    ticks: Vec<f64>,
    unit: (f64, &'static str),
    name: &'static str,
}

impl Scale {
    fn texts(&self) -> impl Iterator<Item = (f64, String)> + '_ {
        self.ticks.iter().map(|tick| {
            let value = tick / self.unit.0;
            let text = if value.fract().abs() < 1e-6 { format!("{value:.0}") } else { format!("{value:.2}") };
            (self.range.share(*tick), text)
        })
    }

    fn title(&self) -> String {
        format!("{}, {}", self.name, self.unit.1)
    }
}

/// A curve: how it looks, and its values.
struct Curve {
    colour: Colour,
    is_dashed: bool,
    values: Vec<(Nanos, u64)>,
}

/// A kind of command: its colour, and its figures in a row.
type Kind = (Colour, fn(&Row) -> &Figures);

/// The curves of reads and of writes, as far as there are any.
fn curves(rows: &[Row], value: fn(&Figures) -> u64, is_dashed: bool) -> Vec<Curve> {
    const KINDS: [Kind; 2] = [(COLOURS[0], |row| &row.reads), (COLOURS[1], |row| &row.writes)];
    KINDS
        .into_iter()
        .filter(|(_, figures)| rows.iter().any(|row| figures(row).commands > 0))
        .map(|(colour, figures)| {
            let values = rows.iter().map(|row| (row.at, value(figures(row)))).collect();
            Curve { colour, is_dashed, values }
        })
        .collect()
}

/// Two panels above each other: throughput, and the median and 99th percentile of the latency.
fn draw(rows: &[Row], interval: Nanos, title: &str) -> Drawing {
    let height = CORNER.1 + 2.0 * (PANEL.1 + BELOW);
    let mut drawing = Drawing::new(pixels(CORNER.0 + PANEL.0 + RIGHT), pixels(height));
    drawing.text((CORNER.0, 24.0), format!("{title}, in steps of {interval}"), Style::TITLE);
    for (place, (word, colour)) in [("reads", COLOURS[0]), ("writes", COLOURS[1])].into_iter().enumerate() {
        drawing.text((CORNER.0 + 60.0 * decimal(place as u64), 46.0), word, Style::START.of(colour));
    }
    drawing.text((CORNER.0 + 130.0, 46.0), "dashed: 99th percentile", Style::START);
    let end = rows.last().map_or(Nanos::ZERO, |row| row.at + interval);
    let (range, ticks) = linear(decimal(end.get().max(1)));
    let across = Scale { range, ticks, unit: unit(decimal(end.get())), name: "time" };
    let rates = curves(rows, |figures| figures.rate, false);
    let most = highest(&rates);
    let (range, ticks) = linear(most);
    let up = Scale { range, ticks, unit: (1e6, "MB/s"), name: "throughput" };
    panel(&mut drawing, CORNER.1, (&across, &up), &rates);
    let mut times = curves(rows, |figures| figures.median.get(), false);
    times.extend(curves(rows, |figures| figures.p99.get(), true));
    let all =
        || times.iter().flat_map(|curve| &curve.values).map(|(_, value)| *value).filter(|value| *value > 0);
    let low = decimal(all().min().unwrap_or(1));
    let (range, ticks) = logarithmic(low, highest(&times).max(low * 2.0));
    let up = Scale { range, ticks, unit: unit(low), name: "latency" };
    panel(&mut drawing, CORNER.1 + PANEL.1 + BELOW, (&across, &up), &times);
    drawing
}

fn highest(curves: &[Curve]) -> f64 {
    let values = curves.iter().flat_map(|curve| &curve.values).map(|(_, value)| *value);
    decimal(values.max().unwrap_or(1).max(1))
}

fn panel(drawing: &mut Drawing, top: f64, (across, up): (&Scale, &Scale), curves: &[Curve]) {
    let (left, (width, height)) = (CORNER.0, PANEL);
    for (share, text) in up.texts() {
        let y = top + height * (1.0 - share);
        drawing.line(&[(left, y), (left + width, y)], PALE, 0.7);
        drawing.text((left - 8.0, y + 4.0), text, Style::END);
    }
    for (share, text) in across.texts() {
        let x = left + width * share;
        drawing.line(&[(x, top + height), (x, top + height + 4.0)], GREY, 1.0);
        drawing.text((x, top + height + 18.0), text, Style::MIDDLE);
    }
    let bottom = top + height;
    drawing.line(&[(left, top), (left, bottom), (left + width, bottom)], GREY, 1.0);
    drawing.text((left + width / 2.0, bottom + 36.0), across.title(), Style::MIDDLE);
    let upwards = Style { upwards: true, ..Style::MIDDLE };
    drawing.text((20.0, top + height / 2.0), up.title(), upwards);
    for curve in curves {
        let place = |(at, value): &(Nanos, u64)| {
            let x = left + width * across.range.share(decimal(at.get()));
            (x, bottom - height * up.range.share(decimal(*value)).clamp(0.0, 1.0))
        };
        // A latency of nothing has no place: no command ended then.
        let is_shown = |(_, value): &&(Nanos, u64)| *value > 0 || !up.name.starts_with("latency");
        let points: Vec<_> = curve.values.iter().filter(is_shown).map(place).collect();
        match curve.is_dashed {
            true => drawing.dashes(&points, curve.colour, 1.2),
            false => drawing.line(&points, curve.colour, 1.6),
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::Instant;

    use super::*;

    fn timeline() -> Timeline {
        let mut timeline = Timeline::default();
        for number in 0..2_000_u64 {
            let at = Instant::ZERO + Nanos::from_micros(number * 10);
            timeline.add(number % 4 == 0, at, Nanos::from_micros(10 + number % 50), 4096);
        }
        timeline
    }

    #[test]
    fn a_time_line_is_a_table_and_a_picture() {
        let timeline = timeline();
        let rows: Vec<_> = timeline.rows().collect();
        let text = csv(&rows);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), rows.len() + 1);
        assert!(lines[0].starts_with("at_ns,read_bytes_per_second,write_bytes_per_second"));
        // Of ten commands in 100 µs, two or three read.
        let fields: Vec<u64> = lines[2].split(',').map(|field| field.parse().unwrap()).collect();
        assert_eq!((fields[0], fields[3] + fields[4]), (100_000, 10), "{lines:?}");
        assert!(parquet(&rows).unwrap().starts_with(b"PAR1"));
        let svg = draw(&rows, timeline.interval(), "one.toml").svg();
        for word in ["throughput, MB/s", "latency, µs", "time, ms", "reads", "writes", "one.toml"] {
            assert!(svg.contains(word), "{word}: {svg}");
        }
        assert_eq!(svg.matches("stroke-dasharray").count(), 2);
    }

    #[test]
    fn a_time_line_of_nothing_is_drawn_all_the_same() {
        let svg = draw(&[], Nanos::from_micros(100), "nothing").svg();
        assert!(svg.contains("throughput"));
        assert_eq!(csv(&[]).lines().count(), 1);
    }

    #[test]
    fn a_name_says_the_form() {
        for (name, form) in [
            ("a.csv", Form::Csv),
            ("a.PARQUET", Form::Parquet),
            ("a.svg", Form::Picture),
            ("a.png", Form::Picture),
        ] {
            assert_eq!(Form::of(Path::new(name)).unwrap(), form);
        }
        let error = Form::of(Path::new("a.txt")).unwrap_err().to_string();
        assert!(error.contains(".csv, .parquet, .svg or .png"), "{error}");
    }
}
