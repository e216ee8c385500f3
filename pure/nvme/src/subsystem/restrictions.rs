//! Reasons for which commands must take a second look before they continue.

use alloc::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::types::CommandToken;

/// Restrictions that make commands check further conditions before they continue. In normal
/// operation there are none.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Restrictions {
    /// The command that is or will be alone with the media.
    pub(super) owner: Option<CommandToken>,
    /// Commands that wait for the owner, in the order of arrival.
    pub(super) waiting: VecDeque<CommandToken>,
    /// Whether a sanitize operation is in progress, has failed, or was not followed by a write.
    restricted: bool,
    /// First commands of fused pairs whose second commands have not arrived yet, at most one per
    /// queue.
    firsts: VecDeque<CommandToken>,
    /// Whether a reset ended the command that was alone, and a medium may still work for it.
    pub(super) draining: bool,
    /// Whether any of the reasons holds.
    any: bool,
    /// Whether the waiting commands are being released.
    pub(super) releasing: bool,
}

impl Restrictions {
    /// Whether there are any restrictions.
    #[inline]
    pub(super) const fn exist(&self) -> bool {
        self.any
    }

    pub(super) fn remember(&mut self) {
        self.any = self.owner.is_some() || self.draining || self.restricted || !self.firsts.is_empty();
    }

    /// Sets whether a sanitize operation makes I/O commands take a second look.
    pub(super) fn set_restricted(&mut self, restricted: bool) {
        self.restricted = restricted;
        self.remember();
    }

    /// Keeps the first command of a fused pair until the second one arrives.
    pub(super) fn hold_first(&mut self, token: CommandToken) {
        self.firsts.push_back(token);
        self.remember();
    }

    pub(super) fn firsts(&self) -> impl Iterator<Item = CommandToken> {
        self.firsts.iter().copied()
    }

    /// Makes the second command of a fused pair the owner in place of the first.
    pub(super) const fn hand_over(&mut self, to: CommandToken) {
        self.owner = Some(to);
    }

    /// Whether other commands must wait.
    #[inline]
    pub(super) const fn is_owned(&self) -> bool {
        self.owner.is_some() || self.draining
    }

    /// Whether this command is the owner.
    pub(super) fn is_owner(&self, token: CommandToken) -> bool {
        self.owner == Some(token)
    }

    /// Forgets a command that a reset has ended. Returns whether the command was the owner, so that
    /// its effects on others must be undone.
    pub(super) fn forget(&mut self, token: CommandToken) -> bool {
        self.withdraw(token);
        let alone = self.owner.take_if(|owner| *owner == token).is_some();
        self.draining |= alone;
        self.remember();
        alone
    }

    /// Makes other commands wait until media are quiet, as they would for an owner.
    pub(super) fn drain(&mut self) {
        self.draining = true;
        self.remember();
    }

    /// Forgets a command that ended while it waited.
    pub(super) fn withdraw(&mut self, token: CommandToken) {
        self.waiting.retain(|waiting| *waiting != token);
        self.firsts.retain(|first| *first != token);
        self.remember();
    }
}
