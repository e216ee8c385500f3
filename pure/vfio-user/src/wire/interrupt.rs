//! Kinds of interrupts, and operations on interrupts.

use super::fields::{Emitter, Fields, ParseError, flags};
use super::memory::{argsz, check_argsz};

/// The reply to `VFIO_USER_DEVICE_GET_IRQ_INFO`. The request has the same form, with zeros except
/// for the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterruptInfo {
    /// Number of the kind.
    pub index: u32,
    /// How many interrupts of the kind there are.
    pub count: u32,
    /// Whether descriptors can signal the interrupts.
    pub descriptors: bool,
    /// Whether messages can mask and unmask the interrupts.
    pub maskable: bool,
    /// Whether an interrupt masks itself when it is triggered.
    pub masks_itself: bool,
    /// Whether all interrupts of the kind are set up at once.
    pub all_at_once: bool,
}

impl InterruptInfo {
    /// Length of the payload in bytes.
    pub const LENGTH: usize = 16;
    const EVENTFD: u32 = 1;
    const MASKABLE: u32 = 1 << 1;
    const AUTOMASKED: u32 = 1 << 2;
    const NORESIZE: u32 = 1 << 3;

    /// Decodes a payload. Unknown flags are ignored.
    ///
    /// # Errors
    /// When `bytes` or its field argsz is too short for this structure.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut fields = Fields::new(bytes, Self::LENGTH)?;
        let (argsz, flags, index, count) = (fields.u32(), fields.u32(), fields.u32(), fields.u32());
        check_argsz(argsz, Self::LENGTH)?;
        let is = |bit| flags & bit != 0;
        Ok(Self {
            index,
            count,
            descriptors: is(Self::EVENTFD),
            maskable: is(Self::MASKABLE),
            masks_itself: is(Self::AUTOMASKED),
            all_at_once: is(Self::NORESIZE),
        })
    }

    /// Encodes the payload.
    pub fn emit(&self) -> [u8; Self::LENGTH] {
        let flags = flags([
            (self.descriptors, Self::EVENTFD),
            (self.maskable, Self::MASKABLE),
            (self.masks_itself, Self::AUTOMASKED),
            (self.all_at_once, Self::NORESIZE),
        ]);
        Emitter::new().u32(argsz(Self::LENGTH)).u32(flags).u32(self.index).u32(self.count).done()
    }
}

/// The payload of `VFIO_USER_DEVICE_SET_IRQS`. With the flag [`SetInterrupts::BOOLS`], a byte for
/// each vector follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetInterrupts<'a> {
    /// The flags: one of [`SetInterrupts::NONE`], [`SetInterrupts::BOOLS`] and
    /// [`SetInterrupts::DESCRIPTORS`], and one of [`SetInterrupts::MASK`],
    /// [`SetInterrupts::UNMASK`] and [`SetInterrupts::TRIGGER`].
    pub flags: u32,
    /// Number of the kind.
    pub index: u32,
    /// Number of the first vector.
    pub start: u32,
    /// How many vectors are concerned.
    pub count: u32,
    /// A byte for each vector, 0 for false; empty unless the flags have [`SetInterrupts::BOOLS`].
    pub bools: &'a [u8],
}

/// Length of the fixed part of [`SetInterrupts`], in bytes.
const SET_LENGTH: usize = 20;

impl<'a> SetInterrupts<'a> {
    /// Length of the payload's fixed part in bytes.
    pub const LENGTH: usize = SET_LENGTH;
    /// Flag: the operation has no data.
    pub const NONE: u32 = 1;
    /// Flag: the data are a byte for each vector.
    pub const BOOLS: u32 = 1 << 1;
    /// Flag: the data are a descriptor for each vector, or no descriptor.
    pub const DESCRIPTORS: u32 = 1 << 2;
    /// Flag: mask the interrupts.
    pub const MASK: u32 = 1 << 3;
    /// Flag: unmask the interrupts.
    pub const UNMASK: u32 = 1 << 4;
    /// Flag: trigger the interrupts.
    pub const TRIGGER: u32 = 1 << 5;
    const DATA: u32 = Self::NONE | Self::BOOLS | Self::DESCRIPTORS;
    const ACTION: u32 = Self::MASK | Self::UNMASK | Self::TRIGGER;

    /// The flag for the kind of data.
    pub const fn data(&self) -> u32 {
        self.flags & Self::DATA
    }
    /// The flag for the action.
    pub const fn action(&self) -> u32 {
        self.flags & Self::ACTION
    }

    /// Decodes a payload.
    ///
    /// # Errors
    /// When the length of `bytes` is wrong, or when the flags are not one of each group.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let mut fields = Fields::new(bytes, Self::LENGTH)?;
        let argsz = fields.u32();
        let (flags, index, start, count) = (fields.u32(), fields.u32(), fields.u32(), fields.u32());
        let set = Self { flags, index, start, count, bools: fields.rest() };
        let one_of_each = set.data().is_power_of_two() && set.action().is_power_of_two();
        if !one_of_each || flags & !(Self::DATA | Self::ACTION) != 0 {
            return Err(ParseError::value("flags", flags.into()));
        }
        check_argsz(argsz, Self::LENGTH)?;
        if set.data() == Self::BOOLS {
            ParseError::exact(count.into(), set.bools.len() as u64)?;
            return Ok(set);
        }
        ParseError::exact(Self::LENGTH as u64, bytes.len() as u64)?;
        Ok(set)
    }

    /// Encodes the fixed part.
    pub fn emit(&self) -> [u8; SET_LENGTH] {
        let fixed = Emitter::new().u32(argsz(Self::LENGTH + self.bools.len())).u32(self.flags);
        fixed.u32(self.index).u32(self.start).u32(self.count).done()
    }
}
