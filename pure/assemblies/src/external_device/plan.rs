//! A host's view of a device, computed from the server's answers.
//!
//! The lengths of the regions give the sizes of the BARs. MSI-X, power management, PCI Express and
//! error reporting are the endpoint's own: they belong to the link, of which the server knows
//! nothing. The device's other capabilities are shown at their own offsets, or are moved where one
//! of the endpoint's capabilities is in their place.

use alloc::vec::Vec;
use core::fmt;

use pcie::config::{
    Bar, BarIndex, BarKind, ClassCode, Identity, Link, capability, express, header, msix, offset, power,
};
use pcie::endpoint::{EndpointConfig, MsixLayout};

/// Maximum number of vectors that a host is offered: each takes a descriptor of this process and
/// one of the server's.
pub const VECTORS_MAX: u16 = 256;
/// Bytes of the configuration space that a server must have: the header.
pub(super) const HEADER: usize = 0x40;
/// Where the extended configuration space begins and the space of standard capabilities ends.
const STANDARD: u16 = 0x100;
/// Maximum number of capabilities of a list that are looked at: as many as have room.
const CAPABILITIES_MAX: usize = 48;
const BARS: usize = header::TYPE0_BARS;
/// The smallest memory BAR, and the largest BARs of 32 and of 64 bits, in bytes.
const BAR_MIN: u64 = 16;
const BAR32_MAX: u64 = 1 << 31;
const BAR64_MAX: u64 = 1 << 62;

/// Capability IDs that are not shown, because the endpoint provides them, or because their promises
/// can't be kept.
mod hidden {
    /// Enhanced Allocation: BARs that cannot be moved.
    pub(super) const ENHANCED_ALLOCATION: u8 = 0x14;
    /// Advanced Features: function-level reset, which the endpoint itself offers.
    pub(super) const ADVANCED_FEATURES: u8 = 0x13;
}
/// Vendor-Specific: the third byte of the capability is its length.
const VENDOR_SPECIFIC: u8 = 0x09;

/// A server's description of a device.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// The configuration space as far as it exists, at least [`HEADER`] bytes.
    pub(super) config: Vec<u8>,
    /// Lengths of the BARs' regions in bytes.
    pub(super) regions: [u64; BARS],
    /// Number of MSI-X vectors that the device signals.
    pub(super) vectors: u32,
    /// Whether the device can be reset.
    pub(super) resettable: bool,
}

/// Why a device cannot be offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// The device is no PCI function.
    NotPci,
    /// The device's configuration space has no header.
    NoConfiguration,
    /// The device's configuration space names no vendor.
    NoVendor,
    /// The device is a bridge.
    Bridge,
    /// A question that every server must answer was answered with this error.
    Refused(&'static str, vfio_user::Errno),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPci => f.write_str("it is no PCI function"),
            Self::NoConfiguration => f.write_str("it has no configuration space"),
            Self::NoVendor => f.write_str("its configuration space names no vendor"),
            Self::Bridge => f.write_str("it is a bridge, not an endpoint"),
            Self::Refused(what, error) => write!(f, "{what} was answered with {error}"),
        }
    }
}

/// Something of a device that a host does not get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// A BAR of I/O ports, or of a size that no BAR has. Holds the BAR's index.
    Bar(u8),
    /// MSI-X vectors: the number that the device has, and the number that a host gets.
    Vectors(u32, u32),
    /// Interrupts of a device that has MSI only: the link carries MSI-X.
    Msi,
    /// A capability for which there is no room. Holds its Capability ID.
    Capability(u8),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bar(index) => write!(f, "BAR{index}, which is no memory that can be placed"),
            Self::Vectors(there, shown) => write!(f, "MSI-X vectors {shown} to {}", there.saturating_sub(1)),
            Self::Msi => f.write_str("interrupts: the device has MSI and no MSI-X"),
            Self::Capability(id) => write!(f, "capability {id:#04x}, for which there is no room"),
        }
    }
}

/// A capability of the device that a host sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) id: u8,
    /// Where the host sees the capability.
    pub(super) here: u16,
    /// Where the device has the capability.
    pub(super) there: u16,
    /// Length in bytes, a multiple of 4.
    pub(super) length: u16,
}

/// A host's view of a device, and the places of its parts in the device.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) endpoint: EndpointConfig,
    /// Lengths of the regions behind the BARs in bytes, 0 for none. A BAR may be larger than its
    /// region.
    pub(super) regions: [u64; BARS],
    pub(super) shown: Vec<Shown>,
    /// Where the device has its MSI-X capability, if MSI-X is offered.
    pub(super) msix: Option<u16>,
    pub(super) missing: Vec<Missing>,
    pub(super) resettable: bool,
}

