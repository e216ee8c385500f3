//! The options of `farlane model emulate`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use super::{DaemonOptions, Output, parse_time};

pub(super) const EXAMPLE: &str = "Example, with a far end on port 4430:
  printf '[link]\\nlatency = \"10ms\"\\nrate = \"1Gbit/s\"\\n' > link.toml
  farlane model emulate --listen 127.0.0.1:4431 --connect 127.0.0.1:4430 --link link.toml
  farlane measure ping tcp://127.0.0.1:4431

The same with this machine's own TCP instead of a modelled one (as root):
  ip netns add near && ip netns add far
  farlane model emulate --between near far --link link.toml &
  ip netns exec far farlane export --listen 10.77.0.2:4430 --insecure --ram 1GiB &
  ip netns exec near farlane measure ping tcp://10.77.0.2:4430";

#[derive(Debug, Args)]
pub(crate) struct EmulateArgs {
    /// Listen on this address and port; with port 0, the system chooses a port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0", value_parser = super::parse_address)]
    pub(crate) listen: SocketAddr,
    /// Connect each incoming connection to this address, through the modelled network
    #[arg(long, value_name = "HOST:PORT", required_unless_present = "between")]
    pub(crate) connect: Option<String>,

    /// Pass packets between two network namespaces, instead of connections.
    ///
    /// NEAR and FAR are names of ip netns, or paths to network namespaces. The emulator makes an
    /// interface in each namespace. All packets sent there, such as those of the kernel's own TCP,
    /// pass through the model
    #[arg(long, value_names = ["NEAR", "FAR"], num_args = 2, conflicts_with_all = ["listen", "connect"])]
    pub(crate) between: Vec<String>,

    /// Take the addresses of the interfaces of --between from this network.
    ///
    /// NEAR gets the first address, and FAR gets the second. A second emulator needs another
    /// network
    #[arg(long, value_name = "ADDR/BITS", default_value = "10.77.0.0/24", requires = "between")]
    pub(crate) subnet: Subnet,
    /// Read the description of the network from this file; docs/emulate.md describes all keys
    #[arg(long, value_name = "FILE")]
    pub(crate) link: PathBuf,
    /// Derive all random choices in the model from this seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Show the counters this often while something passes; 0 shows the counters at the end only
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    pub(crate) every: Duration,
    #[command(flatten)]
    pub(crate) daemon: DaemonOptions,
    /// Print JSON for machines: a line with the address, then one with counters each time, the last
    /// with "end": true
    #[command(flatten)]
    pub(crate) output: Output,
}

/// IPv4 addresses with the same leading bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subnet {
    network: u32,
    prefix: u8,
}

impl Subnet {
    /// The number of common leading bits: 8 to 30, so that there are at least two addresses.
    pub(crate) const fn prefix(self) -> u8 {
        self.prefix
    }

    /// The first and second addresses.
    pub(crate) fn ends(self) -> [Ipv4Addr; 2] {
        [1, 2].map(|host| Ipv4Addr::from_bits(self.network | host))
    }
}

impl FromStr for Subnet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(address, prefix)| {
            Some((address.parse::<Ipv4Addr>().ok()?.to_bits(), prefix.parse::<u8>().ok()?))
        });
        match parts {
            Some((address, prefix @ 8..=30)) if address.trailing_zeros() >= u32::from(32 - prefix) => {
                Ok(Self { network: address, prefix })
            }
            _ => Err("expected a network of IPv4 with 8 to 30 bits, for example 10.77.1.0/24".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subnet_has_room_for_two() {
        let subnet: Subnet = "10.77.3.0/30".parse().unwrap();
        assert_eq!(subnet.ends(), [Ipv4Addr::new(10, 77, 3, 1), Ipv4Addr::new(10, 77, 3, 2)]);
        for wrong in ["10.77.3.0", "10.77.3.1/24", "10.77.3.0/31", "10.0.0.0/7", "::/64", "10.77.3.0/-1"] {
            assert!(wrong.parse::<Subnet>().is_err(), "{wrong}");
        }
    }
}
