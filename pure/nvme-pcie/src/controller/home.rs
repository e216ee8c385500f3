//! The controller: what answers for its registers, its admin queue and all queues that no lane has.

use alloc::boxed::Box;

use engine::{Engine, Instant};
use nvme::rate::Ceiling;
use nvme::subsystem::{
    AsynchronousEvent, CommandToken, ControllerKey, Counters, Input as CoreInput, NamespaceTally,
    Notification, Output as CoreOutput, Permit, Subsystem as Core, Transfer as CoreTransfer,
};
use nvme::wire::{NamespaceId, QueueId, Status, SubmissionQueueEntry};
use pcie::device::Dma;

use super::config::{Config, IO_QUEUES_MAX, QUEUE_ENTRIES_MAX};
use super::interrupts::Coalescing;
use super::lanes::Lanes;
use super::letters::{Limits, Order};
use super::memory::{MEMORY_BUFFER_BYTES_MAX, MEMORY_BUFFER_BYTES_MIN, MemoryBuffer};
use super::properties::Properties;
use super::side::Side;
use super::slots::Ending;
use super::{DoorbellFault, Input, Output, Queues};
use crate::registers::status;

/// An NVMe controller on PCIe: registers, queues, data pointers and interrupts around the
/// command core.
pub type Controller = Queues<Home>;

/// What a controller has beside its queues: the command core, registers and lanes.
#[derive(Debug)]
pub struct Home {
    pub(super) core: Core,
    pub(super) config: Config,
    pub(super) properties: Properties,
    /// Whether CC.EN was set while lanes had not acknowledged a reset, or media still work for
    /// commands from before it. The controller waits for these commands, which must not overtake
    /// new ones.
    pub(super) enabling: bool,
    /// The lanes, once one was attached.
    pub(super) lanes: Option<Box<Lanes>>,
}

impl Side for Home {
    #[inline]
    fn may_fetch(&self) -> bool {
        self.properties.is_ready()
    }

    #[inline]
    fn handle_core(&mut self, now: Instant, input: CoreInput) {
        self.core.handle_input(now, input);
    }

    #[inline]
    fn poll_core(&mut self) -> Option<CoreOutput> {
        self.core.poll_output()
    }

    fn core_timeout(&self) -> Option<Instant> {
        self.core.poll_timeout()
    }

    fn handle_core_timeout(&mut self, now: Instant) {
        self.core.handle_timeout(now);
    }

    #[inline]
    fn transfer(&self, token: CommandToken) -> Option<CoreTransfer> {
        self.core.transfer(token)
    }

    fn abort_queue(&mut self, now: Instant, controller: ControllerKey, queue: QueueId) {
        self.core.abort_queue(now, controller, queue);
    }

    fn record_error(
        &mut self,
        now: Instant,
        controller: ControllerKey,
        queue: QueueId,
        entry: &SubmissionQueueEntry,
        status: Status,
    ) -> Status {
        self.core.record_error(now, controller, queue, entry, status)
    }

    #[inline]
    fn on_queue_command(queues: &mut Queues<Self>, slot: u16, entry: &SubmissionQueueEntry) -> bool {
        queues.execute_queue_command(slot, entry)
    }

    fn on_deleted(queues: &mut Queues<Self>, _: u16, command: u16) {
        queues.end(command, Ending { dw0: 0, dw1: 0, status: Status::SUCCESS });
    }

    fn on_doorbell_fault(queues: &mut Queues<Self>, fault: DoorbellFault) {
        queues.report_doorbell(fault);
    }

    fn on_failed(queues: &mut Queues<Self>) {
        queues.fail();
    }

    #[inline]
    fn on_core_output(queues: &mut Queues<Self>, output: CoreOutput) {
        match output {
            CoreOutput::Notify(notification) => queues.on_notification(notification),
            CoreOutput::ToLane(lane, message) => queues.send(lane, Order::Engine(message)),
            // A controller has its media to itself: no request of an earlier life is in progress
            // when the controller is ready again, and none waits for another controller's.
            CoreOutput::Disowned(_) => (),
            _ => unreachable!("the subsystem is no lane"),
        }
    }
}

impl Controller {
    /// A controller in its state after a reset, disabled.
    ///
    /// # Panics
    /// When `config` exceeds a limit that its fields name.
    pub fn new(now: Instant, mut config: Config) -> Self {
        assert!((1..=IO_QUEUES_MAX).contains(&config.io_queues), "1..={IO_QUEUES_MAX} I/O queues");
        assert!(
            (2..=QUEUE_ENTRIES_MAX).contains(&config.queue_entries_max),
            "2..={QUEUE_ENTRIES_MAX} entries"
        );
        assert!(config.commands_max >= 32, "at least 32 commands in flight");
        assert!(config.interrupt_vectors >= 1, "at least one interrupt vector");
        let buffer = config.memory_buffer_bytes;
        assert!(
            buffer == 0
                || buffer.is_power_of_two()
                    && (MEMORY_BUFFER_BYTES_MIN..=MEMORY_BUFFER_BYTES_MAX).contains(&buffer),
            "a controller memory buffer of {MEMORY_BUFFER_BYTES_MIN}..={MEMORY_BUFFER_BYTES_MAX} bytes, a power of two"
        );
        config.core.commands_max = u32::from(config.commands_max);
        let mut core = Core::new(now, config.core.clone());
        let key = core.add_controller(now, config.of_controller());
        let limits = Limits::of(&config);
        let properties = Properties::default();
        let home = Home { core, config, properties, enabling: false, lanes: None };
        Self { memory: MemoryBuffer::new(buffer), ..Self::of(now, home, key, limits) }
    }

