//! The state of the subsystem and of namespaces that I/O commands need, in views that the subsystem
//! publishes.
//!
//! The views are plain data. The subsystem uses them in place, so that each change is in effect as
//! soon as it is published. A lane of I/O queues has a copy of its own, perhaps on another thread:
//! the README has the protocol between the subsystem and the lanes.

use alloc::vec;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::config::{BlockSize, Config};
use super::controller::ControllerKey;
use super::errors::{Failure, Location};
use crate::media::MediumId;
use crate::wire::{Bits, IoOpcode, NamespaceId, StatusCode, SubmissionQueueEntry};

/// Number of Logical Blocks (NLB), 0's based, in CDW12.
const NLB: Bits = Bits::new(15, 0);

/// Number of logical blocks of the command.
#[inline]
pub(super) const fn blocks_of(entry: &SubmissionQueueEntry) -> u64 {
    NLB.of(entry.cdw12) as u64 + 1
}

/// The kind of access by which reservations judge a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    Reads,
    Writes,
    /// No change of blocks, but reservations judge it like a write.
    Flushes,
    /// No access that reservations can deny: the command has rules of its own.
    Nothing,
}

impl Touch {
    const ALL: [Self; 4] = [Self::Reads, Self::Writes, Self::Flushes, Self::Nothing];

    pub(super) const fn of(opcode: IoOpcode) -> Self {
        match opcode {
            IoOpcode::Read | IoOpcode::Compare | IoOpcode::Verify => Self::Reads,
            IoOpcode::Flush => Self::Flushes,
            IoOpcode::ReservationRegister
            | IoOpcode::ReservationReport
            | IoOpcode::ReservationAcquire
            | IoOpcode::ReservationRelease => Self::Nothing,
            _ => Self::Writes,
        }
    }
}

/// The reason why a namespace refuses a controller's command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Refusal {
    /// The namespace is not active for the controller, or is being created or deleted.
    Missing,
    /// The controller does not reach the namespace, whose ANA state has this status.
    Unreached(StatusCode),
    /// A reservation of another host denies the access.
    Reserved,
    /// The namespace is being formatted.
    Formatting,
    /// The controller's host may only read.
    ReadOnly,
}

/// The verdict of a namespace on the commands of one controller: a refusal or none for each
/// [`Touch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Verdict([Option<Refusal>; 4]);

impl Verdict {
    /// Refuses every command for the same reason.
    pub(super) const fn refuse(refusal: Refusal) -> Self {
        Self([Some(refusal); 4])
    }

    pub(super) fn new(of: impl Fn(Touch) -> Option<Refusal>) -> Self {
        Self(Touch::ALL.map(of))
    }

    const fn refusal(&self, touch: Touch) -> Option<Refusal> {
        self.0[touch as usize]
    }
}

/// The state of its namespace that an I/O command needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NamespaceView {
    /// The version of the views with which this view was published.
    pub(super) version: u64,
    pub(super) medium: MediumId,
    /// Byte offset of the namespace in its medium.
    pub(super) offset: u64,
    pub(super) block: BlockSize,
    /// Namespace Size (NSZE).
    pub(super) blocks: u64,
    /// Whether writes are refused.
    pub(super) write_protected: bool,
    /// Whether the namespace is being created, formatted or deleted.
    pub(super) busy: bool,
    /// Whether some of the namespace's blocks are unreadable.
    pub(super) marked: bool,
    /// Whether no command needs a second look: the namespace is active for and reached by every
    /// controller, not reserved, not busy, and without unreadable blocks.
    pub(super) plain: bool,
    /// The verdict of the namespace for each controller, by key; empty if the namespace is plain.
    pub(super) verdicts: Vec<Verdict>,
}

impl NamespaceView {
    /// Whether only the subsystem can execute commands for the namespace: it knows which blocks are
    /// unreadable, and the forms of blocks with metadata.
    pub(super) const fn needs_subsystem(&self) -> bool {
        self.marked || self.block.has_metadata()
    }

