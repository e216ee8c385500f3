//! Admin commands that are outstanding: the association's own and the caller's.

use alloc::vec::Vec;

use engine::Instant;

use crate::host::ImpactedController;
use crate::host::table::Table;

/// The sender or the purpose of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Script,
    KeepAlive,
    Event,
    Caller(u64),
    /// The command ends the life of another controller.
    Reset(ImpactedController),
}

/// This bit of a token marks the association's commands; I/O commands do not have it.
const OWN: u64 = 1 << 63;
/// Maximum number of admin commands at a time.
const ADMIN_COMMANDS_MAX: u16 = 32;
/// Places that the association itself needs: for a script's command, for a Keep Alive, and for the
/// request for events.
const OWN_PLACES: u16 = 3;

/// The owners of the outstanding admin commands.
#[derive(Debug)]
pub(super) struct Admin(Table<Owner>);

impl Default for Admin {
    fn default() -> Self {
        Self(Table::new(ADMIN_COMMANDS_MAX.into()))
    }
}

impl Admin {
    /// Whether `token` names a command of the association.
    pub(super) const fn is_own(token: u64) -> bool {
        token & OWN != 0
    }

    /// Whether a caller may send one more command on an Admin Queue of `size` commands. A caller
    /// may always send one.
    pub(super) fn has_room_for_caller(&self, size: u16) -> bool {
        let limit = size.min(ADMIN_COMMANDS_MAX).saturating_sub(OWN_PLACES).max(1);
        let callers = self.0.iter().filter(|(_, owner)| matches!(owner, Owner::Caller(_)));
        callers.count() < usize::from(limit)
    }

    /// Issues a token for a command of `owner` that must end by `deadline`, if there is room.
    pub(super) fn issue(&mut self, owner: Owner, deadline: Option<Instant>) -> Option<u64> {
        let index = self.0.issue(owner)?;
        if let Some(deadline) = deadline {
            self.0.arm(index, deadline);
        }
        Some(OWN | self.0.token(index))
    }

    /// The owner of the command that has ended; `None` if the command was forgotten.
    pub(super) fn retire(&mut self, token: u64) -> Option<Owner> {
        let index = self.0.find(token & !OWN)?;
        self.0.retire(index)
    }

    /// Forgets every command. Returns the cookies of the callers' commands among them.
    pub(super) fn forget_all(&mut self) -> impl Iterator<Item = u64> {
        let indices: Vec<u32> = self.0.iter().map(|(index, _)| index).collect();
        let owners: Vec<Owner> = indices.into_iter().filter_map(|index| self.0.retire(index)).collect();
        owners
            .into_iter()
            .filter_map(|owner| if let Owner::Caller(cookie) = owner { Some(cookie) } else { None })
    }

    /// Whether a command is overdue.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        self.0.expire(now).is_some()
    }

    pub(super) fn earliest(&self) -> Option<Instant> {
        self.0.earliest()
    }
}
