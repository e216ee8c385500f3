//! Limits of the protocol here.

/// Bytes of data in one message (`max_data_xfer_size`), either way.
pub const DATA_MAX: u32 = 1 << 20;
/// The longest message: a header, the longest fixed part that precedes data, and the data.
pub const MESSAGE_MAX: u32 = 16 + 16 + DATA_MAX;
/// Descriptors that are taken with one message (`max_msg_fds`).
pub const DESCRIPTORS_MAX: u32 = 16;
/// Regions of a client's memory at a time (`max_dma_maps`).
pub const MAPS_MAX: u32 = 65_535;