    /// The reason why a command of the controller is refused, if it is.
    pub(super) fn refusal(&self, controller: ControllerKey, touch: Touch) -> Option<Refusal> {
        if self.plain { None } else { self.verdict(controller).refusal(touch) }
    }

    /// The verdict of a namespace that is not plain for the controller.
    fn verdict(&self, controller: ControllerKey) -> Verdict {
        let verdict = self.verdicts.get(usize::from(controller.0));
        verdict.copied().unwrap_or(Verdict::refuse(Refusal::Missing))
    }

    /// The extent of the command's logical blocks.
    #[inline]
    pub(super) fn extent_of(&self, entry: &SubmissionQueueEntry) -> Result<Extent, Failure> {
        self.extent_within(entry.starting_lba(), blocks_of(entry))
    }

    /// The extent of `blocks` logical blocks from `lba`. Fails if the namespace does not have them
    /// all.
    #[inline]
    pub(super) fn extent_within(&self, lba: u64, blocks: u64) -> Result<Extent, Failure> {
        match lba.checked_add(blocks) {
            Some(end) if end <= self.blocks => {
                let unit = u64::from(self.block.stored());
                Ok(Extent { offset: self.offset + lba * unit, length: blocks * unit })
            }
            _ => {
                Err(Failure { location: Location::CDW10, ..Failure::at_lba(StatusCode::LbaOutOfRange, lba) })
            }
        }
    }
}

/// The bytes of a medium that a command reads or writes.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// The state of the subsystem that I/O commands to any namespace need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Shared {
    /// Whether every write must be durable, because no volatile write cache is on.
    write_through: bool,
    /// The status with which I/O commands fail because of a sanitize operation, except Flush.
    sanitize: Option<StatusCode>,
    /// Whether there was no write since the last sanitize operation, so that the first change must
    /// be reported to the subsystem.
    erased: bool,
    /// Whether lanes start no step for namespaces that are not busy, because a command is or will
    /// be alone with the media.
    held: bool,
}

/// The views of all namespaces, and the state of the subsystem that I/O commands need.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Views {
    /// The number of changes published so far.
    version: u64,
    /// Maximum Data Transfer Size (MDTS) in bytes.
    pub(super) transfer_bytes_max: u32,
    shared: Shared,
    /// The namespaces by identifier: index n holds namespace n + 1.
    namespaces: Vec<Option<NamespaceView>>,
    /// The version of the latest change to each namespace.
    changed: Vec<u64>,
}

/// What changed in the views after some version.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Changes {
    pub(super) version: u64,
    shared: Shared,
    namespaces: Vec<(usize, Option<NamespaceView>)>,
}

impl Views {
    pub(super) fn new(config: &Config, highest: usize) -> Self {
        Self {
            version: 0,
            transfer_bytes_max: config.transfer_bytes_max,
            shared: Shared {
                write_through: !config.volatile_write_cache,
                sanitize: None,
                erased: false,
                held: false,
            },
            namespaces: vec![None; highest],
            changed: vec![0; highest],
        }
    }

    /// The view of the namespace called `id`, in any state.
    #[inline]
    pub(super) fn find(&self, id: NamespaceId) -> Option<&NamespaceView> {
        self.namespaces.get(usize::try_from(id.0.wrapping_sub(1)).ok()?)?.as_ref()
    }

    /// Whether `id` is an identifier that namespaces can have.
    #[inline]
    pub(super) fn is_valid(&self, id: NamespaceId) -> bool {
        usize::try_from(id.0).is_ok_and(|id| (1..=self.namespaces.len()).contains(&id))
    }

    /// Whether metadata accompany each block of the namespace called `id`.
    pub(super) fn has_metadata(&self, id: NamespaceId) -> bool {
        self.find(id).is_some_and(|view| view.block.has_metadata())
    }

    /// The failure for a namespace that does not exist: its identifier is invalid, or valid but not
    /// in use.
    pub(super) fn missing(&self, id: NamespaceId) -> Failure {
        let code =
            if self.is_valid(id) { StatusCode::InvalidField } else { StatusCode::InvalidNamespaceOrFormat };
        Failure::field(code, Location::NAMESPACE)
    }

