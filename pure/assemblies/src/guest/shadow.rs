//! The configuration space as the guest sees it.
//!
//! The far function keeps the registers that the slot's root complex has set: addresses, payload
//! sizes, and Bus Master Enable while the guest wants it. The guest's writes to such registers are
//! kept here and read back from here. Registers that change at the far end (status, error logs,
//! registers unknown here) are read and written there.

use alloc::vec::Vec;

use pcie::config::{
    CONFIG_SPACE_SIZE, EXTENDED_START, Field, aer, capability, express, header, msix, power, serial_number,
};
use pcie::root_complex::{Capability, CapabilityId, Function, Space};

/// Double words of a configuration space.
pub(super) const DWORDS: usize = CONFIG_SPACE_SIZE as usize / 4;
/// Extended capabilities that a guest must not see, because they need more than one function or
/// more than the tunnel's TLPs: Single Root I/O Virtualization, Address Translation Services, Page
/// Request, PASID, Resizable BAR, ARI.
const HIDDEN_EXTENDED: [u16; 6] = [0x0010, 0x000f, 0x0013, 0x001b, 0x0015, 0x000e];

/// One double word of the configuration space.
#[derive(Clone, Copy, Debug)]
struct Register {
    /// The guest's value of the bits of `near`.
    value: u32,
    /// `value` after a reset.
    initial: u32,
    /// Bits that are kept here.
    near: u32,
    /// Bits that are kept here and that the guest may change.
    writable: u32,
    /// Bits that the guest writes at the far end.
    through: u32,
    /// The value that a write at the far end puts into the bits outside of `through`.
    fixed: u32,
}

impl Register {
    const fn constant(value: u32) -> Self {
        Self { value, initial: value, near: u32::MAX, writable: 0, through: 0, fixed: value }
    }
    const fn live() -> Self {
        Self { value: 0, initial: 0, near: 0, writable: 0, through: u32::MAX, fixed: 0 }
    }
}

/// The consequences of a write by the guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Effect {
    /// Byte enables and value of a configuration write to the same double word at the far end.
    pub(super) forward: Option<(u8, u32)>,
    /// The function is to be reset: by Initiate Function Level Reset, or by the way back from
    /// D3hot.
    pub(super) reset: bool,
    /// The function may reach the guest's memory from now on, or no longer.
    pub(super) bus_master_changed: bool,
    /// MSI-X was enabled or disabled.
    pub(super) msix_changed: bool,
}

/// The configuration space of one function as the guest sees it.
#[derive(Debug)]
pub(super) struct Shadow {
    registers: Vec<Register>,
    express: Option<u16>,
    power: Option<u16>,
    msix: Option<u16>,
    resettable: bool,
}

impl Shadow {
    /// The guest's view of `function`, whose configuration space has the double words `space`.
    pub(super) fn new(function: &Function, space: &[u32]) -> Self {
        let mut registers: Vec<_> = space.iter().copied().map(Register::constant).collect();
        registers.resize(DWORDS, Register::constant(0));
        let of = |id| function.capability(CapabilityId::Standard(id));
        let mut shadow = Self {
            registers,
            express: of(capability::EXPRESS),
            power: of(capability::POWER_MANAGEMENT),
            msix: of(capability::MSIX),
            resettable: function.express.is_some_and(|express| express.function_level_reset),
        };
        shadow.unknown_is_live(function);
        shadow.define_header();
        shadow.define_bars(function);
        shadow.define_capabilities(function);
        shadow
    }

    fn at(&mut self, offset: u16) -> Option<&mut Register> {
        self.registers.get_mut(usize::from(offset / 4))
    }
    fn near(&mut self, field: Field, writable: bool) {
        if let Some(register) = self.at(field.offset()) {
            register.near |= field.mask();
            register.through &= !field.mask();
            if writable {
                register.writable |= field.mask();
                register.initial &= !field.mask();
                register.value &= !field.mask();
            }
        }
    }
    fn through(&mut self, field: Field) {
        if let Some(register) = self.at(field.offset()) {
            register.through |= field.mask();
        }
    }
    fn far(&mut self, field: Field) {
        if let Some(register) = self.at(field.offset()) {
            register.near &= !field.mask();
            register.fixed &= !field.mask();
        }
    }
    fn set(&mut self, field: Field, value: u32) {
        if let Some(register) = self.at(field.offset()) {
            register.value = field.with(register.value, value);
            register.initial = field.with(register.initial, value);
        }
    }
    fn get(&self, field: Field) -> u32 {
        self.registers.get(usize::from(field.offset() / 4)).map_or(0, |register| field.of(register.value))
    }

