//! The bytes of the tunnel; `protocol.md` is their specification.
//!
//! A frame is a header of [`HEADER_LENGTH`] bytes and a body. Every field is big-endian and every
//! length a multiple of 4, so that a TLP's double words stay aligned in any carrier.
#![cfg_attr(doc, doc = include_str!("../../protocol.md"))]

mod ahead;
mod codes;
mod digest;
mod error;
mod hello;
mod registers;
mod sequence;
mod tally;

pub use ahead::{AHEAD_HEAD, AHEAD_MAX, FORGET_KEYS_MAX, Keys};
pub use codes::{CloseCode, RefuseCode};
pub use digest::{DIGEST_LENGTH, sign};
pub(crate) use digest::{is_of, is_signed, seal, trailer};
pub use error::FrameError;
pub(crate) use hello::is_same;
pub use hello::{
    HELLO_BODY_MAX, Hello, Identity, InstanceId, Limits, Member, NAME_MAX, NetworkTime, Outcome, Role,
    Secret, SessionId,
};
pub use pcie::switch::{Ahead, AheadKey};
pub use registers::{REGISTERS_MAX, Register, RegisterSpace, Registers};
pub use sequence::Sequence;
pub use tally::{TALLY_BODY, Tally};

use crate::credits::CreditLimits;
use engine::Instant;
use registers::{REGISTER_BYTES, REGISTERS_BODY_MAX, REGISTERS_HEAD};
use serde::{Deserialize, Serialize};

/// Bytes of every frame's header.
pub const HEADER_LENGTH: usize = 12;
/// The longest TLP, in bytes: 5 prefixes, 4 DW header, 4 KiB payload, digest.
pub const TLP_LENGTH_MAX: usize = 5 * 4 + 16 + 4096 + 4;
/// The shortest TLP, in bytes: a header of 3 DW.
pub const TLP_LENGTH_MIN: usize = 12;
/// Bytes of a TLP frame's time stamps, if it has any.
pub const STAMPS_LENGTH: usize = 16;
/// The longest body of any frame, in bytes.
pub const BODY_MAX: usize = TLP_LENGTH_MAX + STAMPS_LENGTH;
/// The longest text of a Refuse or Close, in bytes.
pub const TEXT_MAX: usize = 256;
/// Bytes of the body of a Credit.
pub const CREDIT_BODY: usize = 24;

const PING_BODY: usize = 8;
const PONG_BODY: usize = 24;
const RESET_BODY: usize = 4;
const TEXT_HEAD: usize = 4;
const FLAG_STAMPED: u8 = 1;
const _: () = assert!(REGISTERS_BODY_MAX <= BODY_MAX);

/// The purpose of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum FrameKind {
    /// The upstream end introduces itself.
    Hello = 0x01,
    /// The downstream end accepts a Hello.
    Welcome = 0x02,
    /// Either end declines the handshake, and says why.
    Refuse = 0x03,
    /// Either end ends the session, and says why.
    Close = 0x04,
    /// Carries a transaction-layer packet. The frame is numbered.
    Tlp = 0x10,
    /// Requests a hot reset, or answers the request. The frame is numbered.
    Reset = 0x11,
    /// Grants credit limits. Like every frame header, it also carries an acknowledgement.
    Credit = 0x12,
    /// Carries host memory that the device is about to read (lookahead).
    Ahead = 0x13,
    /// Names memory sent ahead that is no longer useful (lookahead).
    Forget = 0x14,
    /// Reports the use of memory sent ahead so far (lookahead).
    Tally = 0x15,
    /// Shows registers of the function, so that the upstream end can answer for it. The frame
    /// is numbered.
    Registers = 0x18,
    /// Asks for a Pong.
    Ping = 0x20,
    /// Answers a Ping.
    Pong = 0x21,
}

