//! The origin of a connection, by which a server counts the places of each client.

use core::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Number of low bits of an IPv6 address that each host of a network can choose freely.
const INTERFACE_BITS: u32 = 64;

/// The origin of a connection: an IPv4 address or an IPv6 network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Origin(IpAddr);

impl Origin {
    /// The origin of a peer with this address.
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = address.to_bits() >> INTERFACE_BITS << INTERFACE_BITS;
                IpAddr::V6(network.into())
            }
            address @ IpAddr::V4(_) => address,
        })
    }

    /// The origin as the octets of an IPv6 address.
    pub const fn octets(self) -> [u8; 16] {
        match self.0 {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_is_one_origin_and_a_mapped_address_is_its_ipv4_address() {
        let of = |text: &str| Origin::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.2"), of("192.0.2.1"));
    }
}
