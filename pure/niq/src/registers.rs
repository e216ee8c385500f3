//! The registers in BAR0: little-endian double words by their offsets in bytes.

/// Reads as [`ID_VALUE`].
pub const ID: u32 = 0x000;
/// The value of [`ID`]: "NIQ1".
pub const ID_VALUE: u32 = u32::from_le_bytes(*b"NIQ1");
/// Number of queues (bits 7:0), number of slots of a queue (bits 31:16).
pub const CAPABILITIES: u32 = 0x004;
/// The host's settings of the card: [`PROMISCUOUS`], [`RESET`].
pub const CONTROL: u32 = 0x008;
/// [`CONTROL`] bit: packets that no filter accepts go to queue 0.
pub const PROMISCUOUS: u32 = 1 << 0;
/// [`CONTROL`] bit, which reads as 0: everything is as after power-up, but for the link.
pub const RESET: u32 = 1 << 31;
/// How the card is: [`LINK_UP`].
pub const STATUS: u32 = 0x00c;
/// [`STATUS`] bit: the link is up.
pub const LINK_UP: u32 = 1 << 0;
/// How often the link went up or down since power-up.
pub const LINK_CHANGES: u32 = 0x010;
/// The first 4 bytes of the card's address.
pub const ADDRESS: u32 = 0x018;

/// The first filter. Each has two registers: the first 4 bytes of the destination address; then the
/// other 2 bytes (bits 15:0), the queue (bits 23:16), and whether the filter is in use (bit 31).
pub const FILTER: u32 = 0x100;
/// Number of filters.
pub const FILTERS: usize = 16;

/// The first of the counters of [`Counts`](crate::Counts), each of 8 bytes.
pub const COUNTS: u32 = 0x200;

/// Registers of the first queue; those of the next are [`QUEUE_STRIDE`] further.
pub const QUEUE: u32 = 0x400;
/// Distance between the registers of two queues in bytes.
pub const QUEUE_STRIDE: u32 = 0x40;

/// Registers of a queue, as offsets from its first.
pub mod queue {
    /// The host's settings of the queue. A write with [`ENABLE`] starts the queue anew: its lines
    /// are cleared and all its counts are 0. A write without stops it.
    pub const CONTROL: u32 = 0x00;
    /// [`CONTROL`] bit: the queue runs.
    pub const ENABLE: u32 = 1 << 0;
    /// [`CONTROL`] bit: the credit line is also written to host memory.
    pub const PUSH: u32 = 1 << 1;
    /// [`CONTROL`] field: how many first bytes of a packet by DMA are in the line and not in the
    /// buffer; at most 44.
    pub const HEAD_SHIFT: u32 = 8;
    /// State (bits 7:0: 0 stopped, 1 running, 2 stopped by a fault), and which fault (bits 15:8).
    pub const STATUS: u32 = 0x04;
    /// Number of slots that the card has taken, modulo 2^32.
    pub const TAKEN: u32 = 0x08;
    /// Reads as 0. A write of any value wakes a card whose credit line announces that it sleeps.
    pub const WAKE: u32 = 0x0c;
    /// Host address of the credit line, 8 bytes.
    pub const CREDIT_ADDRESS: u32 = 0x10;
    /// Host address of the receive buffers, 8 bytes.
    pub const BUFFERS_ADDRESS: u32 = 0x18;
    /// Number of receive buffers (bits 15:0) and the length of each in units of 64 bytes (bits
    /// 31:16).
    pub const BUFFERS: u32 = 0x20;
    /// Number of registers that a host may write, from [`CONTROL`] on.
    pub(crate) const COUNT: usize = 9;
}

/// The table of MSI-X, with a vector for each queue.
pub const MSIX_TABLE: u32 = 0x800;
/// The pending bits of MSI-X.
pub const MSIX_PENDING: u32 = 0xc00;

/// Length of the registers in bytes.
pub const LENGTH: u32 = 0x1000;

/// The low double word of `value`.
pub(crate) const fn low(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
