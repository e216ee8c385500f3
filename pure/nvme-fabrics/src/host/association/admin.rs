//! Commands of the association's own, and admin commands of the caller.

use alloc::vec::Vec;

use engine::{DeadlineList, Instant};

use crate::host::ImpactedController;

/// Whose command it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Script,
    KeepAlive,
    Event,
    Caller(u64),
    /// It ends the life of another controller.
    Reset(ImpactedController),
}

#[derive(Debug)]
struct Entry {
    generation: u32,
    owner: Option<Owner>,
}

/// A bit of a token that tells the association's own commands from those of I/O queues.
const OWN: u64 = 1 << 63;
/// Commands at once.
pub(super) const ADMIN_COMMANDS_MAX: u32 = 32;

/// Admin commands that are outstanding, by token.
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
    /// Whether `token` is of the association.
    pub(super) const fn is_own(token: u64) -> bool {
        token & OWN != 0
    }

    /// A token for a command of `owner`, which is to end by `deadline`.
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

    /// Whose command has ended; none where it was forgotten.
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

    /// Forgets every command; the callers of those that had one.
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
