//! Connections on their way from the reactor that accepted them to the one whose subsystem they want.

use std::collections::VecDeque;
use std::fmt;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};

use machine::target::Handover;
use nvme_fabrics::target::SubsystemKey;
use nvme_fabrics::wire::PortId;

use crate::reactor::Stop;

/// Connections that wait in one mailbox; further ones are closed.
const WAITING_MAX: usize = 4096;

/// A connection that moves.
#[derive(Debug)]
pub struct Moved {
    /// Its socket.
    pub socket: TcpStream,
    /// The port through which it came.
    pub port: PortId,
    /// What was said so far.
    pub handover: Handover,
}

/// Where one reactor finds what others have for it.
#[derive(Clone)]
struct Place {
    waiting: Arc<Mutex<VecDeque<Moved>>>,
    /// Ends its sleep.
    waker: Stop,
}

/// The mailboxes of all reactors, from the point of view of one.
#[derive(Clone)]
pub struct Mailbox {
    own: usize,
    places: Arc<[Place]>,
}

impl Mailbox {
    /// The mailboxes of reactors that `wakers` wake.
    pub fn for_all(wakers: impl IntoIterator<Item = Stop>) -> Vec<Self> {
        let place = |waker| Place { waiting: Arc::default(), waker };
        let places: Arc<[Place]> = wakers.into_iter().map(place).collect();
        (0..places.len()).map(|own| Self { own, places: Arc::clone(&places) }).collect()
    }

    /// Which reactor carries out the commands of a subsystem, out of `reactors`.
    pub const fn home(subsystem: SubsystemKey, reactors: usize) -> usize {
        subsystem.0 as usize % reactors
    }

    /// A connection that another reactor has accepted, if there is one.
    pub(super) fn take(&self) -> Option<Moved> {
        self.places[self.own].waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// Gives a connection to the reactor of `subsystem`.
    pub(super) fn post(&self, subsystem: SubsystemKey, moved: Moved) {
        let place = &self.places[Self::home(subsystem, self.places.len())];
        let mut waiting = place.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < WAITING_MAX {
            waiting.push_back(moved);
        }
        drop(waiting);
        place.waker.wake();
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mailbox({} of {})", self.own, self.places.len())
    }
}