    /// The failure for a namespace that refuses a command.
    pub(super) fn failure(&self, id: NamespaceId, refusal: Refusal) -> Failure {
        match refusal {
            Refusal::Missing => self.missing(id),
            Refusal::Unreached(code) => Failure::field(code, Location::NAMESPACE),
            Refusal::Reserved => Failure::new(StatusCode::ReservationConflict),
            Refusal::Formatting => Failure::new(StatusCode::FormatInProgress),
            Refusal::ReadOnly => Failure::new(StatusCode::NamespaceWriteProtected),
        }
    }

    #[inline]
    pub(super) const fn is_write_through(&self) -> bool {
        self.shared.write_through
    }

    pub(super) const fn sanitize(&self) -> Option<StatusCode> {
        self.shared.sanitize
    }

    pub(super) const fn is_erased(&self) -> bool {
        self.shared.erased
    }

    pub(super) const fn is_held(&self) -> bool {
        self.shared.held
    }

    /// The number of changes published so far.
    pub(super) const fn version(&self) -> u64 {
        self.version
    }

    /// Whether every I/O command of a lane must take a second look.
    pub(super) fn need_care(&self) -> bool {
        let Shared { sanitize, erased, held, .. } = self.shared;
        sanitize.is_some()
            || erased
            || held
            || self.namespaces.iter().flatten().any(NamespaceView::needs_subsystem)
    }

    /// The changes after `version`.
    pub(super) fn since(&self, version: u64) -> Changes {
        let changed = self.changed.iter().enumerate().filter(|(_, at)| **at > version);
        Changes {
            version: self.version,
            shared: self.shared,
            namespaces: changed.map(|(index, _)| (index, self.namespaces[index].clone())).collect(),
        }
    }

    /// Makes the changes that other views have published.
    pub(super) fn apply(&mut self, changes: Changes) {
        (self.version, self.shared) = (changes.version, changes.shared);
        for (index, view) in changes.namespaces {
            if let Some(place) = self.namespaces.get_mut(index) {
                *place = view;
            }
        }
    }

    /// Publishes a namespace, or that there is none, if anything changed.
    pub(super) fn publish(&mut self, index: usize, mut view: Option<NamespaceView>) {
        let place = &mut self.namespaces[index];
        if let (Some(new), Some(old)) = (&mut view, &*place) {
            new.version = old.version;
        }
        if view != *place {
            self.version += 1;
            if let Some(new) = &mut view {
                new.version = self.version;
            }
            *place = view;
            self.changed[index] = self.version;
        }
    }

    /// Publishes the verdict of a namespace for one controller, if it changed.
    pub(super) fn publish_verdict(&mut self, index: usize, controller: ControllerKey, verdict: Verdict) {
        let Some(view) = &mut self.namespaces[index] else { return };
        let key = usize::from(controller.0);
        if view.verdict(controller) == verdict {
            return;
        }
        if view.verdicts.len() <= key {
            view.verdicts.resize(key + 1, Verdict::refuse(Refusal::Missing));
        }
        view.verdicts[key] = verdict;
        self.version += 1;
        view.version = self.version;
        self.changed[index] = self.version;
    }

    /// Counts a change that is none of the views: something else for lanes to see.
    pub(super) const fn publish_news(&mut self) {
        self.version += 1;
    }

    pub(super) const fn publish_held(&mut self, held: bool) {
        self.shared.held = held;
        self.version += 1;
    }

    pub(super) const fn publish_write_through(&mut self, write_through: bool) {
        if self.shared.write_through != write_through {
            self.shared.write_through = write_through;
            self.version += 1;
        }
    }

    pub(super) fn publish_sanitize(&mut self, sanitize: Option<StatusCode>, erased: bool) {
        if (self.shared.sanitize, self.shared.erased) != (sanitize, erased) {
            (self.shared.sanitize, self.shared.erased) = (sanitize, erased);
            self.version += 1;
        }
    }
}
