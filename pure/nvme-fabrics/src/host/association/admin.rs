//! Admin commands that are outstanding: the association's own and the caller's.

use alloc::vec::Vec;

use engine::{DeadlineList, Instant};

use crate::host::ImpactedController;

/// Who sent a command, or what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Script,
    KeepAlive,
    Event,
    Caller(u64),
    /// The command ends the life of another controller.
    Reset(ImpactedController),
}

#[derive(Debug)]
struct Entry {
    generation: u32,
    owner: Option<Owner>,
}

/// This bit of a token marks the association's commands; I/O commands do not have it.
const OWN: u64 = 1 << 63;
/// Maximum number of admin commands at a time.
pub(super) const ADMIN_COMMANDS_MAX: u32 = 32;

/// The outstanding admin commands, by token.
#[derive(Debug)]
pub(super) struct Admin {
    entries: Vec<Entry>,
    deadlines: DeadlineList,
}

impl Default for Admin {
    fn default() -> Self {
        let entries = (0..ADMIN_COMMANDS_MAX).map(|_| Entry { generation: 0, owner: None }).collect();
        Self { entries, deadlines: DeadlineList::new(ADMIN_COMMANDS_MAX) }
    }
}

impl Admin {
    /// Whether `token` names a command of the association.
    pub(super) const fn is_own(token: u64) -> bool {
        token & OWN != 0
    }

    /// Issues a token for a command of `owner` that must end by `deadline`. `None` if there is no
    /// room.
    pub(super) fn issue(&mut self, owner: Owner, deadline: Option<Instant>) -> Option<u64> {
        let index = self.entries.iter().position(|entry| entry.owner.is_none())?;
        let entry = &mut self.entries[index];
        entry.owner = Some(owner);
        let index = u32::try_from(index).expect("admin commands are few");
        if let Some(deadline) = deadline {
            self.deadlines.arm(index, deadline);
        }
        Some(OWN | u64::from(entry.generation & 0x7fff_ffff) << 32 | u64::from(index))
    }

    /// The owner of the command that has ended; `None` if the command was forgotten.
    pub(super) fn retire(&mut self, token: u64) -> Option<Owner> {
        let [a, b, c, d, e, f, g, h] = token.to_le_bytes();
        let (index, generation) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h & 0x7f]));
        let entry = self.entries.get_mut(usize::try_from(index).ok()?)?;
        if entry.generation & 0x7fff_ffff != generation {
            return None;
        }
        let owner = entry.owner.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.deadlines.disarm(index);
        Some(owner)
    }

    /// Forgets every command. Returns the cookies of the callers' commands among them.
    pub(super) fn abandon(&mut self) -> impl Iterator<Item = u64> {
        let mut callers = Vec::new();
        for (index, entry) in (0_u32..).zip(&mut self.entries) {
            if let Some(owner) = entry.owner.take() {
                entry.generation = entry.generation.wrapping_add(1);
                self.deadlines.disarm(index);
                if let Owner::Caller(cookie) = owner {
                    callers.push(cookie);
                }
            }
        }
        callers.into_iter()
    }

    /// Whether a command is overdue.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        self.deadlines.expire(now).is_some()
    }

    pub(super) fn earliest(&self) -> Option<Instant> {
        self.deadlines.earliest()
    }
}
