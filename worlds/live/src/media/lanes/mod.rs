//! The media of one subsystem as several threads use them: the subsystem's own thread, which opened
//! them, and its lanes.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nvme::media::ram::RamDisk;
use nvme::media::{Completion, IoId, MediumId, Operation, Request};
use nvme::subsystem::ControllerKey;
use rustix::event::{EventfdFlags, eventfd};

use super::file::FileForLane;
use super::ram::{SharedRam, SharedRamForLane};
use super::{GONE, Media, Medium};

/// How many bytes of a disk move at once to where several threads use them.
const MOVED_AT_ONCE: u64 = 1 << 16;

/// A medium on its way to a lane.
#[derive(Clone, Debug)]
enum MediumForLane {
    Ram(SharedRamForLane),
    File(FileForLane),
    /// No lane sends requests to it: a removed medium, or the one that keeps the state.
    None,
}

/// The media of a subsystem on their way to a lane's thread.
#[derive(Debug)]
pub struct MediaForLane {
    media: Vec<MediumForLane>,
    common: Arc<Common>,
}

/// What has changed among the media of a subsystem, for each of its lanes.
#[derive(Clone, Debug)]
pub struct LaneMediaChange(Change);

#[derive(Clone, Debug)]
enum Change {
    Added(MediumId, MediumForLane),
    Removed(MediumId),
    Resized(MediumId, u64),
}

/// What all threads of one set of media have in common.
#[derive(Debug)]
struct Common {
    used: Used,
    /// Wakes the home thread.
    home: OwnedFd,
}

/// Whether a lane has used a medium since the home thread last looked. Lanes only read the flag
/// while it is set.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Used(AtomicBool);

/// The part of one thread in the media that several threads use.
#[derive(Debug)]
pub(super) struct Sharing {
    common: Arc<Common>,
    /// Whether this is the home thread, which opened the media.
    is_home: bool,
    /// What has changed since lanes last learned of it.
    changes: Vec<LaneMediaChange>,
}

const fn assert_send<T: Send>() {}
const _: () = {
    assert_send::<MediaForLane>();
    assert_send::<LaneMediaChange>();
};

impl Media {
    /// The media as a lane's thread uses them; `None` if one of them can be used by one thread
    /// only. Memory that was for one thread moves to where several threads reach it.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn for_lane(&mut self) -> io::Result<Option<MediaForLane>> {
        if !self.media.iter().all(Medium::is_for_lanes) {
            return Ok(None);
        }
        for medium in &mut self.media {
            *medium = std::mem::replace(medium, Medium::Gone).for_threads();
        }
        if self.sharing.is_none() {
            self.sharing = Some(Box::new(Sharing::new()?));
        }
        let media = self.places.iter().map(|place| self.medium_for_lane(*place)).collect();
        Ok(self.sharing.as_ref().map(|sharing| sharing.for_lane(media)))
    }

    fn medium_for_lane(&self, place: usize) -> MediumForLane {
        match self.media.get(place) {
            Some(Medium::SharedRam(ram)) => MediumForLane::Ram(ram.for_lane()),
            Some(Medium::File(file)) => MediumForLane::File(file.for_lane()),
            _ => MediumForLane::None,
        }
    }

    /// What has changed since the last call, for lanes that were made before. Send it to each lane
    /// before the engine's message that makes use of it.
    pub fn changes_for_lanes(&mut self) -> Vec<LaneMediaChange> {
        self.sharing.as_mut().map(|sharing| std::mem::take(&mut sharing.changes)).unwrap_or_default()
    }

    /// Applies a change to the media of a lane.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn apply(&mut self, LaneMediaChange(change): LaneMediaChange) -> io::Result<()> {
        match change {
            Change::Added(id, medium) => {
                let name = self.places.len();
                assert_eq!(usize::try_from(id.0), Ok(name), "changes of media arrive in their order");
                self.place(medium)?;
            }
            Change::Removed(id) => self.remove(id),
            Change::Resized(id, bytes) => {
                if let Some(Medium::File(file)) = self.media.get_mut(self.places[id.0 as usize]) {
                    file.set_size(bytes);
                }
            }
        }
        Ok(())
    }

    /// Adds a medium of the home thread under its next name.
    fn place(&mut self, medium: MediumForLane) -> io::Result<()> {
        let medium = match medium {
            MediumForLane::Ram(ram) => Medium::SharedRam(ram.open()),
            MediumForLane::File(file) => Medium::File(file.open()?),
            MediumForLane::None => {
                self.places.push(GONE);
                return Ok(());
            }
        };
        self.add(medium).map_err(io::Error::other)?;
        Ok(())
    }

    /// Takes a request that a command of the controller `owner` sends; `None` for background work.
    /// The media keep the order between overlapping requests of different controllers over all
    /// threads.
    ///
    /// # Panics
    /// When no medium of this name was ever added.
    pub fn submit_for(
        &mut self,
        owner: Option<ControllerKey>,
        request: Request,
        out: &mut impl FnMut(Completion),
    ) {
        let _ = owner;
        self.submit(request, out);
    }

    /// Notes that the command of a request has ended without a completion. If the request still
    /// waited for another controller's, it ends.
    pub fn disown(&mut self, id: IoId, out: &mut impl FnMut(Completion)) {
        let _ = (id, out);
    }

    /// Notes a change for lanes that were made before.
    pub(super) fn note_added_for_lanes(&mut self, id: MediumId, place: usize) {
        if self.sharing.as_ref().is_some_and(|sharing| sharing.is_home) {
            self.note_for_lanes(Change::Added(id, self.medium_for_lane(place)));
        }
    }

    pub(super) fn note_removed_for_lanes(&mut self, id: MediumId) {
        self.note_for_lanes(Change::Removed(id));
    }

    pub(super) fn note_resized_for_lanes(&mut self, id: MediumId, bytes: u64) {
        self.note_for_lanes(Change::Resized(id, bytes));
    }

    fn note_for_lanes(&mut self, change: Change) {
        if let Some(sharing) = self.sharing.as_mut().filter(|sharing| sharing.is_home) {
            sharing.changes.push(LaneMediaChange(change));
        }
    }
}

