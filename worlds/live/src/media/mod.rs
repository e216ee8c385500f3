//! The media that namespaces are kept on in the live world.

mod commands;
pub mod file;
mod lanes;
pub mod nvme;
pub mod ram;
pub mod remote;
mod resize;
pub mod state;
mod sync;

use std::fmt;
use std::io;
use std::os::fd::RawFd;

use ::nvme::media::ram::RamDisk;
use ::nvme::media::{Completion, MediaError, MediumId, Operation, Request};
use ::nvme::subsystem::{Counters, NamespaceConfig, Notification};
use ::nvme::wire::NamespaceId;
use engine::Instant;

pub use file::{FileMedium, Note, OpenError, Options, open};
pub use lanes::{LaneMediaChange, MediaForLane};
pub use nvme::NvmeMedium;
pub use ram::SharedRam;
pub use remote::RemoteMedium;
pub use resize::ResizeError;

use crate::media::state::{Keeper, Notice};

/// The most media that one process can have at the same time.
pub const MEDIA_MAX: usize = 1024;
/// The place that the name of a removed medium leads to.
const GONE: usize = usize::MAX;

/// One medium: where the bytes of a namespace, or the state of an SSD, are kept.
#[expect(
    clippy::large_enum_variant,
    reason = "media are few and live long; a box would cost each request a hop"
)]
pub enum Medium {
    /// Memory of this process: every request ends at once.
    Ram(RamDisk),
    /// Memory of this process that several threads use: every request ends at once.
    SharedRam(SharedRam),
    /// A file or block device of this machine.
    File(FileMedium),
    /// An NVMe controller of this machine.
    Nvme(NvmeMedium),
    /// A namespace of another device, at the far end of a network.
    Remote(Box<RemoteMedium>),
    /// The file with the state that the SSD remembers, rather than with its data.
    State(Box<Keeper>),
    /// A medium that was removed: requests to it fail.
    Gone,
}

impl From<RamDisk> for Medium {
    fn from(disk: RamDisk) -> Self {
        Self::Ram(disk)
    }
}

impl From<SharedRam> for Medium {
    fn from(ram: SharedRam) -> Self {
        Self::SharedRam(ram)
    }
}

impl From<FileMedium> for Medium {
    fn from(file: FileMedium) -> Self {
        Self::File(file)
    }
}

impl From<NvmeMedium> for Medium {
    fn from(controller: NvmeMedium) -> Self {
        Self::Nvme(controller)
    }
}

impl From<RemoteMedium> for Medium {
    fn from(remote: RemoteMedium) -> Self {
        Self::Remote(Box::new(remote))
    }
}

impl From<Keeper> for Medium {
    fn from(keeper: Keeper) -> Self {
        Self::State(Box::new(keeper))
    }
}

/// There are [`MEDIA_MAX`] media already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaFull;

impl fmt::Display for MediaFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "there are {MEDIA_MAX} media already, the most of one SSD: each namespace, pool and state file \
             is one; remove one, or offer another SSD"
        )
    }
}

impl std::error::Error for MediaFull {}

/// The media of a far end, each reached by its name (a [`MediumId`]).
#[derive(Default)]
pub struct Media {
    media: Vec<Medium>,
    /// The index in `media` for each name. No name is given twice.
    places: Vec<usize>,
    /// The index in `media` of the medium that keeps the SSD's state.
    state: Option<usize>,
    /// Indices of removed media that are dropped as soon as their requests have ended.
    going: Vec<usize>,
    /// This thread's part in what threads share; `None` while one thread uses the media.
    sharing: Option<Box<lanes::Sharing>>,
}

