//! The controller properties and their fields, NVMe Base 2.0.

use nvme::wire::Bits;

/// Offset of Controller Capabilities (CAP), 8 bytes.
pub const CAPABILITIES: u32 = 0x00;
/// Offset of Version (VS), 4 bytes.
pub const VERSION: u32 = 0x08;
/// Offset of Controller Configuration (CC), 4 bytes.
pub const CONFIGURATION: u32 = 0x14;
/// Offset of Controller Status (CSTS), 4 bytes.
pub const STATUS: u32 = 0x1c;
/// Offset of NVM Subsystem Reset (NSSR), 4 bytes.
pub const SUBSYSTEM_RESET: u32 = 0x20;
/// Offset of Controller Ready Timeouts (CRTO).
pub const READY_TIMEOUTS: u32 = 0x68;

/// The version (VS) that this project's controllers report: 2.0.
pub const VERSION_2_0: u32 = 0x0002_0000;
/// The value of NSSR that causes a reset: "NVMe".
pub const RESET_SIGNATURE: u32 = 0x4e56_4d65;

/// CAP, low half: Maximum Queue Entries Supported (MQES), 0's based.
pub const QUEUE_ENTRIES_MAX: Bits = Bits::new(15, 0);
/// CAP, low half: Contiguous Queues Required (CQR).
pub const CONTIGUOUS_QUEUES: Bits = Bits::bit(16);
/// CAP, low half: Timeout (TO), in units of 500 ms.
pub const TIMEOUT: Bits = Bits::new(31, 24);
/// CAP, high half: NVM Subsystem Reset Supported (NSSRS).
pub const SUBSYSTEM_RESET_SUPPORTED: Bits = Bits::bit(4);
/// CAP, high half: Command Sets Supported (CSS): the NVM command set.
pub const NVM_COMMAND_SET: Bits = Bits::bit(5);
/// CAP, high half: Command Sets Supported (CSS): one or more I/O command sets, and the Identify
/// structures for them (IOCSS).
pub const IO_COMMAND_SETS: Bits = Bits::bit(11);
/// CAP, high half: Command Sets Supported (CSS): no I/O command set.
pub const NO_COMMAND_SET: Bits = Bits::bit(12);
/// CAP, high half: Controller Ready With Media Support (CRMS.CRWMS).
pub const READY_WITH_MEDIA: Bits = Bits::bit(27);

/// CC: Enable (EN).
pub const ENABLE: Bits = Bits::bit(0);
/// CC: I/O Command Set Selected (CSS).
pub const COMMAND_SET: Bits = Bits::new(6, 4);
/// CC.CSS: the NVM command set.
pub const SELECT_NVM: u32 = 0b000;
/// CC.CSS: all supported I/O command sets.
pub const SELECT_ALL: u32 = 0b110;
/// CC: Memory Page Size (MPS).
pub const PAGE_SIZE: Bits = Bits::new(10, 7);
/// CC: Arbitration Mechanism Selected (AMS).
pub const ARBITRATION: Bits = Bits::new(13, 11);
/// CC: Shutdown Notification (SHN).
pub const SHUTDOWN: Bits = Bits::new(15, 14);
/// CC: I/O Submission Queue Entry Size (IOSQES), as a power of two.
pub const SUBMISSION_ENTRY_SIZE: Bits = Bits::new(19, 16);
/// CC: I/O Completion Queue Entry Size (IOCQES), as a power of two.
pub const COMPLETION_ENTRY_SIZE: Bits = Bits::new(23, 20);

/// CSTS: Ready (RDY).
pub const READY: Bits = Bits::bit(0);
/// CSTS: Controller Fatal Status (CFS).
pub const FATAL: Bits = Bits::bit(1);
/// CSTS: Shutdown Status (SHST).
pub const SHUTDOWN_STATUS: Bits = Bits::new(3, 2);
/// CSTS: NVM Subsystem Reset Occurred (NSSRO).
pub const SUBSYSTEM_RESET_OCCURRED: Bits = Bits::bit(4);
/// SHST: shutdown processing is in progress.
pub const SHUTDOWN_OCCURRING: u32 = 1;
/// SHST: shutdown processing is complete.
pub const SHUTDOWN_COMPLETE: u32 = 2;
