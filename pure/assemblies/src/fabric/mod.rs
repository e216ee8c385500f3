//! The fabrics that subsystems are offered and used over: the one place of this crate that names
//! one.
//!
//! [`controller`] is the controller's end of a connection, as [`target`](crate::target) uses it.
//! [`host`] is the host's end, as [`initiator`](crate::initiator) uses it. A connection is one
//! queue. It brings commands or completions in order, moves the data that belong to them, and says
//! how much memory it holds for its peer. Another fabric joins NVMe/TCP here.

pub mod controller;
pub mod host;

use alloc::vec::Vec;

/// The first `count` bytes of `outbox`, in one piece; fewer if it has fewer.
pub(crate) fn first_bytes(outbox: &host::Outbox, count: usize) -> Vec<u8> {
    outbox.slices().flatten().take(count).copied().collect()
}
