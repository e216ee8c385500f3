//! The command core of a controller: its own, or one that controllers of several functions share.
//!
//! A shared core is at one controller at a time. A controller that the core comes to takes what the
//! core has said for it meanwhile, before anything else.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Engine, Instant};
use nvme::media;
use nvme::subsystem::{CommandToken, ControllerKey, Input, Notification, Output, Subsystem, Transfer};
use serde::{Deserialize, Serialize};

/// The most controllers that share a core.
pub const SEATS_MAX: u16 = 64;

/// A controller's place among those that share a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seat(pub(super) u16);

impl Seat {
    /// The set with this seat alone.
    const fn bit(self) -> u64 {
        1 << self.0
    }
}

/// The command core of a controller.
#[derive(Debug, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "controllers are few and live long")]
pub(super) enum Core {
    /// The controller has the core to itself.
    Own(Subsystem),
    /// The controller shares the core, which may be at another controller now.
    Shared(Seat, Option<Box<Shared>>),
}

/// A core that several controllers share.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Shared {
    subsystem: Subsystem,
    /// The most commands of each controller. A command's token has a part for its seat.
    commands_max: u32,
    /// What the core has said for each controller and the controller has not yet taken.
    trays: Vec<VecDeque<Output>>,
    /// Seats whose controllers have something to take, or to look at.
    called: u64,
    /// Seats whose controllers wait for media before they are ready.
    enabling: u64,
}

impl Shared {
    /// A core for several controllers, which has none yet.
    pub(super) const fn new(subsystem: Subsystem, commands_max: u16) -> Self {
        let commands_max = commands_max as u32;
        Self { subsystem, commands_max, trays: Vec::new(), called: 0, enabling: 0 }
    }

    /// Adds a controller, which gets the next seat.
    pub(super) fn add_controller(&mut self, now: Instant, config: &super::Config) -> (Seat, ControllerKey) {
        let seat = Seat(u16::try_from(self.trays.len()).unwrap_or(u16::MAX));
        assert!(seat.0 < SEATS_MAX, "a core has {SEATS_MAX} seats at most");
        self.trays.push(VecDeque::new());
        let key = self.subsystem.add_controller(now, config.of_controller(Some(seat.0)));
        assert_eq!(key.0, seat.0, "controllers are added in the order of seats, and stay");
        (seat, key)
    }

    const fn token_at(&self, seat: Seat, token: CommandToken) -> CommandToken {
        CommandToken(token.0 + seat.0 as u32 * self.commands_max)
    }

    /// Replaces a token of the core by its controller's own. Returns the seat.
    fn localise(&self, token: &mut CommandToken) -> Seat {
        let seat = token.0 / self.commands_max;
        token.0 %= self.commands_max;
        Seat(u16::try_from(seat).unwrap_or(u16::MAX))
    }

    /// The seat that an output is for, whose token becomes the controller's own; `None` for an
    /// output to the world.
    fn address(&self, output: &mut Output) -> Option<Seat> {
        match output {
            Output::PullHostData { token, .. }
            | Output::PushHostData { token, .. }
            | Output::Complete { token, .. } => Some(self.localise(token)),
            Output::Notify(
                Notification::NumberOfQueues { controller, .. }
                | Notification::KeepAliveTimeout { controller, .. }
                | Notification::CrossControllerReset { controller }
                | Notification::Arbitration { controller, .. }
                | Notification::InterruptCoalescing { controller, .. }
                | Notification::InterruptVector { controller, .. }
                | Notification::ShutDown { controller, .. },
            ) => Some(Seat(controller.0)),
            _ => None,
        }
    }

    fn handle(&mut self, now: Instant, seat: Seat, mut input: Input) {
        match &mut input {
            Input::Command { token, .. }
            | Input::HostData { token, .. }
            | Input::HostDataFailed { token, .. } => *token = self.token_at(seat, *token),
            // Media may now have ended all that a controller waits for.
            Input::Media(media::Completion::Done { .. }) => self.called |= self.enabling,
            _ => (),
        }
        self.subsystem.handle_input(now, input);
    }

    /// The next output for the controller at `seat`, or for the world. Outputs for others are kept.
    fn poll(&mut self, seat: Seat) -> Option<Output> {
        if let Some(output) = engine::pop(&mut self.trays[usize::from(seat.0)]) {
            return Some(output);
        }
        loop {
            let mut output = self.subsystem.poll_output()?;
            match self.address(&mut output) {
                Some(other) if other != seat => {
                    self.trays[usize::from(other.0)].push_back(output);
                    self.called |= other.bit();
                }
                _ => return Some(output),
            }
        }
    }
}

