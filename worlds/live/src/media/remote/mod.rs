//! A namespace of another device as a medium: of a far PCIe device, or of a subsystem of NVMe over
//! Fabrics.
//!
//! The host that uses the device has a loop of its own, which [`RemoteMedium::reap`] turns. The
//! descriptor of that loop ends the sleep of the loop around it, so nothing passes between threads.

mod fabrics;
mod open;
mod pcie;
mod way;

use std::fmt;
use std::os::fd::{AsRawFd, RawFd};

use engine::{Instant, Nanos};
use mio::unix::SourceFd;
use mio::{Interest, Poll, Token};
use nvme::media::{Completion, Request};
use nvme::wire::NamespaceId;

use super::commands::{Commands, Extent, Lost, Refused};
use crate::sys::clock::Clock;
use way::{Device, Ended, Happened, Way};

pub use open::{Address, OpenError, Place, open};

/// The most commands under way at once.
const PIECES_MAX: u32 = 256;
/// The most bytes that the pool of buffers keeps for reuse.
const POOL_RETAIN: usize = 8 << 20;
/// The most rounds of commands and completions in one `reap`, so that a fast device can't keep the
/// reactor.
const ROUNDS_MAX: usize = 16;
/// The interval at which a new way to the device is tried after one has ended.
const RETRY: Nanos = Nanos::from_secs(1);

/// The state of the connection to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Here,
    /// The host looks for the device, and commands wait at the host.
    Away,
    /// The host has given up the device: another host is made at this time.
    Lost {
        again: Instant,
    },
    /// Another host looks for the device.
    Coming,
}

/// A medium whose bytes are those of one namespace of another device.
pub struct RemoteMedium {
    clock: Clock,
    place: Place,
    /// Reports what has happened to the device, with its place.
    report: fn(&str),
    /// Ends the sleep of the loop around this medium, whichever way is in use.
    gate: Poll,
    way: Option<Way>,
    link: Link,
    /// The time at which the device was last there.
    seen: Instant,
    /// The serial number by which the device is recognized when it is back.
    serial: String,
    commands: Commands,
}

impl RemoteMedium {
    /// The namespace, which is all of the medium.
    fn extent(&self) -> &Extent {
        &self.commands.extents[0]
    }

    /// The size of the namespace in bytes.
    pub fn size(&self) -> u64 {
        self.commands.size()
    }

    /// The size of a block in bytes: 512 or 4096.
    pub fn block(&self) -> u32 {
        self.extent().block
    }

    /// The device's identifier of the namespace.
    pub fn namespace(&self) -> NamespaceId {
        self.extent().id
    }

    /// Adopts the size that the device says the namespace has by now; returns the size in bytes.
    pub fn measure(&mut self) -> u64 {
        if let Some(extent) = self.way.as_ref().and_then(Way::device).and_then(|device| self.same(&device)) {
            self.commands.extents[0] = extent;
        }
        self.size()
    }

    /// The number of requests that have not ended.
    pub fn in_flight(&self) -> usize {
        self.commands.in_flight()
    }

    /// The descriptor that becomes readable when `reap` has something to do.
    pub fn poll_fd(&self) -> RawFd {
        self.gate.as_raw_fd()
    }