    /// Has everything in a capability asked of the function, until a later definition says
    /// otherwise.
    fn unknown_is_live(&mut self, function: &Function) {
        for found in &function.capabilities {
            let end = self.end_of(function, found.offset);
            let end = size_of(found.id).map_or(end, |size| end.min(found.offset + size));
            // The capability headers, which form the lists, do not change.
            for offset in (found.offset + 4..end).step_by(4) {
                if let Some(register) = self.at(offset) {
                    let value = register.value;
                    *register = Register { value, initial: value, ..Register::live() };
                }
            }
        }
    }

    fn define_header(&mut self) {
        self.far(header::STATUS_ERRORS);
        self.far(header::MASTER_DATA_PARITY);
        self.through(header::STATUS_ERRORS);
        self.through(header::MASTER_DATA_PARITY);
        for field in header::WRITABLE {
            self.near(field, true);
        }
        // The guest's Bus Master Enable reaches the function by way of `Effect`. Memory Space stays
        // enabled at the function: the function has the slot's addresses, and clients that never
        // enable memory use it all the same. Only this one function of the device is offered, and
        // it has no interrupt pin.
        self.set(header::MULTI_FUNCTION, 0);
        self.set(header::INTERRUPT_PIN, 0);
        // Expansion ROMs are not offered.
        self.set(Field::dword(0x30), 0);
    }

    fn define_bars(&mut self, function: &Function) {
        let last = header::TYPE0_BARS;
        for index in 0..u8::try_from(last).unwrap_or(0) {
            let register = Field::dword(header::BAR0 + u16::from(index) * 4);
            let owner = function.bars.iter().find(|bar| {
                bar.address.is_some()
                    && (bar.index == index || (bar.space == Space::Memory64 && bar.index + 1 == index))
            });
            let Some(bar) = owner else {
                self.set(register, 0);
                continue;
            };
            let [low, high] = halves(!(bar.size - 1));
            let (mask, kind) = match bar.index == index {
                true => (low, kind_of(bar.space, bar.prefetchable)),
                false => (high, 0),
            };
            if let Some(register) = self.at(register.offset()) {
                *register = Register { writable: mask, ..Register::constant(kind) };
            }
        }
    }

    fn define_capabilities(&mut self, function: &Function) {
        if let Some(at) = self.express {
            self.define_express(at);
        }
        if let Some(at) = self.power {
            // The function stays in D0. The guest's D3hot is emulated here.
            if let Some(register) = self.at(at + power::SIZE - 4) {
                let kept = power::NO_SOFT_RESET.of(register.initial);
                *register = Register::constant(power::NO_SOFT_RESET.with(0, kept));
            }
            self.near(power::STATE.at(at), true);
        }
        if let Some(at) = self.msix {
            for offset in (0..msix::SIZE).step_by(4) {
                if let Some(register) = self.at(at + offset) {
                    *register = Register::constant(register.initial);
                }
            }
            self.near(msix::ENABLE.at(at), true);
            self.near(msix::FUNCTION_MASK.at(at), true);
        }
        for found in &function.capabilities {
            match found.id {
                // Message Signaled Interrupts would need addresses of the guest.
                CapabilityId::Standard(capability::MSI) => self.unlink(function, found),
                CapabilityId::Extended(id) if HIDDEN_EXTENDED.contains(&id) => {
                    // The Null Capability: the list goes on behind it.
                    self.set(capability::EXTENDED_ID.at(found.offset), 0);
                    self.set(capability::EXTENDED_VERSION.at(found.offset), 0);
                    self.blank_extended(function, found.offset);
                }
                CapabilityId::Extended(capability::SERIAL_NUMBER) => {
                    for field in [serial_number::LOW, serial_number::HIGH] {
                        self.constant(field.at(found.offset));
                    }
                }
                _ => {}
            }
        }
    }

    fn constant(&mut self, field: Field) {
        if let Some(register) = self.at(field.offset()) {
            *register = Register::constant(register.initial);
        }
    }

