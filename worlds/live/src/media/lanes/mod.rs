//! The media of one subsystem as several threads use them: the subsystem's own thread, which opened
//! them, and its lanes.

mod mail;
mod order;
#[cfg(test)]
mod tests;
mod turns;

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use nvme::media::ram::RamDisk;
use nvme::media::{Completion, IoId, MediaError, MediumId, Operation, Request};
use nvme::subsystem::ControllerKey;

use mail::Mail;
use turns::{SharedOrder, Turns};

use super::file::FileForLane;
use super::ram::{SharedRam, SharedRamForLane};
use super::{GONE, Media, Medium, sync};

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

const fn assert_send<T: Send>() {}
const _: () = {
    assert_send::<MediaForLane>();
    assert_send::<LaneMediaChange>();
};

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
    /// The home thread's mail.
    home: Arc<Mail>,
    order: Arc<SharedOrder>,
    /// How many threads there have been.
    threads: AtomicU16,
}

/// Whether a lane has used a medium since the home thread last forgot it. Lanes only read the flag
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
    mail: Arc<Mail>,
    turns: Turns,
    /// What has changed since lanes last learned of it.
    changes: Vec<LaneMediaChange>,
}

impl LaneMediaChange {
    /// Whether a medium is gone. A lane learns of that behind the engine's messages: until then,
    /// the lane may send requests to the medium.
    pub const fn is_removal(&self) -> bool {
        matches!(self.0, Change::Removed(_))
    }
}

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
            self.sharing = Some(Box::new(Sharing::at_home()?));
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
        let request = match (owner, &mut self.sharing) {
            // Memory ends each request before another one begins.
            (Some(owner), Some(sharing))
                if takes_time(&self.media, self.places[request.medium.0 as usize]) =>
            {
                sharing.turns.enter(owner, request, &sharing.mail)
            }
            _ => Some(request),
        };
        if let Some(request) = request {
            self.submit(request, out);
        }
    }

    /// Notes that the command of a request has ended without a completion. If the request still
    /// waited for another controller's, it ends.
    pub fn disown(&mut self, id: IoId, out: &mut impl FnMut(Completion)) {
        if self.sharing.as_mut().is_some_and(|sharing| sharing.turns.disown(id)) {
            out(Completion::Done { id, result: Err(MediaError::Unreachable) });
        }
    }

    /// Looks at what other threads have left for this one. Returns how many requests began.
    pub(super) fn look(&mut self, out: &mut impl FnMut(Completion)) -> usize {
        let Some(sharing) = &self.sharing else { return 0 };
        if !sharing.mail.has_news() {
            return 0;
        }
        let begun = sharing.mail.begun();
        if sharing.is_used()
            && let Some(keeper) = self.keeper()
        {
            keeper.on_use();
        }
        let count = begun.len();
        for key in begun {
            let begun = self.sharing.as_mut().and_then(|sharing| sharing.turns.begin(key));
            if let Some(request) = begun {
                self.submit(request, out);
            }
        }
        count
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
        let mut opened = Media::new();
        opened.sharing = Some(Box::new(Sharing::new(common, Arc::new(Mail::new()?), false)));
        media.into_iter().try_for_each(|medium| opened.place(medium))?;
        Ok(opened)
    }
}

impl Sharing {
    /// The part of the home thread, which opened the media.
    fn at_home() -> io::Result<Self> {
        let home = Arc::new(Mail::new()?);
        let (used, threads) = (Used::default(), AtomicU16::new(0));
        let common = Common { used, home: Arc::clone(&home), order: Arc::new(SharedOrder::new()), threads };
        Ok(Self::new(Arc::new(common), home, true))
    }

    fn new(common: Arc<Common>, mail: Arc<Mail>, is_home: bool) -> Self {
        let thread = common.threads.fetch_add(1, Ordering::Relaxed);
        let turns = Turns::new(Arc::clone(&common.order), thread);
        Self { common, is_home, mail, turns, changes: Vec::new() }
    }

    fn for_lane(&self, media: Vec<MediumForLane>) -> MediaForLane {
        MediaForLane { media, common: Arc::clone(&self.common) }
    }

    /// The descriptor that becomes readable when this thread has to look.
    pub(super) fn poll_fd(&self) -> RawFd {
        self.mail.poll_fd()
    }

    /// How many requests wait for others.
    pub(super) fn waiting(&self) -> usize {
        self.turns.waiting()
    }

    /// Notes that a medium has ended a request.
    #[inline]
    pub(super) fn end(&mut self, id: IoId) {
        self.turns.end(id);
    }

    /// Notes that this thread uses a medium. Of a lane, the home thread learns of the first use.
    #[inline]
    pub(super) fn on_use(&self) {
        if !self.is_home && !self.common.used.0.load(Ordering::Relaxed) {
            self.common.on_first_use();
        }
    }

    /// Whether a lane has used a medium since the last [`Sharing::forget_use`].
    fn is_used(&self) -> bool {
        self.is_home && self.common.used.0.load(Ordering::Relaxed)
    }

    /// Lets the next use by a lane be noted. What the use until now means has not been decided
    /// before.
    pub(super) fn forget_use(&self) {
        if self.is_used() {
            self.common.used.0.swap(false, Ordering::AcqRel);
        }
    }
}

impl Common {
    #[cold]
    fn on_first_use(&self) {
        if !self.used.0.swap(true, Ordering::Relaxed) {
            self.home.ring();
        }
    }
}

/// Whether requests to a medium take time, in which others may come.
fn takes_time(media: &[Medium], place: usize) -> bool {
    matches!(media.get(place), Some(Medium::File(_)))
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