impl FrameKind {
    /// Decodes the kind from the first octet of a frame.
    ///
    /// # Errors
    /// When no kind has this octet.
    pub const fn parse(octet: u8) -> Result<Self, FrameError> {
        Ok(match octet {
            0x01 => Self::Hello,
            0x02 => Self::Welcome,
            0x03 => Self::Refuse,
            0x04 => Self::Close,
            0x10 => Self::Tlp,
            0x11 => Self::Reset,
            0x12 => Self::Credit,
            0x13 => Self::Ahead,
            0x14 => Self::Forget,
            0x15 => Self::Tally,
            0x18 => Self::Registers,
            0x20 => Self::Ping,
            0x21 => Self::Pong,
            _ => return Err(FrameError::UnknownKind(octet)),
        })
    }
    /// Whether frames of this kind are numbered, kept until acknowledged, and sent again after
    /// a reconnect.
    pub const fn is_numbered(self) -> bool {
        matches!(self, Self::Tlp | Self::Reset | Self::Registers)
    }
    /// Whether frames of this kind belong to the handshake. Handshake frames have a check of their
    /// own and never a digest.
    pub const fn is_greeting(self) -> bool {
        matches!(self, Self::Hello | Self::Welcome | Self::Refuse)
    }
    const fn has_length(self, length: usize, stamped: bool) -> bool {
        let (least, most) = match self {
            Self::Hello | Self::Welcome => (hello::FIXED, HELLO_BODY_MAX),
            Self::Refuse | Self::Close => (TEXT_HEAD, TEXT_HEAD + TEXT_MAX),
            Self::Tlp if stamped => (STAMPS_LENGTH + TLP_LENGTH_MIN, STAMPS_LENGTH + TLP_LENGTH_MAX),
            Self::Tlp => (TLP_LENGTH_MIN, TLP_LENGTH_MAX),
            Self::Reset => (RESET_BODY, RESET_BODY),
            Self::Credit => (CREDIT_BODY, CREDIT_BODY),
            Self::Ahead => (AHEAD_HEAD + 4, AHEAD_HEAD + AHEAD_MAX),
            Self::Forget => (4, 4 * FORGET_KEYS_MAX),
            Self::Tally => (TALLY_BODY, TALLY_BODY),
            Self::Registers => (REGISTERS_HEAD + REGISTER_BYTES, REGISTERS_BODY_MAX),
            Self::Ping => (PING_BODY, PING_BODY),
            Self::Pong => (PONG_BODY, PONG_BODY),
        };
        length.is_multiple_of(4) && least <= length && length <= most
    }
}

/// The header that begins every frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameHeader {
    /// The purpose of the frame.
    pub kind: FrameKind,
    /// Whether a TLP frame has [`Stamps`]; false for every other kind.
    pub stamped: bool,
    /// Bytes of the body. The value is possible for `kind`.
    pub length: u16,
    /// Number of a numbered frame. For other frames, the number that the sender's next numbered
    /// frame will have.
    pub sequence: Sequence,
    /// Number of the frame that the sender expects next. All frames before it have arrived.
    pub acknowledge: Sequence,
}

impl FrameHeader {
    /// Decodes a header.
    ///
    /// # Errors
    /// When the kind is unknown, or when it cannot have these flags or this length.
    pub fn parse(bytes: &[u8; HEADER_LENGTH]) -> Result<Self, FrameError> {
        let [kind, flags, l0, l1, s0, s1, s2, s3, a0, a1, a2, a3] = *bytes;
        let kind = FrameKind::parse(kind)?;
        let stamped = flags == FLAG_STAMPED && matches!(kind, FrameKind::Tlp);
        if flags != 0 && !stamped {
            return Err(FrameError::UnknownFlags { kind, flags });
        }
        let length = u16::from_be_bytes([l0, l1]);
        if !kind.has_length(usize::from(length), stamped) {
            return Err(FrameError::Length { kind, length });
        }
        Ok(Self {
            kind,
            stamped,
            length,
            sequence: Sequence::from_bits(u32::from_be_bytes([s0, s1, s2, s3])),
            acknowledge: Sequence::from_bits(u32::from_be_bytes([a0, a1, a2, a3])),
        })
    }

    /// Encodes the header.
    pub fn emit(&self) -> [u8; HEADER_LENGTH] {
        let [l0, l1] = self.length.to_be_bytes();
        let [s0, s1, s2, s3] = self.sequence.bits().to_be_bytes();
        let [a0, a1, a2, a3] = self.acknowledge.bits().to_be_bytes();
        let flags = if self.stamped { FLAG_STAMPED } else { 0 };
        [self.kind as u8, flags, l0, l1, s0, s1, s2, s3, a0, a1, a2, a3]
    }
}

