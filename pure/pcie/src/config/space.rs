//! The registers of a function and their access rules.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{CONFIG_SPACE_SIZE, Field, capability, express, header, offset, power};

/// The response of a bit to software, and to a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// RO, HwInit: writes are ignored.
    ReadOnly,
    /// RW: every reset restores the initial value.
    ReadWrite,
    /// RW that belongs to the link: a hot reset restores the initial value. A function level reset
    /// and a change from D3hot to D0 do not.
    ReadWriteOfLink,
    /// RWS: only a cold reset restores the initial value.
    ReadWriteSticky,
    /// RW1C: writing 1 clears the bit; every reset restores the initial value.
    WriteOneToClear,
    /// RW1CS: writing 1 clears the bit; only a cold reset restores the initial value.
    WriteOneToClearSticky,
    /// RO, set by hardware (presence, link state), so that no reset changes the bit.
    State,
}

/// Kind of reset that a function goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reset {
    /// Hot reset: by the Secondary Bus Reset of the bridge above, or because the link went down.
    Hot,
    /// Function Level Reset (FLR).
    FunctionLevel,
    /// Change from D3hot to D0 in a function without No_Soft_Reset.
    PowerState,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Register {
    value: u32,
    /// The value after a reset.
    initial: u32,
    writable: u32,
    clearable: u32,
    /// Bits that no reset changes.
    sticky: u32,
    /// Bits that only a hot reset changes.
    of_link: u32,
}

/// The configuration space of one function. Registers that were not built read as zero.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConfigSpace {
    registers: Vec<Register>,
}

/// Decodes Max_Payload_Size or Max_Read_Request_Size into bytes, 128..=4096. The two reserved
/// encodings mean 4096.
pub const fn payload_bytes(encoded: u32) -> u32 {
    128 << (if encoded > 5 { 5 } else { encoded })
}

impl ConfigSpace {
    pub(super) fn new() -> Self {
        Self { registers: Vec::new() }
    }

    /// Gives `field` its access rule and its value after a reset.
    pub(super) fn define(&mut self, field: Field, access: Access, value: u32) {
        let index = usize::from(field.offset() / 4);
        assert!(field.offset() < CONFIG_SPACE_SIZE, "a configuration space is 4 KiB");
        if index >= self.registers.len() {
            self.registers.resize(index + 1, Register::default());
        }
        let register = &mut self.registers[index];
        let mask = field.mask();
        register.initial = field.with(register.initial, value);
        register.value = register.initial;
        for bits in
            [&mut register.writable, &mut register.clearable, &mut register.sticky, &mut register.of_link]
        {
            *bits &= !mask;
        }
        match access {
            Access::ReadOnly => {}
            Access::ReadWrite => register.writable |= mask,
            Access::ReadWriteOfLink => {
                register.writable |= mask;
                register.of_link |= mask;
            }
            Access::ReadWriteSticky => {
                register.writable |= mask;
                register.sticky |= mask;
            }
            Access::WriteOneToClear => register.clearable |= mask,
            Access::WriteOneToClearSticky => {
                register.clearable |= mask;
                register.sticky |= mask;
            }
            Access::State => register.sticky |= mask,
        }
    }

    /// Appends a capability to the end of the list.
    pub(crate) fn append_capability(&mut self, at: u16, id: u8) {
        let mut last = header::CAPABILITIES;
        // The list is built by this crate and ends; the bound only makes this evident.
        for _ in 0..CONFIG_SPACE_SIZE / 4 {
            match u16::try_from(self.get(last)) {
                Ok(next) if next != 0 => last = capability::NEXT.at(next),
                _ => break,
            }
        }
        self.define(last, Access::ReadOnly, u32::from(at));
        self.define(capability::ID.at(at), Access::ReadOnly, u32::from(id));
        self.define(header::CAPABILITIES_LIST, Access::ReadOnly, 1);
    }

    fn register(&self, offset: u16) -> Register {
        self.registers.get(usize::from(offset / 4)).copied().unwrap_or_default()
    }

