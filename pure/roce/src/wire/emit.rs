//! Outgoing packets: headers, a payload that is not copied, padding and CRC.

use core::fmt;
use core::net::SocketAddr;

use engine::Buffer;
use rdma::Inline;

use super::{Acknowledge, Base, Header, ICRC_LENGTH, PARTITION, Part, Remote, opcode};
use crate::icrc::Route;

/// Length of the longest headers in bytes: those of an RDMA WRITE with immediate data, or of a
/// message that begins with inline data.
const HEAD_MAX: usize = 12 + 4 + Inline::LENGTH_MAX;
/// Length of the tail in bytes: up to 3 of padding, and the CRC.
const TAIL_MAX: usize = 3 + ICRC_LENGTH;

/// The headers of a packet, and inline data behind them.
#[derive(Clone, Copy)]
pub(crate) struct Head {
    bytes: [u8; HEAD_MAX],
    length: u8,
}

impl Head {
    /// The headers of a packet. The padding is set when the payload is known.
    pub(crate) fn new(base: Base, header: &Header) -> Self {
        let mut head = Self { bytes: [0; HEAD_MAX], length: 0 };
        // Migrated (M), as on every connection with one path.
        let flags = u8::from(base.solicited) << 7 | 1 << 6;
        head.put(&[base.opcode, flags]);
        head.put(&PARTITION.to_be_bytes());
        head.put(&base.queue_pair.to_be_bytes());
        head.put(&(u32::from(base.acknowledge) << 31 | base.number).to_be_bytes());
        match header {
            Header::Send { immediate, invalidate, .. } => {
                if let Some(word) = immediate.or(invalidate.map(|key| key.0)) {
                    head.put(&word.to_be_bytes());
                }
            }
            Header::Write { remote, immediate, .. } => {
                if let Some(remote) = remote {
                    head.put_remote(remote);
                }
                if let Some(word) = immediate {
                    head.put(&word.to_be_bytes());
                }
            }
            Header::ReadRequest(remote) => head.put_remote(remote),
            Header::ReadResponse { acknowledge, .. } => {
                if let Some(acknowledge) = acknowledge {
                    head.put_acknowledge(acknowledge);
                }
            }
            Header::Acknowledge(acknowledge) => head.put_acknowledge(acknowledge),
            Header::Unconnected { key, from } => {
                head.put(&key.to_be_bytes());
                head.put(&from.to_be_bytes());
            }
            Header::Congestion => {
                // Backward congestion (BECN); no other field.
                head.bytes[1] = 0;
                head.bytes[4] = 0x40;
                head.put(&[0; 16]);
            }
            Header::Unsupported => {}
        }
        head
    }

    /// Adds bytes of the message.
    #[expect(clippy::cast_possible_truncation, reason = "the block is shorter than 256 bytes")]
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        let at = usize::from(self.length);
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len() as u8;
    }

    fn put_remote(&mut self, remote: &Remote) {
        self.put(&remote.address.to_be_bytes());
        self.put(&remote.key.0.to_be_bytes());
        self.put(&remote.length.to_be_bytes());
    }

    fn put_acknowledge(&mut self, acknowledge: &Acknowledge) {
        let [_, messages @ ..] = acknowledge.messages.to_be_bytes();
        self.put(&[acknowledge.syndrome.emit()]);
        self.put(&messages);
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Head({:02x?})", self.bytes())
    }
}

/// The operation code of a header.
pub(super) fn code_of(header: &Header) -> u8 {
    let of = |codes: [u8; 4], part: Part| codes[part as usize];
    match header {
        Header::Send { part, immediate: Some(_), .. } if part.is_first() => opcode::SEND_ONLY_IMMEDIATE,
        Header::Send { immediate: Some(_), .. } => opcode::SEND_LAST_IMMEDIATE,
        Header::Send { part, invalidate: Some(_), .. } if part.is_first() => opcode::SEND_ONLY_INVALIDATE,
        Header::Send { invalidate: Some(_), .. } => opcode::SEND_LAST_INVALIDATE,
        Header::Send { part, .. } => of(opcode::SEND, *part),
        Header::Write { part, immediate: Some(_), .. } if part.is_first() => opcode::WRITE_ONLY_IMMEDIATE,
        Header::Write { immediate: Some(_), .. } => opcode::WRITE_LAST_IMMEDIATE,
        Header::Write { part, .. } => of(opcode::WRITE, *part),
        Header::ReadRequest(_) => opcode::READ_REQUEST,
        Header::ReadResponse { part, .. } => of(opcode::READ_RESPONSE, *part),
        Header::Acknowledge(_) => opcode::ACKNOWLEDGE,
        Header::Unconnected { .. } => opcode::UNCONNECTED,
        Header::Congestion => opcode::CONGESTION,
        Header::Unsupported => opcode::ATOMICS[0],
    }
}

impl Header {
    /// A base transport header for this header.
    pub(crate) fn base(&self, queue_pair: u32, number: u32, acknowledge: bool) -> Base {
        // A message wakes its receiver, an RDMA WRITE does not.
        let solicited = matches!(self, Self::Send { part, .. } if part.is_last());
        Base { opcode: code_of(self), solicited, queue_pair, acknowledge, number }
    }
}

/// An outgoing datagram: destination, and its bytes in pieces. It shares the payload with its other
/// holders.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// The address and UDP port that it is sent from.
    pub from: SocketAddr,
    /// The address and UDP port that it is sent to.
    pub to: SocketAddr,
    head: Head,
    payload: Buffer,
    tail: [u8; TAIL_MAX],
    tail_length: u8,
}

impl Datagram {
    /// Completes a packet: padding and CRC.
    #[expect(clippy::cast_possible_truncation, reason = "a tail has at most 7 bytes")]
    pub(crate) fn new(route: &Route, crc: fn(u32, &[u8]) -> u32, mut head: Head, payload: Buffer) -> Self {
        // Headers have a multiple of 4 bytes, inline data need not.
        let pad = (head.bytes().len() + payload.len()).wrapping_neg() & 3;
        head.bytes[1] |= (pad as u8) << 4;
        let mut tail = [0; TAIL_MAX];
        let icrc = route.icrc(crc, [head.bytes(), &payload, &tail[..pad]]);
        tail[pad..pad + ICRC_LENGTH].copy_from_slice(&icrc);
        let tail_length = (pad + ICRC_LENGTH) as u8;
        Self { from: route.from, to: route.to, head, payload, tail, tail_length }
    }

    /// The bytes in the order in which they are sent.
    pub fn slices(&self) -> [&[u8]; 3] {
        [self.head.bytes(), &self.payload, &self.tail[..usize::from(self.tail_length)]]
    }

    /// The number of bytes.
    #[expect(clippy::len_without_is_empty, reason = "no datagram is empty")]
    pub fn len(&self) -> usize {
        self.slices().iter().map(|piece| piece.len()).sum()
    }
}
