//! Pictures: lines, boxes, dots and words, written as SVG or as PNG.

mod png;
pub(crate) mod scale;
mod svg;

use std::path::Path;

use crate::error::Error;
use crate::whole_file;

/// Red, green and blue, 0 to 255 each.
pub(crate) type Colour = [u8; 3];

pub(crate) const BLACK: Colour = [0x22, 0x22, 0x22];
pub(crate) const GREY: Colour = [0x66, 0x66, 0x66];
pub(crate) const PALE: Colour = [0xdd, 0xdd, 0xdd];
/// Colours that are distinct also with colour vision deficiency (Okabe and Ito).
pub(crate) const COLOURS: [Colour; 8] = [
    [0x00, 0x72, 0xb2],
    [0xd5, 0x5e, 0x00],
    [0x00, 0x9e, 0x73],
    [0xcc, 0x79, 0xa7],
    [0xe6, 0x9f, 0x00],
    [0x56, 0xb4, 0xe9],
    [0x00, 0x00, 0x00],
    [0x99, 0x99, 0x33],
];

/// Which point of a text its place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// How a text looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    pub(crate) anchor: Anchor,
    pub(crate) colour: Colour,
    /// Whether the text is a title, which is larger.
    pub(crate) title: bool,
    /// Whether the text runs upwards, as beside an axis.
    pub(crate) upwards: bool,
}

impl Style {
    pub(crate) const START: Self =
        Self { anchor: Anchor::Start, colour: BLACK, title: false, upwards: false };
    pub(crate) const MIDDLE: Self = Self { anchor: Anchor::Middle, ..Self::START };
    pub(crate) const END: Self = Self { anchor: Anchor::End, ..Self::START };
    pub(crate) const TITLE: Self = Self { title: true, ..Self::START };

    pub(crate) const fn of(self, colour: Colour) -> Self {
        Self { colour, ..self }
    }

    /// Height of a line of text in pixels.
    const fn size(self) -> f64 {
        if self.title { 15.0 } else { 12.0 }
    }
}

/// A length in whole pixels.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some thousand pixels")]
pub(crate) fn pixels(length: f64) -> u32 {
    length.ceil() as u32
}

/// The greatest width that `text` may have, in pixels.
pub(crate) fn width_of(text: &str) -> f64 {
    u32::try_from(text.chars().count()).map_or(0.0, f64::from) * 7.2
}

#[derive(Clone, Debug)]
enum Shape {
    Line { points: Vec<(f64, f64)>, colour: Colour, width: f64, dashed: bool },
    Box { corner: (f64, f64), size: (f64, f64), colour: Colour },
    Dot { centre: (f64, f64), radius: f64, colour: Colour },
    Text { place: (f64, f64), text: String, style: Style },
}

/// The file format of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Svg,
    Png,
}

impl Form {
    /// The form that the extension of a file's name stands for.
    pub(crate) fn of(path: &Path) -> Result<Self, Error> {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        match extension.to_ascii_lowercase().as_str() {
            "svg" => Ok(Self::Svg),
            "png" => Ok(Self::Png),
            _ => {
                let path = path.display();
                Err(Error::Simulation(format!("{path}: expected a name that ends in .svg or .png")))
            }
        }
    }
}

/// A picture on white. The x axis runs right and the y axis down, in pixels of an ordinary screen.
#[derive(Clone, Debug)]
pub(crate) struct Drawing {
    width: u32,
    height: u32,
    shapes: Vec<Shape>,
}

impl Drawing {
    pub(crate) const fn new(width: u32, height: u32) -> Self {
        Self { width, height, shapes: Vec::new() }
    }

    pub(crate) fn line(&mut self, points: &[(f64, f64)], colour: Colour, width: f64) {
        self.shapes.push(Shape::Line { points: points.to_vec(), colour, width, dashed: false });
    }

    pub(crate) fn dashes(&mut self, points: &[(f64, f64)], colour: Colour, width: f64) {
        self.shapes.push(Shape::Line { points: points.to_vec(), colour, width, dashed: true });
    }

    pub(crate) fn rectangle(&mut self, corner: (f64, f64), size: (f64, f64), colour: Colour) {
        self.shapes.push(Shape::Box { corner, size, colour });
    }

    pub(crate) fn dot(&mut self, centre: (f64, f64), radius: f64, colour: Colour) {
        self.shapes.push(Shape::Dot { centre, radius, colour });
    }

    pub(crate) fn text(&mut self, place: (f64, f64), text: impl Into<String>, style: Style) {
        self.shapes.push(Shape::Text { place, text: text.into(), style });
    }

    /// Writes the picture to a file, in the form that the file's name stands for.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Error> {
        let wrong = |why: String| Error::Simulation(format!("{}: {why}", path.display()));
        let bytes = match Form::of(path)? {
            Form::Svg => self.svg().into_bytes(),
            Form::Png => self.png().map_err(wrong)?,
        };
        whole_file::replace(path, &bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawing() -> Drawing {
        let mut drawing = Drawing::new(100, 50);
        drawing.line(&[(0.0, 0.0), (10.0, 10.0)], BLACK, 1.0);
        drawing.dashes(&[(0.0, 0.0), (10.0, 10.0)], BLACK, 1.0);
        drawing.rectangle((20.0, 20.0), (30.0, 10.0), [0xff, 0, 0]);
        drawing.dot((80.0, 25.0), 5.0, [0, 0, 0xff]);
        drawing.text((50.0, 45.0), "a < b & c", Style::MIDDLE);
        drawing.text((95.0, 45.0), "up", Style { upwards: true, ..Style::START });
        drawing
    }

    #[test]
    fn both_forms_have_what_was_drawn() {
        let svg = drawing().svg();
        for part in
            ["width=\"100\"", "polyline", "stroke-dasharray", "#ff0000", "<circle", "a &lt; b &amp; c"]
        {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        let image = tiny_skia::Pixmap::decode_png(&drawing().png().unwrap()).unwrap();
        assert_eq!((image.width(), image.height()), (200, 100));
        let colour = |x, y| {
            let pixel = image.pixel(x, y).unwrap();
            [pixel.red(), pixel.green(), pixel.blue()]
        };
        assert_eq!(colour(70, 50), [0xff, 0, 0], "the box");
        assert_eq!(colour(160, 50), [0, 0, 0xff], "the dot");
        assert_eq!(colour(199, 0), [0xff; 3], "the paper");
        let dark = |x, y| colour(x, y).iter().all(|part| *part < 0x80);
        assert!((60..140).any(|x| (70..96).any(|y| dark(x, y))), "the words");
    }

    #[test]
    fn a_name_that_says_no_form_is_refused() {
        let error = drawing().write(Path::new("plot.gif")).unwrap_err().to_string();
        assert!(error.contains(".svg or .png"), "{error}");
    }
}