    /// Sets the permissions of the host from now on; see [`Permit`]. A ceiling on its rate holds
    /// for the queues that exist already as far as no lane has them.
    pub fn set_permit(&mut self, now: Instant, permit: Permit) {
        self.ceiling = Ceiling::new(permit.rate);
        self.side.core.set_permit(now, self.key, permit);
    }

    /// Resets the function (Function Level Reset, hot reset). Registers and commands return to
    /// their initial state.
    pub fn reset(&mut self) {
        self.reset_controller();
        self.side.properties = Properties::default();
        self.memory.reset();
    }

    /// The counters of the health log, as [`Core::counters`] returns them.
    pub fn counters(&self) -> Counters {
        self.side.core.counters()
    }

    /// Counts of the I/O commands to each namespace, as [`Core::tallies`] returns them.
    pub fn tallies(&self) -> impl Iterator<Item = (NamespaceId, &NamespaceTally)> {
        self.side.core.tallies()
    }

    /// The command core.
    pub const fn core(&self) -> &Core {
        &self.side.core
    }

    /// Applies `change` to the command core, for changes of its namespaces by the outside world.
    /// The host is notified of them.
    pub fn with_core<T>(&mut self, now: Instant, change: impl FnOnce(&mut Core) -> T) -> T {
        self.now = now;
        let result = change(&mut self.side.core);
        self.drain_core();
        result
    }

    /// Handles CC.EN changing from 1 to 0: forgets every command and queue, so that late answers
    /// match nothing.
    pub(super) fn reset_controller(&mut self) {
        self.forget_queues();
        self.side.enabling = false;
        self.reset_lanes(true);
        self.side.properties.status = 0;
        self.side.core.reset(self.now, self.key);
        self.drain_core();
    }

    /// Sets Controller Fatal Status. The controller fetches and completes nothing until the host
    /// resets it.
    pub(super) fn fail(&mut self) {
        self.side.properties.set_fatal();
        self.forget_commands();
        self.reset_lanes(false);
        self.side.core.reset(self.now, self.key);
        self.drain_core();
    }

    pub(super) fn begin_shutdown(&mut self) {
        self.side.properties.set_shutdown(status::SHUTDOWN_OCCURRING);
        if !self.drain_lanes() {
            self.shut_down();
        }
    }

    /// Makes written data durable, then says that the shutdown is complete.
    pub(super) fn shut_down(&mut self) {
        self.side.core.shut_down(self.now, self.key);
        self.drain_core();
    }

    fn on_notification(&mut self, notification: Notification) {
        match notification {
            Notification::Arbitration { burst, weights, .. } => {
                self.weights = weights;
                self.set_burst(burst);
                self.set_in_lanes(|settings| settings.burst = burst);
            }
            Notification::InterruptCoalescing { threshold, time, .. } => {
                let coalescing = Coalescing { threshold, time };
                self.configure_coalescing(coalescing);
                self.set_in_lanes(|settings| settings.coalescing = coalescing);
            }
            Notification::InterruptVector { vector, coalescing_disabled, .. } => {
                self.interrupts.configure_vector(vector, coalescing_disabled);
                self.set_in_lanes(|settings| {
                    settings.vectors_apart.retain(|one| *one != vector);
                    settings.vectors_apart.extend(coalescing_disabled.then_some(vector));
                });
            }
            Notification::ShutDown { .. } => self.side.properties.set_shutdown(status::SHUTDOWN_COMPLETE),
            Notification::NumberOfQueues { .. } => {}
            // The other notifications are for the next start.
            other => self.outputs.push_back(Output::Notify(other)),
        }
    }

    pub(super) fn report_doorbell(&mut self, fault: DoorbellFault) {
        let event = match fault {
            DoorbellFault::Register => AsynchronousEvent::WriteToInvalidDoorbell,
            DoorbellFault::Value => AsynchronousEvent::InvalidDoorbellValue,
        };
        self.side.core.raise_event(self.now, self.key, event);
        self.drain_core();
    }
}

impl Engine for Controller {
    type Input<'a> = Input<'a>;
    type Output = Output;

    fn handle_input(&mut self, now: Instant, input: Input<'_>) {
        self.now = now;
        match input {
            Input::RegisterWrite { offset, bytes } => self.write_register(offset, bytes),
            Input::MemoryBufferWrite { offset, bytes } => self.write_memory_buffer(offset, bytes),
            Input::Dma(result) => self.on_dma(result),
            Input::Media(completion) => {
                self.on_media(completion);
                if self.side.enabling {
                    self.enable();
                }
            }
            Input::FromLane(lane, message) => self.on_letter(lane, *message),
            Input::FromHome(_) => unreachable!("messages of the controller are for lanes"),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.on_timeout(now);
    }

    #[inline]
    fn poll_output(&mut self) -> Option<Output> {
        self.next_output()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timeout()
    }
}

impl<S: Side> Queues<S> {
    /// Sets Interrupt Coalescing, and raises the interrupts that waited.
    pub(super) fn configure_coalescing(&mut self, coalescing: Coalescing) {
        let outputs = &mut self.outputs;
        self.interrupts.configure(coalescing, |vector| {
            outputs.push_back(Output::Dma(Dma::Interrupt { vector }));
        });
    }
}
