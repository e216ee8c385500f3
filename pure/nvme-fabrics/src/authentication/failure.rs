//! Why an authentication fails, in the protocol's codes and in words.

use core::fmt;

use super::message::Kind;
use crate::wire::WireError;

/// Reason Code Explanation of AUTH_Failure1 and AUTH_Failure2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Explanation {
    /// Authentication failed (01h).
    Failed,
    /// Authentication protocol not usable (02h).
    ProtocolNotUsable,
    /// Secure channel concatenation mismatch (03h).
    SecureChannelMismatch,
    /// Hash function not usable (04h).
    HashNotUsable,
    /// DH group not usable (05h).
    GroupNotUsable,
    /// Incorrect payload (06h).
    IncorrectPayload,
    /// Incorrect protocol message (07h).
    IncorrectMessage,
    /// Another code.
    Other(u8),
}

impl From<u8> for Explanation {
    fn from(code: u8) -> Self {
        match code {
            1 => Self::Failed,
            2 => Self::ProtocolNotUsable,
            3 => Self::SecureChannelMismatch,
            4 => Self::HashNotUsable,
            5 => Self::GroupNotUsable,
            6 => Self::IncorrectPayload,
            7 => Self::IncorrectMessage,
            other => Self::Other(other),
        }
    }
}

impl From<Explanation> for u8 {
    fn from(explanation: Explanation) -> Self {
        match explanation {
            Explanation::Failed => 1,
            Explanation::ProtocolNotUsable => 2,
            Explanation::SecureChannelMismatch => 3,
            Explanation::HashNotUsable => 4,
            Explanation::GroupNotUsable => 5,
            Explanation::IncorrectPayload => 6,
            Explanation::IncorrectMessage => 7,
            Explanation::Other(code) => code,
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed => "authentication failed",
            Self::ProtocolNotUsable => "authentication protocol not usable",
            Self::SecureChannelMismatch => "secure channel concatenation mismatch",
            Self::HashNotUsable => "hash function not usable",
            Self::GroupNotUsable => "DH group not usable",
            Self::IncorrectPayload => "incorrect payload",
            Self::IncorrectMessage => "incorrect protocol message",
            Self::Other(code) => return write!(f, "reason code explanation {code:02x}h"),
        })
    }
}

/// Why an authentication has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The host's response was computed with another secret than the controller has for the host.
    HostSecret,
    /// The controller's response was computed with another secret than the host has for the
    /// controller.
    ControllerSecret,
    /// The host requires the controller to authenticate, and the controller has no secret for that.
    NoControllerSecret,
    /// The controller demands authentication, and this host was given no secret.
    NoHostSecret,
    /// The controller does not demand authentication. So it cannot prove that it has the secret
    /// that this host expects of it.
    NotDemanded,
    /// The controller accepted the host but sent no response to the host's challenge.
    Unproved,
    /// The host offers no protocol that the controller supports.
    Protocol,
    /// The ends have no hash function in common.
    Hash,
    /// The ends have no group in common.
    Group,
    /// The host or the controller requires the authentication to begin a secure channel (SC_C,
    /// ASCR), which is not supported.
    SecureChannel,
    /// The other end repeated this end's own challenge or public value, or sent a public value that
    /// belongs to no key.
    Reflected,
    /// A message cannot be decoded.
    Malformed(WireError),
    /// A field contradicts the transaction. Holds the field's name.
    Contradiction(&'static str),
    /// A message of another kind than expected arrived.
    OutOfOrder {
        /// The received message.
        found: Kind,
        /// The message that was due.
        expected: Kind,
    },
    /// The host requested a message when it had to send one.
    Unasked,
    /// The other end sent AUTH_Failure1 or AUTH_Failure2.
    Refused(Explanation),
    /// The host did not continue in time.
    TimedOut,
}

impl Failure {
    /// The code that reports the failure to the other end.
    pub const fn explanation(self) -> Explanation {
        match self {
            Self::Protocol => Explanation::ProtocolNotUsable,
            Self::SecureChannel => Explanation::SecureChannelMismatch,
            Self::Hash => Explanation::HashNotUsable,
            Self::Group => Explanation::GroupNotUsable,
            Self::Reflected | Self::Malformed(_) | Self::Contradiction(_) => Explanation::IncorrectPayload,
            Self::OutOfOrder { .. } | Self::Unasked => Explanation::IncorrectMessage,
            Self::HostSecret
            | Self::ControllerSecret
            | Self::NoControllerSecret
            | Self::NoHostSecret
            | Self::NotDemanded
            | Self::Unproved
            | Self::Refused(_)
            | Self::TimedOut => Explanation::Failed,
        }
    }

    /// The remedy, if it is known.
    pub const fn hint(self) -> Option<&'static str> {
        Some(match self {
            Self::HostSecret => "give both ends the same host secret, and check the host's NQN",
            Self::ControllerSecret => "give both ends the same controller secret",
            Self::NoControllerSecret => {
                "give the target this host's dhchap-controller-secret-file, or the host no controller secret"
            }
            Self::NoHostSecret => "give the host its secret: --dhchap-secret-file FILE",
            Self::NotDemanded => {
                "give the target a secret for this host, or this host no controller secret; \
                 otherwise any machine may pose as the target"
            }
            Self::Hash => "allow a hash function that the other end has: dhchap-hashes",
            Self::Group => "allow a DH group that the other end has: dhchap-groups",
            Self::SecureChannel => "connect without --concat, or use TLS with a configured key",
            Self::Refused(Explanation::Failed) => {
                "the two ends have different secrets, or one of them has none; see the other end's log"
            }
            Self::Refused(Explanation::HashNotUsable | Explanation::GroupNotUsable) => {
                "the other end's list of hash functions or DH groups has none of this end's"
            }
            _ => return None,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HostSecret => {
                f.write_str("the host answered with another secret than the target has for it")
            }
            Self::ControllerSecret => {
                f.write_str("the controller answered with another secret than this host has for it")
            }
            Self::NoControllerSecret => f.write_str(
                "the host requires the controller to authenticate, and the controller has no secret for that",
            ),
            Self::NoHostSecret => {
                f.write_str("the controller demands authentication, and no secret was given")
            }
            Self::NotDemanded => f.write_str(
                "a controller secret was given, and the controller demands no authentication: \
                 it cannot prove its identity",
            ),
            Self::Unproved => f.write_str("the controller did not prove that it has its secret"),
            Self::Protocol => f.write_str("the host offers no DH-HMAC-CHAP"),
            Self::Hash => f.write_str("the two ends have no hash function in common"),
            Self::Group => f.write_str("the two ends have no DH group in common"),
            Self::SecureChannel => f.write_str(
                "the other end requires authentication to begin a secure channel, which is not supported",
            ),
            Self::Reflected => f.write_str("the other end repeated this end's message, as an impostor would"),
            Self::Malformed(error) => error.fmt(f),
            Self::Contradiction(field) => write!(f, "{field} contradicts the transaction"),
            Self::OutOfOrder { found, expected } => {
                write!(f, "received {}, expected {}", found.name(), expected.name())
            }
            Self::Unasked => f.write_str("the host requested a message when it had to send one"),
            Self::Refused(explanation) => write!(f, "the other end refused: {explanation}"),
            Self::TimedOut => f.write_str("the host did not finish in time"),
        }?;
        match self.hint() {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl core::error::Error for Failure {}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Self {
        Self::Malformed(error)
    }
}
