//! Constructors for the TLPs that engines send.

use engine::Buffer;

use super::enables::covering;
use super::{
    Bdf, Completion, CompletionStatus, ConfigRequest, ConfigType, Header, IoRequest, Kind, MemoryOperation,
    MemoryRequest, Message, MessageRouting, Packet, Tag, Width,
};

/// Requests must not cross a multiple of this many bytes.
const BOUNDARY: u64 = 4096;
/// Lower Address has seven bits.
const LOWER_ADDRESSES: u32 = 128;

/// The width for `address`: an address below 4 GiB must use the 32-bit header.
const fn width_for(address: u64) -> Width {
    if address <= u32::MAX as u64 { Width::Bits32 } else { Width::Bits64 }
}

/// `data` in whole double words, starting `lead` bytes into the first. Shares the block if no
/// padding is needed, and copies otherwise.
fn in_dwords(data: Buffer, lead: usize) -> Buffer {
    let length = (lead + data.len()).next_multiple_of(4);
    if lead == 0 && length == data.len() {
        return data;
    }
    let mut filled = Buffer::zeroed(length);
    let bytes = filled.try_mut().expect("a new buffer has one holder");
    bytes[lead..lead + data.len()].copy_from_slice(&data);
    filled
}

fn length_of(data: &Buffer) -> u32 {
    u32::try_from(data.len()).unwrap_or(u32::MAX)
}

fn dwords_of(payload: &Buffer) -> u16 {
    u16::try_from(payload.len() / 4).unwrap_or(u16::MAX)
}

impl Header {
    /// A memory read or write of `length` bytes at `address`, with the byte enables and the header
    /// form that the range needs. Length 0 makes a zero-length request.
    ///
    /// # Panics
    /// When the range crosses a 4 KiB boundary.
    pub fn memory(operation: MemoryOperation, requester: Bdf, tag: Tag, address: u64, length: u32) -> Self {
        let in_page = address % BOUNDARY + u64::from(length);
        assert!(in_page <= BOUNDARY, "{operation} {address:#x}..+{length} crosses a 4 KiB boundary");
        let (first_enables, last_enables, dwords) = covering(address, length);
        let request = MemoryRequest {
            operation,
            requester,
            tag,
            first_enables,
            last_enables,
            address: address - address % 4,
            width: width_for(address),
        };
        Self::new(Kind::Memory(request), dwords)
    }

    fn io(write: bool, requester: Bdf, tag: Tag, address: u32, length: u32) -> Self {
        assert!(address % 4 + length <= 4, "an I/O request {address:#x}..+{length} crosses a double word");
        let (enables, ..) = covering(u64::from(address), length);
        Self::new(Kind::Io(IoRequest { write, requester, tag, enables, address: address - address % 4 }), 1)
    }

    fn config(write: bool, requester: Bdf, tag: Tag, target: Bdf, offset: u16, length: u32) -> Self {
        assert!(offset < 4096, "configuration space has 4096 B, not one at {offset:#x}");
        let in_dword = u32::from(offset % 4) + length;
        assert!(in_dword <= 4, "a configuration request {offset:#x}..+{length} crosses a double word");
        let (enables, ..) = covering(u64::from(offset), length);
        let request = ConfigRequest {
            write,
            routing: ConfigType::Type1,
            requester,
            tag,
            enables,
            target,
            offset: offset - offset % 4,
        };
        Self::new(Kind::Config(request), 1)
    }

    fn completion(completer: Bdf, status: CompletionStatus, request: &Self) -> Completion {
        assert!(request.is_non_posted(), "{request} is not to be completed");
        let locked = MemoryOperation::ReadLocked;
        Completion {
            completer,
            status,
            byte_count_modified: false,
            byte_count: request.byte_count(),
            requester: request.requester(),
            tag: request.tag(),
            lower_address: request.lower_address(),
            data: false,
            locked: matches!(&request.kind, Kind::Memory(request) if request.operation == locked),
        }
    }

    /// This header with the traffic class and attributes of `request`, as its completions must
    /// have.
    const fn answering(mut self, request: &Self) -> Self {
        self.traits = request.traits.of_answer();
        self
    }
}

impl Packet {
    /// MRd: reads `length` bytes at `address`. Length 0 is a zero-length read, which flushes posted
    /// writes.
    ///
    /// # Panics
    /// When the range crosses a 4 KiB boundary.
    pub fn memory_read(requester: Bdf, tag: Tag, address: u64, length: u32) -> Self {
        let header = Header::memory(MemoryOperation::Read, requester, tag, address, length);
        Self::new(header, Buffer::EMPTY)
    }

    /// MWr: writes `data` to `address`. Data that begins and ends at a multiple of 4 is shared;
    /// other data is copied.
    ///
    /// # Panics
    /// When the range crosses a 4 KiB boundary.
    pub fn memory_write(requester: Bdf, address: u64, data: Buffer) -> Self {
        let length = length_of(&data);
        let header = Header::memory(MemoryOperation::Write, requester, Tag::default(), address, length);
        if data.is_empty() {
            return Self::new(header, Buffer::zeroed(4));
        }
        Self::new(header, in_dwords(data, usize::from(header.lead())))
    }

