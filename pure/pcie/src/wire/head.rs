//! Parses and emits the head of a TLP before its payload: prefixes and header.

use super::enables::check_memory;
use super::layout as at;
use super::{
    Bdf, Completion, CompletionStatus, ConfigRequest, ConfigType, Header, IoRequest, Kind, MemoryOperation,
    MemoryRequest, Message, MessageRouting, Part, Prefixes, Tag, TlpError, Traits, Width, message,
};

/// The head of a TLP before its payload: prefixes and header. Together they give the length of the
/// whole TLP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The TLP prefixes.
    pub prefixes: Prefixes,
    /// The decoded header.
    pub header: Header,
    /// TLP Digest (TD): whether four bytes of ECRC follow the payload.
    pub digest: bool,
}

impl Head {
    /// Maximum length in bytes of prefixes and header: five prefixes and a header of four double
    /// words.
    pub const LENGTH_MAX: usize = Prefixes::MAX * 4 + 16;

    /// Parses the prefixes and the header at the start of `bytes`, and ignores the bytes behind
    /// them.
    ///
    /// # Errors
    /// When `bytes` is too short, or when a prefix or the header is malformed.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, TlpError> {
        let mut head = Self { prefixes: Prefixes::NONE, header: Header::BLANK, digest: false };
        head.digest = parse_into(bytes, &mut head.prefixes, &mut head.header)?.digest;
        Ok(head)
    }

    /// Length of prefixes and header, in bytes.
    pub const fn encoded_len(&self) -> usize {
        self.prefixes.encoded_len() + self.header.encoded_len()
    }

    /// Length of the whole TLP in bytes: prefixes, header, payload and digest.
    pub const fn tlp_len(&self) -> usize {
        self.encoded_len() + self.header.payload_len() + if self.digest { 4 } else { 0 }
    }

    /// Writes prefixes and header to the start of `bytes` and returns their length in bytes.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8; Self::LENGTH_MAX]) -> usize {
        emit_prefixes(&self.prefixes, bytes);
        let start = self.prefixes.encoded_len();
        let (header, length) = self.header.emit(self.digest);
        bytes[start..start + length].copy_from_slice(&header[..length]);
        start + length
    }
}

/// Writes `prefixes` to `bytes`, which must have exactly their length.
pub(super) fn emit_prefixes(prefixes: &Prefixes, bytes: &mut [u8]) {
    for (place, word) in bytes.chunks_exact_mut(4).zip(prefixes.words()) {
        place.copy_from_slice(&word.to_be_bytes());
    }
}

const fn truncated(part: Part, need: usize, bytes: &[u8]) -> TlpError {
    TlpError::Truncated { part, need, have: bytes.len() }
}

/// Length in bytes of a header with the Fmt in `code`.
#[inline]
pub(super) const fn header_length(code: u8) -> usize {
    if code & at::CODE_4DW == 0 { 12 } else { 16 }
}

/// The result of parsing up to a payload.
#[derive(Clone, Copy)]
pub(super) struct Found {
    /// Whether a digest follows the payload (TD).
    pub(super) digest: bool,
    /// Byte offset of the payload.
    pub(super) start: usize,
    /// Length of the payload in bytes.
    pub(super) payload: usize,
}

/// Parses the head before a payload into `prefixes` (empty so far) and `header`.
#[inline]
pub(super) fn parse_into(
    bytes: &[u8],
    prefixes: &mut Prefixes,
    header: &mut Header,
) -> Result<Found, TlpError> {
    let mut start = 0;
    while bytes.get(start).is_some_and(|code| code & at::CODE_FMT == at::CODE_PREFIX) {
        let word = bytes.get(start..).and_then(|rest| rest.first_chunk::<4>());
        let word = word.ok_or(truncated(Part::Prefix, start + 4, bytes))?;
        prefixes.push(u32::from_be_bytes(*word))?;
        start += 4;
    }
    parse_header(bytes, start, header)
}