    /// The time at which `reap` has to be called even when the descriptor is not readable.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let now = self.clock.now();
        let wake = self.way.as_ref().and_then(Way::wake_in).map(|length| now + length);
        let again = match self.link {
            Link::Lost { again } => Some(again),
            _ => None,
        };
        let expiry =
            (self.link != Link::Here && self.in_flight() > 0).then(|| self.expiry()).filter(|at| *at > now);
        [wake, again, expiry].into_iter().flatten().min()
    }

    /// Takes a request. The device sees the request in the next `reap`.
    ///
    /// # Panics
    /// When more requests are under way than hosts can have.
    pub fn submit(&mut self, request: Request) {
        self.commands.submit(request);
    }

    /// Hands over the results of requests, without waiting. Returns how much was done; 0 means that
    /// there is nothing to do until [`RemoteMedium::poll_fd`] is readable or
    /// [`RemoteMedium::poll_timeout`] is due.
    pub fn reap(&mut self, out: &mut impl FnMut(Completion)) -> usize {
        let mut done = self.commands.take_ended(out);
        for _ in 0..ROUNDS_MAX {
            let moved = self.fill(out) + self.exchange(out);
            done += moved;
            if moved == 0 {
                break;
            }
        }
        if self.link != Link::Here {
            self.on_absence(out);
        }
        done
    }

    /// Until when commands wait for the device.
    fn expiry(&self) -> Instant {
        self.seen + self.place.hold
    }

    /// Lets the host go on and takes its events; returns how much was done.
    fn exchange(&mut self, out: &mut impl FnMut(Completion)) -> usize {
        let Some(way) = &mut self.way else { return 0 };
        let mut moved = match way.step() {
            Ok(busy) => usize::from(busy),
            Err(error) => {
                self.lose(&error.to_string());
                return 1;
            }
        };
        while let Some(happened) = self.way.as_mut().and_then(Way::next) {
            moved += 1;
            match happened {
                Happened::Ended(ended) => self.on_ended(ended, out),
                Happened::Here => self.on_here(),
                Happened::Away(why) => {
                    if self.link == Link::Here {
                        self.tell(&format!("is away: {why}; commands wait for {}", self.place.hold));
                        (self.link, self.seen) = (Link::Away, self.clock.now());
                    }
                }
                Happened::Note(what) => self.tell(&what),
                Happened::Lost(why) => self.lose(&why),
            }
        }
        moved
    }

    fn tell(&self, what: &str) {
        (self.report)(&format!("{} {what}", self.place));
    }

    /// The host is of no use any more: its commands have ended, or end soon.
    fn lose(&mut self, why: &str) {
        let now = self.clock.now();
        if self.link == Link::Here {
            self.seen = now;
        }
        if !matches!(self.link, Link::Lost { .. } | Link::Coming) {
            self.tell(&format!("can't be used: {why}; it is tried again"));
        }
        self.way = None;
        self.link = Link::Lost { again: now + RETRY };
    }

    /// The device can be used again, if it is still the same device.
    fn on_here(&mut self) {
        if self.link == Link::Here {
            return;
        }
        let found = self.way.as_ref().and_then(Way::device);
        match found.as_ref().and_then(|device| self.same(device)) {
            Some(extent) => {
                self.tell("is back");
                self.commands.extents[0] = extent;
                self.link = Link::Here;
            }
            None => self.lose("another device is there, or its namespace is gone"),
        }
    }

    /// The namespace as `device` has it by now, if `device` is the one that this medium was opened
    /// on.
    fn same(&self, device: &Device) -> Option<Extent> {
        let mut extents = device.namespaces.iter().map(|namespace| Extent::new(namespace, 0));
        let found = extents.find(|one| one.id == self.extent().id && one.block == self.extent().block);
        found.filter(|_| device.serial == self.serial)
    }

    /// Tries another way where one has ended, and ends requests that have waited too long.
    fn on_absence(&mut self, out: &mut impl FnMut(Completion)) {
        let now = self.clock.now();
        if let Link::Lost { again } = self.link {
            // Commands that the host had do not come back.
            self.commands.abandon(out);
            if again <= now {
                self.link = Link::Lost { again: now + RETRY };
                if let Ok(way) = self.place.begin().and_then(|way| self.watch(way)) {
                    (self.way, self.link) = (Some(way), Link::Coming);
                }
            }
        }
        if now < self.expiry() || self.link == Link::Away {
            return;
        }
        self.commands.give_up(out);
    }

    /// Makes the descriptor of `way` end sleeps.
    fn watch(&self, way: Way) -> Result<Way, OpenError> {
        let descriptor = way.poll_fd();
        let registered =
            self.gate.registry().register(&mut SourceFd(&descriptor), Token(0), Interest::READABLE);
        registered.map(|()| way).map_err(OpenError::Io)
    }

    /// Submits commands as long as there is room; returns how many.
    fn fill(&mut self, out: &mut impl FnMut(Completion)) -> usize {
        if !matches!(self.link, Link::Here | Link::Away) {
            return 0;
        }
        let Self { commands, way, .. } = self;
        let submit = |piece, entry, data| match way {
            Some(way) => way.submit(piece, entry, data),
            None => Err(Refused::Lost),
        };
        commands.fill(submit, out).unwrap_or_else(|Lost| {
            self.lose("it takes no commands");
            1
        })
    }

    fn on_ended(&mut self, ended: Ended, out: &mut impl FnMut(Completion)) {
        let Ended { piece, result, is_unheard } = ended;
        if is_unheard {
            return self.commands.on_unheard(piece, out);
        }
        let read = self.commands.read_length(piece);
        let result = result.map(|data| match (&mut self.way, read) {
            (Some(Way::Pcie(way)), Some(length)) => way.read(piece, length).unwrap_or_default(),
            _ => data,
        });
        self.commands.on_ended(piece, result, out);
    }
}

impl fmt::Debug for RemoteMedium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteMedium")
            .field("place", &self.place)
            .field("link", &self.link)
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}
