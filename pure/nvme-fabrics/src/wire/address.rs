//! Where a subsystem is reached.

use alloc::string::{String, ToString};
use core::fmt;
use core::net::{IpAddr, SocketAddr};

/// Length of Transport Address (TRADDR) in bytes.
pub const TRANSPORT_ADDRESS_LENGTH: usize = 256;
/// Length of Transport Service Identifier (TRSVCID) in bytes.
pub const SERVICE_LENGTH: usize = 32;

/// Transport Type (TRTYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransportType {
    /// RDMA (01h).
    Rdma,
    /// Fibre Channel (02h).
    FibreChannel,
    /// TCP (03h).
    Tcp,
    /// Within a host (FEh), for tests.
    Loop,
    /// Another transport type.
    Other(u8),
}

impl From<u8> for TransportType {
    fn from(value: u8) -> Self {
        match value {
            1 => Self::Rdma,
            2 => Self::FibreChannel,
            3 => Self::Tcp,
            0xfe => Self::Loop,
            other => Self::Other(other),
        }
    }
}

impl From<TransportType> for u8 {
    fn from(value: TransportType) -> Self {
        match value {
            TransportType::Rdma => 1,
            TransportType::FibreChannel => 2,
            TransportType::Tcp => 3,
            TransportType::Loop => 0xfe,
            TransportType::Other(other) => other,
        }
    }
}

impl fmt::Display for TransportType {
    /// The name that `nvme discover` prints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rdma => f.write_str("rdma"),
            Self::FibreChannel => f.write_str("fc"),
            Self::Tcp => f.write_str("tcp"),
            Self::Loop => f.write_str("loop"),
            Self::Other(value) => write!(f, "transport {value:02x}h"),
        }
    }
}

/// Address Family (ADRFAM).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressFamily {
    /// IPv4 (01h).
    Ipv4,
    /// IPv6 (02h).
    Ipv6,
    /// InfiniBand (03h).
    InfiniBand,
    /// Fibre Channel (04h).
    FibreChannel,
    /// Within a host (FEh).
    Loop,
    /// Another address family.
    Other(u8),
}

impl From<u8> for AddressFamily {
    fn from(value: u8) -> Self {
        match value {
            1 => Self::Ipv4,
            2 => Self::Ipv6,
            3 => Self::InfiniBand,
            4 => Self::FibreChannel,
            0xfe => Self::Loop,
            other => Self::Other(other),
        }
    }
}

impl From<AddressFamily> for u8 {
    fn from(value: AddressFamily) -> Self {
        match value {
            AddressFamily::Ipv4 => 1,
            AddressFamily::Ipv6 => 2,
            AddressFamily::InfiniBand => 3,
            AddressFamily::FibreChannel => 4,
            AddressFamily::Loop => 0xfe,
            AddressFamily::Other(other) => other,
        }
    }
}

impl fmt::Display for AddressFamily {
    /// The name that `nvme discover` prints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ipv4 => f.write_str("ipv4"),
            Self::Ipv6 => f.write_str("ipv6"),
            Self::InfiniBand => f.write_str("infiniband"),
            Self::FibreChannel => f.write_str("fibre-channel"),
            Self::Loop => f.write_str("loop"),
            Self::Other(value) => write!(f, "family {value:02x}h"),
        }
    }
}

/// RDMA Provider Type (RDMA_PRTYPE), in Transport Specific Address Subtype (TSAS) of NVMe/RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RdmaProvider {
    /// Not specified (01h).
    NotSpecified,
    /// InfiniBand (02h).
    InfiniBand,
    /// RoCE, version 1 (03h).
    Roce,
    /// RoCE, version 2 (04h).
    RoceV2,
    /// iWARP (05h).
    Iwarp,
    /// Another provider type.
    Other(u8),
}

impl From<u8> for RdmaProvider {
    fn from(value: u8) -> Self {
        match value {
            1 => Self::NotSpecified,
            2 => Self::InfiniBand,
            3 => Self::Roce,
            4 => Self::RoceV2,
            5 => Self::Iwarp,
            other => Self::Other(other),
        }
    }
}

impl From<RdmaProvider> for u8 {
    fn from(value: RdmaProvider) -> Self {
        match value {
            RdmaProvider::NotSpecified => 1,
            RdmaProvider::InfiniBand => 2,
            RdmaProvider::Roce => 3,
            RdmaProvider::RoceV2 => 4,
            RdmaProvider::Iwarp => 5,
            RdmaProvider::Other(other) => other,
        }
    }
}

impl fmt::Display for RdmaProvider {
    /// The name that `nvme discover` prints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSpecified => f.write_str("not specified"),
            Self::InfiniBand => f.write_str("infiniband"),
            Self::Roce => f.write_str("roce"),
            Self::RoceV2 => f.write_str("roce-v2"),
            Self::Iwarp => f.write_str("iwarp"),
            Self::Other(value) => write!(f, "provider {value:02x}h"),
        }
    }
}

/// A transport address in a discovery log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TransportAddress {
    /// Transport Type (TRTYPE).
    pub transport: TransportType,
    /// Address Family (ADRFAM).
    pub family: AddressFamily,
    /// Transport Address (TRADDR): printable ASCII, at most [`TRANSPORT_ADDRESS_LENGTH`] bytes.
    pub address: String,
    /// Transport Service Identifier (TRSVCID); for TCP and RDMA, the port number in decimal.
    pub service: String,
    /// RDMA Provider Type (RDMA_PRTYPE); `None` where the transport is not RDMA.
    pub provider: Option<RdmaProvider>,
}

impl From<SocketAddr> for TransportAddress {
    /// The address of an NVMe/TCP port.
    fn from(address: SocketAddr) -> Self {
        let family = if address.is_ipv4() { AddressFamily::Ipv4 } else { AddressFamily::Ipv6 };
        Self {
            transport: TransportType::Tcp,
            family,
            address: address.ip().to_string(),
            service: address.port().to_string(),
            provider: None,
        }
    }
}

impl TransportAddress {
    /// The address of an NVMe/RDMA port behind `provider`.
    pub fn rdma(address: SocketAddr, provider: RdmaProvider) -> Self {
        Self { transport: TransportType::Rdma, provider: Some(provider), ..address.into() }
    }

    /// The IP address and port number, if this is a valid NVMe/TCP address.
    pub fn socket(&self) -> Option<SocketAddr> {
        if self.transport != TransportType::Tcp {
            return None;
        }
        let address: IpAddr = self.address.parse().ok()?;
        Some(SocketAddr::new(address, self.service.parse().ok()?))
    }
}

impl fmt::Display for TransportAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.family {
            AddressFamily::Ipv6 => write!(f, "{}://[{}]:{}", self.transport, self.address, self.service),
            _ => write!(f, "{}://{}:{}", self.transport, self.address, self.service),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_becomes_an_address_and_back() {
        for text in ["127.0.0.1:4420", "[fe80::1]:8009"] {
            let socket: SocketAddr = text.parse().unwrap();
            let address = TransportAddress::from(socket);
            assert_eq!(address.socket(), Some(socket));
            assert_eq!(address.to_string(), alloc::format!("tcp://{text}"));
        }
    }

    #[test]
    fn every_value_is_kept() {
        for value in 0..=u8::MAX {
            assert_eq!(u8::from(TransportType::from(value)), value);
            assert_eq!(u8::from(AddressFamily::from(value)), value);
            assert_eq!(u8::from(RdmaProvider::from(value)), value);
        }
    }
}
