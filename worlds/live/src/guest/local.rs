//! A function in the same process, on the slot's own link, and its media.

use std::collections::VecDeque;
use std::io;

use engine::{Engine, Instant, drain};
use machine::guest::{Guest, Input};
use nvme::media;
use nvme_pcie::function::{self, Function};

use crate::media::Media;
use crate::reactor::{Attention, Sources};

pub(super) struct Local {
    pub(super) function: Function,
    media: Media,
    registered: bool,
    completions: VecDeque<media::Completion>,
}

impl Local {
    pub(super) const fn new(function: Function, media: Media) -> Self {
        Self { function, media, registered: false, completions: VecDeque::new() }
    }

    pub(super) fn register(&mut self, sources: &Sources) -> io::Result<()> {
        if !self.registered {
            for descriptor in self.media.poll_fds() {
                sources.add(descriptor, Attention::EachTurn)?;
            }
            self.registered = true;
        }
        Ok(())
    }

    /// Whether the media have anything under way.
    pub(super) fn is_busy(&self) -> bool {
        self.media.in_flight() > 0
    }

    /// Passes on what the function wants; returns whether there was anything.
    pub(super) fn exchange<D: 'static>(&mut self, now: Instant, guest: &mut Guest<D>) -> bool {
        let mut moved = false;
        loop {
            while let Some(completion) = self.completions.pop_front() {
                self.function.handle_input(now, function::Input::Media(completion));
            }
            let Self { function, media, completions, .. } = self;
            drain(function, |output| {
                moved = true;
                match output {
                    function::Output::Packet(packet) => guest.handle_input(now, Input::Packet(packet)),
                    function::Output::Media(request) => {
                        media.submit(request, &mut |completion| completions.push_back(completion));
                    }
                    function::Output::Notify(_) => {}
                }
            });
            if self.completions.is_empty() {
                return moved;
            }
        }
    }

    /// Takes what the media have done, and gives the system what they are to do.
    pub(super) fn reap(&mut self) -> io::Result<bool> {
        let completions = &mut self.completions;
        self.media.reap(&mut |completion| completions.push_back(completion))?;
        Ok(!self.completions.is_empty())
    }
}
