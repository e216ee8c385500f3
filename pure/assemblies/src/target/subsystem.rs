//! A subsystem that is served here: its core, and the owner of each command.

use alloc::boxed::Box;
use alloc::vec::Vec;

use engine::{Instant, Nanos};
use nvme::media::IoId;
use nvme::subsystem::{
    CommandToken, Config, ControllerConfig, ControllerKey, FeatureKey, Lane, LaneId, LaneViews, Subsystem,
    Transport,
};
use nvme_fabrics::target::AssociationKey;

use crate::fabric::controller::Slot;

use super::ConnectionId;
use super::access::PortAccess;
use super::command_core::Core;
use super::lanes::ReactorId;

/// The association, connection and slot that a command came from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) association: AssociationKey,
    pub(super) connection: ConnectionId,
    pub(super) slot: Slot,
}

/// For how long no lane begins on a reactor that could not serve one; doubled each time.
pub(super) const BARRED_FOR: Nanos = Nanos::from_secs(10);
/// The longest such time.
const BARRED_MAX: Nanos = Nanos::from_secs(3600);

/// A reactor that could not serve a lane.
#[derive(Debug)]
pub(super) struct Barred {
    pub(super) reactor: ReactorId,
    until: Instant,
    /// How long it was barred the last time.
    length: Nanos,
}

#[derive(Debug)]
pub(super) struct Served {
    pub(super) core: Core,
    /// The most commands that may be under way at once.
    commands_max: u32,
    /// Owners of the commands, indexed by token. The list grows with the most commands that were
    /// ever under way at once.
    owners: Vec<Option<Owner>>,
    /// Tokens that are free again, used last in, first out: the memory of the token freed last is
    /// in the cache.
    free: Vec<CommandToken>,
    /// Associations of the controllers, indexed by controller.
    associations: Vec<Option<AssociationKey>>,
    /// Feature values of static controllers without an association, by controller identifier.
    kept: Vec<(u16, Vec<(FeatureKey, u32)>)>,
    /// How controllers of a port reach groups of namespaces, where the state is not the default.
    pub(super) access: Vec<PortAccess>,
    /// Whether other reactors may have lanes of the subsystem.
    pub(super) may_have_lanes: bool,
    /// Whether media keep the order between controllers.
    pub(super) leaves_order_to_media: bool,
    /// The lanes of the subsystem, by their reactors.
    pub(super) lanes: Vec<(ReactorId, LaneId)>,
    /// Reactors that could not serve a lane.
    pub(super) barred: Vec<Barred>,
    /// Whether the lane that is here ends.
    pub(super) is_ending: bool,
}

impl Served {
    pub(super) fn new(now: Instant, config: Config) -> Self {
        let commands_max = config.commands_max;
        Self::with(Core::Home(Subsystem::new(now, config)), commands_max)
    }

    /// A lane that begins with `views`.
    pub(super) fn lane(now: Instant, views: LaneViews) -> Self {
        let commands_max = views.commands_max();
        Self::with(Core::Lane(Box::new(Lane::new(now, views))), commands_max)
    }

    const fn with(core: Core, commands_max: u32) -> Self {
        Self {
            core,
            commands_max,
            owners: Vec::new(),
            free: Vec::new(),
            associations: Vec::new(),
            kept: Vec::new(),
            access: Vec::new(),
            may_have_lanes: false,
            leaves_order_to_media: false,
            lanes: Vec::new(),
            barred: Vec::new(),
            is_ending: false,
        }
    }

    /// Whether the home of the subsystem is here.
    pub(super) fn is_home(&self) -> bool {
        self.core.home().is_some()
    }

    /// Begins no lane on a reactor for some time, because it could not serve one.
    pub(super) fn bar(&mut self, now: Instant, reactor: ReactorId) {
        let found = self.barred.iter_mut().find(|one| one.reactor == reactor);
        match found {
            Some(one) => {
                one.length = Nanos::new(one.length.get() * 2).min(BARRED_MAX);
                one.until = now + one.length;
            }
            None => self.barred.push(Barred { reactor, until: now + BARRED_FOR, length: BARRED_FOR }),
        }
    }

