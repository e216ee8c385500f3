//! Headers of DDP segments with their RDMAP fields (RFC 5041, section 4; RFC 5040, section 4).

use rdma::{Key, Remote};

use super::Fault;

const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
const DDP_VERSION_MASK: u8 = 0x03;
const DDP_VERSION: u8 = 1;
const RDMAP_VERSION: u8 = 1;
const RDMAP_VERSION_SHIFT: u32 = 6;
const OPCODE_MASK: u8 = 0x0f;

/// The kind of a message (RFC 5040, figure 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// RDMA Write.
    Write,
    /// RDMA Read Request.
    ReadRequest,
    /// RDMA Read Response.
    ReadResponse,
    /// Send, in its four kinds.
    Send {
        /// The message invalidates a key of the receiver.
        invalidates: bool,
        /// The message wakes the receiver's user (Solicited Event).
        solicited: bool,
    },
    /// A report of a fault, which ends the connection (Terminate).
    Terminate,
}

impl Opcode {
    const fn parse(value: u8) -> Option<Self> {
        Some(match value {
            0 => Self::Write,
            1 => Self::ReadRequest,
            2 => Self::ReadResponse,
            3 => Self::Send { invalidates: false, solicited: false },
            4 => Self::Send { invalidates: true, solicited: false },
            5 => Self::Send { invalidates: false, solicited: true },
            6 => Self::Send { invalidates: true, solicited: true },
            7 => Self::Terminate,
            _ => return None,
        })
    }

    const fn emit(self) -> u8 {
        match self {
            Self::Write => 0,
            Self::ReadRequest => 1,
            Self::ReadResponse => 2,
            Self::Send { invalidates: false, solicited: false } => 3,
            Self::Send { invalidates: true, solicited: false } => 4,
            Self::Send { invalidates: false, solicited: true } => 5,
            Self::Send { invalidates: true, solicited: true } => 6,
            Self::Terminate => 7,
        }
    }

    const fn is_tagged(self) -> bool {
        matches!(self, Self::Write | Self::ReadResponse)
    }

    const fn queue(self) -> Queue {
        match self {
            Self::ReadRequest => Queue::ReadRequest,
            Self::Terminate => Queue::Terminate,
            _ => Queue::Send,
        }
    }
}

/// The queue of an untagged message (QN).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// The queue of Send messages.
    Send = 0,
    /// Read requests.
    ReadRequest = 1,
    /// The queue of Terminate messages.
    Terminate = 2,
}

/// The header of a DDP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// The data belong in memory that a key names.
    Tagged {
        /// The message: [`Opcode::Write`] or [`Opcode::ReadResponse`].
        opcode: Opcode,
        /// The segment ends its message (L).
        last: bool,
        /// The key (STag).
        key: Key,
        /// The address of the first byte (TO).
        address: u64,
    },
    /// The data belong to a message of a queue.
    Untagged {
        /// The kind of message, which determines the queue (QN).
        opcode: Opcode,
        /// The segment ends its message (L).
        last: bool,
        /// The key to invalidate; otherwise without meaning.
        invalidate: Key,
        /// The number of the message in its queue, from 1 on (MSN).
        number: u32,
        /// The offset of the data in the message (MO).
        offset: u32,
    },
}

/// Why a header is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderError {
    /// The fault to report to the peer.
    pub fault: Fault,
    /// The length of the header in bytes, as far as it is known; 0 if it is truncated.
    pub length: usize,
}

impl Header {
    /// Length of a tagged header in bytes.
    pub const TAGGED_LENGTH: usize = 14;
    /// Length of an untagged header in bytes, and of the longest header.
    pub const UNTAGGED_LENGTH: usize = 18;

    /// Length in bytes.
    pub const fn length(&self) -> usize {
        match self {
            Self::Tagged { .. } => Self::TAGGED_LENGTH,
            Self::Untagged { .. } => Self::UNTAGGED_LENGTH,
        }
    }

    /// Parses the header at the beginning of `segment`.
    ///
    /// # Errors
    /// When a version, the opcode or the queue is invalid, or the header is truncated.
    pub fn parse(segment: &[u8]) -> Result<Self, HeaderError> {
        let cut = HeaderError { fault: Fault::DDP_CATASTROPHIC, length: 0 };
        let [control, rdmap, ..] = *segment else { return Err(cut) };
        let is_tagged = control & TAGGED != 0;
        let length = if is_tagged { Self::TAGGED_LENGTH } else { Self::UNTAGGED_LENGTH };
        let Some(bytes) = segment.get(..length) else { return Err(cut) };
        let refuse = |fault| HeaderError { fault, length };
        if control & DDP_VERSION_MASK != DDP_VERSION {
            let fault = if is_tagged { Fault::TAGGED_VERSION } else { Fault::UNTAGGED_VERSION };
            return Err(refuse(fault));
        }
        let word = |at: usize| u32::from_be_bytes(core::array::from_fn(|index| bytes[at + index]));
        if !is_tagged && word(6) > Queue::Terminate as u32 {
            return Err(refuse(Fault::INVALID_QUEUE));
        }
        if rdmap >> RDMAP_VERSION_SHIFT != RDMAP_VERSION {
            return Err(refuse(Fault::RDMAP_VERSION));
        }
        let opcode = Opcode::parse(rdmap & OPCODE_MASK).filter(|opcode| opcode.is_tagged() == is_tagged);
        let opcode = opcode.ok_or_else(|| refuse(Fault::UNEXPECTED_OPCODE))?;
        let last = control & LAST != 0;
        if is_tagged {
            let address = u64::from(word(6)) << 32 | u64::from(word(10));
            return Ok(Self::Tagged { opcode, last, key: Key(word(2)), address });
        }
        if word(6) != opcode.queue() as u32 {
            return Err(refuse(Fault::UNEXPECTED_OPCODE));
        }
        Ok(Self::Untagged { opcode, last, invalidate: Key(word(2)), number: word(10), offset: word(14) })
    }

