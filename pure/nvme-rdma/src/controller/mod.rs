//! A controller's end of a connection: one queue.
//!
//! Messages go in, commands come out. For each command, [`ControllerEnd::pull`] fetches its data
//! (from the capsule, or by RDMA Read), [`ControllerEnd::push`] sends data to the host (by RDMA
//! Write), and [`ControllerEnd::complete`] ends the command.
//!
//! A command's receive request is posted again only when its response is sent. The controller
//! therefore always has a receive request for a host that respects its announced queue size, and
//! the data in capsules are bounded. While the host leaves too much unread, the controller accepts
//! no command.

mod receive;
mod transfer;
mod transmit;
mod types;

#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;

use engine::{Buffer, Engine, Instant};
use nvme::wire::{CommandId, CompletionQueueEntry, Status};
use nvme_fabrics::transport::ControllerCommands;
use rdma::{Endpoint, Limits};

pub use crate::connection::{Closed, Fault, Parameters};
use nvme_fabrics::transport::in_capsule;
pub use nvme_fabrics::transport::{ControllerEnd, Held, Permission, Queue, Slot};
pub use types::{Config, Output, Statistics};

use crate::connection::Core;
use crate::sender::Sender;
use crate::wire::{DataPointer, Request};
use crate::{ADMIN_CAPSULE_DATA_MAX, QUEUE_SIZE_MAX, SENDS_WAITING_MAX, TRANSFER_BYTES_MAX};
use transfer::Pull;

/// A command between its arrival and its response.
#[derive(Debug)]
struct Command {
    id: CommandId,
    pointer: DataPointer,
    /// The data in the capsule.
    capsule: Buffer,
    pull: Pull,
    /// Whether data were pushed to the host.
    has_pushed: bool,
    /// Bytes that the command counts in the connection's backlog.
    reserved: u32,
    /// Number of bytes requested from the host.
    pulled: u32,
    /// The completion of a command that was given up while its data were coming.
    response: Option<CompletionQueueEntry>,
}

/// A request of the send queue.
#[derive(Clone, Copy, Debug)]
enum Posted {
    /// Data of this many bytes for the host.
    Write(u32),
    Response,
    /// Data of a slot's transfer, from the host.
    Read {
        slot: u16,
        offset: u32,
        length: u32,
    },
}

/// A controller's end of a connection, which carries one queue.
#[derive(Debug)]
pub struct Connection<E> {
    config: Config,
    core: Core<E, Posted>,
    limits: Limits,
    /// The request of the host.
    request: Option<Request>,
    queue: Queue,
    commands: ControllerCommands<Command>,
    /// Messages that were received and not processed. The receive requests bound them.
    arrived: VecDeque<Buffer>,
    /// Bytes of these messages.
    arrived_bytes: u64,
    /// Slots whose transfers wait for others to end, in order.
    waiting: VecDeque<u16>,
    /// Number of outstanding reads.
    reads: u16,
    /// Number of bytes of outstanding reads that have not arrived.
    pulling: u64,
    /// Bytes that commands in flight will give to the host, or have brought in their capsules.
    reserved: u64,
    /// Bytes of data that requests of the send queue bring to the host.
    unsent: u64,
    /// Number of bytes requested from the host for commands in flight, including those that it has
    /// sent.
    pulled: u64,
    permission: Permission,
    statistics: Statistics,
}

impl<E: Endpoint> Connection<E> {
    /// A connection that a host requests at `endpoint`. Until [`ControllerEnd::set_queue`], it
    /// accepts one command at a time.
    ///
    /// # Panics
    /// When `config` exceeds a limit of one of its fields, or the endpoint accepts no requests.
    pub fn new(now: Instant, config: Config, endpoint: E) -> Self {
        config.check();
        let limits = endpoint.limits();
        assert!(limits.send_requests > 0 && limits.message_bytes > 0, "the endpoint accepts no requests");
        let sender = Sender::new(limits.send_requests, limits.send_requests / 2);
        Self {
            core: Core::new(endpoint, sender, now, config.initialise_timeout),
            limits,
            request: None,
            queue: Queue { size: 1, capsule_data_max: ADMIN_CAPSULE_DATA_MAX, success_flag: false },
            commands: ControllerCommands::new(1),
            arrived: VecDeque::new(),
            arrived_bytes: 0,
            waiting: VecDeque::new(),
            reads: 0,
            pulling: 0,
            reserved: 0,
            unsent: 0,
            pulled: 0,
            permission: Permission::ALL,
            statistics: Statistics::default(),
            config,
        }
    }

    /// The endpoint, for inspection.
    pub const fn endpoint(&self) -> &E {
        &self.core.endpoint
    }

    /// The endpoint, for the owner to move its bytes. Outputs may follow.
    pub const fn endpoint_mut(&mut self) -> &mut E {
        &mut self.core.endpoint
    }

    /// Counters since the beginning.
    pub const fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Ends the connection because of `fault`.
    pub fn terminate(&mut self, fault: Fault) {
        self.core.close(Closed::PeerFault(fault));
    }

    /// Ends the connection if it was not established in time.
    pub fn on_time(&mut self, now: Instant) {
        self.core.on_time(now);
    }

    /// When [`Connection::on_time`] is due, if ever.
    pub const fn deadline(&self) -> Option<Instant> {
        self.core.deadline()
    }

