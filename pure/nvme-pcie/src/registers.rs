//! The controller properties in BAR0 (NVM Express Base 2.0, NVMe over PCIe Transport 1.0).

/// A bit field of a property.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    high: u32,
    low: u32,
}

impl Field {
    /// The field from bit `high` down to bit `low`, both included.
    pub const fn new(high: u32, low: u32) -> Self {
        Self { high, low }
    }
    const fn mask(self) -> u64 {
        u64::MAX >> (63 - (self.high - self.low))
    }
    /// The field's value in `word`.
    pub const fn of(self, word: u64) -> u64 {
        (word >> self.low) & self.mask()
    }
    /// A word with `value` in the field and zeroes elsewhere. Excess bits of `value` are dropped.
    pub const fn put(self, value: u64) -> u64 {
        (value & self.mask()) << self.low
    }
    /// `word` with `value` in the field. Excess bits of `value` are dropped.
    pub const fn replace(self, word: u64, value: u64) -> u64 {
        word & !(self.mask() << self.low) | self.put(value)
    }
}

/// Offsets of the properties, in bytes from the start of BAR0.
pub mod offset {
    /// Controller Capabilities (CAP), 8 bytes.
    pub const CAPABILITIES: u32 = 0x00;
    /// Version (VS).
    pub const VERSION: u32 = 0x08;
    /// Interrupt Mask Set (INTMS).
    pub const INTERRUPT_MASK_SET: u32 = 0x0c;
    /// Interrupt Mask Clear (INTMC).
    pub const INTERRUPT_MASK_CLEAR: u32 = 0x10;
    /// Controller Configuration (CC).
    pub const CONFIGURATION: u32 = 0x14;
    /// Controller Status (CSTS).
    pub const STATUS: u32 = 0x1c;
    /// NVM Subsystem Reset (NSSR), which is not supported and reads as zero.
    pub const SUBSYSTEM_RESET: u32 = 0x20;
    /// Admin Queue Attributes (AQA).
    pub const ADMIN_QUEUE_ATTRIBUTES: u32 = 0x24;
    /// Admin Submission Queue Base Address (ASQ), 8 bytes.
    pub const ADMIN_SUBMISSION_QUEUE: u32 = 0x28;
    /// Admin Completion Queue Base Address (ACQ), 8 bytes.
    pub const ADMIN_COMPLETION_QUEUE: u32 = 0x30;
    /// Controller Memory Buffer Location (CMBLOC).
    pub const MEMORY_BUFFER_LOCATION: u32 = 0x38;
    /// Controller Memory Buffer Size (CMBSZ).
    pub const MEMORY_BUFFER_SIZE: u32 = 0x3c;
    /// Controller Memory Buffer Memory Space Control (CMBMSC), 8 bytes.
    pub const MEMORY_BUFFER_CONTROL: u32 = 0x50;
    /// Controller Memory Buffer Status (CMBSTS).
    pub const MEMORY_BUFFER_STATUS: u32 = 0x58;
    /// Controller Ready Timeouts (CRTO).
    pub const READY_TIMEOUTS: u32 = 0x68;
    /// Submission Queue 0 Tail Doorbell (SQ0TDBL), the first doorbell.
    pub const DOORBELLS: u32 = 0x1000;
}

/// Length in bytes of a doorbell with a stride (CAP.DSTRD) of 0.
pub const DOORBELL_BYTES: u32 = 4;
/// Length of a submission queue entry in bytes.
pub const SUBMISSION_ENTRY_BYTES: u32 = 64;
/// Length of a completion queue entry in bytes.
pub const COMPLETION_ENTRY_BYTES: u32 = 16;
/// The version (VS) that the controller reports: 2.0.
pub const VERSION_2_0: u32 = 0x0002_0000;

/// Fields of Controller Capabilities (CAP).
pub mod capabilities {
    use super::Field;
    /// Maximum Queue Entries Supported (MQES), 0's based.
    pub const QUEUE_ENTRIES_MAX: Field = Field::new(15, 0);
    /// Contiguous Queues Required (CQR).
    pub const CONTIGUOUS_QUEUES_REQUIRED: Field = Field::new(16, 16);
    /// Arbitration Mechanism Supported (AMS): weighted round robin with urgent priority class.
    pub const WEIGHTED_ROUND_ROBIN: Field = Field::new(17, 17);
    /// Timeout (TO), in units of 500 ms.
    pub const TIMEOUT: Field = Field::new(31, 24);
    /// Doorbell Stride (DSTRD): 4 bytes times 2 to this power.
    pub const DOORBELL_STRIDE: Field = Field::new(35, 32);
    /// Command Sets Supported (CSS): the NVM Command Set.
    pub const NVM_COMMAND_SET: Field = Field::new(37, 37);
    /// Command Sets Supported (CSS): one or more I/O command sets, and the Identify structures for
    /// them (IOCSS).
    pub const IO_COMMAND_SETS: Field = Field::new(43, 43);
    /// Memory Page Size Minimum (MPSMIN): 4 KiB times 2 to this power.
    pub const PAGE_SIZE_MIN: Field = Field::new(51, 48);
    /// Memory Page Size Maximum (MPSMAX): 4 KiB times 2 to this power.
    pub const PAGE_SIZE_MAX: Field = Field::new(55, 52);
    /// Controller Memory Buffer Supported (CMBS).
    pub const MEMORY_BUFFER: Field = Field::new(57, 57);
    /// Controller Ready With Media Support (CRMS.CRWMS).
    pub const READY_WITH_MEDIA: Field = Field::new(59, 59);
}

