//! Events of a guest's device slot.

use std::io;
use std::net::SocketAddr;

use assemblies::guest;

use crate::media::state;
use crate::sys::shared::MapError;

/// An event of a guest's device slot for the application.
#[derive(Debug)]
pub enum Event {
    /// An event of the slot's engines.
    Guest(guest::Event),
    /// The far end cannot be connected to, with the address tried. Reported once until a connection
    /// succeeds.
    DialFailed(SocketAddr, io::Error),
    /// A client could not be accepted.
    AcceptFailed(io::Error),
    /// A client was turned away, because there is one already. The field is its process id, if the
    /// system knows it.
    TurnedAway(Option<i32>),
    /// Memory of the guest could not be mapped; the address is the guest's.
    MapFailed(u64, MapError),
    /// The client has truncated the file behind its memory at this guest address, and its session
    /// has ended.
    MemoryLost(u64),
    /// The file for shared doorbells could not be created.
    NoDoorbells(io::Error),
    /// A client's interrupt could not be signalled. The index is the vector; its descriptor is
    /// given up.
    SignalFailed(usize, io::Error),
    /// A thread that served I/O queues has failed. If it had queues, the controller reports a fatal
    /// status until the guest resets it.
    LaneFailed,
    /// A notice about the SSD's saved state.
    State(state::Notice),
}
