//! A function in the same process, on the slot's own link, with its media.

use std::collections::VecDeque;
use std::io;

use assemblies::guest::{Guest, Input};
use engine::{Engine, Instant, Pool};
use nvme::media;
use nvme_pcie::function::{self, Function, Reach};
use pcie::device::{Dma, DmaResult};

use super::lanes::{LANES_MAX, LaneStatus, Lanes, Threads};
use crate::media::Media;
use crate::media::state::Notice;
use crate::reactor::{Attention, Pump, Shell, Sources};
use crate::sys::shared::SharedMemory;

pub(super) struct Local {
    pub(super) function: Pump<Function>,
    /// The threads that serve I/O queues beside this one.
    pub(super) lanes: Option<Box<Lanes>>,
    media: Media,
    completions: VecDeque<media::Completion>,
    pool: Pool,
}

impl Local {
    pub(super) fn new(function: Function, media: Media) -> Self {
        let (completions, pool) = (VecDeque::new(), Pool::default());
        Self { function: Pump::new(function), lanes: None, media, completions, pool }
    }

    /// Starts threads for I/O queues. Returns their number: none if the media can be used by one
    /// thread only.
    ///
    /// # Errors
    /// When the process has no descriptors or threads left.
    pub(super) fn spread(&mut self, count: usize, threads: &Threads) -> io::Result<usize> {
        let mut lanes = Lanes::new();
        for started in 0..count.min(LANES_MAX) {
            let Some(media) = self.media.for_lane()? else { return Ok(started) };
            let begun = self.function.engine_mut().attach_lane(threads.clock.now());
            lanes.start(begun, media, threads)?;
        }
        self.lanes = Some(Box::new(lanes)).filter(|_| count > 0);
        Ok(count.min(LANES_MAX))
    }

    /// Whether the guest must not be answered yet, because lanes have yet to heed a change.
    #[inline]
    pub(super) fn is_fenced(&self) -> bool {
        self.lanes.as_ref().is_some_and(|lanes| lanes.are_fenced())
    }

    /// Has this thread serve all queues to come, since only it exchanges messages with the client.
    pub(super) fn stay_at_home(&mut self, now: Instant) {
        for lane in self.lanes.as_mut().map(|lanes| lanes.retire()).unwrap_or_default() {
            self.function.engine_mut().detach_lane(now, lane);
        }
    }

    /// What lanes do and have done.
    pub(super) fn lane_status(&self) -> Vec<LaneStatus> {
        let controller = self.function.engine().controller();
        let queues = |id| controller.lanes().find(|(one, _)| *one == id).map_or(0, |(_, queues)| queues);
        self.lanes.as_ref().map(|lanes| lanes.status(queues)).unwrap_or_default()
    }

    /// Makes completions of the media wake the loop.
    ///
    /// # Errors
    /// When the kernel can't report news of a descriptor.
    pub(super) fn start(&self, sources: &Sources) -> io::Result<()> {
        self.media.poll_fds().try_for_each(|descriptor| sources.add(descriptor, Attention::EachTurn))
    }

    /// Whether the media have any request in flight.
    pub(super) fn is_busy(&self) -> bool {
        self.media.in_flight() > 0 || self.lanes.as_ref().is_some_and(|lanes| !lanes.have_ended())
    }

    /// Writes `value` to the doorbell at `offset` of BAR0, after the client has stored it in
    /// shared memory.
    pub(super) fn ring(&mut self, now: Instant, offset: u64, value: u32) {
        if let Ok(offset) = u32::try_from(offset) {
            self.function.engine_mut().write_register(now, offset, &value.to_le_bytes());
        }
    }

    /// When the media need a call although no request has completed.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.media.poll_timeout()
    }

    /// Gives the function its media's completions, and passes on its outputs. Returns whether there
    /// were any of either.
    ///
    /// Memory that the client shares is read and written in place; for other memory, packets
    /// are sent.
    pub(super) fn exchange<D: 'static>(
        &mut self,
        now: Instant,
        guest: &mut Guest<D>,
        memory: &SharedMemory,
    ) -> bool {
        let Self { function, lanes, media, completions, pool } = self;
        let lanes = lanes.as_deref();
        let is_any = !completions.is_empty();
        while let Some(completion) = completions.pop_front() {
            function.engine_mut().handle_input(now, function::Input::Media(completion));
        }
        // Watchers see packets.
        let is_watched = guest.is_watched();
        let exchanged =
            function.exchange(now, &mut Exchange { guest, memory, media, lanes, pool, is_watched });
        exchanged || is_any
    }

    /// Notifies the media that the process is ending in an orderly way.
    pub(super) fn on_stop(&mut self) {
        if let Some(lanes) = &self.lanes {
            lanes.end();
        }
        self.media.on_stop(&self.function.engine().controller().counters());
    }

    /// A notice of the SSD's state to be reported; each notice is returned once.
    pub(super) fn notice(&mut self) -> Option<Notice> {
        self.media.notice()
    }

    /// Takes the media's completions, and gives the system the media's next requests.
    pub(super) fn reap(&mut self, now: Instant) -> io::Result<bool> {
        self.media.keep(now, || self.function.engine().controller().counters());
        let completions = &mut self.completions;
        self.media.reap(&mut |completion| completions.push_back(completion))?;
        Ok(!self.completions.is_empty())
    }
}

/// The surroundings of the function for one exchange.
struct Exchange<'a, D> {
    guest: &'a mut Guest<D>,
    memory: &'a SharedMemory,
    media: &'a mut Media,
    lanes: Option<&'a Lanes>,
    pool: &'a mut Pool,
    is_watched: bool,
}

impl<D: 'static> Shell<Function> for Exchange<'_, D> {
    #[inline]
    fn poll(&mut self, function: &mut Function) -> Option<function::Output> {
        let Self { guest, memory, pool, is_watched, .. } = self;
        function.poll_output_within(|dma| match is_watched {
            true => Reach::Beyond(dma),
            false => reach(guest, memory, pool, dma),
        })
    }

    fn pass(&mut self, now: Instant, output: function::Output, function: &mut Function) {
        match output {
            function::Output::Packet(packet) => self.guest.handle_input(now, Input::Packet(packet)),
            // Media in memory complete a request at once.
            function::Output::Media(request) => self.media.submit(request, &mut |completion| {
                function.handle_input(now, function::Input::Media(completion));
            }),
            function::Output::Notify(notification) => self.media.note(&notification),
            function::Output::ToLane(lane, message) => {
                if let Some(lanes) = self.lanes {
                    lanes.send(lane, message);
                }
            }
        }
    }
}

/// Performs the function's access in the client's memory where it is mapped.
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