impl Media {
    /// Creates a set without media.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a medium. Its name is the number of media that were ever added before it.
    ///
    /// # Errors
    /// When there are [`MEDIA_MAX`] media already.
    pub fn add(&mut self, medium: impl Into<Medium>) -> Result<MediumId, MediaFull> {
        if self.is_full() {
            return Err(MediaFull);
        }
        let mut medium = medium.into();
        if self.sharing.is_some() {
            medium = medium.for_threads();
        }
        let free = self.media.iter().position(|one| matches!(one, Medium::Gone));
        let place = free.unwrap_or(self.media.len());
        if matches!(medium, Medium::State(_)) {
            self.state = Some(place);
        }
        match self.media.get_mut(place) {
            Some(gone) => *gone = medium,
            None => self.media.push(medium),
        }
        let name = MediumId(u32::try_from(self.places.len()).map_err(|_| MediaFull)?);
        self.places.push(place);
        self.note_added_for_lanes(name, place);
        Ok(name)
    }

    /// Whether there are [`MEDIA_MAX`] media, so that none can be added.
    fn is_full(&self) -> bool {
        self.media.iter().filter(|one| !matches!(one, Medium::Gone)).count() >= MEDIA_MAX
    }

    /// Removes a medium. The medium is closed when the requests under way have ended; later
    /// requests to it fail.
    ///
    /// # Panics
    /// When no medium of this name was ever added.
    pub fn remove(&mut self, id: MediumId) {
        let place = std::mem::replace(&mut self.places[id.0 as usize], GONE);
        if place != GONE {
            self.going.push(place);
            self.let_go();
            self.note_removed_for_lanes(id);
        }
    }

    fn let_go(&mut self) {
        let Self { media, going, .. } = self;
        going.retain(|place| {
            let works = in_flight(&media[*place]) > 0;
            if !works {
                media[*place] = Medium::Gone;
            }
            works
        });
    }

    /// The number of media that were ever added: the name of the next one.
    pub const fn count(&self) -> usize {
        self.places.len()
    }

    /// The media in memory of this process, by their names: what they hold ends with the process.
    pub fn memories(&self) -> impl Iterator<Item = (MediumId, &RamDisk)> {
        (0..).zip(&self.places).filter_map(|(name, place)| match self.media.get(*place) {
            Some(Medium::Ram(disk)) => Some((MediumId(name), disk)),
            _ => None,
        })
    }

    /// Takes the media in memory out, which are gone from here then.
    pub fn take_memories(&mut self) -> Vec<(MediumId, RamDisk)> {
        let Self { media, places, .. } = self;
        let taken = (0..).zip(&*places).filter_map(|(name, place)| {
            let medium = media.get_mut(*place).filter(|medium| matches!(medium, Medium::Ram(_)))?;
            match std::mem::replace(medium, Medium::Gone) {
                Medium::Ram(disk) => Some((MediumId(name), disk)),
                _ => None,
            }
        });
        taken.collect()
    }

    /// Replaces a medium in memory by `disk`, which has its contents. Returns whether there is such
    /// a medium of the same length.
    pub fn recall(&mut self, name: MediumId, disk: RamDisk) -> bool {
        let place = self.places.get(name.0 as usize).copied();
        match place.and_then(|place| self.media.get_mut(place)) {
            Some(Medium::Ram(own)) if own.bytes() == disk.bytes() => {
                *own = disk;
                true
            }
            _ => false,
        }
    }

