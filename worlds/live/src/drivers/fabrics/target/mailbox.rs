//! What reactors send each other: connections on their way from the reactor that accepted them to
//! that of their subsystem or of a lane, and the messages between homes and lanes.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use assemblies::fabric::Fabric;
use assemblies::target::{Handover, ReactorId, ToHome, ToLane};
use nvme_fabrics::target::SubsystemKey;
use nvme_fabrics::tls::Identity;
use nvme_fabrics::wire::PortId;

use crate::drivers::fabrics::Moving;
use crate::media::{LaneMediaChange, MediaForLane};
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

/// One message from a reactor to another.
#[derive(Debug)]
pub(super) enum Letter {
    Connection(Moved),
    /// From a home: begin a lane with these media, if they could be shared.
    Begin(SubsystemKey, ToLane, Option<MediaForLane>),
    /// From a home: its media have changed.
    Media(SubsystemKey, LaneMediaChange),
    ToLane(SubsystemKey, ToLane),
    ToHome(SubsystemKey, ReactorId, ToHome),
    /// A reactor's thread has failed.
    Gone(ReactorId),
    /// Such a reactor works again, and takes letters by this way.
    Back(ReactorId, Way),
}

/// What all reactors know of one reactor.
#[derive(Debug, Default)]
struct Load {
    /// Number of connections that wait in its mailbox.
    waiting: AtomicUsize,
    /// Number of I/O queues of its own subsystems that it serves itself.
    own: AtomicUsize,
    /// Number of I/O queues that others have given to its lanes.
    guests: AtomicUsize,
    /// Whether it is the home of a subsystem.
    is_home: AtomicBool,
    /// Whether its thread has failed.
    is_gone: AtomicBool,
}

impl Load {
    /// One I/O queue fewer is given to the reactor's lanes. One that had been given to an earlier
    /// life of the reactor does not count any more.
    fn remove_guest(&self) {
        let fewer = |count: usize| count.checked_sub(1);
        let _ = self.guests.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
    }
}

/// The way of letters to a reactor.
#[derive(Clone, Debug)]
pub(super) struct Way(Sender<Letter>);

/// The way to one reactor.
#[derive(Clone)]
struct Place {
    way: Way,
    load: Arc<Load>,
    /// Ends the reactor's sleep.
    waker: Stop,
}

/// The mailboxes of all reactors, from the point of view of one reactor.
pub struct Mailbox {
    own: usize,
    inbox: Receiver<Letter>,
    places: Vec<Place>,
    /// Number of reactors, from the first one on, that take I/O queues.
    active: Arc<AtomicUsize>,
    /// The present ways to all reactors, for those that begin again.
    ways: Arc<Mutex<Vec<Way>>>,
    /// Reactors that were sent something and must be woken.
    to_wake: Vec<usize>,
}

impl Mailbox {
    /// Makes the mailboxes of several reactors, one for each of `wakers`, which ends that reactor's
    /// sleep.
    pub fn for_all(wakers: impl IntoIterator<Item = Stop>) -> Vec<Self> {
        let place = |waker| {
            let (sender, inbox) = channel();
            (Place { way: Way(sender), load: Arc::default(), waker }, inbox)
        };
        let (places, inboxes): (Vec<_>, Vec<_>) = wakers.into_iter().map(place).unzip();
        let active = Arc::new(AtomicUsize::new(places.len()));
        let ways = Arc::new(Mutex::new(places.iter().map(|place| place.way.clone()).collect()));
        let mailbox = |(own, inbox)| {
            let (places, active, ways) = (places.clone(), Arc::clone(&active), Arc::clone(&ways));
            Self { own, inbox, places, active, ways, to_wake: Vec::new() }
        };
        inboxes.into_iter().enumerate().map(mailbox).collect()
    }

    /// The index of the reactor, out of `reactors`, that is the home of a subsystem.
    pub const fn home(subsystem: SubsystemKey, reactors: usize) -> usize {
        subsystem.0 as usize % reactors
    }

    /// The name of the reactor that has the mailbox.
    pub(super) fn own(&self) -> ReactorId {
        id_of(self.own)
    }

