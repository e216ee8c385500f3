//! Connections on their way from the reactor that accepted them to the reactor of their subsystem.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use assemblies::fabric::Fabric;
use assemblies::target::Handover;
use nvme_fabrics::target::SubsystemKey;
use nvme_fabrics::tls::Identity;
use nvme_fabrics::wire::PortId;

use crate::drivers::fabrics::Moving;
use crate::reactor::Stop;

/// The most connections that wait in one mailbox; further ones are closed.
const WAITING_MAX: usize = 4096;

/// A connection that moves from one reactor to another.
#[derive(Debug)]
pub struct Moved {
    /// The connection's socket.
    pub socket: Moving,
    /// The port through which the connection came.
    pub port: PortId,
    /// The fabric of the connection.
    pub fabric: Fabric,
    /// The identity that the host has proved by TLS.
    pub proved: Option<Identity>,
    /// The exchanged bytes of the connection so far.
    pub handover: Handover,
}

/// The place where one reactor finds the connections that others have for it.
#[derive(Clone)]
struct Place {
    waiting: Arc<Mutex<VecDeque<Moved>>>,
    /// Ends the reactor's sleep.
    waker: Stop,
}

/// The mailboxes of all reactors, from the point of view of one reactor.
#[derive(Clone)]
pub struct Mailbox {
    own: usize,
    places: Arc<[Place]>,
}

impl Mailbox {
    /// Makes the mailboxes of several reactors, one for each of `wakers`, which ends that reactor's
    /// sleep.
    pub fn for_all(wakers: impl IntoIterator<Item = Stop>) -> Vec<Self> {
        let place = |waker| Place { waiting: Arc::default(), waker };
        let places: Arc<[Place]> = wakers.into_iter().map(place).collect();
        (0..places.len()).map(|own| Self { own, places: Arc::clone(&places) }).collect()
    }

    /// The index of the reactor, out of `reactors`, that carries out the commands of a subsystem.
    pub const fn home(subsystem: SubsystemKey, reactors: usize) -> usize {
        subsystem.0 as usize % reactors
    }

    /// The next connection that another reactor has accepted for this one, if any.
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