    /// Emits the header; [`Self::length`] of these bytes are valid.
    pub fn emit(self) -> [u8; Self::UNTAGGED_LENGTH] {
        let mut bytes = [0; Self::UNTAGGED_LENGTH];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        let control = |tagged: u8, last: bool| tagged | if last { LAST } else { 0 } | DDP_VERSION;
        let rdmap = |opcode: Opcode| RDMAP_VERSION << RDMAP_VERSION_SHIFT | opcode.emit();
        match self {
            Self::Tagged { opcode, last, key, address } => {
                put(0, &[control(TAGGED, last), rdmap(opcode)]);
                put(2, &key.0.to_be_bytes());
                put(6, &address.to_be_bytes());
            }
            Self::Untagged { opcode, last, invalidate, number, offset } => {
                put(0, &[control(0, last), rdmap(opcode)]);
                put(2, &invalidate.0.to_be_bytes());
                put(6, &(opcode.queue() as u32).to_be_bytes());
                put(10, &number.to_be_bytes());
                put(14, &offset.to_be_bytes());
            }
        }
        bytes
    }
}

/// A read request (RFC 5040, section 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The key of the requester's memory, which the response repeats (SinkSTag).
    pub sink: Key,
    /// The address of the first byte there (SinkTO).
    pub sink_address: u64,
    /// The memory to read: RDMARDSZ bytes at SrcTO of SrcSTag.
    pub source: Remote,
}

impl ReadRequest {
    /// Length in bytes.
    pub const LENGTH: usize = 28;

    /// Parses the payload of a read request.
    pub fn parse(bytes: &[u8; Self::LENGTH]) -> Self {
        let word = |at: usize| u32::from_be_bytes(core::array::from_fn(|index| bytes[at + index]));
        let long = |at: usize| u64::from(word(at)) << 32 | u64::from(word(at + 4));
        let source = Remote { key: Key(word(16)), address: long(20), length: word(12) };
        Self { sink: Key(word(0)), sink_address: long(4), source }
    }

    /// Emits the payload of a read request.
    pub fn emit(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &self.sink.0.to_be_bytes());
        put(4, &self.sink_address.to_be_bytes());
        put(12, &self.source.length.to_be_bytes());
        put(16, &self.source.key.0.to_be_bytes());
        put(20, &self.source.address.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A parsed header is emitted unchanged, apart from reserved bits.
        #[test]
        fn headers_survive_parsing(mut bytes in prop::array::uniform18(any::<u8>()), queue in 0..4_u8) {
            if bytes[0] & TAGGED == 0 {
                bytes[6..10].copy_from_slice(&[0, 0, 0, queue]);
            }
            bytes[0] = bytes[0] & (TAGGED | LAST) | DDP_VERSION;
            bytes[1] = bytes[1] & OPCODE_MASK | 0x40;
            if let Ok(header) = Header::parse(&bytes) {
                prop_assert_eq!(&header.emit()[..header.length()], &bytes[..header.length()]);
            }
        }

        #[test]
        fn read_requests_survive_parsing(words in prop::array::uniform28(any::<u8>())) {
            prop_assert_eq!(ReadRequest::parse(&words).emit(), words);
        }
    }

    #[test]
    fn a_header_that_is_wrong_has_its_fault() {
        let fault = |bytes: &[u8]| Header::parse(bytes).unwrap_err();
        let mut tagged = [0; 14];
        tagged[..2].copy_from_slice(&[0xc1, 0x40]);
        assert!(Header::parse(&tagged).is_ok());
        let change = |mut bytes: [u8; 14], at: usize, value: u8| {
            bytes[at] = value;
            fault(&bytes)
        };
        assert_eq!(change(tagged, 0, 0xc0), HeaderError { fault: Fault::TAGGED_VERSION, length: 14 });
        assert_eq!(change(tagged, 1, 0x00).fault, Fault::RDMAP_VERSION);
        assert_eq!(change(tagged, 1, 0x48).fault, Fault::UNEXPECTED_OPCODE);
        assert_eq!(change(tagged, 1, 0x43).fault, Fault::UNEXPECTED_OPCODE, "a tagged send");
        let mut untagged = [0; 18];
        untagged[..2].copy_from_slice(&[0x41, 0x43]);
        assert!(Header::parse(&untagged).is_ok());
        let change = |at: usize, value: u8| {
            let mut bytes = untagged;
            bytes[at] = value;
            fault(&bytes).fault
        };
        assert_eq!(change(0, 0x42), Fault::UNTAGGED_VERSION);
        assert_eq!(change(9, 3), Fault::INVALID_QUEUE);
        assert_eq!(change(9, 1), Fault::UNEXPECTED_OPCODE, "a send in the queue of read requests");
        assert_eq!(change(1, 0x40), Fault::UNEXPECTED_OPCODE, "an untagged write");
        for length in 0..18 {
            assert_eq!(fault(&untagged[..length]).fault, Fault::DDP_CATASTROPHIC, "{length}");
        }
    }
}
