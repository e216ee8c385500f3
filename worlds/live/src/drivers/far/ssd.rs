//! The media of an SSD behind a far end.

use std::collections::VecDeque;
use std::fmt;
use std::io;

use assemblies::far::Storage;
use engine::Instant;
use nvme::media::Completion;
use nvme_pcie::function::Function;

use super::Event;
use super::backing::{Backing, Reaping};
use crate::media::Media;
use crate::reactor::{Attention, Sources};

/// The media of an SSD behind a far end.
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
            Storage::Notify(notification) => {
                self.media.note(&notification);
                report(Event::Notify(notification));
            }
        }
    }

    fn reap<F: FnMut(Event)>(
        &mut self,
        device: &Function,
        world: &mut Reaping<'_, Function, F>,
    ) -> io::Result<bool> {
        self.media.keep(world.now, || device.controller().counters());
        if let Some(notice) = self.media.notice() {
            (world.report)(Event::State(notice));
        }
        let inputs = &mut *world.inputs;
        Ok(self.media.reap(&mut |completion| inputs.push_back(completion))? > 0)
    }

    fn is_busy(&self) -> bool {
        self.media.in_flight() > 0
    }

    fn on_stop(&mut self, device: &Function) {
        self.media.on_stop(&device.controller().counters());
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
