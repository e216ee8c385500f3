//! Packets between two cards, and their events.

use engine::{Buffer, Instant};
use network_models::network::Side;
use rdma::{Operation, WorkCompletion};

use crate::marks::Cause;

/// Bytes of an acknowledgement's extended header (AETH), and of a request's (RETH).
pub(super) const ACKNOWLEDGE: u32 = 4;
pub(super) const REQUEST: u32 = 16;

/// The content of the last packet of a message.
#[derive(Clone, Debug)]
pub(super) enum Carried {
    /// Operations of the peer: one, or writes with the message that follows them.
    Request(Vec<Operation>),
    /// The data that were read.
    Answer(Buffer),
}

/// A numbered packet, kept until it is acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) number: u64,
    /// Bytes of payload.
    pub(super) bytes: u32,
    /// Bytes of extended headers.
    pub(super) extended: u32,
    /// The content, on a message's last packet.
    pub(super) carried: Option<Carried>,
    /// When the card has the packet's data.
    pub(super) ready: Instant,
    pub(super) cause: Cause,
    /// Whether the packet was sent before.
    pub(super) is_sent: bool,
}

/// The meaning of a frame for the receiving card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The packet with this number of the sender's.
    Packet(u64),
    /// All packets before this number have arrived.
    Acknowledge(u64),
    /// The packet with this number is missing.
    Missing(u64),
    /// There is no receive request for the packet with this number.
    NotReady(u64),
}

impl Word {
    const LENGTH: usize = 9;

    pub(super) fn emit(self) -> [u8; Self::LENGTH] {
        let (kind, number) = match self {
            Self::Packet(number) => (0, number),
            Self::Acknowledge(number) => (1, number),
            Self::Missing(number) => (2, number),
            Self::NotReady(number) => (3, number),
        };
        let mut bytes = [kind; Self::LENGTH];
        bytes[1..].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (&kind, number) = bytes.split_first()?;
        let number = u64::from_le_bytes(number.try_into().ok()?);
        Some(match kind {
            0 => Self::Packet(number),
            1 => Self::Acknowledge(number),
            2 => Self::Missing(number),
            3 => Self::NotReady(number),
            _ => return None,
        })
    }
}

/// An event at a time.
#[derive(Debug)]
pub(super) enum Happening {
    /// A doorbell has reached the card of the side.
    Rung(Side, Cause),
    /// The card has decoded the oldest request.
    Decoded(Side, Cause),
    /// The card has looked at a frame of the peer.
    Landed(Side, Word, Cause),
    /// The card may send from this packet on again.
    Again(Side, u64),
    /// A completion is in memory, with bytes that the software must copy.
    Visible(Side, WorkCompletion, u32, Cause),
}

impl Happening {
    /// A number of the kind and the side, for the fingerprint.
    pub(super) const fn number(&self) -> u64 {
        let (kind, side) = match self {
            Self::Rung(side, _) => (0, side),
            Self::Decoded(side, _) => (1, side),
            Self::Landed(side, ..) => (2, side),
            Self::Again(side, _) => (3, side),
            Self::Visible(side, ..) => (4, side),
        };
        kind * 2 + side.index() as u64
    }
}
