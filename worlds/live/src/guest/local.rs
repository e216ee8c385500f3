//! A function in the same process, on the slot's own link, and its media.

use std::collections::VecDeque;
use std::io;

use engine::{Engine, Instant, Pool};
use machine::guest::{Guest, Input};
use nvme::media;
use nvme_pcie::function::{self, Function, Reach};
use pcie::device::{Dma, DmaResult};

use crate::media::Media;
use crate::reactor::{Attention, Sources};
use crate::shared::SharedMemory;
use crate::state::Notice;

pub(super) struct Local {
    pub(super) function: Function,
    media: Media,
    registered: bool,
    completions: VecDeque<media::Completion>,
    pool: Pool,
}

impl Local {
    pub(super) fn new(function: Function, media: Media) -> Self {
        Self { function, media, registered: false, completions: VecDeque::new(), pool: Pool::default() }
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

    /// A doorbell was rung by a store: `value` at `offset` of BAR0.
    pub(super) fn ring(&mut self, now: Instant, offset: u64, value: u32) {
        if let Ok(offset) = u32::try_from(offset) {
            self.function.write_register(now, offset, &value.to_le_bytes());
        }
    }

    /// When the media want attention of themselves.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.media.poll_timeout()
    }

    /// Passes on what the function wants; returns whether there was anything.
    ///
    /// Memory that the client shares is read and written in place; packets serve for the rest.
    pub(super) fn exchange<D: 'static>(
        &mut self,
        now: Instant,
        guest: &mut Guest<D>,
        memory: &SharedMemory,
    ) -> bool {
        let mut moved = false;
        let Self { function, media, completions, pool, .. } = self;
        while let Some(completion) = completions.pop_front() {
            function.handle_input(now, function::Input::Media(completion));
        }
        while let Some(output) = function.poll_output_within(|dma| reach(guest, memory, pool, dma)) {
            moved = true;
            match output {
                function::Output::Packet(packet) => guest.handle_input(now, Input::Packet(packet)),
                // Memory answers at once.
                function::Output::Media(request) => media.submit(request, &mut |completion| {
                    function.handle_input(now, function::Input::Media(completion));
                }),
                function::Output::Notify(notification) => media.note(&notification),
            }
        }
        moved
    }

    /// The process is to end in an orderly way.
    pub(super) fn on_stop(&mut self) {
        self.media.on_stop(&self.function.controller().counters());
    }

    /// What is to be told of the SSD's state, once.
    pub(super) fn notice(&mut self) -> Option<Notice> {
        self.media.notice()
    }

    /// Takes what the media have done, and gives the system what they are to do.
    pub(super) fn reap(&mut self, now: Instant) -> io::Result<bool> {
        self.media.keep(now, || self.function.controller().counters());
        let completions = &mut self.completions;
        self.media.reap(&mut |completion| completions.push_back(completion))?;
        Ok(!self.completions.is_empty())
    }
}

/// Does to the client's memory what the function wants, if it is mapped.
fn reach<D: 'static>(guest: &mut Guest<D>, memory: &SharedMemory, pool: &mut Pool, dma: Dma) -> Reach {
    match dma {
        Dma::Read { id, address, length } => {
            let mut bytes = pool.take(usize::try_from(length).expect("32 bits fit"));
            match memory.read(address, &mut bytes) {
                Ok(()) => {
                    let data = pool.seal(bytes);
                    Reach::Done(Some(DmaResult::Data { id, offset: 0, data, last: true }))
                }
                Err(_) => Reach::Beyond(Dma::Read { id, address, length }),
            }
        }
        Dma::Write { address, data } => match memory.write(address, &data) {
            Ok(()) => Reach::Done(None),
            Err(_) => Reach::Beyond(Dma::Write { address, data }),
        },
        Dma::Interrupt { vector } => {
            guest.interrupt(vector);
            Reach::Done(None)
        }
    }
}
