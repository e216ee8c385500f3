//! The media of an SSD behind a far end.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::RawFd;

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
    /// The media's descriptors whose news end a sleep.
    registered: Vec<RawFd>,
    /// Whether the media may have other descriptors by now.
    is_changed: bool,
}

impl Ssd {
    pub(super) const fn new(media: Media) -> Self {
        Self { media, registered: Vec::new(), is_changed: true }
    }

    pub(super) const fn media(&self) -> &Media {
        &self.media
    }

    /// The media, which the caller may add to and remove from.
    pub(super) const fn media_to_change(&mut self) -> &mut Media {
        self.is_changed = true;
        &mut self.media
    }
}

impl Backing for Ssd {
    type Device = Function;

    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        self.register_new(sources)
    }

    fn register_new(&mut self, sources: &Sources) -> io::Result<()> {
        if core::mem::take(&mut self.is_changed) {
            let Self { media, registered, .. } = self;
            // A descriptor that was closed ends no sleep any more, and its number may come again.
            registered.retain(|known| media.poll_fds().any(|one| one == *known));
            for descriptor in media.poll_fds() {
                if !registered.contains(&descriptor) {
                    sources.add(descriptor, Attention::EachTurn)?;
                    registered.push(descriptor);
                }
            }
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
