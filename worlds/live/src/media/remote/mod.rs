//! A namespace of another device as a medium: one of a far PCIe device, or of a subsystem of NVMe over Fabrics.
//!
//! The host that uses the device has a loop of its own, which is turned by [`RemoteMedium::reap`] and whose descriptor ends
//! the sleep of the loop around it: nothing passes between threads.

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
use crate::clock::Clock;
use way::{Device, Ended, Happened, Way};

pub use open::{Address, OpenError, Place, open};

/// Commands under way at once.
const PIECES_MAX: u32 = 256;
/// Bytes a class that the pool of buffers remembers.
const POOL_RETAIN: usize = 8 << 20;
/// Rounds of commands and completions in one `reap`, so that a fast device can't keep a reactor.
const ROUNDS_MAX: usize = 16;
/// How often another way is tried when one has ended.
const RETRY: Nanos = Nanos::from_secs(1);

/// How it stands with the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Here,
    /// The host looks for it, and commands wait there.
    Away,
    /// The host has given it up: another one is made at this time.
    Lost {
        again: Instant,
    },
    /// Another host looks for it.
    Coming,
}

/// See the module.
pub struct RemoteMedium {
    clock: Clock,
    place: Place,
    /// Tells of the place what has happened to it.
    report: fn(&str),
    /// Ends the sleep of the loop around this one, whichever way there is.
    gate: Poll,
    way: Option<Way>,
    link: Link,
    /// When the device was last there.
    seen: Instant,
    /// The serial number of the device, by which it is known again.
    serial: String,
    commands: Commands,
}

impl RemoteMedium {
    /// The namespace: all of the medium.
    fn extent(&self) -> &Extent {
        &self.commands.extents[0]
    }

    /// Bytes of the namespace.
    pub fn size(&self) -> u64 {
        self.commands.size()
    }

    /// Bytes of a block: 512 or 4096.
    pub fn block(&self) -> u32 {
        self.extent().block
    }

    /// The device's name for the namespace.
    pub fn namespace(&self) -> NamespaceId {
        self.extent().id
    }

    /// Takes the size that the device says the namespace has by now; which, in bytes.
    pub fn measure(&mut self) -> u64 {
        if let Some(extent) = self.way.as_ref().and_then(Way::device).and_then(|device| self.same(&device)) {
            self.commands.extents[0] = extent;
        }
        self.size()
    }

    /// Requests that have not ended.
    pub fn in_flight(&self) -> usize {
        self.commands.in_flight()
    }

    /// Becomes readable when `reap` has something to do.
    pub fn poll_fd(&self) -> RawFd {
        self.gate.as_raw_fd()
    }

    /// When `reap` is wanted even though the descriptor is not readable.
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

    /// Takes a request. The device hears of it in the next `reap`.
    ///
    /// # Panics
    /// When more requests are under way than hosts can have.
    pub fn submit(&mut self, request: Request) {
        self.commands.submit(request);
    }

    /// Hands over what has come of the requests, without waiting; returns how much was done, 0 when there is nothing
    /// to do until [`RemoteMedium::poll_fd`] is readable or [`RemoteMedium::poll_timeout`] is due.
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

    /// Lets the host go on, and takes what has come of it; how much that was.
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

    /// The host's end of a way is over: its commands have ended, or end now.
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

    /// The device can be used, if it still is the one that it was.
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

    /// The namespace as a device has it by now, if that is the one.
    fn same(&self, device: &Device) -> Option<Extent> {
        let mut extents = device.namespaces.iter().map(|namespace| Extent::new(namespace, 0));
        let found = extents.find(|one| one.id == self.extent().id && one.block == self.extent().block);
        found.filter(|_| device.serial == self.serial)
    }

    /// Tries another way where one has ended, and ends what has waited for too long.
    fn on_absence(&mut self, out: &mut impl FnMut(Completion)) {
        let now = self.clock.now();
        if let Link::Lost { again } = self.link {
            // What the host had does not come back.
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

    /// Has the way end sleeps.
    fn watch(&self, way: Way) -> Result<Way, OpenError> {
        let descriptor = way.poll_fd();
        let registered =
            self.gate.registry().register(&mut SourceFd(&descriptor), Token(0), Interest::READABLE);
        registered.map(|()| way).map_err(OpenError::Io)
    }

    /// Submits commands as long as there is room; how many.
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
