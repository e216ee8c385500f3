//! A subsystem that is here: its core, and whose each command is.

use alloc::vec::Vec;

use engine::Instant;
use nvme::subsystem::{
    CommandToken, Config, ControllerConfig, ControllerKey, FeatureKey, Subsystem, Transport,
};
use nvme_fabrics::target::AssociationKey;
use nvme_tcp::controller::Slot;

use super::ConnectionId;
use super::access::PortAccess;

/// Whose a command is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) association: AssociationKey,
    /// None once the connection is gone that it came from.
    pub(super) place: Option<(ConnectionId, Slot)>,
}

#[derive(Debug)]
pub(super) struct Served {
    pub(super) core: Subsystem,
    /// By token.
    owners: Vec<Option<Owner>>,
    /// Tokens that are free; the one freed last is in cache.
    free: Vec<CommandToken>,
    /// By controller.
    associations: Vec<Option<AssociationKey>>,
    /// Controllers whose associations have ended and for which media still work.
    leaving: Vec<ControllerKey>,
    /// Associations that are to be enabled once media have done with what was before.
    enabling: Vec<(AssociationKey, ControllerKey)>,
    /// What static controllers have that are nobody's, by their identifiers.
    kept: Vec<(u16, Vec<(FeatureKey, u32)>)>,
    /// How controllers reach groups of namespaces, where that is not the best way.
    pub(super) access: Vec<PortAccess>,
}

impl Served {
    pub(super) fn new(now: Instant, config: Config) -> Self {
        let count = config.commands_max;
        Self {
            owners: (0..count).map(|_| None).collect(),
            free: (0..count).rev().map(CommandToken).collect(),
            associations: Vec::new(),
            leaving: Vec::new(),
            enabling: Vec::new(),
            kept: Vec::new(),
            access: Vec::new(),
            core: Subsystem::new(now, config),
        }
    }

    /// A token for a command; none when as many are under way as can be.
    #[inline]
    pub(super) fn issue(&mut self, owner: Owner) -> Option<CommandToken> {
        let token = self.free.pop()?;
        self.owners[token.0 as usize] = Some(owner);
        Some(token)
    }

    /// The command has ended: its token is free.
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

    /// The connection of a command is gone; the core still has it.
    pub(super) fn orphan(&mut self, token: CommandToken) {
        if let Some(owner) = &mut self.owners[token.0 as usize] {
            owner.place = None;
        }
    }

    /// Frees the tokens of every command of an association, which its core has forgotten; those of connections that
    /// last are told.
    pub(super) fn forget(&mut self, association: AssociationKey, mut each: impl FnMut(ConnectionId, Slot)) {
        for (token, place) in (0..).map(CommandToken).zip(&mut self.owners) {
            if let Some(owner) = place.take_if(|owner| owner.association == association) {
                self.free.push(token);
                if let Some((connection, slot)) = owner.place {
                    each(connection, slot);
                }
            }
        }
    }

    /// Removes a controller: at once, or when media have done with its commands.
    pub(super) fn leave(&mut self, now: Instant, controller: ControllerKey) {
        self.enabling.retain(|(_, one)| *one != controller);
        let config = self.core.controller(controller);
        if matches!(&config.transport, Transport::Fabrics(fabrics) if !fabrics.dynamic) {
            let id = config.controller_id;
            self.kept.retain(|(other, _)| *other != id);
            self.kept.push((id, self.core.feature_values(controller)));
        }
        if self.core.media_outstanding(controller) == 0 {
            return self.core.remove_controller(now, controller);
        }
        self.core.reset(now, controller);
        self.leaving.push(controller);
    }

    /// A controller identifier is wanted again, by a new controller: the one before is not waited for.
    fn make_room_for(&mut self, now: Instant, id: u16) {
        if let Some(controller) = self.core.controller_called(id) {
            self.leaving.retain(|one| *one != controller);
            self.core.remove_controller(now, controller);
        }
    }

    /// Adds a controller; a static one has what it had with the host before.
    pub(super) fn add_controller(&mut self, now: Instant, config: ControllerConfig) -> ControllerKey {
        let id = config.controller_id;
        self.make_room_for(now, id);
        let controller = self.core.add_controller(now, config);
        if let Some((_, values)) = self.kept.iter().find(|(other, _)| *other == id) {
            self.core.restore_feature_values(controller, values);
        }
        controller
    }

    /// A controller is to be enabled. A host that is back after it was lost must not be overtaken by what it wrote
    /// before.
    pub(super) fn enable(&mut self, association: AssociationKey, controller: ControllerKey) {
        self.enabling.retain(|(one, _)| *one != association);
        self.enabling.push((association, controller));
    }

    pub(super) fn stop_enabling(&mut self, association: AssociationKey) {
        self.enabling.retain(|(one, _)| *one != association);
    }

    /// The next association whose controller is ready, if media have done with what was before.
    pub(super) fn next_enabled(&mut self, now: Instant) -> Option<AssociationKey> {
        if self.leaving.is_empty() && self.enabling.is_empty() {
            return None;
        }
        let Self { core, leaving, .. } = self;
        leaving.retain(|controller| {
            let works = core.media_outstanding(*controller) > 0;
            if !works {
                core.remove_controller(now, *controller);
            }
            works
        });
        let quiet = |controller: ControllerKey| {
            let host = |key| match &core.controller(key).transport {
                Transport::Fabrics(fabrics) => Some(&fabrics.host),
                Transport::Pcie { .. } => None,
            };
            let is_back = leaving.iter().any(|one| host(*one) == host(controller));
            !is_back && core.media_outstanding(controller) == 0
        };
        let index = self.enabling.iter().position(|(_, controller)| quiet(*controller))?;
        Some(self.enabling.remove(index).0)
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
