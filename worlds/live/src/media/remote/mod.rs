//! A namespace of another device as a medium: a device at a far end, or a subsystem of NVMe
//! over Fabrics.
//!
//! The host that uses the device has a loop of its own, which [`RemoteMedium::reap`] turns. The
//! descriptor of that loop ends the sleep of the loop around it, so nothing passes between threads.

mod open;

use std::fmt;
use std::os::fd::{AsRawFd, RawFd};

use assemblies::near::Near;
use assemblies::watch::Port;
use engine::Watch;
use engine::{Instant, Nanos};
use mio::unix::SourceFd;
use mio::{Interest, Poll, Token};
use nvme::host::Namespace;
use nvme::media::{Completion, Request};
use nvme::wire::NamespaceId;
use nvme_fabrics::host::multipath::Request as Submission;

use super::commands::{Abilities, Commands, Extent, Lost, Refused, misfit};
use crate::client::{Address, Completed, Controller, Event, Identity, News, SubmitError};
use crate::reactor::Turn;
use crate::sys::clock::Clock;

pub use open::{OpenError, Place, open};

/// The most commands under way at once.
const PIECES_MAX: u32 = 256;
/// The most rounds of commands and completions in one `reap`, so that a fast device can't keep
/// the reactor.
const ROUNDS_MAX: usize = 16;
/// The interval at which a new host for the device is tried after one has ended.
const RETRY: Nanos = Nanos::from_secs(1);
/// The usual interval while the device refuses this host for good.
pub const REFUSED_RETRY: Nanos = Nanos::from_secs(10);

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

/// The abilities of a namespace, for a driver that offers it in another form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes that one command moves. Longer requests become several commands.
    pub transfer_bytes: u64,
    /// Whether the space of blocks can be given back without writing.
    pub discards: bool,
    /// Whether blocks can be made zeroes without sending zeroes.
    pub zeroes: bool,
    /// Whether writes are durable only after a flush, or when they ask for it.
    pub volatile_cache: bool,
}

/// A medium whose bytes are those of one namespace of another device.
pub struct RemoteMedium {
    clock: Clock,
    place: Place,
    /// Reports events of the device, with its place.
    report: fn(&str),
    /// Ends the sleep of the loop around this medium, for the host in use.
    gate: Poll,
    controller: Option<Controller>,
    /// Chooses the I/O queue of the latest command; the queues take turns.
    queue: u16,
    /// The log says that digests are missing.
    is_logged: bool,
    link: Link,
    /// Why the device refuses this host for good, until it is there again.
    refusal: Option<String>,
    /// The time at which the device was last there.
    seen: Instant,
    /// The serial number by which the device is recognized when it is back.
    serial: String,
    model: String,
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

    /// The abilities of the namespace.
    pub fn limits(&self) -> Limits {
        let (abilities, extent) = (&self.commands.abilities, &self.commands.extents[0]);
        Limits {
            transfer_bytes: abilities.transfer_max,
            discards: abilities.dataset_management || abilities.write_zeroes && extent.zeroes_deallocate,
            zeroes: abilities.write_zeroes,
            volatile_cache: abilities.volatile_cache,
        }
    }

    /// Whether the device can be reached.
    pub fn is_here(&self) -> bool {
        self.link == Link::Here
    }

    /// Why the device refuses this host for good, as it said last. Requests fail until the device
    /// is there again.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// The serial number of the device's controller.
    pub fn serial(&self) -> &str {
        &self.serial
    }

    /// The device's identifier of the namespace.
    pub fn namespace(&self) -> NamespaceId {
        self.extent().id
    }

    /// The model number of the device's controller.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Adopts the size that the device says the namespace has, if it is longer than the known one
    /// and the device is there. Returns the known size in bytes.
    pub fn adopt_growth(&mut self) -> u64 {
        let known = self.size();
        let identity = self.controller.as_ref().filter(|_| self.link == Link::Here);
        let namespaces = identity.and_then(Controller::identity).map_or(&[][..], |one| one.namespaces);
        let id = self.extent().id;
        let is_longer = |one: &&Namespace| one.id == id && one.blocks * u64::from(one.block_bytes) > known;
        if namespaces.iter().any(|one| is_longer(&one)) { self.measure() } else { known }
    }

    /// Adopts the size that the device says the namespace has by now; returns the size in bytes.
    pub fn measure(&mut self) -> u64 {
        if let Some((extent, _)) = self.found() {
            self.commands.extents[0] = extent;
        }
        self.size()
    }

