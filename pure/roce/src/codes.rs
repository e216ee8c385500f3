//! Codes of times, credits and lengths.

use engine::Nanos;

/// Times of a receiver-not-ready NAK, in units of 10 µs (table 45 of the specification).
const RNR_TIMES: [u32; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
    3072, 4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768, 49_152,
];

/// Credits of an acknowledgement (table 44 of the specification).
const CREDITS: [u16; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
    4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768,
];

/// The code of an acknowledgement without credits.
pub(crate) const NO_CREDITS: u8 = 31;

/// The wait that a receiver-not-ready NAK requests.
pub(crate) fn rnr_time(code: u8) -> Nanos {
    Nanos::from_micros(10) * u64::from(RNR_TIMES[usize::from(code & 31)])
}

/// The code of the largest number of credits up to `receives`.
pub(crate) fn credits_code(receives: usize) -> u8 {
    let index = CREDITS.partition_point(|credits| usize::from(*credits) <= receives);
    u8::try_from(index).map_or(NO_CREDITS - 1, |index| index - 1)
}

/// The credits of a code. `None` for the code without credits.
pub(crate) fn credits(code: u8) -> Option<u32> {
    CREDITS.get(usize::from(code)).map(|credits| u32::from(*credits))
}

/// The time of a time-out code: 4.096 µs times a power of two.
pub(crate) const fn timeout(code: u8) -> Nanos {
    Nanos::new(4096 << (code & 31))
}

/// The maximum payload of one packet (path MTU).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathMtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1024 bytes.
    B1024 = 3,
    /// 2048 bytes.
    B2048 = 4,
    /// 4096 bytes.
    B4096 = 5,
}

impl PathMtu {
    /// Maximum overhead of a packet in bytes: IPv6, UDP, headers, ICRC.
    const OVERHEAD: usize = 40 + 8 + 12 + 16 + 4 + 4;
    const ALL: [Self; 5] = [Self::B256, Self::B512, Self::B1024, Self::B2048, Self::B4096];

    /// The number of bytes.
    pub const fn bytes(self) -> usize {
        128 << (self as usize)
    }

    /// The largest path MTU whose packets pass a link of `mtu` bytes, or the smallest one.
    pub fn within(mtu: usize) -> Self {
        let fits = Self::ALL.into_iter().rev().find(|one| one.bytes() + Self::OVERHEAD <= mtu);
        fits.unwrap_or(Self::B256)
    }

    /// The path MTU of a code, if there is one.
    pub(crate) fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|one| *one as u8 == code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_match_the_tables() {
        assert_eq!([0, 1, 31].map(rnr_time), [655_360, 10, 491_520].map(Nanos::from_micros));
        assert_eq!([0, 5, 7, 40_000].map(credits_code), [0, 4, 5, 30]);
        assert_eq!([0, 5, 30, 31].map(credits), [Some(0), Some(6), Some(32_768), None]);
        assert_eq!(timeout(14), Nanos::new(67_108_864));
    }

    #[test]
    fn a_path_takes_the_largest_packets_that_fit() {
        assert_eq!([576, 1500, 4200, 9000].map(PathMtu::within).map(PathMtu::bytes), [256, 1024, 4096, 4096]);
        assert_eq!((PathMtu::of_code(5), PathMtu::of_code(6)), (Some(PathMtu::B4096), None));
    }
}
