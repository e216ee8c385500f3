//! The purposes of the requests that the server has yet to answer.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use engine::{Buffer, Pool};
use pcie::endpoint::BarToken;
use pcie::wire::{ConfigType, Header, Kind, Packet};
use vfio_user::client::RequestId;

/// A configuration request to the device itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConfigRequest {
    header: Header,
    offset: u16,
    enables: u8,
    write: bool,
}

impl ConfigRequest {
    /// The packet as a configuration request, if it is well-formed and addressed to the device.
    pub(super) fn of(packet: &Packet) -> Option<Self> {
        let Kind::Config(request) = &packet.header.kind else { return None };
        let here = request.routing == ConfigType::Type0 && request.target.function() == 0;
        let (offset, enables, write) = (request.offset, request.enables, request.write);
        (here && !packet.header.traits.is_poisoned()).then_some(Self {
            header: packet.header,
            offset,
            enables,
            write,
        })
    }
    pub(super) const fn header(&self) -> &Header {
        &self.header
    }
    /// Byte offset of the double word.
    pub(super) const fn config_offset(&self) -> u16 {
        self.offset
    }
    pub(super) const fn enables(&self) -> u8 {
        self.enables
    }
    pub(super) const fn is_write(&self) -> bool {
        self.write
    }
}

/// The purpose of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// An answer to the setup's question.
    Setup,
    /// A read of a BAR: `asked` bytes of the `length` that a host wants.
    Bar { token: BarToken, asked: u32, length: u32 },
    /// A read of a capability's double word. If `kept`, it is the capability's first double word,
    /// whose lower half is kept here.
    Register { request: ConfigRequest, kept: bool },
    /// The last of the writes to a capability's double word.
    RegisterWrite { request: ConfigRequest },
    /// A reset.
    Reset,
    /// Descriptors, given or taken back.
    Interrupts,
}

/// Requests under way. The client's limit on requests under way bounds their number.
#[derive(Debug, Default)]
pub(super) struct Requests {
    under_way: VecDeque<(RequestId, Purpose)>,
}

impl Requests {
    pub(super) fn put(&mut self, request: RequestId, purpose: Purpose) {
        self.under_way.push_back((request, purpose));
    }
    /// Takes the purpose of `request`. Servers mostly answer in order, so it is one of the first.
    pub(super) fn take(&mut self, request: RequestId) -> Option<Purpose> {
        let at = self.under_way.iter().position(|(name, _)| *name == request)?;
        self.under_way.remove(at).map(|(_, purpose)| purpose)
    }
    /// Forgets accesses to registers and BARs: their answers are no longer awaited.
    pub(super) fn forget_registers(&mut self) {
        let is_register = |purpose: &Purpose| {
            matches!(purpose, Purpose::Register { .. } | Purpose::RegisterWrite { .. } | Purpose::Bar { .. })
        };
        self.under_way.retain(|(_, purpose)| !is_register(purpose));
    }
    pub(super) fn clear(&mut self) {
        self.under_way.clear();
    }
}

/// The runs of enabled bytes in a double word; there are at most two.
pub(super) fn runs(enables: u8) -> Vec<Range<usize>> {
    let is_enabled = |byte: usize| enables >> byte & 1 == 1;
    let mut runs: Vec<Range<usize>> = Vec::new();
    for byte in (0..4).filter(|byte| is_enabled(*byte)) {
        match runs.last_mut() {
            Some(run) if run.end == byte => run.end += 1,
            _ => runs.push(byte..byte + 1),
        }
    }
    runs
}

/// `data`, padded to `length` bytes with all ones, which stand for addresses that no function
/// decodes.
pub(super) fn padded(pool: &mut Pool, data: Buffer, length: u32) -> Buffer {
    let length = usize::try_from(length).expect("a TLP's length");
    if data.len() == length {
        return data;
    }
    let mut bytes = pool.take(length);
    bytes.fill(u8::MAX);
    bytes[..data.len()].copy_from_slice(&data);
    pool.seal(bytes)
}
