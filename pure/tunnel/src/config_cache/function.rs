//! The known registers of one function, as the device's end has shown them and as software has
//! written them since.

use alloc::vec::Vec;

use pcie::config::{ClassCode, Field, express, header, power};
use pcie::wire::Bdf;

use super::steady::Steady;
use crate::frame::{Register, RegisterSpace, Registers};

/// Number of double words in CAP and VS, the properties of an NVMe controller that do not change.
const PROPERTIES: usize = 3;
const DWORD: u64 = 4;
/// Type bits of a BAR: I/O, and memory anywhere.
const BAR_IO: u32 = 0b1;
const BAR_TYPE: u32 = 0b110;
const BAR_WIDE: u32 = 0b100;
const BAR_FLAGS: u32 = 0b1111;

/// The effect that a configuration write may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Only the written register.
    Register,
    /// Possibly any register. Nothing is known until the write has completed.
    Anything,
    /// The function is reset or goes to sleep. Nothing is known until the device's end shows it
    /// again.
    Reset,
}

/// The known registers of one function.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) number: u8,
    /// Bus and device number that the last configuration write gave the function. Answers name this
    /// completer.
    pub(super) id: Bdf,
    configuration: Vec<Option<Register>>,
    steady: Steady,
    properties: [Option<u32>; PROPERTIES],
}

impl Function {
    pub(super) fn new(number: u8) -> Self {
        Self {
            number,
            id: Bdf::default(),
            configuration: Vec::new(),
            steady: Steady::default(),
            properties: [None; PROPERTIES],
        }
    }

    /// Forgets everything except the function's place.
    pub(super) fn forget(&mut self) {
        *self = Self { id: self.id, ..Self::new(self.number) };
    }

    /// Takes in registers that the device's end has shown.
    pub(super) fn show(&mut self, shown: Registers) {
        let first = usize::from(shown.offset / 4);
        match shown.space {
            RegisterSpace::Configuration => {
                if first == 0 {
                    self.forget();
                }
                let end = first + shown.registers.len();
                if self.configuration.len() < end {
                    self.configuration.resize(end, None);
                }
                for (place, register) in self.configuration[first..end].iter_mut().zip(shown.registers) {
                    *place = Some(register);
                }
                self.steady = Steady::of(&self.configuration);
            }
            RegisterSpace::Bar(0) => {
                for (place, register) in self.properties.iter_mut().skip(first).zip(shown.registers) {
                    *place = Some(register.value);
                }
            }
            RegisterSpace::Bar(_) => {}
        }
    }

    fn dword(&self, offset: u16) -> Option<u32> {
        (*self.configuration.get(usize::from(offset / 4))?).map(|register| register.value)
    }
    fn get(&self, field: Field) -> Option<u32> {
        self.dword(field.offset()).map(|dword| field.of(dword))
    }
    fn steady_bytes(&self, offset: u16) -> u8 {
        self.steady.bytes.get(usize::from(offset / 4)).copied().unwrap_or(0)
    }

    /// The double word at `offset`, if all of its bytes that `enables` selects are steady.
    pub(super) fn read(&self, offset: u16, enables: u8) -> Option<u32> {
        if enables & !self.steady_bytes(offset) != 0 {
            return None;
        }
        self.dword(offset)
    }

    /// The effect that a write of `value` to the double word at `offset` may have.
    pub(super) fn effect(&self, offset: u16, enables: u8, value: u32) -> Effect {
        let sleep = self.steady.power.is_some_and(|at| sets(power::STATE.at(at), offset, enables, value));
        let plain = self.steady.plain.get(usize::from(offset / 4)).copied().unwrap_or(0);
        if sleep || self.resets(offset, enables, value) {
            Effect::Reset
        } else if enables & !plain == 0 {
            Effect::Register
        } else {
            Effect::Anything
        }
    }

    /// Whether a write of `value` to the double word at `offset` is a Function Level Reset.
    pub(super) fn resets(&self, offset: u16, enables: u8, value: u32) -> bool {
        self.steady.express.is_some_and(|at| sets(express::INITIATE_RESET.at(at), offset, enables, value))
    }

    /// Takes in a write that has succeeded.
    pub(super) fn on_written(&mut self, offset: u16, enables: u8, value: u32) {
        if let Some(Some(register)) = self.configuration.get_mut(usize::from(offset / 4)) {
            let lanes: [u8; 4] = core::array::from_fn(|byte| if enables >> byte & 1 == 1 { 0xff } else { 0 });
            let written = register.writable & u32::from_le_bytes(lanes);
            register.value = register.value & !written | value & written;
        }
    }

    /// Forgets the double word at `offset`, since the result of a write is unknown.
    pub(super) fn doubt(&mut self, offset: u16) {
        if let Some(bytes) = self.steady.bytes.get_mut(usize::from(offset / 4)) {
            *bytes = 0;
        }
    }

    /// Whether the function decodes memory.
    fn decodes(&self) -> bool {
        let known = self.read(header::MEMORY_SPACE.offset(), header::MEMORY_SPACE.enables());
        known.is_some_and(|dword| header::MEMORY_SPACE.is_set(dword))
    }

    /// How many of the function's BARs have `address`, and its offset in BAR 0 if that is one of
    /// them. `None` if this is unknown.
    pub(super) fn find(&self, address: u64) -> Option<(usize, Option<u64>)> {
        if !self.decodes() {
            return Some((0, None));
        }
        let (mut found, mut offset, mut index) = (0, None, 0);
        while index < header::TYPE0_BARS {
            let at = header::BAR0 + u16::try_from(index * 4).unwrap_or(0);
            let register = |at: u16| {
                let known = self.steady_bytes(at) == 0b1111;
                (*self.configuration.get(usize::from(at / 4))?).filter(|_| known)
            };
            let low = register(at)?;
            let wide = low.value & (BAR_TYPE | BAR_IO) == BAR_WIDE && index + 1 < header::TYPE0_BARS;
            let high = if wide { register(at + 4)? } else { Register::default() };
            let whole = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
            let base = whole(low.value & !BAR_FLAGS, high.value);
            // A BAR without any writable bit does not exist.
            let mask = whole(low.writable & !BAR_FLAGS, if wide { high.writable } else { u32::MAX });
            let memory = low.value & BAR_IO == 0 && low.writable | high.writable != 0;
            if memory && address & mask == base {
                found += 1;
                offset = offset.or((index == 0).then(|| address - base));
            }
            index += if wide { 2 } else { 1 };
        }
        Some((found, offset))
    }

    /// The properties in `dwords` double words at `offset` of BAR 0, if all of them are known.
    pub(super) fn properties(&self, offset: u64, dwords: u16) -> Option<[u32; PROPERTIES]> {
        let nvme = self.get(header::CLASS).map(ClassCode) == Some(ClassCode::NVME);
        let first = usize::try_from(offset / DWORD).ok().filter(|_| nvme && offset.is_multiple_of(DWORD))?;
        let found = self.properties.get(first..first.checked_add(usize::from(dwords))?)?;
        let mut values = [0; PROPERTIES];
        for (value, found) in values.iter_mut().zip(found) {
            *value = (*found)?;
        }
        Some(values)
    }
}

/// Whether a write sets any bit of `field`.
const fn sets(field: Field, offset: u16, enables: u8, value: u32) -> bool {
    field.offset() == offset && field.enables() & enables != 0 && field.is_set(value)
}
