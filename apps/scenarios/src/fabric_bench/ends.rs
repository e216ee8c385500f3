//! Both ends of a transport, with the path between them.

use std::fmt::Debug;

use engine::{Buffer, Instant, Nanos};
use network_models::network::Side;
use network_models::streams::{Measured, Order};
use network_models::trail::{Named, Part};
use nvme::host::{Completed, Data};
use nvme::wire::{CompletionQueueEntry, Status, SubmissionQueueEntry};
use nvme_fabrics::transport::Slot;
use sim::marks::{Cause, Mark, Spot};

/// A request of the controller's end to the controller.
#[derive(Debug)]
pub(super) enum Demand {
    /// A command has come.
    Command(Slot, SubmissionQueueEntry),
    /// The data have come that were pulled.
    Data(Slot, Buffer),
}

/// The marks of the operation that is followed.
pub(super) trait Marking {
    /// See [`sim::marks::Marks::mark`].
    fn mark(&mut self, after: Cause, at: Instant, spot: Spot, part: Part, what: &'static str) -> Cause;
    /// See [`sim::marks::Marks::chain`].
    fn chain(&self, last: Cause) -> Vec<Mark>;
}

/// Host's and controller's end of one queue, and the modelled network between them.
pub(super) trait Ends: Debug {
    /// Does everything that happens up to `now`.
    fn advance(&mut self, now: Instant);
    /// When to advance next.
    fn next(&self) -> Option<Instant>;
    /// Whether commands can be submitted.
    fn is_ready(&self) -> bool;
    /// Why the connection is over, if it is.
    fn failure(&self) -> Option<String>;
    /// A command of the host's that has ended.
    fn poll_host(&mut self, now: Instant) -> Option<Completed>;
    /// The controller's next task.
    fn poll_controller(&mut self, now: Instant) -> Option<Demand>;
    /// Submits a command; returns whether it was taken.
    fn submit(&mut self, now: Instant, cookie: u64, entry: SubmissionQueueEntry, data: Data) -> bool;
    /// Asks for the data of a command, which may be there already.
    fn pull(&mut self, now: Instant, slot: Slot, length: u32) -> Result<Option<Buffer>, Status>;
    /// Gives the host a piece of the data that it reads.
    fn push(&mut self, now: Instant, slot: Slot, offset: u32, total: u32, data: Buffer)
    -> Result<(), Status>;
    /// Ends a command.
    fn complete(&mut self, now: Instant, slot: Slot, entry: CompletionQueueEntry);
    /// Gives the software of `side` work; returns when it is done.
    fn work(&mut self, side: Side, time: Nanos, what: &'static str) -> Instant;
    /// When the software of `side` notices an arrival at `now`.
    fn notice(&mut self, side: Side, now: Instant) -> Instant;
    /// The cause of the present work of `side`'s software.
    fn cause(&self, side: Side) -> Cause;
    /// Sets the cause of the work of `side`'s software from now on.
    fn set_cause(&mut self, side: Side, cause: Cause);
    /// Begins or ends to follow events.
    fn follow(&mut self, on: bool);
    /// The marks.
    fn marks(&mut self) -> &mut dyn Marking;
    /// The names of the hops for packets of `side`.
    fn hops(&self, side: Side) -> Vec<Named>;
    /// Gives the streams that share the paths an order.
    fn order_streams(&mut self, now: Instant, order: Order);
    /// Shows the measurements of the streams from `side`.
    fn measured(&self, side: Side, look: &mut dyn FnMut(&Measured));
    /// Number of events so far.
    fn events(&self) -> u64;
    /// A fingerprint of all events.
    fn digest(&self) -> u64;
}
