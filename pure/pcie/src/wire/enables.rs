//! Byte enables, and the bytes that a request covers because of them.

use super::{AddressType, Header, Kind, MemoryOperation, MemoryRequest, TlpError};

/// Enables for every byte of a double word.
pub(super) const ALL: u8 = 0b1111;
/// Requests must not cross a multiple of this many bytes.
const BOUNDARY: u64 = 4096;
/// Lower Address has seven bits.
const LOWER_ADDRESSES: u64 = 128;

/// First DW BE, Last DW BE and Length in double words for `length` contiguous bytes at `address`.
/// Length 0 makes a zero-length request: one double word without enables.
pub(super) fn covering(address: u64, length: u32) -> (u8, u8, u16) {
    let lead = u32::from((address % 4).to_be_bytes()[7]);
    let end = lead + length;
    let dwords = u16::try_from(end.div_ceil(4)).unwrap_or(u16::MAX).max(1);
    let from_lead = (ALL << lead) & ALL;
    let to_end = ALL >> ((4 - end % 4) % 4);
    match (length, dwords) {
        (0, _) => (0, 0, 1),
        (_, 1) => (from_lead & to_end, 0, 1),
        _ => (from_lead, to_end, dwords),
    }
}

impl Header {
    /// The byte enables of double word `index` of the request: bit n enables byte n.
    ///
    /// Every byte is enabled if a Steering Tag takes the place of the enables (reads with TH), or
    /// if the enables are reserved (AtomicOps). The result is 0 for messages and completions.
    pub const fn enables_of(&self, index: u16) -> u8 {
        let (first, last) = self.enables();
        if index >= self.length {
            0
        } else if index == 0 {
            first
        } else if index + 1 == self.length {
            last
        } else {
            ALL
        }
    }

    const fn enables(&self) -> (u8, u8) {
        match &self.kind {
            Kind::Memory(request) => {
                let write = matches!(request.operation, MemoryOperation::Write);
                let atomic = request.operation.is_atomic();
                if atomic || (self.traits.is_hinted() && !write) {
                    (ALL, if self.length > 1 { ALL } else { 0 })
                } else {
                    (request.first_enables, request.last_enables)
                }
            }
            Kind::Io(request) => (request.enables, 0),
            Kind::Config(request) => (request.enables, 0),
            Kind::Message(_) | Kind::Completion(_) => (0, 0),
        }
    }

    /// The address of the first double word of a memory or I/O request; `None` for other TLPs.
    pub const fn address(&self) -> Option<u64> {
        match &self.kind {
            Kind::Memory(request) => Some(request.address),
            Kind::Io(request) => Some(request.address as u64),
            _ => None,
        }
    }

    /// The address of the first enabled byte of a memory or I/O request, or of the first double
    /// word if no byte is enabled. `None` for other TLPs.
    pub const fn first_byte_address(&self) -> Option<u64> {
        match self.address() {
            Some(address) => Some(address.wrapping_add(self.lead() as u64)),
            None => None,
        }
    }

    /// The address of the last enabled byte of a memory or I/O request; `None` if no byte is
    /// enabled, and for other TLPs.
    pub const fn last_byte_address(&self) -> Option<u64> {
        match (self.first_byte_address(), self.byte_length()) {
            (Some(address), length @ 1..) => Some(address.wrapping_add(length as u64 - 1)),
            _ => None,
        }
    }

    /// Number of bytes in the request's first double word before the first enabled one, 0..4.
    #[inline]
    pub const fn lead(&self) -> u8 {
        // Nearly always.
        if let Kind::Memory(request) = &self.kind
            && request.first_enables == ALL
        {
            return 0;
        }
        self.disabled_lead()
    }

    const fn disabled_lead(&self) -> u8 {
        let (first, _) = self.enables();
        match first {
            0 => 0,
            _ => first.trailing_zeros().to_be_bytes()[3],
        }
    }

