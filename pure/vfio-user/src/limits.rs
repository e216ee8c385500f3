//! Limits of the protocol here.

/// Bytes of data in one message (`max_data_xfer_size`), either way.
pub const DATA_MAX: u32 = 1 << 20;
/// The longest message: a header, the longest fixed part that precedes data, and the data.
pub const MESSAGE_MAX: u32 = 16 + 16 + DATA_MAX;
/// Descriptors that are taken with one message (`max_msg_fds`).
pub const DESCRIPTORS_MAX: usize = 16;
/// Regions of a client's memory at a time (`max_dma_maps`).
pub const MAPS_MAX: usize = 65_535;
/// Mappable areas of one region.
pub const AREAS_MAX: usize = 64;
/// Requests of a client that may wait for an answer at a time; one more is answered `EBUSY`.
pub const REQUESTS_MAX: usize = 1024;
/// Writes in one message.
pub const WRITES_MAX: usize = 1024;
/// Messages about a client's memory that are under way at a time.
pub const DMA_WINDOW: usize = 32;
/// Accesses to a client's memory that may wait or be under way at a time; one more fails with `EBUSY`.
pub const DMA_MAX: usize = 4096;
