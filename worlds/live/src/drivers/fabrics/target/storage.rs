//! The subsystems of a target, and their media.

use std::io;

use engine::Instant;
use nvme::subsystem::Config as SubsystemConfig;
use nvme_fabrics::target::{Directory, Subsystem, SubsystemKey};

use super::super::tls::Acceptor;
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

    /// Replaces the offer, as [`set_directory`](assemblies::target::Target::set_directory) of the
    /// engine does. Media of subsystems that are gone are closed.
    pub fn set_directory(&mut self, now: Instant, directory: Directory) {
        self.acceptor = Acceptor::new(&directory);
        self.target.engine_mut().set_directory(now, directory);
        self.target.exchange(now, &mut self.shell);
        for index in 0..self.shell.media.len() {
            self.close_if_gone(SubsystemKey(u32::try_from(index).expect("keys have 32 bits")));
        }
    }

    /// Offers a subsystem, as [`put_subsystem`](assemblies::target::Target::put_subsystem) of the
    /// engine does.
    pub fn put_subsystem(&mut self, now: Instant, subsystem: Subsystem) {
        let key = subsystem.key;
        let had_keys = self.has_tls_keys(key);
        self.target.engine_mut().put_subsystem(now, subsystem);
        self.on_changed(now, key, had_keys);
    }

    /// Offers a subsystem no longer, as
    /// [`remove_subsystem`](assemblies::target::Target::remove_subsystem) of the engine does, and
    /// closes its media.
    pub fn remove_subsystem(&mut self, now: Instant, key: SubsystemKey) {
        let had_keys = self.has_tls_keys(key);
        self.target.engine_mut().remove_subsystem(now, key);
        self.on_changed(now, key, had_keys);
    }

    /// Sets whether more is meant to be offered, as [`Directory::is_partial`] says.
    pub const fn set_partial(&mut self, is_partial: bool) {
        self.target.engine_mut().set_partial(is_partial);
    }

    fn has_tls_keys(&self, key: SubsystemKey) -> bool {
        let offered = self.target.engine().offered(key);
        offered.is_some_and(|one| one.terms.iter().any(|(_, terms)| terms.tls.is_some()))
    }

    fn on_changed(&mut self, now: Instant, key: SubsystemKey, had_keys: bool) {
        if had_keys || self.has_tls_keys(key) {
            self.acceptor = Acceptor::new(self.target.engine().directory());
        }
        self.target.exchange(now, &mut self.shell);
        self.close_if_gone(key);
    }

    /// Closes the media of a subsystem that is executed here no longer.
    fn close_if_gone(&mut self, key: SubsystemKey) {
        if let Some(media) = self.shell.media.get_mut(key.0 as usize)
            && media.is_some()
            && !self.target.engine().serves(key)
        {
            *media = None;
            self.registered.retain(|(of, _)| *of != key);
        }
    }

    /// The media of a subsystem that is executed here.
    pub fn media_of(&self, key: SubsystemKey) -> Option<&Media> {
        self.shell.media.get(key.0 as usize)?.as_ref()
    }

    pub(super) fn put_media(&mut self, key: SubsystemKey, media: Media) {
        let index = key.0 as usize;
        if self.shell.media.len() <= index {
            self.shell.media.resize_with(index + 1, || None);
        }
        self.shell.media[index] = Some(media);
        self.shell.lively.wake(key);
        self.unregistered.push(key);
    }

    /// Takes the completions and notices of media.
    pub(super) fn reap(&mut self, now: Instant) -> io::Result<bool> {
        let TargetShell { media, inputs, report, lively, .. } = &mut self.shell;
        let target = self.target.engine();
        let mut done = 0;
        for subsystem in lively.keys() {
            let Some(media) = media.get_mut(subsystem.0 as usize).and_then(Option::as_mut) else { continue };
            if let Some(core) = target.subsystem(*subsystem) {
                media.keep(now, || core.counters());
                if let Some(notice) = media.notice() {
                    report(Event::State(*subsystem, notice));
                }
            }
            done += media.reap(&mut |completion| inputs.push_back((*subsystem, completion)))?;
        }
        lively.settle(now, |key| {
            media.get(key.0 as usize).and_then(Option::as_ref).is_none_or(Media::may_rest)
        });
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

    /// When media have something to do even without news.
    pub(super) fn media_timeout(&self) -> Option<Instant> {
        let TargetShell { media, lively, .. } = &self.shell;
        let of = |key: &SubsystemKey| media.get(key.0 as usize)?.as_ref()?.poll_timeout();
        lively.keys().iter().filter_map(of).min()
    }

    pub(super) fn is_media_busy(&self) -> bool {
        let TargetShell { media, lively, .. } = &self.shell;
        let of = |key: &SubsystemKey| media.get(key.0 as usize)?.as_ref();
        // Those at rest have nothing to do.
        lively.keys().iter().filter_map(of).any(|media| media.in_flight() > 0)
    }
}
