//! The behaviour of the host's root port, which shapes the packets of a command.

use clap::Args;

use super::parse_size;

/// The settings of the host's root port, where the host is on PCI Express.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Root {
    /// Max_Payload_Size and Max_Read_Request_Size, 128 to 4096.
    ///
    /// With 256, a command of 4 KiB has sixteen packets of data, as on usual hosts
    #[arg(long, value_name = "SIZE", default_value = "4096", value_parser = parse_payload)]
    pub(crate) payload_size: u32,

    /// The longest completion with which the host answers a device's read, 64 to 4096
    #[arg(long, value_name = "SIZE", default_value = "4096", value_parser = parse_completion)]
    pub(crate) completion_size: u32,

    /// Have an interrupt (MSI-X) for each completion, and ring for each, as operating systems do.
    ///
    /// Without it, the host polls
    #[arg(long)]
    pub(crate) interrupts: bool,
}

impl Default for Root {
    fn default() -> Self {
        Self { payload_size: 4096, completion_size: 4096, interrupts: false }
    }
}

fn parse_payload(text: &str) -> Result<u32, String> {
    power_of_two(text, 128)
}

fn parse_completion(text: &str) -> Result<u32, String> {
    power_of_two(text, 64)
}

/// A size that is a power of two, from `least` to 4096.
fn power_of_two(text: &str, least: u32) -> Result<u32, String> {
    let size = parse_size(text).ok().and_then(|size| u32::try_from(size).ok());
    let size = size.filter(|size| size.is_power_of_two() && (least..=4096).contains(size));
    size.ok_or_else(|| format!("expected a power of two from {least} to 4096"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two_that_pci_express_has() {
        assert_eq!((parse_payload("256"), parse_payload("4k")), (Ok(256), Ok(4096)));
        assert_eq!(parse_completion("64"), Ok(64));
        for wrong in ["64", "300", "8192", "0", "x", "1TiB"] {
            assert!(parse_payload(wrong).is_err(), "{wrong}");
        }
    }
}
