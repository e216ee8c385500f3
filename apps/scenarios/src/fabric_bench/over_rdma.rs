//! NVMe/RDMA over two modelled cards.

use engine::{Buffer, Instant, Nanos};
use network_models::network::Side;
use network_models::streams::{Measured, Order};
use network_models::trail::{Named, Part};
use network_models::{Path, Rate};
use nvme::host::{Completed, Data};
use nvme::wire::{CompletionQueueEntry, QueueId, Status, SubmissionQueueEntry};
use nvme_fabrics::transport::{ControllerEnd, HostEnd, Queue, Slot};
use nvme_rdma::{SharedPool, controller, host};
use sim::marks::{Cause, Mark, Spot};
use sim::models::hca::Card;
use sim::rdma::{Config, Fabric, ModelledEndpoint};

use super::Setup;
use super::ends::{Demand, Ends, Marking};

/// Both ends of an I/O queue of NVMe/RDMA.
#[derive(Debug)]
pub(super) struct OverRdma {
    fabric: Fabric,
    host: host::Connection<ModelledEndpoint>,
    controller: controller::Connection<ModelledEndpoint>,
    failure: Option<String>,
}

impl OverRdma {
    pub(super) fn new(setup: &Setup, cards: [Card; 2], line: [Option<Rate>; 2], paths: [Path; 2]) -> Self {
        let pool = SharedPool::default();
        let (size, inside) = (setup.queue_size, setup.capsule_data_max);
        let asked = host::Config::new().for_queue(QueueId(1), 1, size, inside);
        let regions_max = usize::from(size) * 2;
        let config = Config {
            cards,
            drivers: setup.drivers,
            line,
            limits: Config::LIMITS,
            regions_max,
            seed: setup.seed,
        };
        let (fabric, [near, far]) = Fabric::new(&config, paths, &pool, &asked.private_data());
        let settings = controller::Config::new(pool);
        let settings =
            controller::Config { capsule_data_max: settings.capsule_data_max.max(inside), ..settings };
        let host = host::Connection::new(Instant::ZERO, asked, near);
        let mut controller = controller::Connection::new(Instant::ZERO, settings, far);
        controller.set_queue(Queue { size, capsule_data_max: inside, success_flag: false });
        Self { fabric, host, controller, failure: None }
    }
}

impl Marking for Fabric {
    fn mark(&mut self, after: Cause, at: Instant, spot: Spot, part: Part, what: &'static str) -> Cause {
        Self::mark(self, after, at, spot, part, what)
    }

    fn chain(&self, last: Cause) -> Vec<Mark> {
        Self::chain(self, last)
    }
}

impl Ends for OverRdma {
    fn advance(&mut self, now: Instant) {
        self.fabric.advance(now);
        self.host.on_time(now);
        self.controller.on_time(now);
    }

    fn next(&self) -> Option<Instant> {
        [self.fabric.next(), self.host.deadline(), self.controller.deadline()].into_iter().flatten().min()
    }

    fn is_ready(&self) -> bool {
        self.host.is_ready()
    }

    fn failure(&self) -> Option<String> {
        self.failure.clone()
    }

    fn poll_host(&mut self, _: Instant) -> Option<Completed> {
        loop {
            match self.host.poll()? {
                host::Output::Initialized(_) => {}
                host::Output::Completed(completed) => return Some(completed),
                host::Output::Closed(why) => self.failure = Some(why.to_string()),
            }
        }
    }

    fn poll_controller(&mut self, _: Instant) -> Option<Demand> {
        loop {
            match self.controller.poll()? {
                controller::Output::Initialized(_) => {}
                controller::Output::Command { slot, entry } => return Some(Demand::Command(slot, entry)),
                controller::Output::HostData { slot, data } => return Some(Demand::Data(slot, data)),
                controller::Output::Closed(why) => self.failure = Some(why.to_string()),
            }
        }
    }

    fn submit(&mut self, _: Instant, cookie: u64, entry: SubmissionQueueEntry, data: Data) -> bool {
        self.host.submit(cookie, entry, data).is_ok()
    }

    fn pull(&mut self, _: Instant, slot: Slot, length: u32) -> Result<Option<Buffer>, Status> {
        self.controller.pull(slot, length)
    }

    fn push(&mut self, _: Instant, slot: Slot, offset: u32, total: u32, data: Buffer) -> Result<(), Status> {
        self.controller.push(slot, offset, total, data)
    }

    fn complete(&mut self, _: Instant, slot: Slot, entry: CompletionQueueEntry) {
        self.controller.complete(slot, entry);
    }

    fn work(&mut self, side: Side, time: Nanos, what: &'static str) -> Instant {
        self.fabric.work(side, time, what)
    }

    fn notice(&mut self, side: Side, now: Instant) -> Instant {
        self.fabric.notice(side, now)
    }

    fn cause(&self, side: Side) -> Cause {
        self.fabric.cause(side)
    }

    fn set_cause(&mut self, side: Side, cause: Cause) {
        self.fabric.set_cause(side, cause);
    }

    fn follow(&mut self, on: bool) {
        self.fabric.follow(on);
    }

    fn marks(&mut self) -> &mut dyn Marking {
        &mut self.fabric
    }

    fn hops(&self, side: Side) -> Vec<Named> {
        self.fabric.hops(side)
    }

    fn order_streams(&mut self, now: Instant, order: Order) {
        self.fabric.order_streams(now, order);
    }

    fn measured(&self, side: Side, look: &mut dyn FnMut(&Measured)) {
        self.fabric.measured(side, look);
    }

    fn events(&self) -> u64 {
        self.fabric.events()
    }

    fn digest(&self) -> u64 {
        self.fabric.digest()
    }
}
