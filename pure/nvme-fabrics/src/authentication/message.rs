//! The messages of an authentication transaction (NVM Express Base, "Authentication Protocols").

use alloc::vec::Vec;

use super::{Explanation, Group, Hash};
use crate::wire::WireError;
use crate::wire::bytes::{put, u16_at, u32_at};

/// Length of the longest message in bytes, and this host's limit for a controller's message. The
/// longest one of the specification is a reply with SHA-512 and ffdhe8192, which has 1,168 bytes.
pub const MESSAGE_BYTES_MAX: usize = 4096;
/// Maximum number of hash identifiers, and of group identifiers, in a negotiation.
pub const IDENTIFIERS_MAX: usize = 30;

/// AUTH_TYPE of the messages that are the same for every protocol.
const COMMON: u8 = 0x00;
/// AUTH_TYPE of the messages of DH-HMAC-CHAP.
const DH_HMAC_CHAP: u8 = 0x01;
/// Authentication Protocol Identifier (AuthID) of DH-HMAC-CHAP.
const PROTOCOL: u8 = 0x01;
/// Reason Code of both failure messages: authentication failed.
const REASON_FAILED: u8 = 0x01;
/// Length of a protocol descriptor in a negotiation, in bytes.
const DESCRIPTOR_LENGTH: usize = 64;
/// Length of a message's fixed part, in bytes.
pub(super) const FIXED_LENGTH: usize = 16;
/// Length of a negotiation before its descriptors, in bytes.
const NEGOTIATE_LENGTH: usize = 8;
/// Length of a failure message, in bytes.
pub(super) const FAILURE_LENGTH: usize = 8;

/// The kinds of messages (AUTH_TYPE and AUTH_ID).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// AUTH_Negotiate: the host offers protocols, hash functions and groups.
    Negotiate,
    /// DH-HMAC-CHAP_Challenge: the controller chooses, and challenges the host.
    Challenge,
    /// DH-HMAC-CHAP_Reply: the host responds, and may challenge the controller.
    Reply,
    /// DH-HMAC-CHAP_Success1: the controller accepts the host, and responds.
    Success1,
    /// DH-HMAC-CHAP_Success2: the host accepts the controller.
    Success2,
    /// AUTH_Failure2: the host gives up.
    Failure2,
    /// AUTH_Failure1: the controller gives up.
    Failure1,
    /// Another kind.
    Other {
        /// The AUTH_TYPE field.
        message_type: u8,
        /// The AUTH_ID field: the kind of message within its AUTH_TYPE.
        id: u8,
    },
}

impl Kind {
    const fn of(message_type: u8, id: u8) -> Self {
        match (message_type, id) {
            (COMMON, 0x00) => Self::Negotiate,
            (COMMON, 0xf0) => Self::Failure2,
            (COMMON, 0xf1) => Self::Failure1,
            (DH_HMAC_CHAP, 0x01) => Self::Challenge,
            (DH_HMAC_CHAP, 0x02) => Self::Reply,
            (DH_HMAC_CHAP, 0x03) => Self::Success1,
            (DH_HMAC_CHAP, 0x04) => Self::Success2,
            _ => Self::Other { message_type, id },
        }
    }

    const fn ids(self) -> [u8; 2] {
        match self {
            Self::Negotiate => [COMMON, 0x00],
            Self::Failure2 => [COMMON, 0xf0],
            Self::Failure1 => [COMMON, 0xf1],
            Self::Challenge => [DH_HMAC_CHAP, 0x01],
            Self::Reply => [DH_HMAC_CHAP, 0x02],
            Self::Success1 => [DH_HMAC_CHAP, 0x03],
            Self::Success2 => [DH_HMAC_CHAP, 0x04],
            Self::Other { message_type, id } => [message_type, id],
        }
    }

    /// The specification's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Negotiate => "AUTH_Negotiate",
            Self::Challenge => "DH-HMAC-CHAP_Challenge",
            Self::Reply => "DH-HMAC-CHAP_Reply",
            Self::Success1 => "DH-HMAC-CHAP_Success1",
            Self::Success2 => "DH-HMAC-CHAP_Success2",
            Self::Failure2 => "AUTH_Failure2",
            Self::Failure1 => "AUTH_Failure1",
            Self::Other { .. } => "a message of unknown kind",
        }
    }
}

/// The host's offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiate<'a> {
    /// Secure Channel Concatenation (SC_C); 0 for none.
    pub secure_channel: u8,
    /// Hash identifiers and group identifiers of the first descriptor of DH-HMAC-CHAP, if there is
    /// one.
    pub offer: Option<(&'a [u8], &'a [u8])>,
}