    fn define_express(&mut self, at: u16) {
        for field in [
            express::VERSION,
            express::PAYLOAD_SUPPORTED,
            express::LINK_SPEED_MAX,
            express::HOT_PLUG_CAPABLE,
            express::TIMEOUT_RANGES,
            express::LINK_SPEEDS,
        ] {
            self.constant(field.at(at));
        }
        // Control in the lower half, status in the upper half.
        for (first, writable) in [
            (express::PAYLOAD_SIZE, Field::new(0x08, 14, 0)),
            (express::LINK_SPEED, Field::new(0x10, 11, 0)),
            (express::TIMEOUT_VALUE, Field::new(0x28, 15, 0)),
            (express::TARGET_SPEED, Field::new(0x30, 15, 0)),
        ] {
            let (control, status) = (Field::new(first.offset(), 15, 0), Field::new(first.offset(), 31, 16));
            let initial = self.at(at + first.offset()).map_or(0, |register| register.initial);
            self.near(control.at(at), false);
            self.near(writable.at(at), true);
            self.set(control.at(at), default_control(first, control.of(initial)));
            if let Some(register) = self.at(at + first.offset()) {
                // The root complex's setting stays when another field of the register is written.
                register.fixed = control.of(initial);
                register.through = 0;
            }
            self.far(status.at(at));
        }
        self.through(express::ERRORS_DETECTED.at(at));
    }

    /// Removes a capability from the list.
    fn unlink(&mut self, function: &Function, hidden: &Capability) {
        let next = self.get(capability::NEXT.at(hidden.offset));
        if self.get(header::CAPABILITIES) == u32::from(hidden.offset) {
            self.set(header::CAPABILITIES, next);
        }
        for other in &function.capabilities {
            let pointer = capability::NEXT.at(other.offset);
            let standard = matches!(other.id, CapabilityId::Standard(_));
            if standard && self.get(pointer) == u32::from(hidden.offset) {
                self.set(pointer, next);
            }
        }
        let end = self.end_of(function, hidden.offset);
        for offset in (hidden.offset..end).step_by(4) {
            if let Some(register) = self.at(offset) {
                *register = Register::constant(0);
            }
        }
    }

    fn blank_extended(&mut self, function: &Function, start: u16) {
        for offset in (start + 4..self.end_of(function, start)).step_by(4) {
            if let Some(register) = self.at(offset) {
                *register = Register::constant(0);
            }
        }
    }

    /// Where the next capability behind `start` begins, or else where the list's space ends.
    fn end_of(&self, function: &Function, start: u16) -> u16 {
        let space = if start < EXTENDED_START { EXTENDED_START } else { CONFIG_SPACE_SIZE };
        let later = function.capabilities.iter().map(|found| found.offset).filter(|offset| *offset > start);
        later.min().unwrap_or(space).min(space)
    }

    /// The guest's value of the double word `index`; `None` where the function must be asked.
    pub(super) fn read(&self, index: usize) -> Option<u32> {
        let register = self.registers.get(index)?;
        (register.near == u32::MAX).then_some(register.value)
    }

    /// The guest's value of the double word `index` when the function has answered `live`, or with
    /// an error (`None`). The answer is remembered.
    pub(super) fn merge(&mut self, index: usize, live: Option<u32>) -> u32 {
        let Some(register) = self.registers.get_mut(index) else { return u32::MAX };
        let kept = register.value & register.near;
        match live {
            None => kept | !register.near,
            Some(live) => {
                register.value = (live & !register.near) | kept;
                register.value
            }
        }
    }

    /// The guest's value of the double word `index` when the function does not answer: the last
    /// known value.
    pub(super) fn recall(&self, index: usize) -> u32 {
        self.registers.get(index).map_or(u32::MAX, |register| register.value)
    }