/// Parses the header at `start` of `bytes` into `header`. In place, because a header is written in
/// small pieces, and a copy right afterwards would wait for all of them.
#[inline]
fn parse_header(bytes: &[u8], start: usize, header: &mut Header) -> Result<Found, TlpError> {
    let rest = bytes.get(start..).unwrap_or(&[]);
    let Some(&code) = rest.first() else {
        return Err(truncated(Part::Header, start + 12, bytes));
    };
    if !is_known(code) {
        return Err(TlpError::UnknownType { code });
    }
    let words = if code & at::CODE_4DW == 0 {
        let header = rest.first_chunk::<12>().ok_or(truncated(Part::Header, start + 12, bytes))?;
        [word(header, 0), word(header, 1), word(header, 2), 0]
    } else {
        let header = rest.first_chunk::<16>().ok_or(truncated(Part::Header, start + 16, bytes))?;
        [word(header, 0), word(header, 1), word(header, 2), word(header, 3)]
    };
    decode(code, words, header)?;
    let payload = if code & at::CODE_DATA == 0 { 0 } else { usize::from(header.length) * 4 };
    Ok(Found { digest: at::DIGEST.is_set(words[0]), start: start + header_length(code), payload })
}

#[inline]
fn word<const N: usize>(bytes: &[u8; N], index: usize) -> u32 {
    let at = index * 4;
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Whether Fmt and Type make a TLP of PCI Express 4.0, which excludes the deprecated TCfgRd and
/// TCfgWr.
const fn is_known(code: u8) -> bool {
    let (wide, data) = (code & at::CODE_4DW != 0, code & at::CODE_DATA != 0);
    match code & !(at::CODE_4DW | at::CODE_DATA) {
        at::TYPE_MEMORY => true,
        at::TYPE_MEMORY_LOCKED => !data,
        at::TYPE_IO
        | at::TYPE_CONFIG_0
        | at::TYPE_CONFIG_1
        | at::TYPE_COMPLETION
        | at::TYPE_COMPLETION_LOCKED => !wide,
        at::TYPE_FETCH_ADD | at::TYPE_SWAP | at::TYPE_COMPARE_AND_SWAP => data,
        kind => wide && kind & !at::CODE_ROUTING == at::CODE_MESSAGE,
    }
}

/// Decodes a header whose `code` is known into `header`, and checks it.
#[inline]
fn decode(code: u8, words: [u32; 4], header: &mut Header) -> Result<(), TlpError> {
    let data = code & at::CODE_DATA != 0;
    match code & !(at::CODE_4DW | at::CODE_DATA) {
        at::TYPE_IO => decode_io(data, words, header)?,
        at::TYPE_CONFIG_0 => decode_config(ConfigType::Type0, data, words, header)?,
        at::TYPE_CONFIG_1 => decode_config(ConfigType::Type1, data, words, header)?,
        at::TYPE_COMPLETION => decode_completion(false, data, words, header),
        at::TYPE_COMPLETION_LOCKED => decode_completion(true, data, words, header),
        kind if kind & at::CODE_MESSAGE != 0 => decode_message(kind, data, words, header)?,
        _ => decode_memory(code, words, header)?,
    }
    Ok(())
}

/// A header with `kind` and the fields of the first double word.
#[inline]
fn common(first: u32, length: u16, kind: Kind) -> Header {
    Header { traits: Traits::of(first), reserved: 0, length, kind }
}

/// Length in double words; 0 on the wire means 1,024.
#[inline]
const fn length(first: u32) -> u16 {
    match at::LENGTH.half_of(first) {
        0 => Header::LENGTH_MAX,
        length => length,
    }
}

/// Length of a TLP that may be without data. Length then has no meaning and is kept.
#[inline]
const fn length_if(data: bool, first: u32) -> u16 {
    if data { length(first) } else { at::LENGTH.half_of(first) }
}

#[inline]
fn tag(first: u32, second: u32) -> Tag {
    let high = at::TAG_9.half_of(first) << 1 | at::TAG_8.half_of(first);
    Tag::new(high << 8 | at::TAG.half_of(second))
}

#[inline]
fn decode_memory(code: u8, words: [u32; 4], header: &mut Header) -> Result<(), TlpError> {
    let (kind, data) = (code & !(at::CODE_4DW | at::CODE_DATA), code & at::CODE_DATA != 0);
    let wide = code & at::CODE_4DW != 0;
    let [first, second, third, fourth] = words;
    let (high, low) = if wide { (third, fourth) } else { (0, third) };
    let request = MemoryRequest {
        operation: match (kind, data) {
            (at::TYPE_MEMORY, true) => MemoryOperation::Write,
            (at::TYPE_MEMORY, false) => MemoryOperation::Read,
            (at::TYPE_MEMORY_LOCKED, _) => MemoryOperation::ReadLocked,
            (at::TYPE_FETCH_ADD, _) => MemoryOperation::FetchAdd,
            (at::TYPE_SWAP, _) => MemoryOperation::Swap,
            (_, _) => MemoryOperation::CompareAndSwap,
        },
        requester: Bdf::from_bits(at::REQUESTER.half_of(second)),
        tag: tag(first, second),
        first_enables: at::FIRST_ENABLES.byte_of(second),
        last_enables: at::LAST_ENABLES.byte_of(second),
        address: u64::from(high) << 32 | u64::from(low & at::ADDRESS.all()),
        width: if wide { Width::Bits64 } else { Width::Bits32 },
    };
    *header = common(first, length(first), Kind::Memory(request));
    header.traits = header.traits.with_hint(at::HINT.byte_of(low));
    check_memory(header, &request)
}

fn decode_io(write: bool, words: [u32; 4], header: &mut Header) -> Result<(), TlpError> {
    let [first, second, third, _] = words;
    let request = IoRequest {
        write,
        requester: Bdf::from_bits(at::REQUESTER.half_of(second)),
        tag: tag(first, second),
        enables: at::FIRST_ENABLES.byte_of(second),
        address: third & at::ADDRESS.all(),
    };
    *header = common(first, length(first), Kind::Io(request));
    header.reserved = at::HINT.byte_of(third);
    check_single(header, second)
}

fn decode_config(
    routing: ConfigType,
    write: bool,
    words: [u32; 4],
    header: &mut Header,
) -> Result<(), TlpError> {
    let [first, second, third, _] = words;
    let request = ConfigRequest {
        write,
        routing,
        requester: Bdf::from_bits(at::REQUESTER.half_of(second)),
        tag: tag(first, second),
        enables: at::FIRST_ENABLES.byte_of(second),
        target: Bdf::from_bits(at::TARGET.half_of(third)),
        offset: at::REGISTER.half_of(third) * 4,
    };
    *header = common(first, length(first), Kind::Config(request));
    header.reserved = at::CONFIG_RESERVED_HIGH.byte_of(third) << 2 | at::CONFIG_RESERVED_LOW.byte_of(third);
    check_single(header, second)
}

/// Checks the rules that I/O and configuration requests share: one double word, traffic class 0, no
/// attributes, default address type.
fn check_single(header: &Header, second: u32) -> Result<(), TlpError> {
    let class = header.traits.traffic_class();
    let attributes = u8::from(header.traits.attributes());
    let address_type = u8::from(header.traits.address_type());
    let last_enables = at::LAST_ENABLES.byte_of(second);
    match header {
        Header { length: 2.., .. } => Err(TlpError::LengthNotOne { length: header.length }),
        _ if class != 0 => Err(TlpError::TrafficClass { class }),
        _ if attributes != 0 => Err(TlpError::Attributes { attributes }),
        _ if address_type != 0 => Err(TlpError::AddressType { address_type }),
        _ if last_enables != 0 => Err(TlpError::LastEnables { enables: last_enables, length: 1 }),
        _ => Ok(()),
    }
}

fn decode_message(kind: u8, data: bool, words: [u32; 4], header: &mut Header) -> Result<(), TlpError> {
    let [first, second, third, fourth] = words;
    let code = at::MESSAGE_CODE.byte_of(second);
    *header = common(
        first,
        length_if(data, first),
        Kind::Message(Message {
            routing: MessageRouting::from(kind & at::CODE_ROUTING),
            requester: Bdf::from_bits(at::REQUESTER.half_of(second)),
            tag: tag(first, second),
            code,
            data,
            body: u64::from(third) << 32 | u64::from(fourth),
        }),
    );
    let class = header.traits.traffic_class();
    if class != 0 && message::needs_default_class(code) {
        return Err(TlpError::TrafficClass { class });
    }
    Ok(())
}

#[inline]
fn decode_completion(locked: bool, data: bool, words: [u32; 4], header: &mut Header) {
    let [first, second, third, _] = words;
    let byte_count = match at::BYTE_COUNT.half_of(second) {
        0 => Completion::BYTE_COUNT_MAX,
        count => count,
    };
    let kind = Kind::Completion(Completion {
        completer: Bdf::from_bits(at::COMPLETER.half_of(second)),
        status: CompletionStatus::from(at::STATUS.byte_of(second)),
        byte_count_modified: at::BYTE_COUNT_MODIFIED.is_set(second),
        byte_count,
        requester: Bdf::from_bits(at::REQUESTER.half_of(third)),
        tag: tag(first, third),
        lower_address: at::LOWER_ADDRESS.byte_of(third),
        data,
        locked,
    });
    *header = common(first, length_if(data, first), kind);
    header.reserved = at::COMPLETION_RESERVED.byte_of(third);
}

impl Header {
    /// Maximum length of a payload: 1,024 double words.
    pub const LENGTH_MAX: u16 = 1024;

    /// A header without meaning, to be parsed into.
    pub(super) const BLANK: Self = Self::new(
        Kind::Io(IoRequest {
            write: false,
            requester: Bdf::from_bits(0),
            tag: Tag::new(0),
            enables: 0,
            address: 0,
        }),
        0,
    );

    /// The header's bytes, with TD as `digest`, and the number of bytes used: 12 or 16.
    #[inline]
    pub(super) fn emit(&self, digest: bool) -> ([u8; 16], usize) {
        let [first, second, third, fourth] = self.words(digest);
        let length = header_length(at::CODE.byte_of(first));
        let [first, second, third, fourth] = [first, second, third, fourth].map(u128::from);
        ((first << 96 | second << 64 | third << 32 | fourth).to_be_bytes(), length)
    }

    /// The header's double words, with TD as `digest`. Only 4 DW headers use the fourth one.
    #[inline]
    pub(super) fn words(&self, digest: bool) -> [u32; 4] {
        let reserved = u32::from(self.reserved);
        // A single match on the type for everything that depends on it, because this runs for every
        // packet sent.
        let (code, tag, [second, third, fourth]) = match &self.kind {
            Kind::Memory(request) => {
                let second = transaction(request.requester, request.tag)
                    | enables(request.first_enables, request.last_enables);
                let [high, low] = halves(request.address);
                let low = (low & at::ADDRESS.all()) | at::HINT.put(u32::from(self.traits.hint()));
                let rest = match request.width {
                    Width::Bits32 => [second, low, 0],
                    Width::Bits64 => [second, high, low],
                };
                (request.code(), request.tag, rest)
            }
            Kind::Completion(completion) => {
                let second = at::COMPLETER.put(u32::from(completion.completer.bits()))
                    | at::STATUS.put(u32::from(u8::from(completion.status)))
                    | at::BYTE_COUNT_MODIFIED.flag(completion.byte_count_modified)
                    | at::BYTE_COUNT.put(u32::from(completion.byte_count));
                let third = transaction(completion.requester, completion.tag)
                    | at::COMPLETION_RESERVED.put(reserved)
                    | at::LOWER_ADDRESS.put(u32::from(completion.lower_address));
                (completion.code(), completion.tag, [second, third, 0])
            }
            Kind::Io(request) => {
                let second = transaction(request.requester, request.tag) | enables(request.enables, 0);
                let address = (request.address & at::ADDRESS.all()) | at::HINT.put(reserved);
                (request.code(), request.tag, [second, address, 0])
            }
            Kind::Config(request) => {
                let second = transaction(request.requester, request.tag) | enables(request.enables, 0);
                let third = at::TARGET.put(u32::from(request.target.bits()))
                    | at::CONFIG_RESERVED_HIGH.put(reserved >> 2)
                    | at::REGISTER.put(u32::from(request.offset / 4))
                    | at::CONFIG_RESERVED_LOW.put(reserved);
                (request.code(), request.tag, [second, third, 0])
            }
            Kind::Message(message) => {
                let second = transaction(message.requester, message.tag)
                    | at::MESSAGE_CODE.put(u32::from(message.code));
                let [third, fourth] = halves(message.body);
                (message.type_code(), message.tag, [second, third, fourth])
            }
        };
        let first = at::CODE.put(u32::from(code))
            | self.traits.word()
            | at::DIGEST.flag(digest)
            | at::LENGTH.put(u32::from(self.length))
            | high_tag(tag);
        [first, second, third, fourth]
    }
}

/// `kind`, a Type without Fmt, with the Fmt bit for data if `data` is set.
const fn with_data(kind: u8, data: bool) -> u8 {
    if data { kind | at::CODE_DATA } else { kind }
}

impl MemoryRequest {
    const fn code(&self) -> u8 {
        let (kind, data) = match self.operation {
            MemoryOperation::Read => (at::TYPE_MEMORY, false),
            MemoryOperation::Write => (at::TYPE_MEMORY, true),
            MemoryOperation::ReadLocked => (at::TYPE_MEMORY_LOCKED, false),
            MemoryOperation::FetchAdd => (at::TYPE_FETCH_ADD, true),
            MemoryOperation::Swap => (at::TYPE_SWAP, true),
            MemoryOperation::CompareAndSwap => (at::TYPE_COMPARE_AND_SWAP, true),
        };
        match self.width {
            Width::Bits32 => with_data(kind, data),
            Width::Bits64 => with_data(kind, data) | at::CODE_4DW,
        }
    }
}

impl IoRequest {
    const fn code(&self) -> u8 {
        with_data(at::TYPE_IO, self.write)
    }
}

impl ConfigRequest {
    const fn code(&self) -> u8 {
        let kind = match self.routing {
            ConfigType::Type0 => at::TYPE_CONFIG_0,
            ConfigType::Type1 => at::TYPE_CONFIG_1,
        };
        with_data(kind, self.write)
    }
}

impl Message {
    fn type_code(&self) -> u8 {
        with_data(at::CODE_4DW | at::CODE_MESSAGE | u8::from(self.routing), self.data)
    }
}

impl Completion {
    const fn code(&self) -> u8 {
        with_data(if self.locked { at::TYPE_COMPLETION_LOCKED } else { at::TYPE_COMPLETION }, self.data)
    }
}

/// Requester ID and the low eight bits of the tag, at their places in the double word.
const fn transaction(requester: Bdf, tag: Tag) -> u32 {
    at::REQUESTER.put(requester.bits() as u32) | at::TAG.put(tag.get() as u32)
}

/// Bits T9 and T8 of the tag, at their places in the first double word.
const fn high_tag(tag: Tag) -> u32 {
    let high = (tag.get() >> 8) as u32;
    at::TAG_9.put(high >> 1) | at::TAG_8.put(high)
}

const fn enables(first: u8, last: u8) -> u32 {
    at::LAST_ENABLES.put(last as u32) | at::FIRST_ENABLES.put(first as u32)
}

const fn halves(wide: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = wide.to_be_bytes();
    [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])]
}