/// The controller's choice and its challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge<'a> {
    /// Hash function identifier (HashID).
    pub hash: u8,
    /// Group identifier (DHgID).
    pub group: u8,
    /// Sequence Number (SEQNUM).
    pub sequence: u32,
    /// Challenge Value (CVAL).
    pub challenge: &'a [u8],
    /// The controller's public value (DHV); empty for the group NULL.
    pub public: &'a [u8],
}

/// The host's response, and its own challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// Sequence Number (SEQNUM) of the host's challenge.
    pub sequence: u32,
    /// Response Value (RVAL).
    pub response: &'a [u8],
    /// Challenge Value (CVAL), if the controller is to authenticate too.
    pub challenge: Option<&'a [u8]>,
    /// The host's public value (DHV); empty for the group NULL.
    pub public: &'a [u8],
}

/// The part of a message after its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// The host's offer of protocols (AUTH_Negotiate).
    Negotiate(Negotiate<'a>),
    /// The controller's choice and challenge (DH-HMAC-CHAP_Challenge).
    Challenge(Challenge<'a>),
    /// The host's response and its own challenge (DH-HMAC-CHAP_Reply).
    Reply(Reply<'a>),
    /// The controller accepts the host, and answers its challenge (DH-HMAC-CHAP_Success1).
    Success1 {
        /// Hash Length (HL) in bytes.
        hash_length: u8,
        /// Response Value (RVAL), if the host challenged the controller.
        response: Option<&'a [u8]>,
    },
    /// The host accepts the controller (DH-HMAC-CHAP_Success2).
    Success2,
    /// AUTH_Failure1 or AUTH_Failure2, with the Reason Code Explanation.
    Failure(Explanation),
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The kind of the message.
    pub kind: Kind,
    /// Transaction Identifier (T_ID).
    pub transaction: u16,
    /// The rest.
    pub body: Body<'a>,
}

/// Kind and Transaction Identifier (T_ID) of a message, for messages whose rest is not needed.
pub fn header(bytes: &[u8]) -> Option<(Kind, u16)> {
    let header = bytes.first_chunk::<6>()?;
    Some((Kind::of(header[0], header[1]), u16_at(header, 4)))
}

/// Takes fields one after the other.
struct Fields<'a> {
    bytes: &'a [u8],
    taken: usize,
    structure: &'static str,
}

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let end = self.taken + length;
        let field = self.bytes.get(self.taken..end).ok_or(WireError::Length {
            structure: self.structure,
            expected: end,
            found: self.bytes.len(),
        })?;
        self.taken = end;
        Ok(field)
    }
}

impl<'a> Message<'a> {
    /// Decodes the message at the start of `bytes`. Returns its length too: padding may follow a
    /// controller's answer. Reserved fields are ignored.
    ///
    /// # Errors
    /// When the message is shorter than its fields claim, or a field has a reserved value.
    pub fn parse(bytes: &'a [u8]) -> Result<(Self, usize), WireError> {
        let short =
            WireError::Length { structure: "a message", expected: FAILURE_LENGTH, found: bytes.len() };
        let (kind, transaction) = header(bytes).ok_or(short)?;
        let mut fields = Fields { bytes, taken: 0, structure: kind.name() };
        let body = match kind {
            Kind::Negotiate => Body::Negotiate(negotiate(&mut fields)?),
            Kind::Challenge => Body::Challenge(challenge(&mut fields)?),
            Kind::Reply => Body::Reply(reply(&mut fields)?),
            Kind::Success1 => {
                let fixed = fields.take(FIXED_LENGTH)?;
                let response = match fixed[8] {
                    0 => None,
                    1 => Some(fields.take(usize::from(fixed[6]))?),
                    found => return Err(reserved("RVALID", found)),
                };
                Body::Success1 { hash_length: fixed[6], response }
            }
            Kind::Success2 => {
                fields.take(FIXED_LENGTH)?;
                Body::Success2
            }
            Kind::Failure1 | Kind::Failure2 => {
                Body::Failure(Explanation::from(fields.take(FAILURE_LENGTH)?[7]))
            }
            Kind::Other { message_type, id } => {
                return Err(reserved("AUTH_TYPE and AUTH_ID", [id, message_type]));
            }
        };
        Ok((Self { kind, transaction, body }, fields.taken))
    }