/// Time stamps of a TLP frame, both by the sender's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamps {
    /// When this frame was put into its segment.
    pub sent_at: Instant,
    /// When the sender received the newest frame that this frame acknowledges; zero if there was
    /// none. The time from `received_at` to `sent_at` was spent at the sender, not on the network.
    pub received_at: Instant,
}

/// The two halves of a hot reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u32)]
pub enum ResetPhase {
    /// Travels downwards: the device is to be reset.
    Request = 1,
    /// Travels upwards: the reset is done. Everything behind this frame was sent after the reset.
    Done = 2,
}

/// A frame's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// The upstream end introduces itself ([`FrameKind::Hello`]).
    Hello(Hello<'a>),
    /// The downstream end accepts a Hello ([`FrameKind::Welcome`]).
    Welcome(Hello<'a>),
    /// An end declines the handshake, with a code and a text ([`FrameKind::Refuse`]).
    Refuse(RefuseCode, &'a str),
    /// An end ends the session, with a code and a text ([`FrameKind::Close`]).
    Close(CloseCode, &'a str),
    /// The bytes of one TLP, unexamined, and its time stamps, if any ([`FrameKind::Tlp`]).
    Tlp(Option<Stamps>, &'a [u8]),
    /// One half of a hot reset ([`FrameKind::Reset`]).
    Reset(ResetPhase),
    /// Credit limits ([`FrameKind::Credit`]).
    Credit(CreditLimits),
    /// A piece of host memory that the device is about to read ([`FrameKind::Ahead`]).
    Ahead(Ahead, &'a [u8]),
    /// Keys of memory sent ahead that is no longer useful ([`FrameKind::Forget`]).
    Forget(Keys<'a>),
    /// The use of memory sent ahead ([`FrameKind::Tally`]).
    Tally(Tally),
    /// Registers of the function ([`FrameKind::Registers`]).
    Registers(Registers),
    /// When the Ping was sent, by its sender's clock ([`FrameKind::Ping`]).
    Ping(Instant),
    /// The answer to a Ping ([`FrameKind::Pong`]).
    Pong(Pong),
}

/// The answer to a Ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pong {
    /// When the Ping was sent, by the clock of its sender.
    pub ping_sent_at: Instant,
    /// When the Ping arrived, by the clock of the Pong's sender.
    pub ping_received_at: Instant,
    /// When the Pong was sent, by the clock of its sender.
    pub sent_at: Instant,
}

impl<'a> Frame<'a> {
    /// Decodes the body that belongs to `header`.
    ///
    /// # Errors
    /// When the length of `body` differs from the length in `header`, or when `body` breaks the
    /// rules of its kind.
    pub fn parse(header: &FrameHeader, body: &'a [u8]) -> Result<Self, FrameError> {
        let (need, have) = (usize::from(header.length), body.len());
        if have < need {
            return Err(FrameError::Truncated { need, have });
        }
        if have > need {
            return Err(FrameError::Excess { need, have });
        }
        let kind = header.kind;
        Ok(match kind {
            FrameKind::Hello => Self::Hello(Hello::parse(kind, body)?),
            FrameKind::Welcome => Self::Welcome(Hello::parse(kind, body)?),
            FrameKind::Refuse => {
                let (code, text) = parse_text(kind, body)?;
                Self::Refuse(RefuseCode::from_bits(code), text)
            }
            FrameKind::Close => {
                let (code, text) = parse_text(kind, body)?;
                Self::Close(CloseCode::from_bits(code), text)
            }
            FrameKind::Tlp => {
                let (stamps, tlp) = parse_tlp(header.stamped, body)?;
                Self::Tlp(stamps, tlp)
            }
            FrameKind::Reset => Self::Reset(match Reader::new(body).u32()? {
                1 => ResetPhase::Request,
                2 => ResetPhase::Done,
                other => return Err(FrameError::UnknownReset(other)),
            }),
            FrameKind::Credit => Self::Credit(CreditLimits::parse(&mut Reader::new(body))?),
            FrameKind::Ahead => {
                let (ahead, bytes) = ahead::parse(header, body)?;
                Self::Ahead(ahead, bytes)
            }
            FrameKind::Forget => Self::Forget(Keys(body)),
            FrameKind::Tally => Self::Tally(Tally::parse(&mut Reader::new(body))?),
            FrameKind::Registers => Self::Registers(Registers::parse(header, body)?),
            FrameKind::Ping => Self::Ping(Reader::new(body).instant()?),
            FrameKind::Pong => {
                let mut reader = Reader::new(body);
                Self::Pong(Pong {
                    ping_sent_at: reader.instant()?,
                    ping_received_at: reader.instant()?,
                    sent_at: reader.instant()?,
                })
            }
        })
    }
}

/// Splits the body of a TLP frame into its time stamps, if any, and its TLP.
pub(crate) fn parse_tlp(stamped: bool, body: &[u8]) -> Result<(Option<Stamps>, &[u8]), FrameError> {
    if !stamped {
        return Ok((None, body));
    }
    let mut reader = Reader::new(body);
    let stamps = Stamps { sent_at: reader.instant()?, received_at: reader.instant()? };
    Ok((Some(stamps), reader.rest))
}

fn parse_text(kind: FrameKind, body: &[u8]) -> Result<(u16, &str), FrameError> {
    let mut reader = Reader::new(body);
    let code = reader.u16()?;
    let length = reader.u16()?;
    let padded = usize::from(length).next_multiple_of(4);
    if padded != reader.rest.len() {
        return Err(FrameError::Length { kind, length });
    }
    let (text, padding) = reader.rest.split_at(usize::from(length));
    if padding.iter().any(|byte| *byte != 0) {
        return Err(FrameError::Reserved { kind, offset: TEXT_HEAD + usize::from(length) });
    }
    Ok((code, checked_text(text).ok_or(FrameError::Text { kind, offset: TEXT_HEAD })?))
}

/// Checks a peer's text: UTF-8 without control characters, since it ends up on a terminal.
fn checked_text(bytes: &[u8]) -> Option<&str> {
    core::str::from_utf8(bytes).ok().filter(|text| !text.chars().any(char::is_control))
}

/// The longest prefix of `text` that has at most `most` bytes and ends between characters.
pub(crate) fn clip(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

/// Takes big-endian fields off the front of a body.
pub(crate) struct Reader<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let error = FrameError::Truncated { need: N, have: self.rest.len() };
        let (array, rest) = self.rest.split_first_chunk().ok_or(error)?;
        self.rest = rest;
        Ok(*array)
    }
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], FrameError> {
        let error = FrameError::Truncated { need: count, have: self.rest.len() };
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(error)?;
        self.rest = rest;
        Ok(bytes)
    }
    pub(crate) fn u8(&mut self) -> Result<u8, FrameError> {
        Ok(u8::from_be_bytes(self.array()?))
    }
    pub(crate) fn u16(&mut self) -> Result<u16, FrameError> {
        Ok(u16::from_be_bytes(self.array()?))
    }
    pub(crate) fn u32(&mut self) -> Result<u32, FrameError> {
        Ok(u32::from_be_bytes(self.array()?))
    }
    pub(crate) fn u64(&mut self) -> Result<u64, FrameError> {
        Ok(u64::from_be_bytes(self.array()?))
    }
    fn instant(&mut self) -> Result<Instant, FrameError> {
        Ok(Instant::from_nanos(self.u64()?))
    }
}

/// Puts big-endian fields one after another into a buffer that is long enough.
pub(crate) struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    pub(crate) const fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0 }
    }
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.at..][..bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
    /// Like [`Writer::put`], without a call for the copy.
    #[inline]
    pub(crate) fn put_array<const N: usize>(&mut self, bytes: &[u8; N]) {
        *self.bytes[self.at..].first_chunk_mut().expect("the buffer is long enough") = *bytes;
        self.at += N;
    }
    pub(crate) fn zeros_to_multiple_of_4(&mut self) {
        let end = self.at.next_multiple_of(4);
        self.bytes[self.at..end].fill(0);
        self.at = end;
    }
    /// How many bytes have been put so far.
    pub(crate) const fn len(&self) -> usize {
        self.at
    }
}