/// Why the core is here whenever its controller is called.
const HERE: &str = "the shared core is handed to a controller before the controller is called";

impl Core {
    /// The subsystem.
    ///
    /// # Panics
    /// When it is shared and at another controller.
    #[inline]
    pub(super) const fn subsystem(&self) -> &Subsystem {
        match self {
            Self::Own(subsystem) => subsystem,
            Self::Shared(_, shared) => &shared.as_ref().expect(HERE).subsystem,
        }
    }

    /// The subsystem, to be changed.
    ///
    /// # Panics
    /// When it is shared and at another controller.
    #[inline]
    pub(super) const fn subsystem_mut(&mut self) -> &mut Subsystem {
        match self {
            Self::Own(subsystem) => subsystem,
            Self::Shared(_, shared) => &mut shared.as_mut().expect(HERE).subsystem,
        }
    }

    /// The controller's place among those that share the core.
    pub(super) const fn seat(&self) -> Option<u16> {
        match self {
            Self::Own(_) => None,
            Self::Shared(seat, _) => Some(seat.0),
        }
    }

    /// Takes the shared core out of this controller, if it is here.
    pub(super) const fn take_shared(&mut self) -> Option<Box<Shared>> {
        match self {
            Self::Own(_) => None,
            Self::Shared(_, shared) => shared.take(),
        }
    }

    /// Puts the shared core into this controller.
    pub(super) fn put_shared(&mut self, core: Box<Shared>) {
        match self {
            Self::Own(_) => unreachable!("a controller with a core of its own shares none"),
            Self::Shared(_, shared) => *shared = Some(core),
        }
    }

    /// Takes the set of seats whose controllers are to be called, one bit each. It is empty unless
    /// the core is shared and here.
    pub(super) fn take_called(&mut self) -> u64 {
        match self {
            Self::Shared(_, Some(shared)) => core::mem::take(&mut shared.called),
            _ => 0,
        }
    }

    /// The seat of the controller whose command made a request to a medium, if it is known.
    pub(super) fn seat_of(&self, request: media::IoId) -> Option<u16> {
        match self {
            Self::Shared(_, Some(shared)) => shared.subsystem.requester(request).map(|key| key.0),
            _ => None,
        }
    }

    /// Notes whether the controller waits for media before it is ready.
    pub(super) fn note_enabling(&mut self, enabling: bool) {
        if let Self::Shared(seat, Some(shared)) = self {
            let others = shared.enabling & !seat.bit();
            shared.enabling = others | if enabling { seat.bit() } else { 0 };
        }
    }

    #[inline]
    pub(super) fn handle(&mut self, now: Instant, input: Input) {
        match self {
            Self::Own(subsystem) => subsystem.handle_input(now, input),
            Self::Shared(seat, shared) => shared.as_mut().expect(HERE).handle(now, *seat, input),
        }
    }

    #[inline]
    pub(super) fn poll(&mut self) -> Option<Output> {
        match self {
            Self::Own(subsystem) => subsystem.poll_output(),
            Self::Shared(seat, shared) => shared.as_mut().expect(HERE).poll(*seat),
        }
    }

    /// When the core continues. The controller that has a shared core answers for it.
    #[inline]
    pub(super) fn timeout(&self) -> Option<Instant> {
        match self {
            Self::Own(subsystem) => subsystem.poll_timeout(),
            Self::Shared(_, shared) => shared.as_ref()?.subsystem.poll_timeout(),
        }
    }

    #[inline]
    pub(super) fn transfer(&self, token: CommandToken) -> Option<Transfer> {
        match self {
            Self::Own(subsystem) => subsystem.transfer(token),
            Self::Shared(seat, shared) => {
                let shared = shared.as_ref().expect(HERE);
                shared.subsystem.transfer(shared.token_at(*seat, token))
            }
        }
    }

    /// Resets the controller `key`. What the core has said for it so far is void.
    pub(super) fn reset(&mut self, now: Instant, key: ControllerKey) {
        if let Self::Shared(seat, shared) = self {
            shared.as_mut().expect(HERE).trays[usize::from(seat.0)].clear();
        }
        self.subsystem_mut().reset(now, key);
    }
}
