//! Quantities as users write them: `10ms`, `1Gbit/s`, `64KiB`, `0.1%`. All values are exact,
//! without floating point.

use std::fmt::Display;
use std::str::FromStr;

use engine::Nanos;
use network_models::{Chance, Rate};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

/// A value of type `T` that a file gives as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<T>(pub T);

impl<'de, T: Quantity> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse(&text).map(Self).map_err(D::Error::custom)
    }
}

/// A quantity that is written with a unit.
pub trait Quantity: Sized {
    /// The names of the units, each with its size in the smallest unit.
    const UNITS: &'static [(&'static str, u64)];
    /// The expected form, for the message about other text.
    const EXPECTED: &'static str;
    /// The value of `count` smallest units, if it is allowed.
    fn of(count: u64) -> Option<Self>;
}

impl Quantity for Nanos {
    const UNITS: &'static [(&'static str, u64)] = &[
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("min", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ];
    const EXPECTED: &'static str = "a time with its unit, such as 10ms or 1.5us";
    fn of(count: u64) -> Option<Self> {
        Some(Self::new(count))
    }
}

impl Quantity for Rate {
    const UNITS: &'static [(&'static str, u64)] =
        &[("bit/s", 1), ("kbit/s", 1_000), ("Mbit/s", 1_000_000), ("Gbit/s", 1_000_000_000)];
    const EXPECTED: &'static str = "a rate with its unit, such as 100Mbit/s or 2.5Gbit/s, above 0";
    fn of(count: u64) -> Option<Self> {
        (count > 0).then(|| Self::new(count))
    }
}

/// A number of bytes, written such as `64KiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl Quantity for Bytes {
    const UNITS: &'static [(&'static str, u64)] = &[
        ("", 1),
        ("B", 1),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("kB", 1_000),
        ("MB", 1_000_000),
    ];
    const EXPECTED: &'static str = "a size such as 1500B or 64KiB";
    fn of(count: u64) -> Option<Self> {
        Some(Self(count))
    }
}

impl Quantity for Chance {
    const UNITS: &'static [(&'static str, u64)] = &[("%", 10_000_000), ("ppm", 1_000), ("ppb", 1)];
    const EXPECTED: &'static str = "a share such as 0.1% or 20ppm, all of it at most";
    fn of(count: u64) -> Option<Self> {
        let parts = u32::try_from(count).ok()?;
        (parts <= Self::ALWAYS.in_parts_per_billion()).then(|| Self::parts_per_billion(parts))
    }
}

/// A length of cable, in millimetres.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Millimetres(pub u64);

impl Quantity for Millimetres {
    const UNITS: &'static [(&'static str, u64)] = &[("mm", 1), ("cm", 10), ("m", 1_000), ("km", 1_000_000)];
    const EXPECTED: &'static str = "a length with its unit, such as 3m";
    fn of(count: u64) -> Option<Self> {
        Some(Self(count))
    }
}

/// Parses a number with its unit.
///
/// # Errors
/// The form that was expected instead of `text`.
pub fn parse<T: Quantity>(text: &str) -> Result<T, String> {
    let wrong = || format!("expected {}, not '{text}'", T::EXPECTED);
    let number = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = text[number.len()..].trim();
    let scale = T::UNITS.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale);
    let scale = scale.ok_or_else(wrong)?;
    exact(number.trim(), scale).and_then(T::of).ok_or_else(wrong)
}

/// A decimal number times `scale`, if the product is whole.
fn exact(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 12 {
        return None;
    }
    let power = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let scaled = format!("{whole}{fraction}").parse::<u128>().ok()?.checked_mul(u128::from(scale))?;
    (scaled % power == 0).then(|| u64::try_from(scaled / power).ok())?
}

/// The value in `words` whose name is `word`.
///
/// # Errors
/// A list of the names, if `word` is none of them.
pub fn one_of<T: Copy>(word: &str, words: &[(&str, T)]) -> Result<T, String> {
    words.iter().find(|(name, _)| *name == word).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = words.iter().map(|(name, _)| format!("'{name}'")).collect();
        format!("expected {}, not '{word}'", names.join(" or "))
    })
}

/// A value that [`FromStr`] parses from text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plain<T>(pub T);

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Plain<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(|error| D::Error::custom(format!("{error}, not '{text}'")))
    }
}
