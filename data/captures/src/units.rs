//! Units of the time stamps of a pcapng interface (pcapng, Interface Description Block:
//! `if_tsresol` and `if_tsoffset`).

use std::fmt;

use engine::Instant;
use pcap_parser::{OptionCode, PcapNGOption};

/// The most units a second, 10 to the 38th power and 2 to the 126th: more fit no integer.
const DECIMAL_MAX: u8 = 38;
const BINARY_MAX: u8 = 126;
/// Marks the rest of `if_tsresol` as an exponent of 2, not of 10.
const BINARY: u8 = 0x80;
/// Units a second by default.
const MICROSECONDS: u128 = 1_000_000;
const NANOS: i128 = 1_000_000_000;

/// The unit of time stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Units {
    /// Units a second.
    per_second: u128,
    /// Seconds that are added.
    offset: i64,
}

/// An option of an Interface Description Block that is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadOption {
    /// `if_tsresol` has this exponent, of 2 or else of 10.
    Resolution {
        /// Whether the exponent is one of 2.
        binary: bool,
        /// The exponent.
        exponent: u8,
    },
    /// `if_tsresol` has this many bytes instead of 1.
    ResolutionLength(u16),
    /// `if_tsoffset` has this many bytes instead of 8.
    OffsetLength(u16),
}

impl fmt::Display for BadOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the Interface Description Block's option ")?;
        match self {
            Self::Resolution { binary, exponent } => {
                let (base, most) = if *binary { (2, BINARY_MAX) } else { (10, DECIMAL_MAX) };
                write!(f, "if_tsresol is {base}^-{exponent} s; expected {base}^-{most} s or coarser")
            }
            Self::ResolutionLength(length) => write!(f, "if_tsresol has {length} bytes; expected 1"),
            Self::OffsetLength(length) => write!(f, "if_tsoffset has {length} bytes; expected 8"),
        }
    }
}

impl Units {
    /// The units that an interface's `options` name; `offset` is the value of `if_tsoffset` in this
    /// machine's order of bytes.
    ///
    /// # Errors
    /// When an option is not understood: its times would be wrong.
    pub(crate) fn of(options: &[PcapNGOption<'_>], offset: i64) -> Result<Self, BadOption> {
        let find = |code| options.iter().find(|option| option.code == code);
        if let Some(option) = find(OptionCode::IfTsoffset).filter(|option| option.len != 8) {
            return Err(BadOption::OffsetLength(option.len));
        }
        let per_second = match find(OptionCode::IfTsresol) {
            None => MICROSECONDS,
            Some(option) => match option.as_bytes() {
                Ok(&[resolution]) => per_second(resolution)?,
                Ok(_) | Err(_) => return Err(BadOption::ResolutionLength(option.len)),
            },
        };
        Ok(Self { per_second, offset })
    }

    /// The time of a stamp, rounded down to a nanosecond; none if it is before 1970 or after 2554.
    pub(crate) fn instant(self, stamp: u64) -> Option<Instant> {
        let (stamp, per_second) = (u128::from(stamp), self.per_second);
        // A remainder has fewer bits than the stamp, so the product fits.
        let nanos = (stamp % per_second) * NANOS.unsigned_abs() / per_second;
        let seconds = i128::try_from(stamp / per_second).ok()? + i128::from(self.offset);
        let nanos = seconds * NANOS + i128::try_from(nanos).ok()?;
        u64::try_from(nanos).ok().map(Instant::from_nanos)
    }
}

fn per_second(resolution: u8) -> Result<u128, BadOption> {
    let (binary, exponent) = (resolution & BINARY != 0, resolution & !BINARY);
    if exponent > if binary { BINARY_MAX } else { DECIMAL_MAX } {
        return Err(BadOption::Resolution { binary, exponent });
    }
    Ok(if binary { 1 << exponent } else { 10_u128.pow(u32::from(exponent)) })
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    fn option(code: OptionCode, value: &[u8]) -> PcapNGOption<'_> {
        PcapNGOption { code, len: u16::try_from(value.len()).unwrap(), value: Cow::Borrowed(value) }
    }

    fn nanos(resolution: Option<u8>, offset: i64, stamp: u64) -> Option<u64> {
        let bytes = [resolution.unwrap_or_default()];
        let options: Vec<_> = resolution.iter().map(|_| option(OptionCode::IfTsresol, &bytes)).collect();
        Units::of(&options, offset).unwrap().instant(stamp).map(Instant::as_nanos)
    }

    #[test]
    fn stamps_count_powers_of_ten_and_of_two() {
        assert_eq!(nanos(None, 0, 1_500_000), Some(1_500_000_000));
        assert_eq!(nanos(Some(0), 0, 7), Some(7_000_000_000));
        assert_eq!(nanos(Some(3), 2, 1_500), Some(3_500_000_000));
        assert_eq!(nanos(Some(9), 0, 12_345_678_901), Some(12_345_678_901));
        assert_eq!(nanos(Some(12), 0, 1_999), Some(1));
        assert_eq!(nanos(Some(38), 5, u64::MAX), Some(5_000_000_000));
        assert_eq!(nanos(Some(0x80 | 32), 0, 3 << 31), Some(1_500_000_000));
        assert_eq!(nanos(Some(0x80), 0, 4), Some(4_000_000_000));
        assert_eq!(nanos(Some(0x80 | 64), 1, u64::MAX), Some(1_999_999_999));
        assert_eq!(nanos(Some(0x80 | 126), 0, u64::MAX), Some(0));
    }

    #[test]
    fn a_time_before_1970_or_after_2554_is_none() {
        assert_eq!(nanos(Some(9), -1, 999_999_999), None);
        assert_eq!(nanos(Some(9), -1, 1_000_000_000), Some(0));
        assert_eq!(nanos(Some(0), 0, u64::MAX), None);
        assert_eq!(nanos(Some(9), i64::MAX, u64::MAX), None);
        assert_eq!(nanos(Some(9), i64::MIN, u64::MAX), None);
    }

    #[test]
    fn an_option_that_is_not_understood_is_named() {
        let refused = |code, value: &[u8]| Units::of(&[option(code, value)], 0).unwrap_err().to_string();
        for (resolution, named) in [(39, "10^-39 s"), (127, "10^-127 s"), (0xff, "2^-127 s")] {
            let said = refused(OptionCode::IfTsresol, &[resolution]);
            assert!(said.contains(named) && said.contains("if_tsresol"), "{said}");
        }
        assert!(refused(OptionCode::IfTsresol, &[]).ends_with("has 0 bytes; expected 1"));
        assert!(refused(OptionCode::IfTsresol, &[6, 0]).ends_with("has 2 bytes; expected 1"));
        assert!(refused(OptionCode::IfTsoffset, &[0; 4]).contains("if_tsoffset has 4 bytes; expected 8"));
    }

    #[test]
    fn every_resolution_gives_a_time_or_is_refused() {
        for resolution in 0..=u8::MAX {
            let bytes = [resolution];
            let Ok(units) = Units::of(&[option(OptionCode::IfTsresol, &bytes)], 0) else { continue };
            // Later stamps are no earlier times.
            let times = [0, 1, 1 << 20, 1 << 40, u64::MAX].map(|stamp| units.instant(stamp));
            let known: Vec<_> = times.into_iter().flatten().collect();
            assert!(known.is_sorted() && known[0] == Instant::ZERO, "{resolution}: {times:?}");
        }
    }
}
