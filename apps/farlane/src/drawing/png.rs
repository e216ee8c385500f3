//! A picture as pixels. Each of the drawing's pixels becomes two by two, so that the picture looks
//! well in print.

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};
use tiny_skia::{
    Color, FillRule, LineCap, Paint, Path, PathBuilder, Pixmap, PremultipliedColorU8, Rect, Stroke,
    StrokeDash, Transform,
};

use super::{Anchor, Colour, Drawing, Shape, Style};

const SCALE: u32 = 2;

impl Drawing {
    /// The picture as a PNG file.
    pub(crate) fn png(&self) -> Result<Vec<u8>, String> {
        let size = (self.width * SCALE, self.height * SCALE);
        let mut image = Pixmap::new(size.0, size.1).ok_or("a picture without a size")?;
        image.fill(Color::WHITE);
        for shape in &self.shapes {
            draw(&mut image, shape);
        }
        image.encode_png().map_err(|error| error.to_string())
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a pixel needs few digits")]
const fn scaled(value: f64) -> f32 {
    value as f32 * SCALE as f32
}

fn draw(image: &mut Pixmap, shape: &Shape) {
    match shape {
        Shape::Line { points, colour, width, dashed } => {
            let Some(path) = outline(points) else { return };
            let stroke = Stroke {
                width: scaled(*width),
                line_cap: if *dashed { LineCap::Butt } else { LineCap::Round },
                dash: dashed.then(|| StrokeDash::new(vec![scaled(5.0), scaled(4.0)], 0.0)).flatten(),
                ..Stroke::default()
            };
            image.stroke_path(&path, &paint(*colour), &stroke, Transform::identity(), None);
        }
        Shape::Box { corner, size, colour } => {
            let (x, y) = (scaled(corner.0), scaled(corner.1));
            if let Some(area) = Rect::from_xywh(x, y, scaled(size.0), scaled(size.1)) {
                image.fill_rect(area, &paint(*colour), Transform::identity(), None);
            }
        }
        Shape::Dot { centre, radius, colour } => {
            if let Some(path) = PathBuilder::from_circle(scaled(centre.0), scaled(centre.1), scaled(*radius))
            {
                image.fill_path(&path, &paint(*colour), FillRule::Winding, Transform::identity(), None);
            }
        }
        Shape::Text { place, text, style } => words(image, *place, text, *style),
    }
}

fn outline(points: &[(f64, f64)]) -> Option<Path> {
    let mut path = PathBuilder::new();
    for (index, (x, y)) in points.iter().enumerate() {
        if index == 0 {
            path.move_to(scaled(*x), scaled(*y));
        } else {
            path.line_to(scaled(*x), scaled(*y));
        }
    }
    path.finish()
}

fn paint([red, green, blue]: Colour) -> Paint<'static> {
    let mut paint = Paint { anti_alias: true, ..Paint::default() };
    paint.set_color_rgba8(red, green, blue, 0xff);
    paint
}

/// Draws a text with the letters of a bitmap font, which all have one width.
fn words(image: &mut Pixmap, place: (f64, f64), text: &str, style: Style) {
    let (weight, height) = if style.title {
        (FontWeight::Bold, RasterHeight::Size32)
    } else {
        (FontWeight::Regular, RasterHeight::Size24)
    };
    let wide = i32::try_from(get_raster_width(weight, height)).unwrap_or(0);
    let length = i32::try_from(text.chars().count()).unwrap_or(0) * wide;
    let before = match style.anchor {
        Anchor::Start => 0,
        Anchor::Middle => length / 2,
        Anchor::End => length,
    };
    // Distance from the line that a letter stands on to the bottom of its box.
    let below = i32::try_from(height.val() / 4).unwrap_or(0);
    let tall = i32::try_from(height.val()).unwrap_or(0);
    #[expect(clippy::cast_possible_truncation, reason = "a place in a picture")]
    let (x, y) = (scaled(place.0) as i32, scaled(place.1) as i32);
    for (index, letter) in (0..).zip(text.chars()) {
        let Some(raster) = get_raster(letter, weight, height).or_else(|| get_raster('?', weight, height))
        else {
            continue;
        };
        for (row, line) in (0..).zip(raster.rows()) {
            for (column, shade) in (0..).zip(line.iter()) {
                let (right, down): (i32, i32) = (index * wide + column - before, row - tall + below);
                let (x, y) = if style.upwards { (x + down, y - right) } else { (x + right, y + down) };
                blend(image, (x, y), style.colour, *shade);
            }
        }
    }
}

/// Covers a pixel with a colour to `shade` parts of 255.
fn blend(image: &mut Pixmap, (x, y): (i32, i32), colour: Colour, shade: u8) {
    let (Ok(x), Ok(y)) = (usize::try_from(x), usize::try_from(y)) else { return };
    let (width, height) = (image.width() as usize, image.height() as usize);
    if x >= width || y >= height || shade == 0 {
        return;
    }
    let pixel = &mut image.pixels_mut()[y * width + x];
    let mix = |under: u8, over: u8| {
        let sum = u16::from(under) * (255 - u16::from(shade)) + u16::from(over) * u16::from(shade);
        u8::try_from(sum / 255).unwrap_or(u8::MAX)
    };
    let [red, green, blue] = colour;
    let (red, green, blue) = (mix(pixel.red(), red), mix(pixel.green(), green), mix(pixel.blue(), blue));
    if let Some(mixed) = PremultipliedColorU8::from_rgba(red, green, blue, 255) {
        *pixel = mixed;
    }
}