    /// The double word at byte `offset` (0..4096), as software reads it. The two low bits of
    /// `offset` are ignored.
    pub fn read(&self, offset: u16) -> u32 {
        self.register(offset).value
    }

    /// Value of each double word, and the bits of it that software can set and clear, from offset 0
    /// up to the last double word that was built.
    pub fn registers(&self) -> impl Iterator<Item = (u32, u32)> {
        self.registers.iter().map(|register| (register.value, register.writable))
    }

    /// A write by software to the double word at byte `offset`. `enables` selects the bytes of
    /// `value`.
    pub fn write(&mut self, offset: u16, value: u32, enables: u8) {
        let power_before = self.get(power::STATE.at(offset::POWER));
        let Some(register) = self.registers.get_mut(usize::from(offset / 4)) else { return };
        let lanes: [u8; 4] = core::array::from_fn(|byte| if enables >> byte & 1 == 1 { 0xff } else { 0 });
        let lanes = u32::from_le_bytes(lanes);
        let written = register.writable & lanes;
        register.value = (register.value & !written) | (value & written);
        register.value &= !(value & register.clearable & lanes);
        // D1 and D2 are not supported: a write of either completes and changes nothing.
        let power_after = self.get(power::STATE.at(offset::POWER));
        if power_after != power::D0 && power_after != power::D3_HOT {
            self.set(power::STATE.at(offset::POWER), power_before);
        }
    }

    /// The value of `field`.
    pub fn get(&self, field: Field) -> u32 {
        field.of(self.read(field.offset()))
    }

    /// Whether any bit of `field` is set.
    pub fn is_set(&self, field: Field) -> bool {
        field.is_set(self.read(field.offset()))
    }

    /// Sets `field` as the function itself, regardless of the access that software has. A field
    /// that was not built stays zero.
    pub fn set(&mut self, field: Field, value: u32) {
        if let Some(register) = self.registers.get_mut(usize::from(field.offset() / 4)) {
            register.value = field.with(register.value, value);
        }
    }

    /// Whether software can change any bit of `field`.
    pub fn is_writable(&self, field: Field) -> bool {
        let register = self.register(field.offset());
        field.is_set(register.writable | register.clearable)
    }

    /// Resets every register.
    pub fn reset(&mut self, reset: Reset) {
        for register in &mut self.registers {
            let kept = match reset {
                Reset::Hot => register.sticky,
                Reset::FunctionLevel | Reset::PowerState => register.sticky | register.of_link,
            };
            register.value = (register.value & kept) | (register.initial & !kept);
        }
    }

    /// Max_Payload_Size in bytes: 128..=4096.
    pub fn payload_size(&self) -> u32 {
        let supported = self.get(express::PAYLOAD_SUPPORTED.at(offset::EXPRESS));
        payload_bytes(self.get(express::PAYLOAD_SIZE.at(offset::EXPRESS)).min(supported))
    }

    /// Max_Read_Request_Size in bytes: 128..=4096.
    pub fn read_request_size(&self) -> u32 {
        payload_bytes(self.get(express::READ_REQUEST_SIZE.at(offset::EXPRESS)))
    }

    /// Read Completion Boundary in bytes: 64 or 128.
    pub fn read_completion_boundary(&self) -> u32 {
        if self.is_set(express::READ_COMPLETION_BOUNDARY.at(offset::EXPRESS)) { 128 } else { 64 }
    }

    /// Whether Memory Space Enable is set and the function is in D0.
    pub fn memory_enabled(&self) -> bool {
        self.is_set(header::MEMORY_SPACE) && self.in_d0()
    }

    /// Whether Bus Master Enable is set and the function is in D0.
    pub fn bus_master(&self) -> bool {
        self.is_set(header::BUS_MASTER) && self.in_d0()
    }

    /// Whether the function is in power state D0.
    pub fn in_d0(&self) -> bool {
        self.get(power::STATE.at(offset::POWER)) == power::D0
    }
}
