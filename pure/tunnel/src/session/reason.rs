//! Why a handshake fails, a connection is lost, a link goes down.

use alloc::string::String;
use core::fmt;

use engine::Nanos;
use pcie::ordering::Lane;
use pcie::wire::TlpError;

use crate::frame::{CloseCode, FrameError, FrameKind, InstanceId, RefuseCode, Sequence};

/// A rule that the peer broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// Bytes that are no frame.
    Frame(FrameError),
    /// A TLP frame whose content is no TLP.
    Tlp(TlpError),
    /// A frame that has no place here.
    Unexpected(FrameKind),
    /// A frame with another number than the next.
    Sequence {
        /// The next number.
        expected: Sequence,
        /// The frame's.
        found: Sequence,
    },
    /// An acknowledgement of what was never sent, or one that takes back an earlier one.
    Acknowledge {
        /// The oldest frame that has not been acknowledged.
        oldest: Sequence,
        /// The next frame to be sent.
        next: Sequence,
        /// What was acknowledged.
        found: Sequence,
    },
    /// A TLP for which there was no credit.
    Overdrawn(Lane),
    /// A credit limit below an earlier one, or too far above.
    CreditLimit,
    /// A payload longer than we said that we take.
    Payload {
        /// The longest, bytes.
        most: u16,
        /// The TLP's, bytes.
        found: usize,
    },
    /// An answer to a reset that was not asked for, or a reset from below.
    Reset,
    /// A Welcome that doesn't fit the Hello.
    Welcome,
    /// A message about strands that makes no sense.
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

/// Why a handshake came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeError {
    /// The peer refused.
    RefusedByPeer {
        /// Why.
        code: RefuseCode,
        /// Why, in the peer's words.
        text: String,
    },
    /// We refused; the peer was told the same.
    Refused {
        /// Why.
        code: RefuseCode,
        /// Why, in words.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// The stream ended or failed.
    Disconnected,
    /// Nothing was heard for this long.
    Silence(Nanos),
    /// The rest of a frame did not come for this long.
    Incomplete(Nanos),
    /// A frame was changed on its way.
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DownReason {
    /// We closed it.
    Closed,
    /// The peer closed it.
    ClosedByPeer {
        /// Why.
        code: CloseCode,
        /// Why, in the peer's words.
        text: String,
    },
    /// The peer broke the protocol.
    Protocol(ProtocolError),
    /// There was no connection for the whole hold time.
    HoldExpired(Nanos),
    /// The peer is another run than before: what it knew of the session is gone.
    PeerChanged {
        /// With whom the session was.
        was: InstanceId,
        /// Who is there now.
        is: InstanceId,
    },
    /// The same peer no longer has the session.
    NotResumed,
    /// The peer wouldn't have us back.
    Refused {
        /// Why.
        code: RefuseCode,
        /// Why, in the peer's words.
        text: String,
    },
    /// One of several strands could not go on.
    StrandLost,
    /// More was queued than may be, because the peer takes nothing.
    Overrun {
        /// Packets that waited.
        packets: usize,
        /// Their payload, bytes.
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
