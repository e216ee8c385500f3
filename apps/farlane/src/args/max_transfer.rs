//! The option for the most data that one command moves.

use std::fmt;
use std::str::FromStr;

use nvme::subsystem::{PAGE_BYTES, TRANSFER_BYTES_MAX};

/// The most bytes that one command moves: the Maximum Data Transfer Size (MDTS) of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaxTransfer(pub(crate) u32);

impl Default for MaxTransfer {
    fn default() -> Self {
        Self(128 << 10)
    }
}

impl FromStr for MaxTransfer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = u32::try_from(super::parse_size(text)?).ok();
        bytes
            .filter(|bytes| bytes.is_power_of_two() && (PAGE_BYTES..=TRANSFER_BYTES_MAX).contains(bytes))
            .map(Self)
            .ok_or_else(|| format!("'{text}' is not a power of two from 4KiB to 1MiB, such as 256KiB"))
    }
}

impl fmt::Display for MaxTransfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sizes_that_a_controller_can_name_are_taken() {
        assert_eq!("4k".parse(), Ok(MaxTransfer(4096)));
        assert_eq!("256KiB".parse(), Ok(MaxTransfer(256 << 10)));
        assert_eq!("1MiB".parse(), Ok(MaxTransfer(1 << 20)));
        for wrong in ["0", "2k", "96KiB", "2MiB", "16TiB", "much"] {
            assert!(wrong.parse::<MaxTransfer>().unwrap_err().contains("such as"), "{wrong}");
        }
    }
}
