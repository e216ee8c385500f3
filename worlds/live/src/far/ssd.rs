//! The media of an SSD.

use std::collections::VecDeque;
use std::fmt;
use std::io;

use engine::Instant;
use machine::far::Storage;
use nvme::media::Completion;
use nvme_pcie::function::Function;

use super::Event;
use super::backing::{Backing, World};
use crate::media::Media;
use crate::reactor::{Attention, Sources};

/// See the module.
pub struct Ssd {
    media: Media,
    registered: bool,
}

impl Ssd {
    pub(super) const fn new(media: Media) -> Self {
        Self { media, registered: false }
    }
}

impl Backing for Ssd {
    type Device = Function;

    fn register(&mut self, sources: &Sources) -> io::Result<()> {
        if !self.registered {
            for descriptor in self.media.poll_fds() {
                sources.add(descriptor, Attention::EachTurn)?;
            }
            self.registered = true;
        }
        Ok(())
    }

    fn on_output(
        &mut self,
        output: Storage,
        inputs: &mut VecDeque<Completion>,
        report: &mut impl FnMut(Event),
    ) {
        match output {
            Storage::Media(request) => {
                self.media.submit(request, &mut |completion| inputs.push_back(completion));
            }
            Storage::Notify(notification) => report(Event::Notify(notification)),
        }
    }

    fn reap<F: FnMut(Event)>(
        &mut self,
        _: &Function,
        world: &mut World<'_, Function, F>,
    ) -> io::Result<bool> {
        let inputs = &mut *world.inputs;
        Ok(self.media.reap(&mut |completion| inputs.push_back(completion))? > 0)
    }

    fn is_busy(&self) -> bool {
        self.media.in_flight() > 0
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.media.poll_timeout()
    }
}

impl fmt::Debug for Ssd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ssd({} under way)", self.media.in_flight())
    }
}