/// Encodes the body of `frame` at the start of `bytes` and returns the length of the body.
/// [`BODY_MAX`] bytes suffice for any frame. Texts are cut to the length that the format can carry.
///
/// # Panics
/// When `bytes` is too short.
pub fn emit_body(frame: &Frame<'_>, bytes: &mut [u8]) -> usize {
    let mut writer = Writer::new(bytes);
    match frame {
        Frame::Hello(hello) | Frame::Welcome(hello) => hello.emit(&mut writer),
        Frame::Refuse(code, text) => emit_text(&mut writer, code.bits(), text),
        Frame::Close(code, text) => emit_text(&mut writer, code.bits(), text),
        Frame::Tlp(stamps, tlp) => {
            if let Some(stamps) = stamps {
                writer.put(&emit_stamps(stamps));
            }
            writer.put(tlp);
        }
        Frame::Reset(phase) => writer.put(&(*phase as u32).to_be_bytes()),
        Frame::Credit(limits) => writer.put(&limits.emit()),
        Frame::Ahead(ahead, bytes) => ahead::emit(&mut writer, ahead, bytes),
        Frame::Forget(keys) => writer.put(keys.0),
        Frame::Tally(tally) => writer.put(&tally.emit()),
        Frame::Registers(registers) => registers.emit(&mut writer),
        Frame::Ping(sent_at) => writer.put(&sent_at.as_nanos().to_be_bytes()),
        Frame::Pong(pong) => {
            for instant in [pong.ping_sent_at, pong.ping_received_at, pong.sent_at] {
                writer.put(&instant.as_nanos().to_be_bytes());
            }
        }
    }
    writer.len()
}

