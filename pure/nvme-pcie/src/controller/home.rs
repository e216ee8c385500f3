//! The controller: what answers for its registers, its admin queue and all queues that no lane has.

use alloc::boxed::Box;
use alloc::vec::Vec;

use engine::{Engine, Instant};
use nvme::media;
use nvme::rate::Ceiling;
use nvme::subsystem::{
    AsynchronousEvent, CommandToken, ControllerKey, Counters, HostIdentity, Input as CoreInput,
    NamespaceTally, Notification, Output as CoreOutput, Permit, Subsystem, Transfer as CoreTransfer,
};
use nvme::wire::{NamespaceId, QueueId, Status, SubmissionQueueEntry};
use pcie::device::Dma;
use serde::{Deserialize, Serialize};

use super::config::Config;
use super::interrupts::Coalescing;
use super::lanes::Lanes;
use super::letters::{Limits, Order};
use super::memory::MemoryBuffer;
use super::properties::Properties;
use super::shared::{Core, Shared};
use super::side::Side;
use super::slots::Ending;
use super::{DoorbellFault, Input, Output, Queues};
use crate::registers::status;

/// An NVMe controller on PCIe: registers, queues, data pointers and interrupts around the
/// command core.
pub type Controller = Queues<Home>;

/// What a controller has beside its queues: the command core, registers and lanes.
#[derive(Debug, Serialize, Deserialize)]
pub struct Home {
    pub(super) core: Core,
    pub(super) config: Config,
    /// Controller ID (CNTLID).
    id: u16,
    pub(super) properties: Properties,
    /// Whether CC.EN was set while lanes had not acknowledged a reset, or media still work for
    /// commands from before it. The controller waits for these commands, which must not overtake
    /// new ones.
    pub(super) enabling: bool,
    /// The lanes, once one was attached.
    pub(super) lanes: Option<Box<Lanes>>,
}

impl Home {
    pub(super) fn set_enabling(&mut self, enabling: bool) {
        self.enabling = enabling;
        self.core.note_enabling(enabling);
    }
}

impl Side for Home {
    #[inline]
    fn may_fetch(&self) -> bool {
        self.properties.is_ready()
    }

    #[inline]
    fn handle_core(&mut self, now: Instant, input: CoreInput) {
        self.core.handle(now, input);
    }

    #[inline]
    fn poll_core(&mut self) -> Option<CoreOutput> {
        self.core.poll()
    }

    fn core_timeout(&self) -> Option<Instant> {
        self.core.timeout()
    }

    fn handle_core_timeout(&mut self, now: Instant) {
        self.core.subsystem_mut().handle_timeout(now);
    }

    #[inline]
    fn transfer(&self, token: CommandToken) -> Option<CoreTransfer> {
        self.core.transfer(token)
    }

    fn abort_queue(&mut self, now: Instant, controller: ControllerKey, queue: QueueId) {
        self.core.subsystem_mut().abort_queue(now, controller, queue);
    }

    fn record_error(
        &mut self,
        now: Instant,
        controller: ControllerKey,
        queue: QueueId,
        entry: &SubmissionQueueEntry,
        status: Status,
    ) -> Status {
        self.core.subsystem_mut().record_error(now, controller, queue, entry, status)
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
            // Only media that keep the order between lanes want to know. No request of an earlier
            // life of the controller is in progress when it is ready again.
            CoreOutput::Disowned(_) => (),
            _ => unreachable!("the subsystem is no lane"),
        }
    }
}

impl Controller {
    /// A controller in its state after a reset, disabled, which has a subsystem to itself.
    ///
    /// # Panics
    /// When `config` exceeds a limit that its fields name.
    pub fn new(now: Instant, mut config: Config) -> Self {
        config.check();
        config.core.commands_max = u32::from(config.commands_max);
        let mut core = Subsystem::new(now, config.core.clone());
        let key = core.add_controller(now, config.of_controller(None));
        Self::with(now, Core::Own(core), key, config)
    }

