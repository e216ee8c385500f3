//! The slots of commands in flight, by token.

use alloc::vec::Vec;

use engine::{Buffer, BufferMut, Instant};
use serde::{Deserialize, Serialize};

use super::config::{BlockSize, COMMANDS_MAX};
use super::controller::ControllerKey;
use super::strays::Strays;
use super::tally::Spent;
use super::types::CommandToken;
use crate::media::{IoId, MediaError, MediumId};
use crate::wire::{NamespaceId, QueueId, SubmissionQueueEntry};

/// The use of the data that a command pulled from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum HostDataFor {
    Write,
    Compare,
    DatasetManagement,
    Copy,
    SetFeatures,
    CreateNamespace,
    NamespaceAttachment,
    FirmwareImage,
    Reservation,
}

/// The scope of a command's erasure, and the next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Erasure {
    /// The contents of this namespace, which then gets this block size.
    Format(NamespaceId, BlockSize),
    /// The extent of this new namespace, which then reads as zeroes.
    Creation(NamespaceId),
    /// The contents of this namespace, which is then removed.
    Deletion(NamespaceId),
}

/// The operation of its medium that a command waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum MediaFor {
    Read,
    /// A read of blocks with their protection information, which the slot gathers.
    ReadStored,
    Write,
    /// A write to a namespace with unreadable blocks, which the write may make readable.
    WriteMarked,
    Flush,
    /// One step of a flush of every namespace: the flush of this namespace.
    FlushAll(NamespaceId),
    /// A read to compare with the data kept in the slot.
    Compare {
        equal: bool,
    },
    /// A read of the next piece to verify, within the transfer limit. The slot's cursor counts the
    /// bytes verified so far.
    Verify,
    WriteZeroes,
    /// Deallocation of the range with this index in the list kept in the slot.
    Deallocate(u16),
    /// Erasure of a namespace's contents.
    Erase(Erasure),
    /// A flush of the medium that makes an erasure durable.
    FlushErased(Erasure),
    /// A read of a piece of this range of a Copy.
    CopyRead(u32),
    CopyWrite(u32),
    /// A flush of this namespace, which is then protected.
    Protect(NamespaceId),
    /// One step of a sanitize operation.
    Sanitize,
    /// One step of a self-test.
    SelfTest,
    /// A flush of the state that the command changed, after which the command completes with
    /// this DW0.
    Save(u32),
}

/// The action of a command with exclusive access to the media.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Alone {
    Format,
    DeleteNamespaces,
    CompareAndWrite,
    Protect,
}

/// The event that a command waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum State {
    Free,
    /// The command is starting and waits for nothing yet.
    Started,
    AwaitingHostData(HostDataFor),
    AwaitingMedia(MediaFor),
    AwaitingEvent,
    /// The command waits until media are quiet, to be alone with them.
    AwaitingQuiet(Alone),
    /// The first command of a fused pair waits for the second one.
    AwaitingSecond,
    /// The second command of a fused pair waits for the first one to end.
    AwaitingFirst,
    /// The command waits because another command is alone with the media.
    Deferred,
    /// The command and the pulled data in its slot wait because another command is alone with
    /// the media.
    DeferredData(HostDataFor),
    /// The next step of the command, after this one, waits because a lane is held.
    DeferredStep(MediaFor),
    /// A lane has handed the command over to the subsystem.
    HandedOver,
    /// The command waits until all lanes have seen a publication.
    AwaitingLanes,
}

impl State {
    /// Whether a command in this state can be aborted without leaving its effect in doubt.
    pub(super) const fn can_abort(self) -> bool {
        match self {
            Self::AwaitingEvent
            | Self::AwaitingHostData(_)
            | Self::AwaitingQuiet(_)
            | Self::AwaitingSecond
            | Self::Deferred
            | Self::DeferredData(_) => true,
            Self::AwaitingMedia(purpose) => {
                matches!(
                    purpose,
                    MediaFor::Read | MediaFor::ReadStored | MediaFor::Compare { .. } | MediaFor::Verify
                )
            }
            Self::DeferredStep(purpose) => matches!(purpose, MediaFor::Verify),
            Self::Free | Self::Started | Self::AwaitingFirst | Self::HandedOver | Self::AwaitingLanes => {
                false
            }
        }
    }
}

