//! The option for an SSD's controller memory buffer.

use clap::Args;
use nvme_pcie::controller::{MEMORY_BUFFER_BYTES_MAX, MEMORY_BUFFER_BYTES_MIN};

/// A controller memory buffer.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct MemoryBuffer {
    /// Offer a controller memory buffer (CMB) of this size for the hosts' submission queues.
    ///
    /// The controller then need not fetch the commands of these queues. The size is a power of two
    /// from 4 KiB to 16 MiB. Linux uses a buffer of 2 MiB or more, if the kernel has peer-to-peer
    /// DMA
    #[arg(long, value_name = "SIZE", value_parser = parse)]
    cmb: Option<u32>,
}

impl MemoryBuffer {
    /// Size in bytes; 0 if there is no buffer.
    pub(crate) fn bytes(self) -> u32 {
        self.cmb.unwrap_or(0)
    }
}

fn parse(text: &str) -> Result<u32, String> {
    let range = MEMORY_BUFFER_BYTES_MIN..=MEMORY_BUFFER_BYTES_MAX;
    let bytes = u32::try_from(super::parse_size(text)?).ok();
    bytes
        .filter(|bytes| bytes.is_power_of_two() && range.contains(bytes))
        .ok_or_else(|| "expected a power of two from 4KiB to 16MiB, such as 2MiB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sizes_that_a_controller_can_have_are_taken() {
        assert_eq!(parse("4k"), Ok(4096));
        assert_eq!(parse("2MiB"), Ok(2 << 20));
        assert_eq!(parse("16MiB"), Ok(16 << 20));
        for wrong in ["0", "2k", "3MiB", "32MiB", "16TiB", "much"] {
            assert!(parse(wrong).unwrap_err().contains("such as"), "{wrong}");
        }
    }
}
