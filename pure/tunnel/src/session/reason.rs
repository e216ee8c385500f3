//! Why a handshake fails, a connection is lost, or a link goes down.

use alloc::string::String;
use core::fmt;

use engine::Nanos;
use pcie::ordering::Lane;
use pcie::wire::TlpError;
use serde::{Deserialize, Serialize};

use crate::frame::{CloseCode, FrameError, FrameKind, InstanceId, RefuseCode, Sequence};

/// A rule that the peer broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProtocolError {
    /// The peer sent bytes that are no frame.
    Frame(FrameError),
    /// The content of a TLP frame is no TLP.
    Tlp(TlpError),
    /// A frame of this kind has no place here.
    Unexpected(FrameKind),
    /// A frame does not have the next number.
    Sequence {
        /// The number that is next.
        expected: Sequence,
        /// Number of the frame.
        found: Sequence,
    },
    /// The peer acknowledged a frame that was never sent, or took back an earlier acknowledgement.
    Acknowledge {
        /// Number of the oldest frame that has not been acknowledged.
        oldest: Sequence,
        /// Number of the next frame to be sent.
        next: Sequence,
        /// The acknowledged number.
        found: Sequence,
    },
    /// A TLP came in this lane without a credit for it.
    Overdrawn(Lane),
    /// A credit limit is below an earlier limit, or too far above it.
    CreditLimit,
    /// A TLP's payload is longer than the maximum that this end announced.
    Payload {
        /// The longest payload allowed, in bytes.
        most: u16,
        /// Length of the TLP's payload, in bytes.
        found: usize,
    },
    /// The peer answered a reset that was not requested, requested one from below, or requested too
    /// many.
    Reset,
    /// A Welcome does not fit the Hello.
    Welcome,
    /// A message about strands makes no sense.
    Strands,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(error) => write!(f, "{error}"),
            Self::Tlp(error) => write!(f, "malformed TLP: {error}"),
            Self::Unexpected(kind) => write!(f, "a {kind:?} has no place here"),
            Self::Sequence { expected, found } => write!(f, "frame {found} came where {expected} is next"),
            Self::Acknowledge { oldest, next, found } => {
                write!(f, "acknowledgement {found} is not of {oldest} to {next}")
            }
            Self::Overdrawn(lane) => write!(f, "a {lane:?} TLP came without credit"),
            Self::CreditLimit => f.write_str("a credit limit went backwards or too far"),
            Self::Payload { most, found } => write!(f, "a payload of {found} B where {most} B is the most"),
            Self::Reset => f.write_str("a reset came from the wrong side or unasked"),
            Self::Strands => f.write_str("a message about strands makes no sense"),
            Self::Welcome => f.write_str("the Welcome doesn't fit the Hello"),
        }
    }
}

/// Why a handshake failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandshakeError {
    /// The peer refused the handshake.
    RefusedByPeer {
        /// Code of the refusal.
        code: RefuseCode,
        /// Reason for the refusal, in the peer's words.
        text: String,
    },
    /// This end refused the handshake, and sent the peer the same reason.
    Refused {
        /// Code of the refusal.
        code: RefuseCode,
        /// Reason for the refusal, in words.
        text: String,
    },
    /// The connection ended before the handshake did.
    Disconnected,
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RefusedByPeer { text, .. } => write!(f, "the peer refused: {text}"),
            Self::Refused { text, .. } => write!(f, "refused the peer: {text}"),
            Self::Disconnected => f.write_str("the connection ended during the handshake"),
        }
    }
}

impl core::error::Error for HandshakeError {}

/// Why a connection is given up while its session lives on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LossReason {
    /// The stream ended or failed.
    Disconnected,
    /// Nothing was heard for this long.
    Silence(Nanos),
    /// The rest of a frame did not arrive for this long.
    Incomplete(Nanos),
    /// A frame was damaged on its way.
    Damaged(FrameError),
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disconnected => f.write_str("the connection was lost"),
            Self::Silence(length) => write!(f, "nothing was heard for {length}"),
            Self::Incomplete(length) => write!(f, "the rest of a frame did not come for {length}"),
            Self::Damaged(error) => write!(f, "a frame was damaged on its way: {error}"),
        }
    }
}

/// Why a link is down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DownReason {
    /// This end closed the session.
    Closed,
    /// The peer closed the session.
    ClosedByPeer {
        /// Code of the Close.
        code: CloseCode,
        /// Reason for the Close, in the peer's words.
        text: String,
    },
    /// The peer broke the protocol.
    Protocol(ProtocolError),
    /// There was no connection for the whole hold time.
    HoldExpired(Nanos),
    /// The peer is another run than before, so its state of the session is gone.
    PeerChanged {
        /// The instance that had the session.
        was: InstanceId,
        /// The instance that is there now.
        is: InstanceId,
    },
    /// The peer is the same run as before, but no longer has the session.
    NotResumed,
    /// The peer refused to resume the session.
    Refused {
        /// Code of the refusal.
        code: RefuseCode,
        /// Reason for the refusal, in the peer's words.
        text: String,
    },
    /// A further strand of the link could not go on.
    StrandLost,
    /// More was queued than allowed, because the peer takes nothing.
    Overrun {
        /// Number of packets that waited.
        packets: usize,
        /// Payload of the packets that waited, in bytes.
        bytes: usize,
    },
}

impl fmt::Display for DownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("closed"),
            Self::ClosedByPeer { text, .. } => write!(f, "closed by the peer: {text}"),
            Self::Protocol(error) => write!(f, "the peer broke the protocol: {error}"),
            Self::HoldExpired(length) => write!(f, "no connection for {length}"),
            Self::PeerChanged { was, is } => write!(f, "the peer was {was} and is now {is}"),
            Self::NotResumed => f.write_str("the peer no longer has the session"),
            Self::Refused { text, .. } => write!(f, "refused by the peer: {text}"),
            Self::StrandLost => f.write_str("one of its strands is lost"),
            Self::Overrun { packets, bytes } => {
                write!(f, "{packets} packets with {bytes} B wait for a peer that takes nothing")
            }
        }
    }
}

impl core::error::Error for DownReason {}
