//! Controllers that were lost while they had commands that they may still execute.
//!
//! A network can deliver a write long after the host has given its path up. Suppose that the host
//! sends the write again by another path, and then writes the block again: the late write would
//! bring back old data. Commands that change anything therefore wait behind a fence. The fence
//! falls when another controller of the subsystem has ended the lost one (Cross-Controller Reset),
//! or when the lost controller must have given the host up by itself (CQT). Commands do not wait
//! for controllers that report no CQT.

use alloc::vec::Vec;

use engine::Instant;
use nvme::wire::{IoOpcode, SubmissionQueueEntry};

use super::types::PathIndex;
use crate::host::ImpactedController;

/// A controller that was lost.
#[derive(Debug)]
pub(super) struct Fence {
    /// The life to end with a Cross-Controller Reset, if the controller can be ended.
    pub(super) impacted: Option<ImpactedController>,
    /// When the controller has ended by itself.
    pub(super) until: Instant,
    /// Commands that the controller may still execute.
    pub(super) commands: Vec<u32>,
    /// The path whose controller was asked to end the lost one.
    pub(super) asked: Option<PathIndex>,
    /// Some of the commands have failed for their caller. Until the controller has ended, no new
    /// command may see that they were not executed.
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

    /// A controller that can be ended and for which no other controller was asked to do so yet.
    pub(super) fn next(&mut self) -> Option<(&mut Fence, ImpactedController)> {
        let fence = self.0.iter_mut().find(|fence| fence.asked.is_none() && fence.impacted.is_some())?;
        let impacted = fence.impacted?;
        Some((fence, impacted))
    }

    /// Handles a lost path: its controller will not answer the request to it.
    pub(super) fn on_path_gone(&mut self, path: PathIndex) {
        for fence in self.0.iter_mut().filter(|fence| fence.asked == Some(path)) {
            fence.asked = None;
        }
    }

    /// A Cross-Controller Reset has ended. If it was `done`, returns the commands of the ended
    /// controller. Otherwise the controller must end by itself.
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

    /// Takes out the commands that `is_hopeless` names. The caller must end them with a failure.
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

/// Whether a late execution of a command is harmless.
pub(super) fn is_harmless(entry: &SubmissionQueueEntry) -> bool {
    matches!(
        IoOpcode::from(entry.opcode),
        IoOpcode::Flush | IoOpcode::Read | IoOpcode::Compare | IoOpcode::Verify | IoOpcode::ReservationReport
    )
}