    /// The next letter of another reactor, if any.
    #[inline]
    pub(super) fn take(&self) -> Option<Letter> {
        let letter = self.inbox.try_recv().ok()?;
        if matches!(letter, Letter::Connection(_)) {
            self.places[self.own].load.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        Some(letter)
    }

    /// The reactor that serves fewest I/O queues; `None` if it is this one, which serves `own`.
    pub(super) fn least_loaded(&self, own: usize) -> Option<ReactorId> {
        self.set_own(own);
        let takes = |index: &usize| {
            let is_active = *index < self.active.load(Ordering::Relaxed) || *index == self.own;
            is_active && !self.places[*index].load.is_gone.load(Ordering::Relaxed)
        };
        let load = |index: &usize| {
            let Load { own, guests, .. } = &*self.places[*index].load;
            (own.load(Ordering::Relaxed) + guests.load(Ordering::Relaxed), *index != self.own)
        };
        let least = (0..self.places.len()).filter(takes).min_by_key(load)?;
        (least != self.own).then(|| id_of(least))
    }

    /// Notes how many I/O queues this reactor serves of its own subsystems.
    pub(super) fn set_own(&self, count: usize) {
        self.places[self.own].load.own.store(count, Ordering::Relaxed);
    }

    /// Notes that this reactor is the home of a subsystem.
    pub(super) fn set_home(&self) {
        self.places[self.own].load.is_home.store(true, Ordering::Relaxed);
    }

    /// Has the first `count` reactors take I/O queues from now on.
    pub(super) fn set_active(&self, count: usize) {
        self.active.store(count, Ordering::Relaxed);
    }

    /// Whether a reactor takes I/O queues.
    pub(super) fn is_active(&self, reactor: ReactorId) -> bool {
        (reactor.0 as usize) < self.active.load(Ordering::Relaxed)
    }

    /// The report of this reactor's end, for a thread that fails.
    pub fn obituary(&self) -> Obituary {
        let Self { own, places, active, ways, .. } = self;
        Obituary { own: *own, places: places.clone(), active: Arc::clone(active), ways: Arc::clone(ways) }
    }

    /// Takes the way to a reactor that works again.
    pub(super) fn set_way(&mut self, reactor: ReactorId, way: Way) {
        if let Some(place) = self.places.get_mut(reactor.0 as usize) {
            place.way = way;
        }
    }

    /// A connection of a lane here is gone.
    pub(super) fn guest_is_gone(&self) {
        self.places[self.own].load.remove_guest();
    }

    /// Gives a connection to the home of `subsystem`, or to a lane.
    pub(super) fn post_connection(&mut self, subsystem: SubsystemKey, lane: Option<ReactorId>, moved: Moved) {
        let index = lane.map_or_else(|| Self::home(subsystem, self.places.len()), |lane| lane.0 as usize);
        let load = &self.places[index].load;
        if lane.is_some() {
            load.guests.fetch_add(1, Ordering::Relaxed);
        }
        // A lane must get what its home has counted on.
        if lane.is_some() || load.waiting.load(Ordering::Relaxed) < WAITING_MAX {
            load.waiting.fetch_add(1, Ordering::Relaxed);
            if !self.send(index, Letter::Connection(moved)) && lane.is_some() {
                self.places[index].load.remove_guest();
            }
        }
    }

    /// Gives a letter to a reactor that has a lane.
    pub(super) fn post_to_lane(&mut self, reactor: ReactorId, letter: Letter) {
        self.send(reactor.0 as usize, letter);
    }

    /// Gives a message of a lane to the home of its subsystem.
    pub(super) fn post_home(&mut self, subsystem: SubsystemKey, message: ToHome) {
        let letter = Letter::ToHome(subsystem, self.own(), message);
        self.send(Self::home(subsystem, self.places.len()), letter);
    }

    /// Returns whether the letter can arrive: a reactor that is gone takes no part any more.
    fn send(&mut self, index: usize, letter: Letter) -> bool {
        let is_sent = self.places[index].way.0.send(letter).is_ok();
        if is_sent && !self.to_wake.contains(&index) {
            self.to_wake.push(index);
        }
        is_sent
    }

    /// Wakes the reactors that were sent something.
    pub(super) fn wake(&mut self) {
        for index in self.to_wake.drain(..) {
            self.places[index].waker.wake();
        }
    }
}

/// The report of a reactor's end to all others.
pub struct Obituary {
    own: usize,
    places: Vec<Place>,
    active: Arc<AtomicUsize>,
    ways: Arc<Mutex<Vec<Way>>>,
}

impl Obituary {
    /// Whether the reactor is the home of a subsystem, so that the target can't go on without it.
    pub fn is_of_home(&self) -> bool {
        self.places[self.own].load.is_home.load(Ordering::Relaxed)
    }

    /// Reports the reactor's end to all others. Its driver, with its media, must be dropped.
    pub fn post(&self) {
        self.places[self.own].load.is_gone.store(true, Ordering::Relaxed);
        let ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        self.report(&ways, || Letter::Gone(id_of(self.own)));
    }

    /// The mailbox with which the reactor begins again, once [`Obituary::post`] has reported its
    /// end. All others send their letters there from now on.
    pub fn succeed(&self) -> Mailbox {
        let (sender, inbox) = channel();
        // While the ways are locked, no other reactor begins again: each learns the other's way.
        let mut all = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        let way = Way(sender);
        all[self.own] = way.clone();
        let place = |(place, way): (&Place, &Way)| Place { way: way.clone(), ..place.clone() };
        let places: Vec<_> = self.places.iter().zip(&*all).map(place).collect();
        let Load { waiting, own, guests, is_gone, .. } = &*self.places[self.own].load;
        for count in [waiting, own, guests] {
            count.store(0, Ordering::Relaxed);
        }
        self.report(&all, || Letter::Back(id_of(self.own), way.clone()));
        is_gone.store(false, Ordering::Relaxed);
        drop(all);
        let (active, ways) = (Arc::clone(&self.active), Arc::clone(&self.ways));
        Mailbox { own: self.own, inbox, places, active, ways, to_wake: Vec::new() }
    }

    fn report(&self, ways: &[Way], letter: impl Fn() -> Letter) {
        for (index, (place, way)) in self.places.iter().zip(ways).enumerate() {
            // A reactor that has ended needs no news.
            if index != self.own && way.0.send(letter()).is_ok() {
                place.waker.wake();
            }
        }
    }
}

impl fmt::Debug for Obituary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Obituary({} of {})", self.own, self.places.len())
    }
}

fn id_of(index: usize) -> ReactorId {
    ReactorId(u32::try_from(index).expect("reactors are few"))
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mailbox({} of {})", self.own, self.places.len())
    }
}
