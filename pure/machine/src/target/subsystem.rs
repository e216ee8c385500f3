//! A subsystem that is here: its core, and whose each command is.

use alloc::vec::Vec;

use engine::Instant;
use nvme::subsystem::{CommandToken, Config, ControllerKey, Subsystem};
use nvme_fabrics::target::AssociationKey;
use nvme_tcp::controller::Slot;

use super::ConnectionId;

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
}

impl Served {
    pub(super) fn new(now: Instant, config: Config) -> Self {
        let count = config.commands_max;
        Self {
            owners: (0..count).map(|_| None).collect(),
            free: (0..count).rev().map(CommandToken).collect(),
            associations: Vec::new(),
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
