//! Where each register lies, in bytes from the start of the block.

/// "FLRB", read as a number of 32 bits: 0x4252_4c46.
pub const IDENTITY: u32 = 0x000;
/// Version of the layout: 1.
pub const VERSION: u32 = 0x004;
/// The capabilities: [`CAN_WRITE`], [`CAN_READ`], [`CAN_TRIGGER`], [`CAN_ADDRESS`].
pub const CAPABILITIES: u32 = 0x008;
/// Size of the medium in bytes, 64 bits; 0 when it is not known.
pub const MEDIA_BYTES: u32 = 0x010;
/// Bytes in a chunk, 32 bits.
pub const CHUNK_BYTES: u32 = 0x018;
/// Chunks in the stream buffer, 32 bits.
pub const CHUNKS: u32 = 0x01c;
/// Model of the medium: [`MODEL_BYTES`] bytes of ASCII, padded with spaces.
pub const MODEL: u32 = 0x020;
/// Length of the model.
pub const MODEL_BYTES: u32 = 40;
/// Registers of recording, laid out as those at [`READING`].
pub const WRITING: u32 = 0x100;
/// Registers of replay.
pub const READING: u32 = 0x200;
/// Length of the block in bytes.
pub const LENGTH: u32 = 0x300;

/// In a direction's registers: [`START`], [`STOP`] and [`TRIGGER`] act when they are written as 1.
/// Reads as 0. 32 bits.
pub const CONTROL: u32 = 0x00;
/// In a direction's registers: the [`State`](super::State), 32 bits.
pub const STATE: u32 = 0x04;
/// In a direction's registers: address of the first byte, 64 bits. Can be written where
/// [`CAN_ADDRESS`] is set and the direction does not run.
pub const FIRST_ADDRESS: u32 = 0x08;
/// In a direction's registers: address behind the last byte that may be used, 64 bits. Can be
/// written like [`FIRST_ADDRESS`].
pub const MAXIMUM_ADDRESS: u32 = 0x10;
/// In a direction's registers: address behind the last byte that was used, 64 bits.
pub const LAST_ADDRESS: u32 = 0x18;
/// In a direction's registers: bytes of the streams that came in, or went out; 64 bits.
pub const BYTES: u32 = 0x20;
/// In a direction's registers: bytes of the streams that are on the medium, 64 bits.
pub const BYTES_STORED: u32 = 0x28;
/// In a direction's registers: bytes of the streams that are declared lost, 64 bits.
pub const BYTES_LOST: u32 = 0x30;
/// In a direction's registers: gaps that are declared, 64 bits.
pub const GAPS: u32 = 0x38;
/// In a direction's registers: bytes in the stream buffer now, 64 bits.
pub const FILL: u32 = 0x40;
/// In a direction's registers: most bytes that were in the stream buffer, 64 bits.
pub const HIGH_WATER: u32 = 0x48;
/// In a direction's registers: the most chunks that may be used from [`FIRST_ADDRESS`] on, 64 bits;
/// 0 is no limit. Can be written like [`FIRST_ADDRESS`].
pub const CHUNKS_MAX: u32 = 0x50;

/// In [`CAPABILITIES`]: the block records.
pub const CAN_WRITE: u32 = 1 << 0;
/// In [`CAPABILITIES`]: the block replays.
pub const CAN_READ: u32 = 1 << 1;
/// In [`CAPABILITIES`]: a recording waits for [`TRIGGER`].
pub const CAN_TRIGGER: u32 = 1 << 2;
/// In [`CAPABILITIES`]: addresses and [`CHUNKS_MAX`] can be written.
pub const CAN_ADDRESS: u32 = 1 << 3;

/// In [`CONTROL`]: begin.
pub const START: u32 = 1 << 0;
/// In [`CONTROL`]: end, with everything written that came.
pub const STOP: u32 = 1 << 1;
/// In [`CONTROL`]: write the kept bytes, and all that come.
pub const TRIGGER: u32 = 1 << 2;
