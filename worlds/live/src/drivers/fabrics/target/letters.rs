//! The exchange of letters with other reactors: between the homes of subsystems and their lanes.

use std::io;

use assemblies::target::{Input, ReactorId, Target, ToHome, ToLane};
use engine::{Engine, Instant};
use nvme_fabrics::target::SubsystemKey;
use tracing::warn;

use super::mailbox::{Letter, Moved};
use super::{Event, Mailbox, TargetDriver};
use crate::media::{LaneMediaChange, MediaForLane};
use crate::reactor::Sources;

/// The most letters that are taken in one go: hosts have work meanwhile.
const LETTERS_AT_ONCE: usize = 64;

/// What leaves for another reactor, in its order.
#[derive(Debug)]
pub(super) enum Leaving {
    Connection(SubsystemKey, Option<ReactorId>, Moved),
    ToLane(SubsystemKey, ReactorId, ToLane),
    ToHome(SubsystemKey, ToHome),
    /// For all lanes of the subsystem: a medium is gone.
    Media(SubsystemKey, LaneMediaChange),
}

impl<F: FnMut(Event)> TargetDriver<F> {
    /// Takes letters of other reactors. Returns whether there were any.
    pub(super) fn take_letters(&mut self, now: Instant, sources: &Sources) -> bool {
        let mut busy = false;
        for _ in 0..LETTERS_AT_ONCE {
            let Some(letter) = self.mailbox.as_ref().and_then(Mailbox::take) else { break };
            busy = true;
            match letter {
                Letter::Connection(moved) => self.receive_moved(now, sources, moved),
                Letter::Begin(subsystem, message, media) => self.begin_lane(now, subsystem, message, media),
                Letter::Media(subsystem, change) => {
                    let Some(media) = self.shell.media_of(subsystem) else { continue };
                    match media.apply(change) {
                        Ok(()) => self.forget_closed(subsystem),
                        Err(error) => self.give_up_lane(now, subsystem, &error),
                    }
                }
                Letter::ToLane(subsystem, message) => {
                    self.target.engine_mut().handle_input(now, Input::FromHome { subsystem, message });
                    self.target.exchange(now, &mut self.shell);
                    self.close_unserved(subsystem);
                }
                Letter::Gone(reactor) => {
                    self.target.engine_mut().reactor_gone(now, reactor);
                    self.target.exchange(now, &mut self.shell);
                }
                Letter::Back(reactor, way) => {
                    if let Some(mailbox) = &mut self.mailbox {
                        mailbox.set_way(reactor, way);
                    }
                    self.target.engine_mut().reactor_is_back(reactor);
                }
                Letter::ToHome(subsystem, reactor, message) => {
                    let input = Input::FromLane { subsystem, reactor, message };
                    self.target.engine_mut().handle_input(now, input);
                    self.target.exchange(now, &mut self.shell);
                }
            }
        }
        busy
    }

    /// Has the first `count` reactors serve I/O queues. Queues on others are closed, and their
    /// hosts connect them again.
    pub fn set_active_reactors(&mut self, now: Instant, count: usize) {
        let Some(mailbox) = &self.mailbox else { return };
        mailbox.set_active(count);
        self.target.engine_mut().keep_lanes(now, |reactor| mailbox.is_active(reactor));
        self.target.exchange(now, &mut self.shell);
    }

    /// Begins a lane of another reactor's subsystem.
    fn begin_lane(
        &mut self,
        now: Instant,
        subsystem: SubsystemKey,
        message: ToLane,
        media: Option<MediaForLane>,
    ) {
        let opened = media.map(MediaForLane::open).transpose();
        self.target.engine_mut().handle_input(now, Input::FromHome { subsystem, message });
        match opened {
            Ok(Some(media)) => self.put_media(subsystem, media),
            Ok(None) => self.give_up_lane(now, subsystem, &io::ErrorKind::Unsupported.into()),
            Err(error) => self.give_up_lane(now, subsystem, &error),
        }
    }

    fn give_up_lane(&mut self, now: Instant, subsystem: SubsystemKey, error: &io::Error) {
        warn!("this thread can't serve a subsystem, whose connections stay with its own thread: {error}");
        self.target.engine_mut().give_up_lane(now, subsystem);
        self.target.exchange(now, &mut self.shell);
        self.close_unserved(subsystem);
    }

    /// Closes the media of a subsystem that is not served here any more.
    fn close_unserved(&mut self, subsystem: SubsystemKey) {
        if !self.target.engine().serves(subsystem)
            && let Some(media) = self.shell.media.get_mut(subsystem.0 as usize)
        {
            *media = None;
            self.registered.retain(|(of, _)| *of != subsystem);
        }
    }

    /// Sends what has changed among the media of a subsystem to its lanes: new media before the
    /// messages that make use of them, and removed ones behind. A change that no lane needs lets a
    /// removed medium's file go.
    pub(super) fn pass_media_changes(&mut self, subsystem: SubsystemKey) {
        let Some(media) = self.shell.media_of(subsystem) else { return };
        let changes = media.changes_for_lanes();
        let Self { shell, mailbox: Some(mailbox), target, .. } = self else { return };
        for change in changes {
            match change.is_removal() {
                true => shell.leaving.push(Leaving::Media(subsystem, change)),
                false => post_change(mailbox, target.engine(), subsystem, &change),
            }
        }
        mailbox.wake();
    }

    /// Gives connections and messages to their reactors. News of these connections no longer end
    /// this reactor's sleep.
    pub(super) fn see_off(&mut self) {
        if self.shell.leaving.is_empty() {
            return;
        }
        let Self { shell, mailbox: Some(mailbox), strangers, target, .. } = self else { return };
        // Lanes of other reactors' subsystems that have ended here: some time after they were asked
        // to, if their queues had commands in progress.
        let mut ended = Vec::new();
        for leaving in core::mem::take(&mut shell.leaving) {
            match leaving {
                Leaving::Connection(subsystem, lane, moved) => {
                    strangers.remove(std::os::fd::AsRawFd::as_raw_fd(&moved.socket));
                    mailbox.post_connection(subsystem, lane, moved);
                }
                Leaving::ToLane(subsystem, reactor, message) => {
                    let letter = match message {
                        ToLane::Begin(_) => {
                            let media = shell.media.get_mut(subsystem.0 as usize).and_then(Option::as_mut);
                            // The subsystem is gone again: the end of the lane is gone with it.
                            let Some(media) = media else { continue };
                            let media = media.for_lane().unwrap_or_else(|error| {
                                warn!("media can't be shared with another thread: {error}");
                                None
                            });
                            Letter::Begin(subsystem, message, media)
                        }
                        // Also of a subsystem that is offered no longer, whose media are closed:
                        // its lanes have to end, and to let its files go.
                        message => Letter::ToLane(subsystem, message),
                    };
                    mailbox.post_to_lane(reactor, letter);
                }
                Leaving::ToHome(subsystem, message) => {
                    if message.is_last() {
                        ended.push(subsystem);
                    }
                    mailbox.post_home(subsystem, message);
                }
                Leaving::Media(subsystem, change) => {
                    post_change(mailbox, target.engine(), subsystem, &change);
                }
            }
        }
        mailbox.wake();
        ended.into_iter().for_each(|subsystem| self.close_unserved(subsystem));
    }
}

/// Gives a change of media to all lanes of a subsystem.
fn post_change(mailbox: &mut Mailbox, target: &Target, subsystem: SubsystemKey, change: &LaneMediaChange) {
    for lane in target.lanes_of(subsystem) {
        mailbox.post_to_lane(lane, Letter::Media(subsystem, change.clone()));
    }
}