    /// Encodes the message.
    ///
    /// # Panics
    /// When a list or a value exceeds the limit of its length field; this crate creates none.
    pub fn emit(&self) -> Vec<u8> {
        let length = |value: &[u8]| u8::try_from(value.len()).expect("hashes and lists are short");
        let mut bytes = alloc::vec![0; FIXED_LENGTH];
        match self.body {
            Body::Negotiate(Negotiate { secure_channel, offer }) => {
                bytes.truncate(NEGOTIATE_LENGTH);
                bytes[6] = secure_channel;
                bytes[7] = offer.is_some().into();
                if let Some((hashes, groups)) = offer {
                    let mut descriptor = [0; DESCRIPTOR_LENGTH];
                    descriptor[0] = PROTOCOL;
                    descriptor[2] = length(hashes);
                    descriptor[3] = length(groups);
                    put(&mut descriptor, 4, hashes);
                    put(&mut descriptor, 4 + IDENTIFIERS_MAX, groups);
                    bytes.extend_from_slice(&descriptor);
                }
            }
            Body::Challenge(Challenge { hash, group, sequence, challenge, public }) => {
                bytes[6] = length(challenge);
                bytes[8] = hash;
                bytes[9] = group;
                put_exchange(&mut bytes, sequence, public);
                bytes.extend_from_slice(challenge);
                bytes.extend_from_slice(public);
            }
            Body::Reply(Reply { sequence, response, challenge, public }) => {
                bytes[6] = length(response);
                bytes[8] = challenge.is_some().into();
                put_exchange(&mut bytes, sequence, public);
                bytes.extend_from_slice(response);
                match challenge {
                    Some(challenge) => bytes.extend_from_slice(challenge),
                    None => bytes.extend(core::iter::repeat_n(0, response.len())),
                }
                bytes.extend_from_slice(public);
            }
            Body::Success1 { hash_length, response } => {
                bytes[6] = hash_length;
                bytes[8] = response.is_some().into();
                bytes.extend_from_slice(response.unwrap_or_default());
            }
            Body::Success2 => {}
            Body::Failure(explanation) => {
                bytes.truncate(FAILURE_LENGTH);
                bytes[6] = REASON_FAILED;
                bytes[7] = explanation.into();
            }
        }
        put(&mut bytes, 0, &self.kind.ids());
        put(&mut bytes, 4, &self.transaction.to_le_bytes());
        bytes
    }
}

fn put_exchange(bytes: &mut [u8], sequence: u32, public: &[u8]) {
    let length = u16::try_from(public.len()).expect("a public value has 1,024 bytes at most");
    put(bytes, 10, &length.to_le_bytes());
    put(bytes, 12, &sequence.to_le_bytes());
}

fn reserved(field: &'static str, found: impl Into<ReservedValue>) -> WireError {
    WireError::Reserved { field, found: found.into().0 }
}

struct ReservedValue(u64);

impl From<u8> for ReservedValue {
    fn from(value: u8) -> Self {
        Self(value.into())
    }
}

impl From<[u8; 2]> for ReservedValue {
    fn from(value: [u8; 2]) -> Self {
        Self(u16::from_le_bytes(value).into())
    }
}

fn negotiate<'a>(fields: &mut Fields<'a>) -> Result<Negotiate<'a>, WireError> {
    let fixed = fields.take(NEGOTIATE_LENGTH)?;
    let mut offer = None;
    for _ in 0..fixed[7] {
        let descriptor = fields.take(DESCRIPTOR_LENGTH)?;
        if descriptor[0] != PROTOCOL || offer.is_some() {
            continue;
        }
        let list = |at: usize, count: u8, field| {
            let list = descriptor[at..at + IDENTIFIERS_MAX].get(..usize::from(count));
            list.ok_or(reserved(field, count))
        };
        let hashes = list(4, descriptor[2], "HALEN")?;
        let groups = list(4 + IDENTIFIERS_MAX, descriptor[3], "DHLEN")?;
        offer = Some((hashes, groups));
    }
    Ok(Negotiate { secure_channel: fixed[6], offer })
}

fn challenge<'a>(fields: &mut Fields<'a>) -> Result<Challenge<'a>, WireError> {
    let fixed = fields.take(FIXED_LENGTH)?;
    let challenge = fields.take(usize::from(fixed[6]))?;
    let public = fields.take(usize::from(u16_at(fixed, 10)))?;
    Ok(Challenge { hash: fixed[8], group: fixed[9], sequence: u32_at(fixed, 12), challenge, public })
}

fn reply<'a>(fields: &mut Fields<'a>) -> Result<Reply<'a>, WireError> {
    let fixed = fields.take(FIXED_LENGTH)?;
    let response = fields.take(usize::from(fixed[6]))?;
    // The bytes of the challenge are present even if the challenge is not valid.
    let challenge = fields.take(usize::from(fixed[6]))?;
    let challenge = match fixed[8] {
        0 => None,
        1 => Some(challenge),
        found => return Err(reserved("CVALID", found)),
    };
    let public = fields.take(usize::from(u16_at(fixed, 10)))?;
    Ok(Reply { sequence: u32_at(fixed, 12), response, challenge, public })
}

/// The identifiers of `hashes` and of `groups`, for an offer.
pub(super) fn identifiers(hashes: &[Hash], groups: &[Group]) -> (Vec<u8>, Vec<u8>) {
    (hashes.iter().map(|one| one.id()).collect(), groups.iter().map(|one| one.id()).collect())
}