    /// Why another process can't go on with these media, if it can't.
    pub fn why_bound(&self) -> Option<&'static str> {
        self.media.iter().find_map(|medium| match medium {
            Medium::SharedRam(_) => Some("its memory is shared by threads"),
            Medium::Nvme(_) => Some("a controller of this machine (--vfio) can't change its process"),
            _ => None,
        })
    }

    /// Takes a request. Memory answers it at once through `out`, other media in a later
    /// [`Media::reap`].
    ///
    /// # Panics
    /// When no medium of this name was ever added.
    pub fn submit(&mut self, request: Request, out: &mut impl FnMut(Completion)) {
        let index = self.places[request.medium.0 as usize];
        if self.state.is_some_and(|state| state != index)
            && let Some(keeper) = self.keeper()
        {
            keeper.on_use();
        }
        if let Some(sharing) = &self.sharing {
            sharing.on_use();
        }
        match self.media.get_mut(index).unwrap_or(&mut Medium::Gone) {
            Medium::Ram(disk) => disk.submit(request, out),
            Medium::SharedRam(ram) => ram.submit(request, out),
            Medium::File(file) => file.submit(request),
            Medium::Nvme(controller) => controller.submit(request),
            Medium::Remote(remote) => remote.submit(request),
            Medium::State(keeper) => keeper.submit(&request, out),
            Medium::Gone => {
                let result = match request.operation {
                    Operation::Flush => Ok(()),
                    Operation::Read { .. } => Err(MediaError::Read),
                    _ => Err(MediaError::Write),
                };
                out(Completion::Done { id: request.id, result });
            }
        }
    }

    /// Hands over the results of requests, without waiting. Returns how much was done; 0 means that
    /// there is nothing to do until one of [`Media::poll_fds`] is readable or
    /// [`Media::poll_timeout`] is due.
    ///
    /// # Errors
    /// When io_uring itself fails, which a healthy kernel does not.
    pub fn reap(&mut self, out: &mut impl FnMut(Completion)) -> io::Result<usize> {
        if !self.going.is_empty() {
            self.let_go();
        }
        let begun = self.look(out);
        let Self { media, sharing, .. } = self;
        let mut out = |completion: Completion| {
            if let (Some(sharing), Completion::Done { id, .. }) = (sharing.as_mut(), &completion) {
                sharing.end(*id);
            }
            out(completion);
        };
        let out = &mut out;
        media.iter_mut().try_fold(begun, |done, medium| match medium {
            Medium::Ram(_) | Medium::SharedRam(_) | Medium::Gone => Ok(done),
            Medium::File(file) => Ok(done + file.reap(out)?),
            Medium::Nvme(controller) => Ok(done + controller.reap(out)),
            Medium::Remote(remote) => Ok(done + remote.reap(out)),
            Medium::State(keeper) => Ok(done + keeper.reap(out)),
        })
    }

    /// The descriptor of messages of other threads, if there are other threads.
    pub(crate) fn mail_fd(&self) -> Option<RawFd> {
        self.sharing.as_ref().map(|sharing| sharing.poll_fd())
    }

    /// Whether [`Media::reap`] has nothing to do until a request or a message of another thread
    /// comes.
    pub(crate) fn may_rest(&self) -> bool {
        let rests = |medium: &Medium| {
            matches!(medium, Medium::Ram(_) | Medium::SharedRam(_) | Medium::File(_) | Medium::Gone)
        };
        self.going.is_empty() && self.in_flight() == 0 && self.media.iter().all(rests)
    }

    /// Why another device that has one of the media refuses this host for good, if any does.
    pub fn refusal(&self) -> Option<&str> {
        self.media.iter().find_map(|medium| match medium {
            Medium::Remote(remote) => remote.refusal(),
            _ => None,
        })
    }

    /// The number of requests that have not ended, over all media.
    pub fn in_flight(&self) -> usize {
        let waiting = self.sharing.as_ref().map_or(0, |sharing| sharing.waiting());
        self.media.iter().map(in_flight).sum::<usize>() + waiting
    }

    /// The descriptors that become readable when `reap` has something to do, except those of
    /// removed media.
    pub fn poll_fds(&self) -> impl Iterator<Item = RawFd> {
        let stays = |(place, medium)| (!self.going.contains(&place)).then_some(medium);
        let files = self.media.iter().enumerate().filter_map(stays).filter_map(|medium| match medium {
            Medium::File(file) => file.poll_fd(),
            Medium::State(keeper) => Some(keeper.poll_fd()),
            Medium::Remote(remote) => Some(remote.poll_fd()),
            Medium::Ram(_) | Medium::SharedRam(_) | Medium::Nvme(_) | Medium::Gone => None,
        });
        let sharing = self.sharing.iter().map(|sharing| sharing.poll_fd());
        files.chain(sharing).chain(self.controllers().flat_map(NvmeMedium::poll_fds))
    }

    /// The time at which `reap` has to be called even when no descriptor is readable.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let keeper = self.media.iter().filter_map(|medium| match medium {
            Medium::State(keeper) => keeper.poll_timeout(),
            Medium::Remote(remote) => remote.poll_timeout(),
            _ => None,
        });
        self.controllers().filter_map(NvmeMedium::poll_timeout).chain(keeper).min()
    }

    /// Notifies the medium that keeps state, if any, that the controller has changed something that
    /// may be worth remembering.
    pub fn note(&mut self, notification: &Notification) {
        if matches!(notification, Notification::ReadyForPowerLoss(_)) {
            self.forget_use();
        }
        if let Some(keeper) = self.keeper() {
            keeper.note(notification);
        }
    }

    /// Notifies the medium that keeps state, if any, that the world has added a namespace of this
    /// origin.
    pub fn note_added(&mut self, namespace: &NamespaceConfig, origin: &str) {
        if let Some(keeper) = self.keeper() {
            keeper.add_namespace(namespace, origin);
        }
    }

    /// Notifies the medium that keeps state, if any, that the world has removed a namespace.
    pub fn note_removed(&mut self, namespace: NamespaceId) {
        if let Some(keeper) = self.keeper() {
            keeper.remove_namespace(namespace);
        }
    }

    /// Saves the counters of the health log where state is kept, if it is time to.
    #[inline]
    pub fn keep(&mut self, now: Instant, counters: impl FnOnce() -> Counters) {
        if self.keeper().is_some_and(|keeper| keeper.is_due(now)) {
            self.keep_now(now, counters);
        }
    }

    /// Announces that the process is to end in good order. When these media are dropped later with
    /// nothing under way, the bytes written to files are made durable. Where state is kept, it then
    /// records that this end is no unsafe shutdown.
    pub fn on_stop(&mut self, counters: &Counters) {
        if let Some(keeper) = self.keeper() {
            keeper.on_stop(counters);
        }
    }

    /// The next notice about the state that is kept, if any. Each notice is returned once.
    pub fn notice(&mut self) -> Option<Notice> {
        self.keeper()?.notice()
    }

    #[cold]
    fn keep_now(&mut self, now: Instant, counters: impl FnOnce() -> Counters) {
        self.forget_use();
        if let Some(keeper) = self.keeper() {
            keeper.keep(now, counters);
        }
    }

    /// Lets the next use by a lane be noted, before the medium that keeps state forgets earlier
    /// use.
    fn forget_use(&self) {
        if let Some(sharing) = &self.sharing {
            sharing.forget_use();
        }
    }

    #[inline]
    fn keeper(&mut self) -> Option<&mut Keeper> {
        match &mut self.media[self.state?] {
            Medium::State(keeper) => Some(keeper),
            _ => None,
        }
    }

    fn controllers(&self) -> impl Iterator<Item = &NvmeMedium> {
        self.media.iter().filter_map(|medium| match medium {
            Medium::Nvme(controller) => Some(controller),
            _ => None,
        })
    }
}

