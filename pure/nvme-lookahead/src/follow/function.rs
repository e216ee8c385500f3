//! The state of an NVMe function, learnt from passing configuration and register accesses.

use nvme::pointer::PageSize;
use pcie::config::ClassCode;
use pcie::wire::{Bdf, ConfigRequest};

use super::controller::Controller;
use super::layout::Layout;

/// Configuration space: Command, Class Code (with the revision), BAR 0 and 1, and where
/// capabilities begin.
pub(crate) const COMMAND: u16 = 0x04;
pub(crate) const CLASS: u16 = 0x08;
const BAR0: u16 = 0x10;
const BAR1: u16 = 0x14;
const CAPABILITIES: u16 = 0x40;
/// Memory Space Enable, Bus Master Enable.
const MEMORY_SPACE: u32 = 1 << 1;
pub(crate) const BUS_MASTER: u32 = 1 << 2;
/// Device Control: Initiate Function Level Reset. Where the host has not looked for Device Control,
/// the bit of any capability counts.
const FUNCTION_RESET: u32 = 1 << 15;
const LOW_HALF_HIGH_BYTE: u8 = 0b0010;
const BAR_FLAGS: u32 = 0xf;

/// Bytes of the properties that are examined.
const PROPERTIES: usize = 0x58;
const CONFIGURATION: usize = 0x14;
/// CSTS, with RDY as its lowest bit.
pub(crate) const STATUS: u64 = 0x1c;
const READY: u32 = 1;
/// CMBLOC, with the number of a base address register; the offset there in units of CMBSZ, which
/// follows; and CMBMSC, with the address that the host gives the buffer (CBA) if CMSE is set.
pub(crate) const BUFFER_LOCATION: u64 = 0x38;
const BUFFER_BAR: u32 = 7;
const BUFFER_OFFSET_SHIFT: u32 = 12;
const BUFFER_SPACE: usize = 0x50;
const BUFFER_ENABLED: u64 = 1 << 1;
const SUBSYSTEM_RESET: usize = 0x20;
const ADMIN_ATTRIBUTES: usize = 0x24;
const ADMIN_SUBMISSION: usize = 0x28;
const ADMIN_COMPLETION: usize = 0x30;
const DOORBELLS: u64 = 0x1000;
/// Bytes of a doorbell.
const DOORBELL: u64 = 4;
/// Offset in BAR 0 behind the doorbells. Two doorbells for each of 65,536 queues with the longest
/// stride would be beyond any BAR. Offsets that belong to no queue are excluded later.
const DOORBELLS_END: u64 = DOORBELLS + (1 << 20);
/// CC: Enable, the memory page size, and the sizes of entries.
const ENABLE: u32 = 1;
const PAGE_SIZE_SHIFT: u32 = 7;
const NIBBLE: u32 = 0xf;
const SUBMISSION_SIZE_SHIFT: u32 = 16;
const COMPLETION_SIZE_SHIFT: u32 = 20;
const SUBMISSION_SIZE: u32 = 6;
const COMPLETION_SIZE: u32 = 4;
/// AQA: sizes of the admin queues, 0's based.
const ADMIN_SIZE: u32 = 0xfff;
const ADMIN_COMPLETION_SHIFT: u32 = 16;
/// ASQ and ACQ: bits that are not part of the address.
const ADMIN_RESERVED: u64 = 0xfff;
/// CAP, upper half: Doorbell Stride (DSTRD).
pub(crate) const CAPABILITIES_HIGH: u64 = 4;

/// The meaning of a write to the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// No meaning for lookahead.
    Nothing,
    /// Memory sent ahead for the function is obsolete.
    Reset,
    /// A submission queue's doorbell, with the queue and the tail.
    Doorbell(u16, u32),
}

/// The known state of an NVMe function.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) id: Bdf,
    bar: u64,
    memory_space: bool,
    bus_master: bool,
    /// Bytes from doorbell to doorbell. A host that has not read CAP counts on the shortest.
    stride: u64,
    properties: [u8; PROPERTIES],
    /// The controller while it is enabled.
    pub(crate) controller: Option<Controller>,
    /// The controller that the host has disabled, until it reports that it has stopped.
    pub(crate) closing: Option<Controller>,
    /// How often everything that the host had named was forgotten.
    pub(crate) epoch: u32,
    pub(crate) layout: Layout,
    /// The base address register of the controller memory buffer, if known.
    buffer_bar: Option<usize>,
}

