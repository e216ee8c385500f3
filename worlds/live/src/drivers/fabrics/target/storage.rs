//! The media of a target's subsystems.

use std::io;

use engine::Instant;
use nvme::subsystem::Config as SubsystemConfig;
use nvme_fabrics::target::SubsystemKey;

use super::shell::TargetShell;
use super::{Event, TargetDriver};
use crate::media::Media;

impl<F: FnMut(Event)> TargetDriver<F> {
    /// Adds a subsystem that the directory says is here, with the media that its namespaces name.
    pub fn add_subsystem(&mut self, now: Instant, key: SubsystemKey, config: SubsystemConfig, media: Media) {
        let mut media = media;
        // Memory moves at once to where several threads reach it.
        let may_have_lanes = self.mailbox.is_some() && media.for_lane().is_ok_and(|media| media.is_some());
        if let Some(mailbox) = &self.mailbox {
            mailbox.set_home();
        }
        self.put_media(key, media);
        self.target.engine_mut().add_subsystem(now, key, config);
        if may_have_lanes {
            self.target.engine_mut().allow_lanes(key);
        }
        self.target.exchange(now, &mut self.shell);
    }

    pub(super) fn put_media(&mut self, key: SubsystemKey, media: Media) {
        let index = key.0 as usize;
        if self.shell.media.len() <= index {
            self.shell.media.resize_with(index + 1, || None);
        }
        self.shell.media[index] = Some(media);
        self.unregistered.push(key);
    }

    /// Takes the completions and notices of media.
    pub(super) fn reap(&mut self, now: Instant) -> io::Result<bool> {
        let TargetShell { media, inputs, report, .. } = &mut self.shell;
        let target = self.target.engine();
        let mut done = 0;
        for (index, media) in (0..).zip(media) {
            let subsystem = SubsystemKey(index);
            if let Some(media) = media {
                if let Some(core) = target.subsystem(subsystem) {
                    media.keep(now, || core.counters());
                    if let Some(notice) = media.notice() {
                        report(Event::State(subsystem, notice));
                    }
                }
                done += media.reap(&mut |completion| inputs.push_back((subsystem, completion)))?;
            }
        }
        if !self.shell.inputs.is_empty() {
            self.target.exchange(now, &mut self.shell);
        }
        Ok(done > 0)
    }

    /// Whether nothing is left to do for a target that was asked to stop.
    pub(super) fn is_over(&self) -> bool {
        let is_idle = self.shell.links.iter().all(Option::is_none) && !self.is_media_busy();
        is_idle && self.target.engine().is_without_lanes()
    }

    /// Announces to media that the process is to end, with the counters that are to be saved.
    pub(super) fn end_media(&mut self) {
        let target = self.target.engine();
        for (index, media) in (0..).zip(&mut self.shell.media) {
            if let (Some(media), Some(core)) = (media, target.subsystem(SubsystemKey(index))) {
                media.on_stop(&core.counters());
            }
        }
    }

    pub(super) fn is_media_busy(&self) -> bool {
        self.shell.media.iter().flatten().any(|media| media.in_flight() > 0)
    }
}