/// Encodes the time stamps of a TLP frame.
pub(crate) fn emit_stamps(stamps: &Stamps) -> [u8; STAMPS_LENGTH] {
    let (sent, received) = (stamps.sent_at.as_nanos(), stamps.received_at.as_nanos());
    ((u128::from(sent) << 64) | u128::from(received)).to_be_bytes()
}

fn emit_text(writer: &mut Writer<'_>, code: u16, text: &str) {
    let text = clip(text, TEXT_MAX);
    let length = u16::try_from(text.len()).unwrap_or_default();
    writer.put(&code.to_be_bytes());
    writer.put(&length.to_be_bytes());
    writer.put(text.as_bytes());
    writer.zeros_to_multiple_of_4();
}

impl Frame<'_> {
    /// The kind of this frame.
    pub const fn kind(&self) -> FrameKind {
        match self {
            Self::Hello(_) => FrameKind::Hello,
            Self::Welcome(_) => FrameKind::Welcome,
            Self::Refuse(..) => FrameKind::Refuse,
            Self::Close(..) => FrameKind::Close,
            Self::Tlp(..) => FrameKind::Tlp,
            Self::Reset(_) => FrameKind::Reset,
            Self::Credit(_) => FrameKind::Credit,
            Self::Ahead(..) => FrameKind::Ahead,
            Self::Forget(_) => FrameKind::Forget,
            Self::Tally(_) => FrameKind::Tally,
            Self::Registers(_) => FrameKind::Registers,
            Self::Ping(_) => FrameKind::Ping,
            Self::Pong(_) => FrameKind::Pong,
        }
    }

    /// Encodes header and body at the start of `bytes` and returns the length of the frame. The
    /// frame has at most [`HEADER_LENGTH`] + [`BODY_MAX`] bytes.
    ///
    /// # Panics
    /// When `bytes` is too short.
    pub fn emit(&self, sequence: Sequence, acknowledge: Sequence, bytes: &mut [u8]) -> usize {
        let (head, body) = bytes.split_first_chunk_mut().expect("the caller has room for the frame");
        let length = emit_body(self, body);
        let header = FrameHeader {
            kind: self.kind(),
            stamped: matches!(self, Self::Tlp(Some(_), _)),
            length: u16::try_from(length).expect("no body is longer than BODY_MAX"),
            sequence,
            acknowledge,
        };
        *head = header.emit();
        HEADER_LENGTH + length
    }
}

#[cfg(test)]
mod tests;
