//! The commands in flight, by token.

use alloc::vec::Vec;

use engine::{Buffer, BufferMut};

use super::CommandToken;
use super::config::{BlockSize, COMMANDS_MAX};
use super::controller::ControllerKey;
use super::exclusive::Alone;
use crate::media::{IoId, MediaError};
use crate::wire::{NamespaceId, SubmissionQueueEntry, SubmissionQueueId};

/// What a command does with the data it pulled from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// What a command waits for its medium to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MediaFor {
    Read,
    Write,
    /// A write to a namespace with unreadable blocks, which may be some of these.
    WriteMarked,
    Flush,
    /// A flush of every namespace, now of this one.
    FlushAll(NamespaceId),
    /// Against the data kept in the slot.
    Compare {
        equal: bool,
    },
    /// Block by block within the transfer limit: bytes verified so far are in the slot's cursor.
    Verify,
    WriteZeroes,
    /// The range with this index, of the list kept in the slot.
    Deallocate(u16),
    /// Forget the contents of this namespace, then give it this block size.
    Format(NamespaceId, BlockSize),
    /// Make the extent of a new namespace read as zeroes.
    CreateNamespace(NamespaceId),
    /// Forget the contents of this namespace, then the namespace.
    DeleteNamespace(NamespaceId),
    /// A piece of this range of a Copy.
    CopyRead(u32),
    CopyWrite(u32),
    /// Make durable what was written to this namespace, then protect it.
    Protect(NamespaceId),
    /// A step of a sanitize operation.
    Sanitize,
    /// A step of a self-test.
    SelfTest,
    /// What the command changed is to be remembered; then it completes with this DW0.
    Save(u32),
}

/// What a slot's command waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    /// Being started; nothing is awaited yet.
    Started,
    AwaitingHostData(HostDataFor),
    AwaitingMedia(MediaFor),
    AwaitingEvent,
    /// Media are to end what they do, so that the command is alone with them.
    AwaitingQuiet(Alone),
    /// The second command of the fused pair, which has not come yet.
    AwaitingSecond,
    /// The first command of the fused pair is to end.
    AwaitingFirst,
    /// Another command is alone with the media.
    Deferred,
    /// Another command is alone with the media; what was pulled is kept in the slot.
    DeferredData(HostDataFor),
}

/// A command in flight.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) state: State,
    /// Distinguishes this slot's requests to media from those of its earlier commands.
    pub(super) generation: u16,
    /// The controller that the command is for, or that the slot's last one was for.
    pub(super) controller: ControllerKey,
    pub(super) queue: SubmissionQueueId,
    pub(super) entry: SubmissionQueueEntry,
    /// Bytes that the command moves between host and controller.
    pub(super) length: u32,
    /// Bytes of the present request to the medium that have arrived.
    pub(super) received: u32,
    /// Bytes of the present read of the medium.
    pub(super) expected: u32,
    /// Progress of a command that asks its medium in steps, in bytes.
    pub(super) cursor: u64,
    /// Host data that is kept for later.
    pub(super) data: Buffer,
    /// What a Copy has read and not written.
    pub(super) gathered: Option<BufferMut>,
    /// The second command of the fused pair that this is the first of.
    pub(super) partner: Option<CommandToken>,
    /// What the command changed is worth remembering: it must be durable before the command completes.
    pub(super) unsaved: bool,
    /// The first failure among the steps.
    pub(super) failure: Option<MediaError>,
}

impl Slot {
    const fn new() -> Self {
        Self {
            state: State::Free,
            generation: 0,
            controller: ControllerKey(0),
            queue: SubmissionQueueId::ADMIN,
            entry: EMPTY_ENTRY,
            length: 0,
            received: 0,
            expected: 0,
            cursor: 0,
            data: Buffer::EMPTY,
            gathered: None,
            partner: None,
            unsaved: false,
            failure: None,
        }
    }
}

impl Slot {
    /// The request to a medium that the command awaits, if it awaits one.
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
    /// The token of the command that the request is for.
    pub(super) const fn token(self) -> CommandToken {
        CommandToken(self.0 & 0xffff)
    }
}

const EMPTY_ENTRY: SubmissionQueueEntry = SubmissionQueueEntry {
    opcode: 0,
    flags: 0,
    command_id: crate::wire::CommandId(0),
    namespace: NamespaceId::NONE,
    cdw2: 0,
    cdw3: 0,
    metadata_pointer: 0,
    data_pointer: [0; 2],
    cdw10: 0,
    cdw11: 0,
    cdw12: 0,
    cdw13: 0,
    cdw14: 0,
    cdw15: 0,
};