impl Function {
    pub(crate) fn new(id: Bdf) -> Self {
        Self {
            id,
            bar: 0,
            memory_space: false,
            bus_master: false,
            stride: DOORBELL,
            properties: [0; PROPERTIES],
            controller: None,
            closing: None,
            epoch: 0,
            layout: Layout::default(),
            buffer_bar: None,
        }
    }

    /// Whether a double word with the class code is that of an NVMe controller.
    pub(crate) fn is_nvme(class_and_revision: u32) -> bool {
        ClassCode::from_dword(class_and_revision) == ClassCode::NVME
    }
    /// Whether the function may read host memory at all.
    pub(crate) const fn may_read(&self) -> bool {
        self.bus_master
    }
    /// Offset of `address` in BAR 0, if it is among the properties or doorbells.
    pub(crate) fn offset_of(&self, address: u64) -> Option<u64> {
        let offset = address.checked_sub(self.bar)?;
        (self.memory_space && self.bar != 0 && offset < DOORBELLS_END).then_some(offset)
    }
    /// Records the upper half of CAP from a read.
    pub(crate) const fn on_capabilities(&mut self, high: u32) {
        let stride = DOORBELL << (high & NIBBLE);
        self.stride = stride;
        if let Some(controller) = &mut self.controller {
            controller.stride = stride;
        }
    }

    /// Handles a reset of the function from outside. The results of enumeration stay valid.
    pub(crate) fn reset(&mut self) {
        let (stride, epoch) = (self.stride, self.epoch.wrapping_add(1));
        let mut layout = core::mem::take(&mut self.layout);
        layout.reset();
        let buffer_bar = self.buffer_bar;
        *self = Self { stride, epoch, layout, buffer_bar, ..Self::new(self.id) };
    }

    /// Whether the controller was disabled and may not have stopped yet.
    pub(crate) const fn is_closing(&self) -> bool {
        self.closing.is_some()
    }
    /// Records CMBLOC from a read.
    pub(crate) const fn on_buffer_location(&mut self, value: u32) {
        // For a buffer at another offset, the addresses are those of the host, or unknown here.
        let is_first = value >> BUFFER_OFFSET_SHIFT == 0;
        self.buffer_bar = if is_first { Some((value & BUFFER_BAR) as usize) } else { None };
    }
    /// The address of a location in the controller's memory, as the controller knows it. The host
    /// may have configured another address for the buffer than that of its own accesses.
    pub(crate) fn in_memory_buffer(&self, address: u64) -> u64 {
        let space = self.quad(BUFFER_SPACE);
        let base = self.buffer_bar.and_then(|bar| self.layout.bar(bar));
        match base.and_then(|base| address.checked_sub(base)) {
            // The buffer is at the start of its base address register.
            Some(offset) if space & BUFFER_ENABLED != 0 => (space & !ADMIN_RESERVED).saturating_add(offset),
            _ => address,
        }
    }
    /// Records CSTS from a read.
    pub(crate) fn on_status(&mut self, status: u32) {
        if status & READY == 0 && self.closing.take().is_some() {
            self.epoch = self.epoch.wrapping_add(1);
        }
    }

    /// Handles a configuration write of `value`.
    pub(crate) fn on_config(&mut self, request: &ConfigRequest, value: u32) -> Seen {
        let whole = request.enables == 0xf;
        self.layout.on_config(request.offset, request.enables, value);
        match request.offset {
            COMMAND if request.enables & 1 != 0 => {
                self.memory_space = value & MEMORY_SPACE != 0;
                let bus_master = value & BUS_MASTER != 0;
                if bus_master == self.bus_master {
                    return Seen::Nothing;
                }
                self.bus_master = bus_master;
                return Seen::Reset;
            }
            BAR0 if whole => self.bar = self.bar >> 32 << 32 | u64::from(value & !BAR_FLAGS),
            BAR1 if whole => self.bar = u64::from(value) << 32 | self.bar & u64::from(u32::MAX),
            CAPABILITIES..
                if request.enables & LOW_HALF_HIGH_BYTE != 0
                    && value & FUNCTION_RESET != 0
                    && self.layout.device_control().is_none_or(|at| at == request.offset) =>
            {
                self.reset();
                return Seen::Reset;
            }
            _ => {}
        }
        Seen::Nothing
    }

