//! Management datagrams (MAD): 256 bytes, with a header that names their class.

/// Bytes of a management datagram.
pub(crate) const MAD_LENGTH: usize = 256;
/// Bytes of its header.
pub(super) const HEADER: usize = 24;
const BASE_VERSION: u8 = 1;
/// The class of connection management, and its version.
const CLASS: u8 = 0x07;
const CLASS_VERSION: u8 = 2;
/// The only method of connection management (Send).
const METHOD: u8 = 0x03;

/// A management datagram of connection management.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mad<'a> {
    /// The exchange of messages that it belongs to.
    pub(crate) transaction: u64,
    /// The kind of message.
    pub(crate) attribute: u16,
    /// The whole datagram.
    pub(crate) bytes: &'a [u8; MAD_LENGTH],
}

impl<'a> Mad<'a> {
    /// Parses a datagram. `None` if it is not of connection management.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let bytes: &[u8; MAD_LENGTH] = bytes.try_into().ok()?;
        let ours = [BASE_VERSION, CLASS, CLASS_VERSION, METHOD];
        if bytes[..4] != ours {
            return None;
        }
        let transaction = u64::from_be_bytes(*bytes[8..].first_chunk()?);
        let attribute = u16::from_be_bytes(*bytes[16..].first_chunk()?);
        Some(Self { transaction, attribute, bytes })
    }

    /// A datagram with its header.
    pub(super) fn emit(transaction: u64, attribute: u16) -> [u8; MAD_LENGTH] {
        let mut bytes = [0; MAD_LENGTH];
        bytes[..4].copy_from_slice(&[BASE_VERSION, CLASS, CLASS_VERSION, METHOD]);
        bytes[8..16].copy_from_slice(&transaction.to_be_bytes());
        bytes[16..18].copy_from_slice(&attribute.to_be_bytes());
        bytes
    }
}