/// What the controller does of its own accord, each with a slot behind those of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    Shutdown,
    Sanitize,
    SelfTest,
}

/// All slots: one per token that was ever used, and those of [`Own`].
#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    own: [Slot; OWN as usize],
    /// The tokens of commands are below this.
    commands: u32,
}

/// Slots of [`Own`].
const OWN: u32 = 3;
/// Slots for which room is made at first.
const SLOTS_MIN: u32 = 64;

const _: () = assert!(COMMANDS_MAX + OWN < 1 << 16, "an IoId has 16 bits for the slot");

impl Slots {
    pub(super) fn new(commands_max: u32) -> Self {
        Self { slots: Vec::new(), own: [const { Slot::new() }; OWN as usize], commands: commands_max }
    }

    /// The token of one of the controller's own slots.
    pub(super) const fn own(&self, own: Own) -> CommandToken {
        CommandToken(COMMANDS_MAX + own as u32)
    }

    /// Whether the token is of a command rather than of the controller.
    #[inline]
    pub(super) const fn is_command(&self, token: CommandToken) -> bool {
        token.0 < COMMANDS_MAX
    }

    /// Whether the request is of a slot that outlives resets: nobody waits for it before the controller is ready.
    #[inline]
    pub(super) const fn is_background(&self, id: IoId) -> bool {
        id.0 & 0xffff > COMMANDS_MAX
    }

    /// The slot of a token that was given to a command.
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

    /// Makes room for a token that was never used.
    #[cold]
    fn grow(&mut self, token: CommandToken) {
        assert!(token.0 < self.commands, "tokens are 0..commands_max");
        let count = (token.0 + 1).next_power_of_two().clamp(SLOTS_MIN, COMMANDS_MAX).min(self.commands);
        self.slots.resize_with(usize::try_from(count).unwrap_or(usize::MAX), Slot::new);
    }

    /// The commands in flight of a controller, whether media work for them, and on which queue they are.
    pub(super) fn of_controller(&self, key: ControllerKey) -> impl Iterator<Item = (CommandToken, &Slot)> {
        self.in_flight().filter(move |(_, slot)| slot.controller == key)
    }

    /// The commands in flight, whosever they are.
    pub(super) fn in_flight(&self) -> impl Iterator<Item = (CommandToken, &Slot)> {
        let slots = (0..).map(CommandToken).zip(&self.slots);
        slots.filter(|(_, slot)| slot.state != State::Free)
    }

    /// Starts a command in the slot of `token`.
    #[inline]
    pub(super) fn start(
        &mut self,
        controller: ControllerKey,
        token: CommandToken,
        queue: SubmissionQueueId,
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
        slot.cursor = 0;
        slot.unsaved = false;
        slot.failure = None;
    }

    /// Frees the slot of `token`; what its medium still says is no longer heard.
    #[inline]
    pub(super) fn retire(&mut self, token: CommandToken) {
        let slot = self.of(token);
        slot.state = State::Free;
        slot.data = Buffer::EMPTY;
        slot.gathered = None;
        slot.partner = None;
    }

    /// A name for the slot's next request to a medium.
    #[inline]
    pub(super) fn issue(&mut self, token: CommandToken, purpose: MediaFor, expected: u32) -> IoId {
        let slot = self.of(token);
        slot.state = State::AwaitingMedia(purpose);
        slot.generation = slot.generation.wrapping_add(1);
        slot.received = 0;
        slot.expected = expected;
        request_of(token, slot.generation)
    }

    /// The token that awaits the medium's answer called `id`, and what for.
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

    /// The tokens of commands in flight.
    pub(super) fn tokens(&self) -> impl Iterator<Item = CommandToken> {
        let slots = (0..).map(CommandToken).zip(&self.slots);
        slots.filter(|(_, slot)| slot.state != State::Free).map(|(token, _)| token)
    }
}

/// The slot of what the controller does of its own accord.
#[cold]
fn own_slot(own: &mut [Slot; OWN as usize], token: CommandToken) -> &mut Slot {
    let index = token.0.checked_sub(COMMANDS_MAX).and_then(|index| usize::try_from(index).ok());
    index.and_then(|index| own.get_mut(index)).expect("tokens are those of commands that have arrived")
}