    /// The guest writes the bytes of `value` that `enables` names to the double word `index`.
    pub(super) fn write(&mut self, index: usize, enables: u8, value: u32) -> Effect {
        let asleep = self.is_asleep();
        let before = (self.msix_enabled(), self.bus_master());
        let Some(register) = self.registers.get_mut(index) else { return Effect::default() };
        let lanes = lanes(enables);
        let changed = register.writable & lanes;
        register.value = (register.value & !changed) | (value & changed);
        let through = register.through & lanes;
        let forward = (through != 0).then(|| {
            let enables = enables & enables_of(register.through);
            (enables, (value & through) | (register.fixed & !register.through))
        });
        let mut effect = Effect { forward, ..Effect::default() };
        if let Some(at) = self.express {
            let reset = express::INITIATE_RESET.at(at);
            let here = usize::from(reset.offset() / 4) == index && lanes & reset.mask() != 0;
            effect.reset = here && self.resettable && reset.is_set(value);
        }
        // D1 and D2 are not supported: writing either changes nothing.
        if let Some(at) = self.power
            && ![power::D0, power::D3_HOT].contains(&self.get(power::STATE.at(at)))
        {
            let state = if asleep { power::D3_HOT } else { power::D0 };
            self.put(power::STATE.at(at), state);
        }
        if asleep && !self.is_asleep() {
            effect.reset |= self.power.is_some_and(|at| self.get(power::NO_SOFT_RESET.at(at)) == 0);
        }
        effect.msix_changed = before.0 != self.msix_enabled();
        effect.bus_master_changed = before.1 != self.bus_master();
        if effect.reset {
            // A reset writes all registers anew.
            (effect.forward, effect.bus_master_changed) = (None, false);
        }
        effect
    }

    fn put(&mut self, field: Field, value: u32) {
        if let Some(register) = self.at(field.offset()) {
            register.value = field.with(register.value, value);
        }
    }

    /// Restores the values that registers have after a reset.
    pub(super) fn reset(&mut self) {
        for register in &mut self.registers {
            register.value = register.initial;
        }
    }

    /// Whether the guest lets the function reach its memory.
    pub(super) fn bus_master(&self) -> bool {
        self.get(header::BUS_MASTER) != 0 && !self.is_asleep()
    }
    /// Whether the guest has put the function into D3hot.
    pub(super) fn is_asleep(&self) -> bool {
        self.power.is_some_and(|at| self.get(power::STATE.at(at)) == power::D3_HOT)
    }
    /// Whether MSI-X is enabled, and the function as a whole is not masked.
    pub(super) fn msix_passes(&self) -> bool {
        self.msix_enabled() && self.msix.is_some_and(|at| self.get(msix::FUNCTION_MASK.at(at)) == 0)
    }
    /// Whether the guest has enabled MSI-X.
    pub(super) fn msix_enabled(&self) -> bool {
        self.msix.is_some_and(|at| self.get(msix::ENABLE.at(at)) != 0)
    }
}

/// The value of a control register after a reset, without the changes of enumeration.
fn default_control(register: Field, found: u32) -> u32 {
    match register.offset() {
        0x08 => {
            // Max_Payload_Size 128 B, Max_Read_Request_Size 512 B, Relaxed Ordering and No Snoop
            // allowed.
            let value = express::READ_REQUEST_SIZE.with(0, 0b010);
            let value = express::EXTENDED_TAG.with(value, express::EXTENDED_TAG.of(found));
            express::NO_SNOOP.with(express::RELAXED_ORDERING.with(value, 1), 1)
        }
        0x30 => found,
        _ => 0,
    }
}

/// Length of a capability in bytes, where it is known. Registers behind that length are not asked
/// for.
const fn size_of(id: CapabilityId) -> Option<u16> {
    match id {
        CapabilityId::Standard(capability::POWER_MANAGEMENT) => Some(power::SIZE),
        CapabilityId::Standard(capability::EXPRESS) => Some(express::SIZE),
        CapabilityId::Standard(capability::MSIX) => Some(msix::SIZE),
        CapabilityId::Extended(capability::ADVANCED_ERROR_REPORTING) => Some(aer::SIZE),
        CapabilityId::Extended(capability::SERIAL_NUMBER) => Some(serial_number::SIZE),
        _ => None,
    }
}

fn kind_of(space: Space, prefetchable: bool) -> u32 {
    let kind = match space {
        Space::Io => 0b1,
        Space::Memory32 => 0,
        Space::Memory64 => 0b100,
    };
    kind | u32::from(prefetchable) << 3
}

/// The low and the high double word of `number`.
pub(super) fn halves(number: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = number.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}

/// The bits of the bytes that `enables` names.
fn lanes(enables: u8) -> u32 {
    u32::from_le_bytes(core::array::from_fn(|byte| if enables >> byte & 1 == 1 { 0xff } else { 0 }))
}

/// The byte enables of the bytes that have any of `bits`.
fn enables_of(bits: u32) -> u8 {
    bits.to_le_bytes().iter().rev().fold(0, |enables, byte| enables << 1 | u8::from(*byte != 0))
}