    /// `count` controllers of one subsystem, one for each of several hosts. Each has what `config`
    /// gives a controller, and the first one has the subsystem: see [`Controller::take_core`].
    ///
    /// # Panics
    /// When `config` exceeds a limit that its fields name, or `count` is not in
    /// 1..=[`SEATS_MAX`](super::SEATS_MAX).
    pub fn several(now: Instant, mut config: Config, count: u16) -> Vec<Self> {
        config.check();
        assert!(count >= 1, "at least one controller");
        config.core.commands_max = u32::from(config.commands_max) * u32::from(count);
        let mut shared = Shared::new(Subsystem::new(now, config.core.clone()), config.commands_max);
        let seats: Vec<_> = (0..count).map(|_| shared.add_controller(now, &config)).collect();
        let mut shared = Some(Box::new(shared));
        let controller =
            |(seat, key)| Self::with(now, Core::Shared(seat, shared.take()), key, config.clone());
        seats.into_iter().map(controller).collect()
    }

    fn with(now: Instant, core: Core, key: ControllerKey, config: Config) -> Self {
        let limits = Limits::of(&config);
        let memory = MemoryBuffer::new(config.memory_buffer_bytes);
        let id = config.of_controller(core.seat()).controller_id;
        let home = Home { core, config, id, properties: Properties::default(), enabling: false, lanes: None };
        Self { memory, ..Self::of(now, home, key, limits) }
    }

    /// Takes the subsystem that this controller and `from` share, if `from` has it. Only the
    /// controller that has the subsystem can be called, but for [`Engine::poll_timeout`] and the
    /// reading of registers.
    pub fn take_core(&mut self, now: Instant, from: &mut Self) {
        let Some(core) = from.side.core.take_shared() else { return };
        self.now = now;
        self.side.core.put_shared(core);
        self.drain_core();
        self.post_behind_data();
        if self.side.enabling {
            self.enable();
        }
    }

    /// Takes the set of controllers that the shared subsystem has something for, one bit each, in
    /// the order of [`Controller::several`]. Each is to take the subsystem soon.
    pub fn take_called(&mut self) -> u64 {
        self.side.core.take_called()
    }

    /// The controller, by its place in [`Controller::several`], whose command made a request to a
    /// medium; `None` for a request without a command.
    pub fn requester(&self, request: media::IoId) -> Option<u16> {
        self.side.core.seat_of(request)
    }

    /// Gives the controller to `host`, whose identity its reservations have from now on. Does
    /// nothing for a controller that has a subsystem to itself. The former host's controller was
    /// reset.
    pub fn set_host(&mut self, now: Instant, host: HostIdentity) {
        if let Core::Shared(..) = self.side.core {
            self.side.core.subsystem_mut().set_host(now, self.key, host);
        }
    }

    /// Controller ID (CNTLID).
    pub const fn id(&self) -> u16 {
        self.side.id
    }

    /// Sets the permissions of the host from now on; see [`Permit`]. A ceiling on its rate holds
    /// for the queues that exist already as far as no lane has them.
    pub fn set_permit(&mut self, now: Instant, permit: Permit) {
        self.ceiling = Ceiling::new(permit.rate);
        self.side.core.subsystem_mut().set_permit(now, self.key, permit);
    }

    /// Resets the function (Function Level Reset, hot reset). Registers and commands return to
    /// their initial state.
    pub fn reset(&mut self) {
        self.reset_controller();
        self.side.properties = Properties::default();
        self.memory.reset();
    }

    /// The counters of the health log, as [`Subsystem::counters`] returns them.
    pub fn counters(&self) -> Counters {
        self.side.core.subsystem().counters()
    }

    /// Counts of the I/O commands to each namespace, as [`Subsystem::tallies`] returns them.
    pub fn tallies(&self) -> impl Iterator<Item = (NamespaceId, &NamespaceTally)> {
        self.side.core.subsystem().tallies()
    }

    /// The command core.
    pub const fn core(&self) -> &Subsystem {
        self.side.core.subsystem()
    }

    /// Applies `change` to the command core, for changes of its namespaces by the outside world.
    /// The host is notified of them.
    pub fn with_core<T>(&mut self, now: Instant, change: impl FnOnce(&mut Subsystem) -> T) -> T {
        self.now = now;
        let result = change(self.side.core.subsystem_mut());
        self.drain_core();
        result
    }

    /// Handles CC.EN changing from 1 to 0: forgets every command and queue, so that late answers
    /// match nothing.
    pub(super) fn reset_controller(&mut self) {
        self.forget_queues();
        self.side.set_enabling(false);
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
        self.side.core.subsystem_mut().shut_down(self.now, self.key);
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
        self.side.core.subsystem_mut().raise_event(self.now, self.key, event);
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
