//! Values of options as fio writes them.

use std::ffi::OsStr;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};
use clap::{Arg, Command, Error, ValueEnum};

use super::{Sizes, parse_size, parse_time};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub(crate) enum Workload {
    Read,
    Write,
    RandRead,
    RandWrite,
    /// Reads and writes, in order
    #[value(alias = "readwrite")]
    Rw,
    /// Reads and writes, at random offsets
    RandRw,
    /// Deallocates blocks, in order
    Trim,
    RandTrim,
    /// Deallocates blocks, in order, and writes each of them then
    TrimWrite,
    RandTrimWrite,
}

impl Workload {
    /// fio's name of the workload.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// fio's `rw`: a workload, and a number: bytes to pass over between sequential operations, or
/// operations with one random offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    pub(crate) workload: Workload,
    pub(crate) number: Option<i64>,
}

/// Parses a [`Pattern`], and knows the names of workloads for help and completions.
#[derive(Clone, Debug)]
pub(super) struct PatternParser;

impl TypedValueParser for PatternParser {
    type Value = Pattern;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Pattern, Error> {
        let text = value.to_string_lossy();
        let (name, number) =
            text.split_once(':').map_or((&*text, None), |(name, number)| (name, Some(number)));
        let workload = EnumValueParser::<Workload>::new().parse_ref(command, arg, OsStr::new(name))?;
        let number = number.map(signed_size).transpose().map_err(|why| {
            Error::raw(
                clap::error::ErrorKind::ValueValidation,
                format!("invalid value '{text}' for '--rw': {why}\n"),
            )
            .with_cmd(command)
        })?;
        Ok(Pattern { workload, number })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Workload::value_variants().iter().filter_map(Workload::to_possible_value)))
    }
}

fn signed_size(text: &str) -> Result<i64, String> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let size = i64::try_from(parse_size(digits)?).map_err(|_| "expected less than 8 EiB".to_owned())?;
    Ok(sign * size)
}

/// Bytes, or a part of a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    Bytes(u64),
    Percent(u8),
}

impl Amount {
    /// The bytes, as a multiple of `unit` where they are a part of `whole`.
    pub(crate) fn of(self, whole: u64, unit: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => {
                let bytes = u128::from(whole) * u128::from(percent) / 100;
                let bytes = u64::try_from(bytes).unwrap_or(whole);
                bytes - bytes % unit.max(1)
            }
        }
    }
}

impl FromStr for Amount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_suffix('%') {
            Some(percent) => {
                let percent = percent.trim().parse().ok().filter(|percent| *percent <= 100);
                percent.map(Self::Percent).ok_or_else(|| format!("'{text}': expected 0% to 100%"))
            }
            None => parse_size(text).map(Self::Bytes),
        }
    }
}

/// An amount that is not 0.
pub(super) fn parse_positive_amount(text: &str) -> Result<Amount, String> {
    match text.parse()? {
        Amount::Bytes(0) | Amount::Percent(0) => {
            Err("0 bytes show nothing; expected a size such as 64MiB or 50%".to_owned())
        }
        amount => Ok(amount),
    }
}

/// Values for reads, writes and trims: fio's `4k`, `4k,8k`, `,8k,`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Each<T>(pub(crate) [Option<T>; 3]);

impl<T: Copy> Each<T> {
    /// The values, `usual` where none is given.
    pub(crate) fn or(self, usual: T) -> [T; 3] {
        self.0.map(|one| one.unwrap_or(usual))
    }
}

impl<T: fmt::Display> fmt::Display for Each<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [reads, writes, trims] = self.0.each_ref().map(|one| one.as_ref().map(T::to_string));
        match reads == writes && writes == trims {
            true => f.write_str(&reads.unwrap_or_default()),
            false => {
                let [reads, writes, trims] = [reads, writes, trims].map(Option::unwrap_or_default);
                write!(f, "{reads},{writes},{trims}")
            }
        }
    }
}

/// Values for reads, writes and trims. As in fio, a value without a comma behind it is that of the
/// later ones as well.
fn each<T: Copy>(text: &str, one: impl Fn(&str) -> Result<T, String>) -> Result<Each<T>, String> {
    let parts: Vec<_> = text.split(',').map(str::trim).collect();
    if parts.len() > 3 {
        return Err(format!("{} values; expected at most 3: reads, writes, trims", parts.len()));
    }
    let mut values = [None; 3];
    for (at, part) in parts.iter().enumerate().filter(|(_, part)| !part.is_empty()) {
        let value = Some(one(part)?);
        let end = if at + 1 == parts.len() { 3 } else { at + 1 };
        values[at..end].fill(value);
    }
    match values.iter().all(Option::is_none) {
        true => Err("there is no value".to_owned()),
        false => Ok(Each(values)),
    }
}

pub(super) fn parse_lengths(text: &str) -> Result<Each<u64>, String> {
    each(text, parse_size)
}

pub(super) fn parse_splits(text: &str) -> Result<Each<Sizes>, String> {
    each(text, str::parse)
}

/// fio's `bsrange`: `4k-16k`, or `1k-4k,2k-8k` for reads and writes.
pub(super) fn parse_ranges(text: &str) -> Result<Each<Sizes>, String> {
    each(&text.replace('/', ","), |part| {
        let wrong = || format!("'{part}': expected SIZE-SIZE, such as 4k-64k");
        let (shortest, longest) = part.split_once(['-', ':']).ok_or_else(wrong)?;
        let one =
            |text: &str| u32::try_from(parse_size(text)?).ok().filter(|bytes| *bytes > 0).ok_or_else(wrong);
        let (shortest, longest) = (one(shortest)?, one(longest)?);
        Ok(Sizes::range(shortest.min(longest), longest.max(shortest)))
    })
}