    /// The number of requests that have not ended.
    pub fn in_flight(&self) -> usize {
        self.commands.in_flight()
    }

    /// Whether the device is behind a fabric, rather than on PCI Express.
    pub const fn is_fabric(&self) -> bool {
        matches!(self.place.address, Address::Subsystem(_))
    }

    /// Whether several hosts of this process can use the device at a time, each with a controller
    /// of its own.
    pub fn takes_many_hosts(&self) -> bool {
        self.place.address.takes_many_hosts()
    }

    /// The engines of the host on PCI Express; `None` of any other host, and while there is none.
    pub fn near(&self) -> Option<&Near> {
        self.controller.as_ref()?.near()
    }

    /// The watchers of the packets between host and device, as [`Controller::watch`] has them. They
    /// are gone with the host, when the device is away for longer than the host waits.
    pub fn passing(&mut self) -> Option<&mut Watch<Port>> {
        self.controller.as_mut()?.watch()
    }

    /// The descriptor that becomes readable when `reap` has something to do.
    pub fn poll_fd(&self) -> RawFd {
        self.gate.as_raw_fd()
    }

    /// The time at which `reap` has to be called even when the descriptor is not readable.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let now = self.clock.now();
        let wake = self.controller.as_ref().and_then(Controller::wake_in).map(|length| now + length);
        let again = match self.link {
            Link::Lost { again } => Some(again),
            _ => None,
        };
        let expiry =
            (self.link != Link::Here && self.in_flight() > 0).then(|| self.expiry()).filter(|at| *at > now);
        [wake, again, expiry].into_iter().flatten().min()
    }

    /// Takes a request. The device sees the request in the next `reap`. With too many requests
    /// under way, another one fails.
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
            done += usize::from(self.on_absence(out));
        }
        done
    }

    /// Until when commands wait for the device.
    fn expiry(&self) -> Instant {
        self.seen + self.place.hold
    }

    /// Lets the host go on and takes its events; returns how much was done.
    fn exchange(&mut self, out: &mut impl FnMut(Completion)) -> usize {
        let Some(controller) = &mut self.controller else { return 0 };
        let mut moved = match controller.step() {
            Ok(turn) => usize::from(turn != Turn::Idle),
            Err(error) => {
                self.lose(&error.to_string());
                return 1;
            }
        };
        while let Some(event) = self.controller.as_mut().and_then(Controller::poll_event) {
            match event {
                Event::Completed(completed) => self.on_completed(completed, out),
                Event::Here(_) => self.on_here(),
                Event::Away(_) if self.is_refused() => self.lose(""),
                Event::Away(news) => {
                    if self.link == Link::Here {
                        self.log(&format!(
                            "is away: {}; commands wait for {}",
                            news.brief(),
                            self.place.hold
                        ));
                        (self.link, self.seen) = (Link::Away, self.clock.now());
                    }
                }
                Event::News(news @ News::NoDigests(..)) if !self.is_logged => {
                    self.is_logged = true;
                    self.log(&news.brief());
                }
                Event::Failed(failure) => self.lose(&failure.to_string()),
                Event::News(_) | Event::Probed(_) | Event::Register(_) => continue,
            }
            moved += 1;
        }
        moved
    }

    fn log(&self, what: &str) {
        (self.report)(&format!("{} {what}", self.place));
    }

    /// The host is useless from now on: its commands have ended, or end soon.
    fn lose(&mut self, why: &str) {
        let now = self.clock.now();
        if self.link == Link::Here {
            self.seen = now;
        }
        let refusal = self.controller.as_ref().and_then(Controller::refusal).map(str::to_owned);
        if let Some(why) = refusal.filter(|why| self.refusal.as_ref() != Some(why)) {
            let again = self.place.refused_retry;
            self.log(&format!("refuses this host: {why}; I/O fails, and it is tried again every {again}"));
            self.refusal = Some(why);
        } else if !matches!(self.link, Link::Lost { .. } | Link::Coming) {
            self.log(&format!("can't be used: {why}; trying again"));
        }
        self.controller = None;
        self.link = Link::Lost { again: now + self.retry() };
    }

    /// Whether the host has just learned that the device refuses it for good.
    fn is_refused(&self) -> bool {
        self.controller.as_ref().is_some_and(|controller| controller.refusal().is_some())
    }

    /// How long to wait before another host is tried.
    fn retry(&self) -> Nanos {
        if self.refusal.is_some() { self.place.refused_retry } else { RETRY }
    }

    /// The device can be used again, if it is still the same device.
    fn on_here(&mut self) {
        if self.link == Link::Here {
            return;
        }
        match self.found() {
            Some((extent, abilities)) => {
                self.log("is back");
                (self.commands.extents[0], self.commands.abilities) = (extent, abilities);
                (self.link, self.refusal) = (Link::Here, None);
            }
            None => self.lose("another device is there, or its namespace is gone or can't be served"),
        }
    }

    /// The namespace and the abilities as the device has them by now, if the device is the one that
    /// this medium was opened on and the namespace can be served.
    fn found(&self) -> Option<(Extent, Abilities)> {
        let Identity { controller, namespaces, transfer_bytes_max, .. } =
            self.controller.as_ref()?.identity()?;
        let namespace = namespaces.iter().find(|one| one.id == self.extent().id)?;
        let is_fit = misfit(namespace).is_none() && namespace.block_bytes == self.extent().block;
        let is_same = controller.serial_number.to_string() == self.serial;
        let abilities = Abilities::new(controller, transfer_bytes_max);
        (is_fit && is_same).then(|| (Extent::new(namespace, 0), abilities))
    }

    /// Tries another host where one has ended, and ends requests that have waited too long. Returns
    /// whether another host has begun, whose first step is due, or requests have ended.
    fn on_absence(&mut self, out: &mut impl FnMut(Completion)) -> bool {
        let now = self.clock.now();
        let mut is_busy = false;
        if let Link::Lost { again } = self.link {
            // The host's commands do not come back to it: another host gets them.
            self.commands.take_back_all();
            if again <= now {
                self.link = Link::Lost { again: now + self.retry() };
                if let Ok(controller) = self.place.begin().and_then(|controller| self.watch(controller)) {
                    (self.controller, self.is_logged, self.link) = (Some(controller), false, Link::Coming);
                    is_busy = true;
                }
            }
        }
        let is_hopeless = self.refusal.is_some() || now >= self.expiry();
        if is_hopeless && self.link != Link::Away {
            let before = self.in_flight();
            self.commands.give_up(out);
            is_busy |= self.in_flight() < before;
        }
        is_busy
    }

    /// Makes the descriptor of `controller` end sleeps.
    fn watch(&self, controller: Controller) -> Result<Controller, OpenError> {
        let descriptor = controller.poll_fd();
        let registered =
            self.gate.registry().register(&mut SourceFd(&descriptor), Token(0), Interest::READABLE);
        registered.map(|()| controller).map_err(OpenError::Io)
    }

    /// Submits commands as long as there is room; returns how many.
    fn fill(&mut self, out: &mut impl FnMut(Completion)) -> usize {
        if !matches!(self.link, Link::Here | Link::Away) {
            return 0;
        }
        let Self { commands, controller, queue, .. } = self;
        let submit = |piece, entry, data| {
            let controller = controller.as_mut().ok_or(Refused::Lost)?;
            *queue = queue.wrapping_add(1);
            let submission = Submission { cookie: u64::from(piece), entry, data, queue: *queue };
            controller.submit_io(controller.now(), submission).map_err(|error| refused(&error))
        };
        commands.fill(submit, out).unwrap_or_else(|Lost| {
            // An event may say why.
            let moved = self.exchange(out);
            if matches!(self.link, Link::Here | Link::Away) {
                self.lose("it accepts no commands");
            }
            moved + 1
        })
    }

    fn on_completed(&mut self, completed: Completed, out: &mut impl FnMut(Completion)) {
        let Completed { cookie, status, data, is_unheard, .. } = completed;
        let piece = u32::try_from(cookie).unwrap_or(u32::MAX);
        if is_unheard && self.link == Link::Here {
            // The host has no patience, and is about to end. Another one gets the command.
            return self.commands.take_back(piece);
        }
        if is_unheard {
            return self.commands.on_unheard(piece, out);
        }
        let result = if status.is_success() { Ok(data) } else { Err(status) };
        self.commands.on_ended(piece, result, out);
    }
}

/// Why a command was not taken, as far as the medium acts on it.
fn refused(error: &SubmitError) -> Refused {
    if error.is_busy() {
        Refused::Busy
    } else if error.is_away() {
        Refused::Lost
    } else {
        Refused::Impossible
    }
}

impl fmt::Debug for RemoteMedium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteMedium")
            .field("place", &self.place)
            .field("link", &self.link)
            .field("refusal", &self.refusal)
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}