impl Plan {
    pub(super) fn new(facts: &Facts) -> Result<Self, Unusable> {
        let identity = identity(facts)?;
        let mut missing = Vec::new();
        let mut bars = bars(facts, &mut missing);
        let list = capabilities(facts);
        let at = |id: u8| list.iter().find(|(_, found)| *found == id).map(|(at, _)| *at);
        let found = at(capability::MSIX);
        let layout = found.and_then(|at| msix_layout(facts, at, &mut bars, &mut missing));
        if layout.is_none() && at(capability::MSI).is_some() {
            missing.push(Missing::Msi);
        }
        let shown = show(facts, &list, layout.is_some(), &mut missing);
        let endpoint = EndpointConfig {
            identity,
            link: Link { speed: 4, width: 4, port: 0, payload_max: 4096 },
            serial_number: serial_number(facts),
            bars,
            msix: layout,
        };
        let regions = core::array::from_fn(|index| bars[index].map_or(0, |_| facts.regions[index]));
        let msix = layout.and(found);
        Ok(Self { endpoint, regions, shown, msix, missing, resettable: facts.resettable })
    }

    /// For an `offset` in a shown capability: where the device has that double word, and whether it
    /// is the capability's first.
    pub(super) fn place(&self, offset: u16) -> Option<(u16, bool)> {
        let inside = |shown: &&Shown| (shown.here..shown.here + shown.length).contains(&offset);
        let shown = self.shown.iter().find(inside)?;
        Some((shown.there + (offset - shown.here), offset == shown.here))
    }

    pub(super) fn vectors(&self) -> u16 {
        self.endpoint.msix.map_or(0, |layout| layout.vectors)
    }
}

impl Facts {
    fn byte(&self, at: u16) -> u8 {
        self.config.get(usize::from(at)).copied().unwrap_or(0)
    }
    fn half(&self, at: u16) -> u16 {
        u16::from_le_bytes([self.byte(at), self.byte(at + 1)])
    }
    /// The double word at `at`, a multiple of 4 below 4096; zero where there is none.
    fn dword(&self, at: u16) -> u32 {
        u32::from_le_bytes([self.byte(at), self.byte(at + 1), self.byte(at + 2), self.byte(at + 3)])
    }
    fn field(&self, field: pcie::config::Field) -> u32 {
        field.of(self.dword(field.offset()))
    }
}

fn identity(facts: &Facts) -> Result<Identity, Unusable> {
    if facts.config.len() < HEADER {
        return Err(Unusable::NoConfiguration);
    }
    let vendor = facts.half(0);
    if vendor == u16::MAX || vendor == 0 {
        return Err(Unusable::NoVendor);
    }
    if facts.field(header::LAYOUT) != 0 {
        return Err(Unusable::Bridge);
    }
    Ok(Identity {
        vendor,
        device: facts.half(2),
        revision: facts.byte(header::REVISION.offset()),
        class: ClassCode(facts.field(header::CLASS)),
        subsystem_vendor: facts.half(header::SUBSYSTEM_VENDOR.offset()),
        subsystem: facts.half(header::SUBSYSTEM.offset() + 2),
    })
}

/// The memory BARs, each with its length rounded up to a power of two.
fn bars(facts: &Facts, missing: &mut Vec<Missing>) -> [Option<Bar>; BARS] {
    let mut bars = [None; BARS];
    let mut index = 0;
    while index < BARS {
        let number = u8::try_from(index).unwrap_or(0);
        let (register, length) = (facts.dword(header::BAR0 + u16::from(number) * 4), facts.regions[index]);
        let wide = register & 0b111 == 0b100 && index + 1 < BARS;
        let (kind, most) = if wide { (BarKind::Memory64, BAR64_MAX) } else { (BarKind::Memory32, BAR32_MAX) };
        let ports = register & 1 != 0;
        if length > 0 && (ports || length > most) {
            missing.push(Missing::Bar(number));
        } else if length > 0 {
            let size = length.next_power_of_two().max(BAR_MIN);
            bars[index] = Some(Bar { kind, prefetchable: register & 0b1000 != 0, size });
        }
        index += if wide { 2 } else { 1 };
    }
    bars
}

/// The capabilities as far as their list makes sense: the offset and the ID of each.
fn capabilities(facts: &Facts) -> Vec<(u16, u8)> {
    let mut list = Vec::new();
    if facts.field(header::CAPABILITIES_LIST) == 0 {
        return list;
    }
    let mut at = u16::from(facts.byte(header::CAPABILITIES.offset())) & !0b11;
    let fits = |at: u16| usize::from(at) >= HEADER && usize::from(at) + 4 <= facts.config.len();
    while fits(at) && list.len() < CAPABILITIES_MAX && !list.iter().any(|(seen, _)| *seen == at) {
        list.push((at, facts.byte(at)));
        at = u16::from(facts.byte(at + 1)) & !0b11;
    }
    list
}