/// A rate for reads, writes and trims, each more than 0.
pub(super) fn parse_rates(text: &str) -> Result<Each<u64>, String> {
    each(text, |part| {
        let rate = parse_size(part)?;
        match rate {
            0 => Err("no rate is no load; expected such as 10m or 500k,200k".to_owned()),
            rate => Ok(rate),
        }
    })
}

pub(super) fn parse_percents(text: &str) -> Result<Each<u8>, String> {
    each(text, |part| {
        let percent = part.parse().ok().filter(|percent| *percent <= 100);
        percent.ok_or_else(|| format!("'{part}': expected 0 to 100"))
    })
}

/// fio's bool: 1 or 0.
pub(super) fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err("expected 1 or 0".to_owned()),
    }
}

/// A time that is in microseconds if it has no unit.
pub(super) fn parse_micros(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(micros) => Ok(Duration::from_micros(micros)),
        Err(_) => {
            parse_time(text).map_err(|_| "expected a time such as 500us, or 500 for microseconds".to_owned())
        }
    }
}

/// fio's `verify`: a method, of which only whether there is one counts.
pub(super) fn parse_verify(text: &str) -> Result<bool, String> {
    const METHODS: [&str; 24] = [
        "1",
        "md5",
        "crc64",
        "crc32c",
        "crc32c-intel",
        "crc32",
        "crc16",
        "crc7",
        "xxhash",
        "sha512",
        "sha256",
        "sha1",
        "sha3-224",
        "sha3-256",
        "sha3-384",
        "sha3-512",
        "meta",
        "pattern",
        "pattern_hdr",
        "null_hdr",
        "crc32c-arm64",
        "sha224",
        "sha384",
        "header",
    ];
    match text.split(':').next().unwrap_or_default() {
        "0" | "none" | "null" => Ok(false),
        method if METHODS.contains(&method) => Ok(true),
        _ => Err("expected one of fio's methods, such as crc32c, or 0".to_owned()),
    }
}

/// fio's `buffer_pattern`: a number, bytes as `0x...`, or `"text"`.
pub(super) fn parse_pattern(text: &str) -> Result<Vec<u8>, String> {
    let wrong = || format!("'{text}': expected 0x..., a number or \"text\"");
    if let Some(inner) = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        return if inner.is_empty() { Err(wrong()) } else { Ok(inner.as_bytes().to_vec()) };
    }
    if let Some(digits) = text.strip_prefix("0x") {
        let digits = if digits.len() % 2 == 1 { format!("0{digits}") } else { digits.to_owned() };
        if digits.is_empty() || digits.len() > 1024 || !digits.is_ascii() {
            return Err(wrong());
        }
        let one = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| wrong());
        return (0..digits.len()).step_by(2).map(one).collect();
    }
    // A number is as many bytes as it needs, the least significant one first.
    let number: u64 = text.parse().map_err(|_| wrong())?;
    let bytes = number.to_le_bytes();
    let length = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |at| at + 1);
    Ok(bytes[..length].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_without_a_comma_behind_it_is_that_of_the_later_ones() {
        let of = |text| parse_lengths(text).map(|each| each.0);
        assert_eq!(of("4k"), Ok([Some(4096); 3]));
        assert_eq!(of("4k,8k"), Ok([Some(4096), Some(8192), Some(8192)]));
        assert_eq!(of("4k,8k,"), Ok([Some(4096), Some(8192), None]));
        assert_eq!(of(",8k"), Ok([None, Some(8192), Some(8192)]));
        assert_eq!(of(",8k,"), Ok([None, Some(8192), None]));
        assert_eq!(of("512,512,16384"), Ok([Some(512), Some(512), Some(16_384)]));
        assert!(of("").is_err() && of(",,").is_err() && of("1,2,3,4").is_err());
        assert_eq!(parse_lengths("4k,8k").unwrap().to_string(), "4096,8192,8192");
        assert!(parse_rates("0").is_err());
    }

    #[test]
    fn amounts_are_bytes_or_parts() {
        assert_eq!("64k".parse::<Amount>().unwrap().of(1, 1), 65_536);
        assert_eq!("50%".parse::<Amount>().unwrap().of(1001, 100), 500);
        assert!("101%".parse::<Amount>().is_err() && parse_positive_amount("0%").is_err());
    }

    #[test]
    fn patterns_are_bytes() {
        assert_eq!(parse_pattern("0xabcd"), Ok(vec![0xab, 0xcd]));
        assert_eq!(parse_pattern("0x1"), Ok(vec![1]));
        assert_eq!((parse_pattern("258"), parse_pattern("0")), (Ok(vec![2, 1]), Ok(vec![0])));
        assert_eq!(parse_pattern("\"ab\""), Ok(b"ab".to_vec()));
        assert!(
            parse_pattern("").is_err() && parse_pattern("0xé0").is_err() && parse_pattern("\"\"").is_err()
        );
    }

    #[test]
    fn ranges_are_two_sizes_in_any_order() {
        assert_eq!(parse_ranges("64k-4k").unwrap().0[0], Some(Sizes::range(4096, 65_536)));
        let each = parse_ranges("1k-4k,2k-8k").unwrap().0;
        assert_eq!((each[0], each[2]), (Some(Sizes::range(1024, 4096)), Some(Sizes::range(2048, 8192))));
        assert!(parse_ranges("4k").is_err() && parse_ranges("0-4k").is_err());
    }

    #[test]
    fn methods_of_verification_are_those_of_fio() {
        assert_eq!((parse_verify("crc32c"), parse_verify("0")), (Ok(true), Ok(false)));
        assert!(parse_verify("crc33").is_err());
    }
}