    const fn is_over(&self) -> bool {
        self.core.is_over()
    }

    /// Whether the connection accepts no further command: the host leaves too much unread or has
    /// too much coming, or the permission is missing.
    fn is_stuffed(&self) -> bool {
        !self.permission.commands
            || self.backlog() > self.config.backlog_bytes_max
            || self.core.sender.waiting() > SENDS_WAITING_MAX
    }

    const fn backlog(&self) -> u64 {
        self.unsent + self.reserved
    }

    /// Forgets everything that waits.
    fn forget(&mut self) {
        self.arrived.clear();
        self.waiting.clear();
        (self.arrived_bytes, self.unsent, self.pulling, self.reads) = (0, 0, 0, 0);
    }
}

impl<E: Endpoint> ControllerEnd for Connection<E> {
    fn set_queue(&mut self, queue: Queue) {
        let most = self.config.capsule_data_max.max(ADMIN_CAPSULE_DATA_MAX);
        assert!(queue.capsule_data_max <= most, "at most {most} B in a capsule");
        assert!((1..=QUEUE_SIZE_MAX).contains(&queue.size), "1..={QUEUE_SIZE_MAX} commands");
        self.commands.grow(queue.size);
        self.queue = queue;
    }

    fn wants_input(&self) -> bool {
        // Requested data are wanted even while no command is accepted: the data arrive behind
        // commands, and their own commands end with them. Messages that arrive nevertheless are
        // kept; the receive requests bound them. A wire whose acknowledgements arrive together with
        // the host's messages, as datagrams do, must not be stopped.
        !self.is_over() && (self.arrived.is_empty() || self.is_owed_data() || !self.is_stuffed())
    }

    fn held(&self) -> Held {
        Held { to_host: self.backlog() + self.arrived_bytes, from_host: self.pulled }
    }

    fn is_owed_data(&self) -> bool {
        self.pulling > 0
    }

    fn permit(&mut self, permission: Permission) {
        self.permission = permission;
        if !self.is_over() {
            self.ask_waiting();
        }
    }

    fn give_up(&mut self) {
        self.core.give_up();
        self.forget();
    }

    fn outstanding(&self) -> u16 {
        self.commands.live()
    }

    fn pull(&mut self, slot: Slot, length: u32) -> Result<Option<Buffer>, Status> {
        assert!((1..=TRANSFER_BYTES_MAX).contains(&length), "a pull of 1..={TRANSFER_BYTES_MAX} B");
        let over = self.is_over();
        let capsule_data_max = self.queue.capsule_data_max as usize;
        let command = self.commands.get(slot.0).expect("a pull is for a command in flight");
        match command.pointer {
            DataPointer::InCapsule { offset, length: offered } => {
                let whole = core::mem::take(&mut command.capsule);
                let whole = whole.slice(0..whole.len().min(capsule_data_max));
                in_capsule(&whole, offset, offered, length).map(Some)
            }
            // A host may offer more than the command needs, as Linux does for Dataset Management.
            DataPointer::Keyed { remote, .. } if remote.length >= length => {
                if over {
                    return Ok(None);
                }
                command.pull = Pull::new(length);
                self.waiting.push_back(slot.0);
                self.ask_waiting();
                Ok(None)
            }
            pointer => Err(pointer.refusal()),
        }
    }

    fn push(&mut self, slot: Slot, offset: u32, total: u32, data: Buffer) -> Result<(), Status> {
        if self.is_over() {
            return Ok(());
        }
        let command = self.commands.get(slot.0).expect("a push is for a command in flight");
        let remote = match command.pointer {
            DataPointer::Keyed { remote, .. } if remote.length >= total => remote,
            pointer => return Err(pointer.refusal()),
        };
        if data.is_empty() {
            return Ok(());
        }
        let end = u32::try_from(data.len()).ok().and_then(|length| offset.checked_add(length));
        assert!(end.is_some_and(|end| end <= total), "a piece lies within its transfer");
        command.has_pushed = true;
        self.write(remote, offset, data);
        Ok(())
    }

    fn complete(&mut self, slot: Slot, entry: CompletionQueueEntry) {
        let over = self.is_over();
        let command = self.commands.get(slot.0).expect("a completion is for a command in flight");
        let entry = CompletionQueueEntry { command_id: command.id, ..entry };
        if command.pull.is_active() {
            // A response may end the loan of memory, so it waits for the reads of that memory.
            let coming = command.pull.is_coming() && !over;
            command.response = coming.then_some(entry);
            // Data that were not requested yet are no longer needed.
            self.waiting.retain(|waiting| *waiting != slot.0);
            if coming {
                return;
            }
        }
        self.respond(slot.0, entry);
    }
}

/// Inputs are the endpoint's. Its outputs, if it has any, are polled from
/// [`Connection::endpoint_mut`].
impl<E: Endpoint + Engine> Engine for Connection<E> {
    type Input<'a> = E::Input<'a>;
    type Output = Output;

    #[inline]
    fn handle_input(&mut self, now: Instant, input: E::Input<'_>) {
        self.core.endpoint.handle_input(now, input);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.core.handle_timeout(now);
    }

    #[inline]
    fn poll_output(&mut self) -> Option<Output> {
        self.poll()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.core.poll_timeout()
    }
}
