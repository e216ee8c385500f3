//! Controllers that were lost with commands that they may yet carry out.
//!
//! A network can deliver a write long after the host has given its path up. Were the write sent by another path
//! meanwhile, and the block written again, the late one would come back from the dead. So what changes anything waits
//! behind a fence: until another controller of the subsystem has ended the lost one (Cross-Controller Reset), or until the
//! lost one must have given the host up by itself (CQT). Controllers that offer neither are not waited for.

use alloc::vec::Vec;

use engine::Instant;
use nvme::wire::{IoOpcode, SubmissionQueueEntry};

use super::types::PathIndex;
use crate::host::ImpactedController;

/// A controller that was lost.
#[derive(Debug)]
pub(super) struct Fence {
    /// What ends it, where it can be ended.
    pub(super) impacted: Option<ImpactedController>,
    /// When it has ended by itself.
    pub(super) until: Instant,
    /// Commands that it may carry out.
    pub(super) commands: Vec<u32>,
    /// The path whose controller was asked to end it.
    pub(super) asked: Option<PathIndex>,
    /// Some of its commands have ended badly for their caller. Until it has ended, nothing new may see that they were not
    /// carried out.
    pub(super) is_leaking: bool,
}

/// The controllers that were lost and may not have ended.
#[derive(Debug, Default)]
pub(super) struct Fences(Vec<Fence>);

impl Fences {
    pub(super) fn raise(&mut self, fence: Fence) {
        self.0.push(fence);
    }

    /// Whether new commands have to wait.
    #[inline]
    pub(super) fn is_leaking(&self) -> bool {
        !self.0.is_empty() && self.0.iter().any(|fence| fence.is_leaking)
    }

    /// A controller that nobody was asked to end yet.
    pub(super) fn next(&mut self) -> Option<(&mut Fence, ImpactedController)> {
        let fence = self.0.iter_mut().find(|fence| fence.asked.is_none() && fence.impacted.is_some())?;
        let impacted = fence.impacted?;
        Some((fence, impacted))
    }

    /// A path is lost: whoever was asked by it will not answer.
    pub(super) fn on_path_gone(&mut self, path: PathIndex) {
        for fence in self.0.iter_mut().filter(|fence| fence.asked == Some(path)) {
            fence.asked = None;
        }
    }

    /// A controller was ended, or can't be: then it ends by itself.
    pub(super) fn on_reset(&mut self, impacted: ImpactedController, done: bool) -> Vec<u32> {
        let Some(index) = self.0.iter().position(|fence| fence.impacted == Some(impacted)) else {
            return Vec::new();
        };
        if done {
            return self.0.remove(index).commands;
        }
        self.0[index].impacted = None;
        Vec::new()
    }

    /// The commands of a controller that has ended by itself.
    pub(super) fn expire(&mut self, now: Instant) -> Option<Vec<u32>> {
        let index = self.0.iter().position(|fence| fence.until <= now)?;
        Some(self.0.remove(index).commands)
    }

    pub(super) fn earliest(&self) -> Option<Instant> {
        self.0.iter().map(|fence| fence.until).min()
    }

    /// Takes out the commands that `is_hopeless` names: their callers are told that they ended badly.
    pub(super) fn take_hopeless(&mut self, mut is_hopeless: impl FnMut(u32) -> bool) -> Vec<u32> {
        let mut taken = Vec::new();
        for fence in &mut self.0 {
            let before = taken.len();
            fence.commands.retain(|index| {
                let hopeless = is_hopeless(*index);
                if hopeless {
                    taken.push(*index);
                }
                !hopeless
            });
            fence.is_leaking |= taken.len() > before;
        }
        taken
    }
}

/// Whether a command that is carried out late does no harm.
pub(super) fn is_harmless(entry: &SubmissionQueueEntry) -> bool {
    matches!(
        IoOpcode::from(entry.opcode),
        IoOpcode::Flush | IoOpcode::Read | IoOpcode::Compare | IoOpcode::Verify | IoOpcode::ReservationReport
    )
}