/// The state of a command in flight.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Slot {
    pub(super) state: State,
    /// Distinguishes the present command's media requests from those of earlier commands in
    /// the slot.
    pub(super) generation: u16,
    /// The medium that has a request of the present command and has not ended it.
    pub(super) asked: Option<MediumId>,
    /// The controller of the present command, or of the last one in a free slot.
    pub(super) controller: ControllerKey,
    pub(super) queue: QueueId,
    pub(super) entry: SubmissionQueueEntry,
    /// Bytes that the command transfers between host and controller.
    pub(super) length: u32,
    /// How many of these are metadata, behind the data.
    pub(super) metadata: u32,
    /// Bytes of the present media request that have arrived.
    pub(super) received: u32,
    /// Bytes that the present read of the medium returns in all.
    pub(super) expected: u32,
    /// Progress in bytes of a command that works in steps.
    pub(super) cursor: u64,
    /// Host data that is kept for a later step.
    pub(super) data: Buffer,
    /// Data that a Copy has read and not yet written.
    pub(super) gathered: Option<BufferMut>,
    /// The second command of the fused pair whose first command is in this slot.
    pub(super) partner: Option<CommandToken>,
    /// Whether the command changed lasting state, which must be durable before the
    /// command completes.
    pub(super) unsaved: bool,
    /// The first failure of any step.
    pub(super) failure: Option<MediaError>,
    /// Where the command's time went so far.
    pub(super) spent: Spent,
}

impl Slot {
    const fn new() -> Self {
        Self {
            state: State::Free,
            generation: 0,
            asked: None,
            controller: ControllerKey(0),
            queue: QueueId::ADMIN,
            entry: SubmissionQueueEntry::EMPTY,
            length: 0,
            metadata: 0,
            received: 0,
            expected: 0,
            cursor: 0,
            data: Buffer::EMPTY,
            gathered: None,
            partner: None,
            unsaved: false,
            failure: None,
            spent: Spent::new(Instant::ZERO),
        }
    }
}

impl Slot {
    /// The media request that the command waits for.
    pub(super) const fn request(&self, token: CommandToken) -> Option<IoId> {
        match self.state {
            State::AwaitingMedia(_) => Some(request_of(token, self.generation)),
            _ => None,
        }
    }
}

const fn request_of(token: CommandToken, generation: u16) -> IoId {
    IoId((generation as u32) << 16 | token.0)
}

impl IoId {
    /// The token of the command that made the request.
    pub(super) const fn token(self) -> CommandToken {
        CommandToken(self.0 & 0xffff)
    }
}

/// Actions of the controller without a command. Each of these has its own slot behind the commands'
/// slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Own {
    Shutdown,
    Sanitize,
    SelfTest,
}

/// All slots: one for each token used so far, and one for each [`Own`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    own: [Slot; OWN as usize],
    pub(super) strays: Strays,
    /// The limit of command tokens, which are smaller.
    commands: u32,
}

/// Number of slots for [`Own`].
const OWN: u32 = 3;
/// Number of command slots to allocate at first.
const SLOTS_MIN: u32 = 64;

const _: () = assert!(COMMANDS_MAX + OWN < 1 << 16, "an IoId has 16 bits for the slot");

impl Slots {
    pub(super) fn new(commands_max: u32) -> Self {
        let own = [const { Slot::new() }; OWN as usize];
        Self { slots: Vec::new(), own, strays: Strays::default(), commands: commands_max }
    }

    /// The token of an [`Own`] slot.
    pub(super) const fn own(&self, own: Own) -> CommandToken {
        CommandToken(COMMANDS_MAX + own as u32)
    }

    /// Allows every token that a command can have.
    pub(super) const fn open(&mut self) {
        self.commands = COMMANDS_MAX;
    }

    /// The requests that media have not ended.
    pub(super) fn requests(&self) -> impl Iterator<Item = IoId> {
        self.in_flight().filter_map(|(token, slot)| slot.request(token)).chain(self.strays.iter())
    }

    /// Whether the token belongs to a command rather than to an [`Own`] slot.
    #[inline]
    pub(super) const fn is_command(&self, token: CommandToken) -> bool {
        token.0 < COMMANDS_MAX
    }

    /// Whether the request belongs to background work, which outlives resets and does not
    /// delay them.
    #[inline]
    pub(super) const fn is_background(&self, id: IoId) -> bool {
        id.0 & 0xffff > COMMANDS_MAX
    }

    /// The slot of a token in use.
    #[inline]
    pub(super) fn of(&mut self, token: CommandToken) -> &mut Slot {
        match self.slots.get_mut(usize::try_from(token.0).unwrap_or(usize::MAX)) {
            Some(slot) => slot,
            None => own_slot(&mut self.own, token),
        }
    }

