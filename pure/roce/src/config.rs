//! The settings of a device.

use core::net::IpAddr;

use engine::{Crc32, Nanos, crc32};

use crate::PathMtu;
use crate::wire::PORT;

/// The settings of a [`Device`](crate::Device).
#[derive(Clone, Debug)]
pub struct Config {
    /// The address of the device.
    pub address: IpAddr,
    /// The UDP port that it sends from. It always sends to [`PORT`].
    pub port: u16,
    /// The identification in the IPv4 headers that the world sends, which the CRC covers. Linux
    /// sends 0 from a UDP socket that is not connected and does not fragment.
    pub identification: u16,
    /// The maximum payload of a packet. The connecting side decides; the other side refuses a
    /// larger one.
    pub mtu: PathMtu,
    /// Maximum number of outstanding send requests of a connection.
    pub send_depth: u16,
    /// Maximum number of posted receive requests of a connection.
    pub receive_depth: u16,
    /// Maximum number of outstanding RDMA READs of a connection in each direction; fewer if the
    /// peer supports fewer.
    pub reads: u8,
    /// The code of the time after which packets are repeated: 4.096 µs times 2 to the power of the
    /// code, at most 31. The time doubles with each repetition.
    pub ack_timeout: u8,
    /// How often packets are repeated without progress before the connection ends, at most 7.
    pub retries: u8,
    /// How often a message is repeated while the peer has no receive request; 7 means without
    /// limit.
    pub rnr_retries: u8,
    /// The code of the time that a peer must wait when this end has no receive request: 12 is 640
    /// µs.
    pub rnr_timer: u8,
    /// The time after which messages of connection management are repeated at first. It doubles
    /// with each repetition, up to eight times as long.
    pub response_timeout: Nanos,
    /// How often such messages are repeated, at most 15.
    pub response_retries: u8,
    /// Maximum number of connections, at most [`CONNECTIONS_MAX`](crate::CONNECTIONS_MAX).
    pub connections: usize,
    /// The rate of the link in bytes a second. A connection whose peer reports congestion sends
    /// slower (DCQCN), until it has returned to this rate.
    pub line_rate: u64,
    /// The function that computes CRCs; [`crc32`] unless the world has a faster one.
    pub crc32: Crc32,
}

impl Config {
    /// Usual settings for a device at `address`.
    pub const fn new(address: IpAddr) -> Self {
        Self {
            address,
            port: PORT,
            identification: 0,
            mtu: PathMtu::B1024,
            send_depth: 256,
            receive_depth: 256,
            reads: 16,
            ack_timeout: 14,
            retries: 7,
            rnr_retries: 7,
            rnr_timer: 12,
            response_timeout: Nanos::from_millis(500),
            response_retries: 7,
            connections: crate::CONNECTIONS_MAX,
            line_rate: 1_250_000_000,
            crc32,
        }
    }
}
