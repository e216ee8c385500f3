//! A picture as SVG text.

use std::fmt::Write as _;

use super::{Anchor, Colour, Drawing, Shape, Style};

impl Drawing {
    /// The picture as an SVG file.
    pub(crate) fn svg(&self) -> String {
        let Self { width, height, .. } = self;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        for shape in &self.shapes {
            let _ = match shape {
                Shape::Line { points, colour, width, dashed } => {
                    let points: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
                    let dash = if *dashed { " stroke-dasharray=\"5 4\"" } else { "" };
                    writeln!(
                        out,
                        "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\"{dash}/>",
                        points.join(" "),
                        hex(*colour)
                    )
                }
                Shape::Box { corner: (x, y), size: (width, height), colour } => writeln!(
                    out,
                    "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{}\"/>",
                    hex(*colour)
                ),
                Shape::Dot { centre: (x, y), radius, colour } => {
                    let colour = hex(*colour);
                    writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{colour}\"/>")
                }
                Shape::Text { place, text, style } => writeln!(out, "{}", words(*place, text, *style)),
            };
        }
        out + "</svg>\n"
    }
}

fn words((x, y): (f64, f64), text: &str, style: Style) -> String {
    let anchor = match style.anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
        Anchor::End => "end",
    };
    let bold = if style.title { " font-weight=\"bold\"" } else { "" };
    let turned =
        if style.upwards { format!(" transform=\"rotate(-90 {x:.1} {y:.1})\"") } else { String::new() };
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{}\" text-anchor=\"{anchor}\" fill=\"{}\"{bold}{turned}>{}</text>",
        style.size(),
        hex(style.colour),
        escape(text)
    )
}

fn hex([red, green, blue]: Colour) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