    /// Handles a write of `bytes` to BAR 0.
    pub(crate) fn on_write(&mut self, offset: u64, bytes: &[u8]) -> Seen {
        if offset >= DOORBELLS {
            return self.on_doorbell(offset - DOORBELLS, bytes);
        }
        let start = usize::try_from(offset).unwrap_or(PROPERTIES).min(PROPERTIES);
        let end = (start + bytes.len()).min(PROPERTIES);
        let before = self.dword(CONFIGURATION);
        self.properties[start..end].copy_from_slice(&bytes[..end - start]);
        let after = self.dword(CONFIGURATION);
        let subsystem_reset = start < SUBSYSTEM_RESET + 4 && end > SUBSYSTEM_RESET;
        if subsystem_reset || before & ENABLE != after & ENABLE {
            self.closing = self.controller.take();
            if subsystem_reset {
                self.closing = None;
                self.epoch = self.epoch.wrapping_add(1);
                self.properties[CONFIGURATION] = 0;
            } else if after & ENABLE != 0 {
                self.enable(after);
            }
            return Seen::Reset;
        }
        Seen::Nothing
    }

    /// The completion queue that a doorbell write to BAR 0 concerns: that of a submission queue, or
    /// the completion queue itself.
    pub(crate) fn completion_queue(&self, offset: u64) -> Option<u16> {
        let (stride, controller) = (self.stride, self.controller.as_ref().filter(|known| !known.lost)?);
        let offset = offset.checked_sub(DOORBELLS).filter(|offset| offset.is_multiple_of(stride))?;
        let queue = u16::try_from(offset / stride / 2).ok()?;
        if (offset / stride).is_multiple_of(2) {
            controller.completion_of(queue)
        } else {
            controller.completion.iter().any(|known| known.id == queue).then_some(queue)
        }
    }

    fn dword(&self, at: usize) -> u32 {
        self.properties[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }
    fn quad(&self, at: usize) -> u64 {
        self.properties[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    fn enable(&mut self, configuration: u32) {
        let field = |shift| configuration >> shift & NIBBLE;
        let sizes = (field(SUBMISSION_SIZE_SHIFT), field(COMPLETION_SIZE_SHIFT));
        // Hosts may set the sizes of I/O entries later. No version so far has other sizes than
        // these.
        let usual = matches!(sizes, (0 | SUBMISSION_SIZE, 0 | COMPLETION_SIZE));
        let attributes = self.dword(ADMIN_ATTRIBUTES);
        // The lowest bits of the addresses are reserved.
        let base = |at| self.quad(at) & !ADMIN_RESERVED;
        let submission = (base(ADMIN_SUBMISSION), (attributes & ADMIN_SIZE) + 1);
        let completion = (base(ADMIN_COMPLETION), (attributes >> ADMIN_COMPLETION_SHIFT & ADMIN_SIZE) + 1);
        let page = PageSize::from_mps(u64::from(field(PAGE_SIZE_SHIFT)));
        self.closing = None;
        self.epoch = self.epoch.wrapping_add(1);
        let stride = self.stride;
        self.controller = usual.then(|| {
            let mut controller = Controller::new(page, submission, completion);
            controller.stride = stride;
            controller
        });
    }

    fn on_doorbell(&mut self, offset: u64, bytes: &[u8]) -> Seen {
        let Some(controller) = &mut self.controller else { return Seen::Nothing };
        // Other structures, such as the MSI-X table, may follow the doorbells.
        let stride = self.stride;
        if offset >= (u64::from(controller.last_queue()) + 1) * 2 * stride {
            return Seen::Nothing;
        }
        let Ok(value) = bytes.try_into().map(u32::from_le_bytes) else {
            // It is unknown which queue holds which entries.
            controller.lost = true;
            return Seen::Nothing;
        };
        let number = offset / stride;
        match u16::try_from(number / 2) {
            Ok(queue) if offset.is_multiple_of(stride) => {
                let value = value & u32::from(u16::MAX);
                if number.is_multiple_of(2) {
                    return Seen::Doorbell(queue, value);
                }
                controller.consume(queue, value);
                Seen::Nothing
            }
            _ => Seen::Nothing,
        }
    }
}