impl Medium {
    /// The medium in a form that several threads can use, if it has one.
    pub(super) fn for_threads(self) -> Self {
        match self {
            Self::Ram(disk) => Self::SharedRam(SharedRam::from(disk)),
            other => other,
        }
    }

    /// Whether lanes can use the medium beside the home thread.
    pub const fn is_for_lanes(&self) -> bool {
        !matches!(self, Self::Nvme(_) | Self::Remote(_))
    }
}

impl MediaForLane {
    /// The media as this thread uses them, under the same names as at home.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn open(self) -> io::Result<Media> {
        let Self { media, common } = self;
        let sharing = Sharing { common, is_home: false, changes: Vec::new() };
        let mut opened = Media::new();
        opened.sharing = Some(Box::new(sharing));
        media.into_iter().try_for_each(|medium| opened.place(medium))?;
        Ok(opened)
    }
}

impl Sharing {
    fn new() -> io::Result<Self> {
        let home = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let common = Arc::new(Common { used: Used::default(), home });
        Ok(Self { common, is_home: true, changes: Vec::new() })
    }

    fn for_lane(&self, media: Vec<MediumForLane>) -> MediaForLane {
        MediaForLane { media, common: Arc::clone(&self.common) }
    }

    /// The descriptor that becomes readable when this thread has to look.
    pub(super) fn poll_fd(&self) -> Option<RawFd> {
        self.is_home.then(|| self.common.home.as_raw_fd())
    }

    /// Notes that this thread uses a medium. Of a lane, the home thread learns of the first use.
    #[inline]
    pub(super) fn on_use(&self) {
        if !self.is_home && !self.common.used.0.load(Ordering::Relaxed) {
            self.common.on_first_use();
        }
    }

    /// Whether a lane has used a medium since the last call.
    pub(super) fn take_used(&self) -> bool {
        if !self.is_home || !self.common.used.0.load(Ordering::Relaxed) {
            return false;
        }
        drain(&self.common.home);
        self.common.used.0.swap(false, Ordering::Relaxed)
    }
}

impl Common {
    #[cold]
    fn on_first_use(&self) {
        if !self.used.0.swap(true, Ordering::Relaxed) {
            ring(&self.home);
        }
    }
}

/// Makes a descriptor of an eventfd readable.
fn ring(event: &OwnedFd) {
    // The counter is full after 2^64 rings.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

/// Makes the descriptor of an eventfd unreadable until the next ring.
fn drain(event: &OwnedFd) {
    // Without a ring since the last time there is nothing to read.
    let _ = rustix::io::read(event, &mut [0; 8]);
}

impl From<RamDisk> for SharedRam {
    /// Moves the contents of a disk.
    fn from(mut disk: RamDisk) -> Self {
        let mut ram = Self::new(disk.bytes());
        let (medium, id) = (MediumId(0), IoId(0));
        let mut at = 0;
        while disk.resident_bytes() > 0 && at < disk.bytes() {
            let length = MOVED_AT_ONCE.min(disk.bytes() - at);
            let operation = Operation::Read { offset: at, length: u32::try_from(length).unwrap_or(u32::MAX) };
            disk.submit(Request { id, medium, operation }, &mut |completion| {
                if let Completion::Data { offset, data, .. } = completion
                    && data.iter().any(|byte| *byte != 0)
                {
                    let operation = Operation::Write { offset: at + u64::from(offset), data, durable: false };
                    ram.submit(Request { id, medium, operation }, &mut |_| ());
                }
            });
            let operation = Operation::Deallocate { offset: at, length };
            disk.submit(Request { id, medium, operation }, &mut |_| ());
            at += length;
        }
        ram
    }
}

#[cfg(test)]
mod tests;