    /// Whether no lane may begin on a reactor now.
    pub(super) fn is_barred(&self, now: Instant, reactor: ReactorId) -> bool {
        self.barred.iter().any(|one| one.reactor == reactor && now < one.until)
    }

    /// The controller that sends a request to a medium, where media keep the order between
    /// controllers.
    #[inline]
    pub(super) fn requester(&self, request: IoId) -> Option<ControllerKey> {
        match &self.core {
            Core::Home(core) if self.leaves_order_to_media => core.requester(request),
            Core::Home(_) => None,
            Core::Lane(lane) => lane.requester(request),
        }
    }

    /// Takes a token for a command; `None` when the maximum number is under way.
    #[inline]
    pub(super) fn issue(&mut self, owner: Owner) -> Option<CommandToken> {
        let token = self.free.pop().or_else(|| self.next_token())?;
        self.owners[token.0 as usize] = Some(owner);
        Some(token)
    }

    /// A token that was never used; `None` when there are as many as the core takes.
    #[cold]
    fn next_token(&mut self) -> Option<CommandToken> {
        let token = u32::try_from(self.owners.len()).ok().filter(|token| *token < self.commands_max)?;
        self.owners.push(None);
        Some(CommandToken(token))
    }

    /// The command has ended: frees its token.
    #[inline]
    pub(super) fn retire(&mut self, token: CommandToken) -> Option<Owner> {
        let owner = self.owners[token.0 as usize].take()?;
        self.free.push(token);
        Some(owner)
    }

    #[inline]
    pub(super) fn owner(&self, token: CommandToken) -> Option<Owner> {
        self.owners[token.0 as usize]
    }

    /// Frees the tokens of all commands of an association, which the core has forgotten, and calls
    /// `each` with the connection and slot of each command.
    pub(super) fn forget(&mut self, association: AssociationKey, mut each: impl FnMut(ConnectionId, Slot)) {
        for (token, place) in (0..).map(CommandToken).zip(&mut self.owners) {
            if let Some(owner) = place.take_if(|owner| owner.association == association) {
                self.free.push(token);
                each(owner.connection, owner.slot);
            }
        }
    }

    /// Removes a controller whose association has ended. Media go on with what they have begun of
    /// its commands; before another command reads or changes the same blocks, the core waits for
    /// the end of that.
    pub(super) fn leave(&mut self, now: Instant, controller: ControllerKey) {
        let Core::Home(core) = &mut self.core else { return };
        let config = core.controller(controller);
        if matches!(&config.transport, Transport::Fabrics(fabrics) if !fabrics.dynamic) {
            let id = config.controller_id;
            self.kept.retain(|(other, _)| *other != id);
            self.kept.push((id, core.feature_values(controller)));
        }
        core.remove_controller(now, controller);
    }

    /// Adds a controller. A static controller gets back the feature values that it had with its
    /// last host.
    pub(super) fn add_controller(&mut self, now: Instant, config: ControllerConfig) -> Option<ControllerKey> {
        let id = config.controller_id;
        let core = self.core.home_mut()?;
        let controller = core.add_controller(now, config);
        if let Some((_, values)) = self.kept.iter().find(|(other, _)| *other == id) {
            core.restore_feature_values(controller, values);
        }
        Some(controller)
    }

    pub(super) fn set_association(&mut self, controller: ControllerKey, association: Option<AssociationKey>) {
        let index = usize::from(controller.0);
        if self.associations.len() <= index {
            self.associations.resize(index + 1, None);
        }
        self.associations[index] = association;
    }

    pub(super) fn association(&self, controller: ControllerKey) -> Option<AssociationKey> {
        *self.associations.get(usize::from(controller.0))?
    }
}