/// The places of the MSI-X table and the pending bits as the device has them. Pending bits in
/// another BAR, outside of the BAR, or within the table move to the table's BAR, which is doubled
/// in size to hold them. The device's own table and bits are never used: the endpoint answers for
/// both.
fn msix_layout(
    facts: &Facts,
    at: u16,
    bars: &mut [Option<Bar>; BARS],
    missing: &mut Vec<Missing>,
) -> Option<MsixLayout> {
    let field = |field: pcie::config::Field| facts.field(field.at(at));
    let there = (field(msix::TABLE_SIZE) + 1).min(facts.vectors);
    let vectors = u16::try_from(there).unwrap_or(u16::MAX).min(VECTORS_MAX);
    if vectors == 0 {
        return None;
    }
    let place = |bar: u32, offset: u32| (usize::try_from(bar).unwrap_or(BARS), offset * 8);
    let (table_bar, table_offset) = place(field(msix::TABLE_BAR), field(msix::TABLE_OFFSET));
    let (pending_bar, pending_offset) = place(field(msix::PENDING_BAR), field(msix::PENDING_OFFSET));
    let bar = bars.get_mut(table_bar)?.as_mut()?;
    let table_end = u64::from(table_offset) + u64::from(vectors) * u64::from(msix::ENTRY_SIZE);
    let pending = u64::from(pending_offset)..u64::from(pending_offset) + u64::from(vectors).div_ceil(64) * 8;
    if table_end > bar.size {
        return None;
    }
    if u32::from(vectors) < there {
        missing.push(Missing::Vectors(there, vectors.into()));
    }
    let apart = pending.end <= u64::from(table_offset) || pending.start >= table_end;
    let pending_offset = if pending_bar == table_bar && pending.end <= bar.size && apart {
        pending_offset
    } else {
        let offset = u32::try_from(bar.size).ok().filter(|_| bar.size < BAR32_MAX)?;
        bar.size *= 2;
        offset
    };
    let bar = BarIndex::new(u8::try_from(table_bar).ok()?);
    Some(MsixLayout { bar, vectors, table_offset, pending_offset })
}

/// Places the device's own capabilities.
fn show(facts: &Facts, list: &[(u16, u8)], has_msix: bool, missing: &mut Vec<Missing>) -> Vec<Shown> {
    let msix_size = if has_msix { msix::SIZE } else { 0 };
    let mut taken: Vec<(u16, u16)> =
        [(offset::POWER, power::SIZE), (offset::EXPRESS, express::SIZE), (offset::MSIX, msix_size)].into();
    let mut shown: Vec<Shown> = Vec::new();
    for &(there, id) in list {
        let own = [
            capability::POWER_MANAGEMENT,
            capability::MSI,
            capability::EXPRESS,
            capability::MSIX,
            hidden::ENHANCED_ALLOCATION,
            hidden::ADVANCED_FEATURES,
        ];
        if own.contains(&id) {
            continue;
        }
        let next = list.iter().map(|(at, _)| *at).filter(|at| *at > there).min().unwrap_or(STANDARD);
        let said = if id == VENDOR_SPECIFIC { u16::from(facts.byte(there + 2)) } else { next - there };
        let length = said.clamp(4, next - there).next_multiple_of(4);
        let free = |at: &u16| {
            at + length <= STANDARD
                && taken.iter().all(|(start, size)| at + length <= *start || *at >= start + size)
        };
        let first = u16::try_from(HEADER).unwrap_or(STANDARD);
        let places = core::iter::once(there).chain((first..STANDARD).step_by(4));
        match places.into_iter().find(free) {
            Some(here) => {
                taken.push((here, length));
                shown.push(Shown { id, here, there, length });
            }
            None => missing.push(Missing::Capability(id)),
        }
    }
    shown
}

/// The Device Serial Number, 0 where there is none.
fn serial_number(facts: &Facts) -> u64 {
    use pcie::config::serial_number::{HIGH, LOW};
    let mut at = STANDARD;
    for _ in 0..CAPABILITIES_MAX {
        let entry = facts.dword(at);
        if capability::EXTENDED_ID.of(entry) == u32::from(capability::SERIAL_NUMBER) {
            return u64::from(facts.field(HIGH.at(at))) << 32 | u64::from(facts.field(LOW.at(at)));
        }
        match u16::try_from(capability::EXTENDED_NEXT.of(entry)) {
            Ok(next) if next > at => at = next & !0b11,
            _ => break,
        }
    }
    0
}