    pub(super) fn peek(&self, token: CommandToken) -> Option<&Slot> {
        let slot = self.slots.get(usize::try_from(token.0).ok()?);
        slot.or_else(|| self.own.get(usize::try_from(token.0.checked_sub(COMMANDS_MAX)?).ok()?))
    }

    /// Allocates slots up to a token that was never used.
    #[cold]
    fn grow(&mut self, token: CommandToken) {
        assert!(token.0 < self.commands, "tokens are 0..commands_max");
        let count = (token.0 + 1).next_power_of_two().clamp(SLOTS_MIN, COMMANDS_MAX).min(self.commands);
        self.slots.resize_with(usize::try_from(count).unwrap_or(usize::MAX), Slot::new);
    }

    /// The commands in flight of a controller, on all its queues, in any state.
    pub(super) fn of_controller(&self, key: ControllerKey) -> impl Iterator<Item = (CommandToken, &Slot)> {
        self.in_flight().filter(move |(_, slot)| slot.controller == key)
    }

    /// The commands in flight of all controllers.
    pub(super) fn in_flight(&self) -> impl Iterator<Item = (CommandToken, &Slot)> {
        let slots = (0..).map(CommandToken).zip(&self.slots);
        slots.filter(|(_, slot)| slot.state != State::Free)
    }

    /// Starts a command, which arrives at `now`, in the slot of `token`.
    #[inline]
    pub(super) fn start(
        &mut self,
        now: Instant,
        controller: ControllerKey,
        token: CommandToken,
        queue: QueueId,
        entry: SubmissionQueueEntry,
    ) {
        if usize::try_from(token.0).is_ok_and(|index| index >= self.slots.len()) {
            self.grow(token);
        }
        let slot = self.of(token);
        assert!(slot.state == State::Free, "{token:?} is already in use");
        slot.state = State::Started;
        slot.controller = controller;
        slot.queue = queue;
        slot.entry = entry;
        slot.length = 0;
        slot.metadata = 0;
        slot.cursor = 0;
        slot.unsaved = false;
        slot.failure = None;
        slot.spent = Spent::new(now);
    }

    /// Frees the slot of `token`. Later answers of its medium are ignored.
    #[inline]
    pub(super) fn retire(&mut self, token: CommandToken) {
        let slot = self.of(token);
        slot.state = State::Free;
        slot.data = Buffer::EMPTY;
        slot.gathered = None;
        slot.partner = None;
        if let Some(medium) = slot.asked.take() {
            let id = request_of(token, slot.generation);
            self.strays.add(id, medium);
        }
    }

    /// Makes the slot wait for a new media request, and returns the request's identifier.
    #[inline]
    pub(super) fn issue(&mut self, token: CommandToken, purpose: MediaFor, expected: u32) -> IoId {
        let before = self.of(token).generation;
        // A medium may still have a request whose identifier would be reused.
        let mut next = (1..=u16::MAX).map(|count| before.wrapping_add(count));
        let generation = next.find(|one| !self.strays.has(request_of(token, *one)));
        let slot = self.of(token);
        slot.state = State::AwaitingMedia(purpose);
        slot.generation = generation.unwrap_or(before);
        slot.received = 0;
        slot.expected = expected;
        request_of(token, slot.generation)
    }

    /// The token that waits for the media request `id`, and the purpose of the request.
    #[inline]
    pub(super) fn awaiting(&self, id: IoId) -> Option<(CommandToken, MediaFor)> {
        let token = id.token();
        let slot = self.peek(token)?;
        match slot.state {
            State::AwaitingMedia(purpose) if u32::from(slot.generation) == id.0 >> 16 => {
                Some((token, purpose))
            }
            _ => None,
        }
    }

    /// The slot of a command that waits for lanes.
    pub(super) fn waiting_for_lanes(&mut self, token: CommandToken) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(usize::try_from(token.0).ok()?)?;
        (slot.state == State::AwaitingLanes).then_some(slot)
    }

    /// The tokens of commands in flight.
    pub(super) fn tokens(&self) -> impl Iterator<Item = CommandToken> {
        let slots = (0..).map(CommandToken).zip(&self.slots);
        slots.filter(|(_, slot)| slot.state != State::Free).map(|(token, _)| token)
    }
}

/// The [`Own`] slot of a token.
#[cold]
fn own_slot(own: &mut [Slot; OWN as usize], token: CommandToken) -> &mut Slot {
    let index = token.0.checked_sub(COMMANDS_MAX).and_then(|index| usize::try_from(index).ok());
    index.and_then(|index| own.get_mut(index)).expect("tokens are those of commands that have arrived")
}
