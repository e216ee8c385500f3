//! The host's accesses to memory behind the BARs.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::msix::MsixRegion;
use super::{BAR_READS_MAX, BARS, BarToken, Endpoint, Output};
use crate::config::{BarIndex, FunctionError};
use crate::wire::{AddressType, Header, Kind, MemoryOperation, Packet};

/// Byte enables of a whole double word.
const ALL_ENABLED: u8 = 0b1111;
/// Maximum length in double words of a request whose enables may have holes.
const HOLES_DWORDS_MAX: u16 = 2;

impl Endpoint {
    /// The BAR that decodes the whole request, and the offset of the first double word in the BAR.
    #[inline]
    fn decode(&self, header: &Header, address: u64) -> Option<(BarIndex, u64)> {
        let last = address.checked_add(u64::from(header.length) * 4 - 1)?;
        for (index, window) in (0..).zip(&self.windows[..BARS]) {
            if window.contains(address) {
                return window.contains(last).then(|| (BarIndex::new(index), address - window.base));
            }
        }
        None
    }

    /// Handles a memory request. Returns the place of a write that is itself the next output; see
    /// [`Endpoint::receive`].
    pub(super) fn on_memory(&mut self, packet: &Packet) -> Option<(BarIndex, u64)> {
        let header = &packet.header;
        let Kind::Memory(request) = &header.kind else { return None };
        let place = self.decode(header, request.address);
        let untranslated = header.traits.address_type() != AddressType::TranslationRequest;
        let Some((bar, offset)) = place.filter(|_| untranslated) else {
            self.refuse(header, FunctionError::UnsupportedRequest);
            return None;
        };
        match request.operation {
            MemoryOperation::Write if header.traits.is_poisoned() => self.on_poisoned(header),
            MemoryOperation::Write => return self.on_write(bar, offset, packet),
            MemoryOperation::Read => self.on_read(bar, offset, header),
            // Only legacy endpoints support locked reads, and this endpoint completes no AtomicOps.
            _ => self.refuse(header, FunctionError::UnsupportedRequest),
        }
        None
    }

    fn on_read(&mut self, bar: BarIndex, offset: u64, header: &Header) {
        let length = header.byte_length();
        if length == 0 {
            // A flush: all earlier writes have been handed over already.
            let zero = self.zero.clone();
            return self.complete(header, &zero);
        }
        if let Some(table) = &self.msix
            && table.region(bar, offset).is_some()
        {
            let mut bytes = self.pool.take(usize::from(header.length) * 4);
            for (index, bytes) in (0..).zip(bytes.chunks_exact_mut(4)) {
                bytes.copy_from_slice(&table.read(offset + index * 4).to_le_bytes());
            }
            let bytes = self.pool.seal(bytes);
            return self.complete(header, &bytes);
        }
        let Some(token) = self.reads.put(header) else {
            return self.refuse(header, FunctionError::CompleterAbort);
        };
        let offset = offset + u64::from(header.lead());
        self.push(Output::BarRead { token, bar, offset, length });
    }

    fn on_write(&mut self, bar: BarIndex, offset: u64, packet: &Packet) -> Option<(BarIndex, u64)> {
        let region = self.msix.as_ref().and_then(|table| table.region(bar, offset));
        match region {
            Some(MsixRegion::Table) => self.on_table_write(offset, packet),
            Some(MsixRegion::Pending) => {}
            None => {
                let header = &packet.header;
                let last = header.enables_of(header.length.saturating_sub(1));
                if header.enables_of(0) & last != ALL_ENABLED {
                    self.on_partial_write(bar, offset, packet);
                } else if self.outputs.is_empty() && !self.requester.has_outputs() {
                    return Some((bar, offset));
                } else {
                    self.push(Output::BarWrite { bar, offset, data: packet.payload.clone() });
                }
            }
        }
        None
    }

    /// Handles a write whose first or last double word is not enabled as a whole.
    fn on_partial_write(&mut self, bar: BarIndex, offset: u64, packet: &Packet) {
        let header = &packet.header;
        if header.length > HOLES_DWORDS_MAX {
            let offset = offset + u64::from(header.lead());
            return self.push(Output::BarWrite { bar, offset, data: packet.data() });
        }
        let enabled = header.enables_of(0) | header.enables_of(1) << 4;
        let mut byte = 0;
        while byte < 8 {
            let run = (enabled >> byte).trailing_ones();
            if run == 0 {
                byte += 1;
                continue;
            }
            let (start, end) = (byte as usize, (byte + run) as usize);
            let (data, offset) = (packet.payload.slice(start..end), offset + u64::from(byte));
            self.push(Output::BarWrite { bar, offset, data });
            byte += run;
        }
    }

    fn on_table_write(&mut self, offset: u64, packet: &Packet) {
        let dwords = packet.payload.chunks_exact(4).take(usize::from(packet.header.length));
        for (index, bytes) in (0..).zip(dwords) {
            let Some(table) = &mut self.msix else { return };
            let value = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            let enables = packet.header.enables_of(index);
            let vector = table.write(offset + u64::from(index) * 4, value, enables);
            if let Some(vector) = vector.filter(|_| self.msix_open && self.bus_master)
                && let Some((address, data)) = table.take_pending(vector)
            {
                self.requester.write(address, &data);
            }
        }
    }
}

/// BAR reads that wait for the device.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct BarReads {
    slots: Vec<Slot>,
    free: Vec<u16>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Slot {
    /// Counts the uses of the slot, so that a token from before a reset is invalid.
    generation: u16,
    request: Option<Header>,
}

impl BarReads {
    /// Keeps the request; `None` if there is no room.
    fn put(&mut self, request: &Header) -> Option<BarToken> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < BAR_READS_MAX => {
                self.slots.push(Slot { generation: 0, request: None });
                u16::try_from(self.slots.len() - 1).ok()?
            }
            None => return None,
        };
        let slot = &mut self.slots[usize::from(index)];
        slot.generation = slot.generation.wrapping_add(1);
        slot.request = Some(*request);
        Some(BarToken(u32::from(slot.generation) << 16 | u32::from(index)))
    }

    pub(super) fn take(&mut self, token: BarToken) -> Option<Header> {
        let [high, low, index_high, index_low] = token.0.to_be_bytes();
        let index = u16::from_be_bytes([index_high, index_low]);
        let slot = self.slots.get_mut(usize::from(index))?;
        if slot.generation != u16::from_be_bytes([high, low]) {
            return None;
        }
        let request = slot.request.take()?;
        self.free.push(index);
        Some(request)
    }

    /// Forgets every waiting read.
    pub(super) fn clear(&mut self) {
        for (index, slot) in (0..).zip(&mut self.slots) {
            if slot.request.take().is_some() {
                self.free.push(index);
            }
        }
    }
}
