//! A picture of a sweep: latency, on a logarithmic scale, over the first axis.

use engine::Nanos;
use scenarios::file::sweep::Axis;

use super::sweep::Line;

const WIDTH: u32 = 900;
const HEIGHT: u32 = 520;
/// Around the drawing: left, right, top, bottom.
const MARGIN: (u32, u32, u32, u32) = (90, 250, 40, 60);
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999933"];

/// The median (a line) and the 99th percentile (dashed) of the first task, a colour for each combination of the other axes.
pub(super) fn svg(axes: &[Axis], lines: &[Line]) -> String {
    let task = lines.first().map_or(String::new(), |line| line.task.clone());
    let lines: Vec<&Line> = lines.iter().filter(|line| line.task == task).collect();
    let (low, high) = decades(&lines);
    let mut series: Vec<&[String]> = Vec::new();
    for line in &lines {
        if !series.contains(&&line.point[1..]) {
            series.push(&line.point[1..]);
        }
    }
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let values = &axes[0].values;
    grid(&mut out, &axes[0].path, values, (low, high), &task);
    for (index, others) in series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let of = |value: fn(&Line) -> Nanos| -> Vec<(f64, f64)> {
            let own = lines.iter().filter(|line| line.point[1..] == **others);
            own.filter_map(|line| {
                let place = values.iter().position(|value| *value == line.point[0])?;
                Some((x(place, values.len()), y(value(line), (low, high))))
            })
            .collect()
        };
        curve(&mut out, &of(|line| line.median), colour, "");
        curve(&mut out, &of(|line| line.p99), colour, " stroke-dasharray=\"5 4\"");
        let name: Vec<_> =
            axes[1..].iter().zip(*others).map(|(axis, value)| format!("{} = {value}", axis.path)).collect();
        let (left, top) = (WIDTH - MARGIN.1 + 15, MARGIN.2 as usize + 20 * index + 10);
        let name = if name.is_empty() { "median; dashed: p99".into() } else { name.join(", ") };
        out += &format!("<text x=\"{left}\" y=\"{top}\" fill=\"{colour}\">{}</text>\n", escape(&name));
    }
    out + "</svg>\n"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// The powers of ten, of a nanosecond, that everything lies between.
fn decades(lines: &[&Line]) -> (u32, u32) {
    let log = |time: Nanos| time.get().max(1).ilog10();
    let low = lines.iter().map(|line| log(line.median)).min().unwrap_or(0);
    let high = lines.iter().map(|line| log(line.p99) + 1).max().unwrap_or(1);
    (low, high.max(low + 1))
}

fn x(place: usize, count: usize) -> f64 {
    let inner = f64::from(WIDTH - MARGIN.0 - MARGIN.1);
    let part = u32::try_from(place).map_or(0.0, f64::from) + 0.5;
    f64::from(MARGIN.0) + inner * part / u32::try_from(count.max(1)).map_or(1.0, f64::from)
}

fn y(time: Nanos, (low, high): (u32, u32)) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a pixel is coarser than what is lost")]
    let log = (time.get().max(1) as f64).log10();
    let inner = f64::from(HEIGHT - MARGIN.2 - MARGIN.3);
    f64::from(MARGIN.2) + inner * (1.0 - (log - f64::from(low)) / f64::from(high - low))
}

fn grid(out: &mut String, axis: &str, values: &[String], (low, high): (u32, u32), task: &str) {
    let (left, right, bottom) = (MARGIN.0, WIDTH - MARGIN.1, HEIGHT - MARGIN.3);
    for decade in low..=high {
        let time = Nanos::new(10_u64.saturating_pow(decade));
        let at = y(time, (low, high));
        *out +=
            &format!("<line x1=\"{left}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\n");
        *out +=
            &format!("<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{time}</text>\n", left - 8, at + 4.0);
    }
    for (place, value) in values.iter().enumerate() {
        let at = x(place, values.len());
        *out += &format!(
            "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
            bottom + 20,
            escape(value)
        );
    }
    let middle = (left + right) / 2;
    *out += &format!(
        "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
        HEIGHT - 15,
        escape(axis)
    );
    *out += &format!(
        "<text x=\"{left}\" y=\"24\" font-weight=\"bold\">{}: median, and dashed the 99th percentile</text>\n",
        escape(task)
    );
}

fn curve(out: &mut String, points: &[(f64, f64)], colour: &str, dash: &str) {
    let path: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    *out += &format!(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>\n",
        path.join(" ")
    );
    for (x, y) in points {
        *out += &format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>\n");
    }
}