    /// Number of bytes from the first enabled one to the last enabled one, 0..=4096. It is the
    /// length of the operands for AtomicOps, and 0 for zero-length requests, messages and
    /// completions.
    #[inline]
    pub const fn byte_length(&self) -> u32 {
        // Nearly always.
        if let Kind::Memory(request) = &self.kind
            && request.first_enables == ALL
            && request.last_enables == ALL
        {
            return self.length as u32 * 4;
        }
        self.enabled_length()
    }

    const fn enabled_length(&self) -> u32 {
        let (first, last) = self.enables();
        if first == ALL && last == ALL && self.length > 1 {
            return self.length as u32 * 4;
        }
        if self.length == 0 || (first == 0 && last == 0) {
            return 0;
        }
        let final_enables = if last == 0 { first } else { last };
        // Enables are the low four bits of their byte.
        let trail = final_enables.leading_zeros().saturating_sub(4);
        (self.length as u32 * 4).saturating_sub(self.lead() as u32 + trail)
    }

    /// The Byte Count of the request's first completion, 1..=4096: the bytes that a memory read
    /// asks for (1 for a zero-length read), the operand of an AtomicOp, and 4 for any other
    /// request.
    pub fn byte_count(&self) -> u16 {
        match &self.kind {
            Kind::Memory(MemoryRequest { operation: MemoryOperation::CompareAndSwap, .. }) => self.length * 2,
            Kind::Memory(MemoryRequest { operation, .. }) if operation.is_atomic() => self.length * 4,
            Kind::Memory(_) => u16::try_from(self.byte_length()).unwrap_or(u16::MAX).max(1),
            _ => 4,
        }
    }

    /// The Lower Address of the request's first completion, 0..128.
    pub const fn lower_address(&self) -> u8 {
        match &self.kind {
            Kind::Memory(request) if !request.operation.is_atomic() => {
                (request.address % LOWER_ADDRESSES).to_be_bytes()[7] + self.lead()
            }
            _ => 0,
        }
    }
}

/// Checks the rules for byte enables of a memory request, and the 4 KiB boundary.
#[inline]
pub(super) fn check_memory(header: &Header, request: &MemoryRequest) -> Result<(), TlpError> {
    let (length, address) = (header.length, request.address);
    if request.operation.is_atomic() {
        return check_atomic(request, length);
    }
    // A translation request's low address bits are reserved, and its length counts translations.
    let crosses = address % BOUNDARY + u64::from(length) * 4 > BOUNDARY;
    if crosses && header.traits.address_type() != AddressType::TranslationRequest {
        return Err(TlpError::Crosses4KiB { address, length });
    }
    let (first, last) = header.enables();
    if (first, last) == (ALL, ALL) && length > 1 {
        return Ok(());
    }
    check_enables(first, last, length, address)
}

fn check_enables(first: u8, last: u8, length: u16, address: u64) -> Result<(), TlpError> {
    // Holes are allowed in a single double word, and in two that make an aligned quad word.
    let holes = length == 1 || (length == 2 && address.is_multiple_of(8));
    let first_error = TlpError::FirstEnables { enables: first, length };
    let last_error = TlpError::LastEnables { enables: last, length };
    match (length, holes) {
        (1, _) if last != 0 => Err(last_error),
        (1, _) => Ok(()),
        (_, true) if first == 0 => Err(first_error),
        (_, true) if last == 0 => Err(last_error),
        (_, true) => Ok(()),
        (_, false) if !matches!(first, 0b1111 | 0b1110 | 0b1100 | 0b1000) => Err(first_error),
        (_, false) if !matches!(last, 0b1111 | 0b0111 | 0b0011 | 0b0001) => Err(last_error),
        (_, false) => Ok(()),
    }
}

fn check_atomic(request: &MemoryRequest, length: u16) -> Result<(), TlpError> {
    let operand = match (request.operation, length) {
        (MemoryOperation::FetchAdd | MemoryOperation::Swap, 1 | 2) => length * 4,
        (MemoryOperation::CompareAndSwap, 2 | 4 | 8) => length * 2,
        (operation, _) => return Err(TlpError::AtomicLength { operation, length }),
    };
    if request.address.is_multiple_of(u64::from(operand)) {
        Ok(())
    } else {
        Err(TlpError::AtomicAlignment { address: request.address, operand })
    }
}
