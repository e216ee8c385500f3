//! Kinds of interrupts, and what to do with them.

use super::fields::{Emitter, Fields, ParseError};
use super::memory::{argsz, check_argsz};

/// `VFIO_USER_DEVICE_GET_IRQ_INFO`'s reply; its request has the same form, with zeros but for the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterruptInfo {
    /// The kind's number.
    pub index: u32,
    /// How many.
    pub count: u32,
    /// Whether they can be signalled by a descriptor.
    pub descriptors: bool,
    /// Whether they can be masked and unmasked by a message.
    pub maskable: bool,
    /// Whether one masks itself when it is triggered.
    pub masks_itself: bool,
    /// Whether all are set at once.
    pub all_at_once: bool,
}

impl InterruptInfo {
    /// Bytes of the payload.
    pub const LENGTH: usize = 16;
    const EVENTFD: u32 = 1;
    const MASKABLE: u32 = 1 << 1;
    const AUTOMASKED: u32 = 1 << 2;
    const NORESIZE: u32 = 1 << 3;

    /// Reads a payload; unknown flags are ignored.
    ///
    /// # Errors
    /// When it is too short, or says that less fits in a reply.
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

    /// The payload's bytes.
    pub fn emit(&self) -> [u8; Self::LENGTH] {
        let flags = [
            (self.descriptors, Self::EVENTFD),
            (self.maskable, Self::MASKABLE),
            (self.masks_itself, Self::AUTOMASKED),
            (self.all_at_once, Self::NORESIZE),
        ];
        let flags = flags.into_iter().filter(|(set, _)| *set).fold(0, |flags, (_, bit)| flags | bit);
        Emitter::new().u32(argsz(Self::LENGTH)).u32(flags).u32(self.index).u32(self.count).done()
    }
}

/// `VFIO_USER_DEVICE_SET_IRQS`'s payload; one byte for each vector follows where `bools` is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetInterrupts<'a> {
    /// The flags: one of [`SetInterrupts::NONE`], [`SetInterrupts::BOOLS`] and [`SetInterrupts::DESCRIPTORS`], and one
    /// of [`SetInterrupts::MASK`], [`SetInterrupts::UNMASK`] and [`SetInterrupts::TRIGGER`].
    pub flags: u32,
    /// The kind's number.
    pub index: u32,
    /// The first vector.
    pub start: u32,
    /// How many.
    pub count: u32,
    /// The bytes, 0 for false, one for each vector; none unless the flags say so.
    pub bools: &'a [u8],
}

/// Bytes of [`SetInterrupts`]' fixed part.
const SET_LENGTH: usize = 20;

impl<'a> SetInterrupts<'a> {
    /// Bytes of the payload's fixed part.
    pub const LENGTH: usize = SET_LENGTH;
    /// No data.
    pub const NONE: u32 = 1;
    /// A byte for each vector.
    pub const BOOLS: u32 = 1 << 1;
    /// A descriptor for each vector, or none at all.
    pub const DESCRIPTORS: u32 = 1 << 2;
    /// Mask.
    pub const MASK: u32 = 1 << 3;
    /// Unmask.
    pub const UNMASK: u32 = 1 << 4;
    /// Trigger.
    pub const TRIGGER: u32 = 1 << 5;
    const DATA: u32 = Self::NONE | Self::BOOLS | Self::DESCRIPTORS;
    const ACTION: u32 = Self::MASK | Self::UNMASK | Self::TRIGGER;

    /// What the flags say comes with it.
    pub const fn data(&self) -> u32 {
        self.flags & Self::DATA
    }
    /// What the flags say is to be done.
    pub const fn action(&self) -> u32 {
        self.flags & Self::ACTION
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// When it is not as long as it says, or its flags are not one of each group.
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

    /// The fixed part's bytes.
    pub fn emit(&self) -> [u8; SET_LENGTH] {
        let fixed = Emitter::new().u32(argsz(Self::LENGTH + self.bools.len())).u32(self.flags);
        fixed.u32(self.index).u32(self.start).u32(self.count).done()
    }
}
