//! What a guest's device slot tells of itself.

use std::io;
use std::net::SocketAddr;

use machine::guest;

use crate::shared::MapError;
use crate::state;

/// What the application is told.
#[derive(Debug)]
pub enum Event {
    /// By the slot.
    Guest(guest::Event),
    /// The far end can't be connected to; told once until it can.
    DialFailed(SocketAddr, io::Error),
    /// A client could not be accepted.
    AcceptFailed(io::Error),
    /// A client was turned away: there is one already. Its process, if the system knows.
    TurnedAway(Option<i32>),
    /// Memory of the guest could not be mapped.
    MapFailed(u64, MapError),
    /// The client has cut short the file behind its memory at this address, and with that ended its session.
    MemoryLost(u64),
    /// The file for shared doorbells can't be had.
    NoDoorbells(io::Error),
    /// A client's interrupt could not be signalled.
    SignalFailed(usize, io::Error),
    /// Of what the SSD remembers.
    State(state::Notice),
}