impl Drop for Media {
    fn drop(&mut self) {
        if self.in_flight() > 0 || !self.keeper().is_some_and(|keeper| keeper.is_ending()) {
            return;
        }
        let is_durable = self.media.iter().all(|medium| match medium {
            Medium::File(file) => file.sync().is_ok(),
            // Memory ends with us. A controller or a far device has all data passed to it, and a
            // power supply of its own.
            Medium::Ram(_)
            | Medium::SharedRam(_)
            | Medium::Nvme(_)
            | Medium::Remote(_)
            | Medium::State(_)
            | Medium::Gone => true,
        });
        if let Some(keeper) = self.keeper().filter(|_| is_durable) {
            keeper.on_rest();
        }
    }
}

fn in_flight(medium: &Medium) -> usize {
    match medium {
        Medium::Ram(_) | Medium::SharedRam(_) | Medium::Gone => 0,
        Medium::File(file) => file.in_flight(),
        Medium::Nvme(controller) => controller.in_flight(),
        Medium::Remote(remote) => remote.in_flight(),
        Medium::State(keeper) => keeper.in_flight(),
    }
}

#[cfg(test)]
mod tests {
    use ::nvme::media::IoId;
    use engine::Buffer;

    use super::*;

    #[test]
    fn a_medium_that_is_removed_ends_what_it_was_asked_for_and_then_frees_its_file() {
        let exe = std::env::current_exe().unwrap();
        let path = exe.parent().unwrap().join(format!("farlane-live-removed-{}", std::process::id()));
        let options = Options { size: Some(1 << 20), ..Options::default() };
        let mut media = Media::new();
        let first = media.add(RamDisk::new(4096)).unwrap();
        let medium = media.add(open(&path, &options).unwrap()).unwrap();
        let data = Buffer::copy_from_slice(&[1; 4096]);
        let operation = Operation::Write { offset: 0, data, durable: false };
        let mut results = Vec::new();
        let mut out = |completion| match completion {
            Completion::Done { id, result } => results.push((id.0, result)),
            Completion::Data { .. } => {}
        };
        media.submit(Request { id: IoId(1), medium, operation }, &mut out);
        media.remove(medium);
        while media.in_flight() > 0 || !media.going.is_empty() {
            media.reap(&mut out).unwrap();
        }
        let operation = Operation::Read { offset: 0, length: 4096 };
        media.submit(Request { id: IoId(2), medium, operation }, &mut out);
        assert_eq!(results, [(1, Ok(())), (2, Err(MediaError::Read))]);
        let again = open(&path, &Options::default()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let medium = media.add(again).unwrap();
        assert_eq!((medium, media.media.len()), (MediumId(2), 2), "its place is free, its name is not");
        let operation = Operation::Read { offset: 0, length: 4096 };
        assert_eq!(run(&mut media, Request { id: IoId(3), medium, operation }), [1; 4096]);
        assert_eq!(media.resize(medium, Some(2 << 20)).unwrap(), 2 << 20);
        assert_eq!(media.resize(first, Some(8192)).unwrap(), 8192);
        assert!(media.resize(first, Some(100)).is_err() && media.resize(first, None).is_err());
    }

    #[test]
    fn each_medium_has_bytes_of_its_own() {
        let exe = std::env::current_exe().unwrap();
        let path = exe.parent().unwrap().join(format!("farlane-live-media-{}", std::process::id()));
        let file = open(&path, &Options { size: Some(1 << 20), ..Options::default() }).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut media = Media::new();
        let media_ids = [media.add(RamDisk::new(1 << 20)), media.add(file), media.add(RamDisk::new(1 << 20))];
        let media_ids = media_ids.map(Result::unwrap);
        for medium in media_ids {
            let fill = u8::try_from(medium.0).unwrap() + 1;
            let data = Buffer::copy_from_slice(&[fill; 4096]);
            let operation = Operation::Write { offset: 4096, data, durable: false };
            assert!(run(&mut media, Request { id: IoId(medium.0), medium, operation }).is_empty());
        }
        for medium in media_ids {
            let fill = u8::try_from(medium.0).unwrap() + 1;
            let operation = Operation::Read { offset: 4096, length: 4096 };
            assert_eq!(run(&mut media, Request { id: IoId(9), medium, operation }), [fill; 4096]);
        }
        assert!(media.poll_fds().count() <= 1);
    }

    fn run(media: &mut Media, request: Request) -> Vec<u8> {
        let (mut bytes, mut ended) = (Vec::new(), 0);
        let mut out = |completion| match completion {
            Completion::Data { data, .. } => bytes.extend_from_slice(&data),
            Completion::Done { result, .. } => {
                result.unwrap();
                ended += 1;
            }
        };
        media.submit(request, &mut out);
        while media.in_flight() > 0 {
            media.reap(&mut out).unwrap();
        }
        assert_eq!(ended, 1);
        bytes
    }
}
