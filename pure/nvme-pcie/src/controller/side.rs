//! What serves the commands of queues, and knows what concerns more than these queues: the
//! controller itself, or one of its lanes.

use core::fmt::Debug;

use engine::Instant;
use nvme::subsystem::{
    CommandToken, ControllerKey, Input as CoreInput, Output as CoreOutput, Transfer as CoreTransfer,
};
use nvme::wire::{QueueId, Status, SubmissionQueueEntry};

use super::{DoorbellFault, Queues};

/// The command core behind queues, and what differs between a controller and its lanes.
pub trait Side: Debug + Sized {
    /// Whether entries may be fetched.
    fn may_fetch(&self) -> bool;
    /// Hands an input to the command core.
    fn handle_core(&mut self, now: Instant, input: CoreInput);
    /// Takes an output of the command core.
    fn poll_core(&mut self) -> Option<CoreOutput>;
    /// When the command core continues.
    fn core_timeout(&self) -> Option<Instant>;
    /// Lets the command core continue.
    fn handle_core_timeout(&mut self, now: Instant);
    /// The transfer of a command.
    fn transfer(&self, token: CommandToken) -> Option<CoreTransfer>;
    /// Ends those commands of a queue that can end at once.
    fn abort_queue(&mut self, now: Instant, controller: ControllerKey, queue: QueueId);
    /// Logs a failure outside the command core. Returns the status to complete the command with.
    fn record_error(
        &mut self,
        now: Instant,
        controller: ControllerKey,
        queue: QueueId,
        entry: &SubmissionQueueEntry,
        status: Status,
    ) -> Status;
    /// Executes an admin command that concerns queues. Returns false for any other command.
    fn on_queue_command(queues: &mut Queues<Self>, slot: u16, entry: &SubmissionQueueEntry) -> bool;
    /// A submission queue is deleted whose deletion began for `command`.
    fn on_deleted(queues: &mut Queues<Self>, queue: u16, command: u16);
    /// The host used a doorbell wrongly.
    fn on_doorbell_fault(queues: &mut Queues<Self>, fault: DoorbellFault);
    /// Submission queue entries or doorbells cannot be read.
    fn on_failed(queues: &mut Queues<Self>);
    /// Handles an output of the command core that belongs to no command.
    fn on_core_output(queues: &mut Queues<Self>, output: CoreOutput);
}