    /// An AtomicOp on `address`. `operands` is the value, or for CAS the value to compare followed
    /// by the value to swap in.
    ///
    /// # Panics
    /// When `operation` is not atomic, when its operand is not of 4 or 8 bytes (CAS: 4, 8 or 16),
    /// or when `address` is not a multiple of the operand's size.
    pub fn atomic(
        operation: MemoryOperation,
        requester: Bdf,
        tag: Tag,
        address: u64,
        operands: Buffer,
    ) -> Self {
        let (operand, longest) = match operation {
            MemoryOperation::CompareAndSwap => (operands.len() / 2, 16),
            _ => (operands.len(), 8),
        };
        assert!(operation.is_atomic(), "{operation} is not an AtomicOp");
        let known = matches!(operand, 4 | 8 | 16) && operand <= longest && operands.len().is_multiple_of(4);
        assert!(known, "{operation} with operands of {} B", operands.len());
        let aligned = usize::try_from(address % 16).is_ok_and(|low| low.is_multiple_of(operand));
        assert!(aligned, "{operation} of {operand} B at {address:#x}");
        let request = MemoryRequest {
            operation,
            requester,
            tag,
            first_enables: 0,
            last_enables: 0,
            address,
            width: width_for(address),
        };
        Self::new(Header::new(Kind::Memory(request), dwords_of(&operands)), operands)
    }

    /// IORd: reads `length` bytes at `address`, within one double word.
    ///
    /// # Panics
    /// When the range crosses a double word.
    pub fn io_read(requester: Bdf, tag: Tag, address: u32, length: u32) -> Self {
        Self::new(Header::io(false, requester, tag, address, length), Buffer::EMPTY)
    }

    /// IOWr: writes `data` to `address`, within one double word.
    ///
    /// # Panics
    /// When the range crosses a double word.
    pub fn io_write(requester: Bdf, tag: Tag, address: u32, data: Buffer) -> Self {
        let header = Header::io(true, requester, tag, address, length_of(&data));
        Self::new(header, in_dwords(data, usize::from(header.lead())))
    }

    /// CfgRd1: reads `length` bytes at `offset` of `target`'s configuration space, within one
    /// double word. For CfgRd0 see [`Packet::with_config_type`].
    ///
    /// # Panics
    /// When the range crosses a double word or is beyond 4096.
    pub fn config_read(requester: Bdf, tag: Tag, target: Bdf, offset: u16, length: u32) -> Self {
        Self::new(Header::config(false, requester, tag, target, offset, length), Buffer::EMPTY)
    }

    /// CfgWr1: writes `data` to `offset` of `target`'s configuration space, within one double word.
    /// For CfgWr0 see [`Packet::with_config_type`].
    ///
    /// # Panics
    /// When the range crosses a double word or is beyond 4096.
    pub fn config_write(requester: Bdf, tag: Tag, target: Bdf, offset: u16, data: Buffer) -> Self {
        let header = Header::config(true, requester, tag, target, offset, length_of(&data));
        Self::new(header, in_dwords(data, usize::from(header.lead())))
    }

    /// This configuration request as type 0 or type 1. Any other TLP is returned unchanged.
    #[must_use]
    pub const fn with_config_type(mut self, routing: ConfigType) -> Self {
        if let Kind::Config(request) = &mut self.header.kind {
            request.routing = routing;
        }
        self
    }

    /// Msg: a message with `code`, and `body` as its third and fourth double words.
    pub const fn message(requester: Bdf, routing: MessageRouting, code: u8, body: u64) -> Self {
        let message = Message { routing, requester, tag: Tag::new(0), code, data: false, body };
        Self::new(Header::new(Kind::Message(message), 0), Buffer::EMPTY)
    }

    /// MsgD: a message with `code` and `data`, and `body` as its third and fourth double words.
    ///
    /// # Panics
    /// When `data` is empty, is not of whole double words, or is longer than 4096 bytes.
    pub fn message_with_data(
        requester: Bdf,
        routing: MessageRouting,
        code: u8,
        body: u64,
        data: Buffer,
    ) -> Self {
        let whole = !data.is_empty() && data.len().is_multiple_of(4) && data.len() <= 4096;
        assert!(whole, "a message with {} B", data.len());
        let message = Message { routing, requester, tag: Tag::new(0), code, data: true, body };
        Self::new(Header::new(Kind::Message(message), dwords_of(&data)), data)
    }

    /// Cpl: reports that `request` ended with `status`, without data. A successful one answers a
    /// write.
    ///
    /// # Panics
    /// When `request` is posted or a completion.
    pub fn completion(completer: Bdf, status: CompletionStatus, request: &Header) -> Self {
        let completion = Header::completion(completer, status, request);
        Self::new(Header::new(Kind::Completion(completion), 0).answering(request), Buffer::EMPTY)
    }

    /// CplD: answers `request` with its bytes from `offset` on.
    ///
    /// `offset` counts from the first enabled byte of a memory read. The answer to a configuration
    /// or I/O read or to an AtomicOp is whole double words. Data that begins and ends at a multiple
    /// of 4 is shared; other data is copied. A zero-length read is answered with one byte of any
    /// value.
    ///
    /// # Panics
    /// When `request` is posted or a completion, when `data` is empty, or when the bytes reach
    /// beyond those that `request` asked for.
    pub fn completion_with_data(completer: Bdf, request: &Header, offset: u32, data: Buffer) -> Self {
        let mut completion = Header::completion(completer, CompletionStatus::Success, request);
        let total = u32::from(completion.byte_count);
        let within = offset.checked_add(length_of(&data)).is_some_and(|end| end <= total);
        assert!(within && !data.is_empty(), "{offset}..+{} of {total} B answer {request}", data.len());
        completion.data = true;
        completion.byte_count = u16::try_from(total - offset).unwrap_or(u16::MAX);
        if let Kind::Memory(MemoryRequest {
            operation: MemoryOperation::Read | MemoryOperation::ReadLocked,
            ..
        }) = &request.kind
        {
            let address = (u32::from(completion.lower_address) + offset) % LOWER_ADDRESSES;
            completion.lower_address = address.to_be_bytes()[3];
        }
        let payload = in_dwords(data, usize::from(completion.lower_address % 4));
        let header = Header::new(Kind::Completion(completion), dwords_of(&payload));
        Self::new(header.answering(request), payload)
    }
}
