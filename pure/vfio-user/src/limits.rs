//! Limits that this implementation of the protocol has.

/// The most data in one message, in bytes (`max_data_xfer_size`), in either direction.
pub const DATA_MAX: u32 = 1 << 20;
/// The longest message, in bytes: a header, the longest fixed part before the data, and the data.
pub const MESSAGE_MAX: u32 = 16 + 16 + DATA_MAX;
/// The most descriptors that are accepted with one message (`max_msg_fds`).
pub const DESCRIPTORS_MAX: usize = 16;
/// The most regions of a client's memory at a time (`max_dma_maps`).
pub const MAPS_MAX: usize = 65_535;
/// The most mappable areas of one region.
pub const AREAS_MAX: usize = 64;
/// The most requests of a client that may wait for an answer at a time. A further request is
/// answered `EBUSY`.
pub const REQUESTS_MAX: usize = 1024;
/// The most writes in one message.
pub const WRITES_MAX: usize = 1024;
/// Maximum number of outstanding messages about a client's memory.
pub const DMA_WINDOW: usize = 32;
/// Maximum number of waiting and outstanding accesses to a client's memory. A further access fails
/// with `EBUSY`.
pub const DMA_MAX: usize = 4096;