/// Fields of Controller Configuration (CC), and values of these fields.
pub mod configuration {
    use super::Field;
    /// Enable (EN).
    pub const ENABLE: Field = Field::new(0, 0);
    /// I/O Command Set Selected (CSS).
    pub const COMMAND_SET: Field = Field::new(6, 4);
    /// Value of CSS for the NVM command set.
    pub const NVM_COMMAND_SET: u64 = 0b000;
    /// Value of CSS for all supported I/O command sets.
    pub const ALL_COMMAND_SETS: u64 = 0b110;
    /// Memory Page Size (MPS): 4 KiB times 2 to this power.
    pub const PAGE_SIZE: Field = Field::new(10, 7);
    /// Arbitration Mechanism Selected (AMS).
    pub const ARBITRATION: Field = Field::new(13, 11);
    /// Value of AMS for weighted round robin with urgent priority class; 0 is round robin.
    pub const WEIGHTED_ROUND_ROBIN: u64 = 1;
    /// Shutdown Notification (SHN).
    pub const SHUTDOWN: Field = Field::new(15, 14);
    /// I/O Submission Queue Entry Size (IOSQES): 2 to this power in bytes.
    pub const SUBMISSION_ENTRY_SIZE: Field = Field::new(19, 16);
    /// I/O Completion Queue Entry Size (IOCQES): 2 to this power in bytes.
    pub const COMPLETION_ENTRY_SIZE: Field = Field::new(23, 20);
    /// The writable bits of CC: EN, CSS, MPS, AMS, SHN, IOSQES and IOCQES.
    pub const WRITABLE: u32 = 0x00ff_fff1;
}

/// Fields of Controller Status (CSTS), and values of these fields.
pub mod status {
    use super::Field;
    /// Ready (RDY).
    pub const READY: Field = Field::new(0, 0);
    /// Controller Fatal Status (CFS).
    pub const FATAL: Field = Field::new(1, 1);
    /// Shutdown Status (SHST).
    pub const SHUTDOWN: Field = Field::new(3, 2);
    /// Value of SHST: shutdown processing is occurring.
    pub const SHUTDOWN_OCCURRING: u64 = 1;
    /// Value of SHST: shutdown processing is complete.
    pub const SHUTDOWN_COMPLETE: u64 = 2;
}

/// Fields of Controller Memory Buffer Location (CMBLOC).
pub mod memory_location {
    use super::Field;
    /// Base Indicator Register (BIR): the number of the buffer's BAR.
    pub const BAR: Field = Field::new(2, 0);
    /// Offset (OFST) of the buffer in its BAR, in the units of CMBSZ.
    pub const OFFSET: Field = Field::new(31, 12);
}

/// Fields of Controller Memory Buffer Size (CMBSZ).
pub mod memory_size {
    use super::Field;
    /// Submission Queue Support (SQS).
    pub const SUBMISSION_QUEUES: Field = Field::new(0, 0);
    /// Size Units (SZU): 4 KiB times 16 to this power.
    pub const UNITS: Field = Field::new(11, 8);
    /// Size (SZ) of the buffer, in the units that SZU selects.
    pub const SIZE: Field = Field::new(31, 12);
}

/// Fields of Controller Memory Buffer Memory Space Control (CMBMSC).
pub mod memory_control {
    use super::Field;
    /// Capabilities Registers Enabled (CRE): whether CMBLOC and CMBSZ describe the buffer.
    pub const REGISTERS_ENABLED: Field = Field::new(0, 0);
    /// Controller Memory Space Enable (CMSE): whether the controller's addresses include the
    /// buffer.
    pub const SPACE_ENABLED: Field = Field::new(1, 1);
    /// Controller Base Address (CBA) of the buffer, without its low 12 bits.
    pub const BASE: Field = Field::new(63, 12);
    /// The writable bits of the low half of CMBMSC.
    pub const WRITABLE: u32 = 0xffff_f003;
}

/// Fields of Admin Queue Attributes (AQA).
pub mod admin_queue_attributes {
    use super::Field;
    /// Admin Submission Queue Size (ASQS), 0's based number of entries.
    pub const SUBMISSION_ENTRIES: Field = Field::new(11, 0);
    /// Admin Completion Queue Size (ACQS), 0's based number of entries.
    pub const COMPLETION_ENTRIES: Field = Field::new(27, 16);
}

/// The low 32 bits of a 64-bit word.
pub(crate) const fn low_half(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// The low 16 bits of a 32-bit word.
pub(crate) const fn low_16(word: u32) -> u16 {
    let [a, b, ..] = word.to_le_bytes();
    u16::from_le_bytes([a, b])
}

/// The high 16 bits of a 32-bit word.
pub(crate) const fn high_16(word: u32) -> u16 {
    let [.., a, b] = word.to_le_bytes();
    u16::from_le_bytes([a, b])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_read_and_write_only_their_bits() {
        let field = Field::new(10, 7);
        assert_eq!(field.of(0x780), 15);
        assert_eq!(field.put(0x1f), 0x780);
        assert_eq!(field.replace(0xffff, 0), 0xf87f);
        assert_eq!(Field::new(63, 0).of(u64::MAX), u64::MAX);
    }
}
