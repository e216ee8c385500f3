//! A host's end of a connection: one queue.
//!
//! [`HostEnd::submit`] sends a command. Data that fit into the capsule go with it. For other
//! data, the host lends memory, and the controller reads or writes it. The response ends the loan
//! before the data are returned to the owner.

mod receive;
mod types;

#[cfg(test)]
mod tests;

use engine::{Buffer, Engine, Instant};
use nvme::host::Data;
use nvme::wire::{CommandId, SubmissionQueueEntry};
use nvme_fabrics::transport::HostCommands;
use rdma::{Endpoint, Exposure, Key};

pub use crate::connection::{Closed, Fault, Parameters};
pub use nvme::host::{Completed, SubmitError};
pub use nvme_fabrics::transport::HostEnd;
pub use types::{Config, Output, Statistics};

use crate::connection::Core;
use crate::sender::{Sender, capsule};
use crate::wire::DataPointer;
use crate::{COMMAND_BYTES, RESPONSE_BYTES, TRANSFER_BYTES_MAX};

/// Memory that is lent for a command.
#[derive(Clone, Copy, Debug)]
struct Loan {
    key: Key,
    /// The controller writes the memory, and the written bytes go to the owner.
    is_read: bool,
}

#[derive(Debug)]
struct Command {
    cookie: u64,
    loan: Option<Loan>,
}

/// A host's end of a connection, which carries one queue.
#[derive(Debug)]
pub struct Connection<E> {
    config: Config,
    core: Core<E, ()>,
    commands: HostCommands<Command>,
    /// Number of commands that the controller accepts at a time.
    window: u16,
    /// Maximum length of the data in a capsule, in bytes.
    capsule_data_max: u32,
    /// Whether responses may invalidate keys.
    remote_invalidate: bool,
    statistics: Statistics,
}

impl<E: Endpoint> Connection<E> {
    /// A connection that `endpoint` is requesting, with [`Config::private_data`].
    ///
    /// # Panics
    /// When `config` exceeds a limit of one of its fields, or the endpoint accepts fewer send or
    /// receive requests than the queue has commands.
    pub fn new(now: Instant, config: Config, endpoint: E) -> Self {
        config.check();
        let limits = endpoint.limits();
        let size = config.queue_size;
        let least = limits.send_requests.min(limits.receive_requests);
        assert!(least >= size, "an endpoint of {least} requests for a queue of {size} commands");
        let sender = Sender::new(limits.send_requests, limits.send_requests - size);
        let mut core = Core::new(endpoint, sender, now, config.initialise_timeout);
        for _ in 0..size {
            core.post_receive(RESPONSE_BYTES);
        }
        let capsule_data_max = match config.queue.is_admin() {
            true => 0,
            false => config.capsule_data_max.min(limits.message_bytes.saturating_sub(COMMAND_BYTES)),
        };
        Self {
            core,
            commands: HostCommands::new(size),
            window: size,
            capsule_data_max,
            remote_invalidate: config.remote_invalidate && limits.invalidate,
            statistics: Statistics::default(),
            config,
        }
    }

    /// The data pointer of a command, and the data that go with the capsule.
    #[inline]
    fn place(&mut self, data: Data) -> Result<(DataPointer, Option<Loan>, Buffer), SubmitError> {
        if data.is_empty() {
            return Ok((DataPointer::NONE, None, Buffer::EMPTY));
        }
        let length = u32::try_from(data.len()).expect("a command's data have a limit");
        let (exposure, is_read) = match data {
            Data::Write(data) if length <= self.capsule_data_max => {
                return Ok((DataPointer::InCapsule { offset: 0, length }, None, data));
            }
            Data::Write(data) => (Exposure::Read(data), false),
            Data::None | Data::Read(_) => (Exposure::Write(length), true),
        };
        let remote = self.core.endpoint.register(exposure).map_err(|_| SubmitError::Busy)?;
        let pointer = DataPointer::Keyed { remote, invalidate: self.remote_invalidate };
        Ok((pointer, Some(Loan { key: remote.key, is_read }), Buffer::EMPTY))
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

    /// The next output, after an event of the endpoint. [`Engine::poll_output`] does the same for
    /// endpoints that are engines.
    #[inline]
    pub fn poll(&mut self) -> Option<Output> {
        loop {
            let Some(news) = self.core.poll() else {
                let why = self.core.take_closed()?;
                self.end_loans();
                return Some(Output::Closed(why));
            };
            if let Some(output) = self.on_news(news) {
                return Some(output);
            }
        }
    }

    /// Ends the connection if it was not established in time.
    pub fn on_time(&mut self, now: Instant) {
        self.core.on_time(now);
    }

    /// When [`Connection::on_time`] is due, if ever.
    pub const fn deadline(&self) -> Option<Instant> {
        self.core.deadline()
    }

    /// Ends every loan: the peer can no longer reach the memory, even if it still sends.
    fn end_loans(&mut self) {
        for command in self.commands.drain() {
            if let Some(loan) = command.loan {
                drop(self.core.endpoint.deregister(loan.key));
            }
        }
    }
}

impl<E: Endpoint> HostEnd for Connection<E> {
    #[inline]
    fn submit(
        &mut self,
        cookie: u64,
        entry: SubmissionQueueEntry,
        data: Data,
    ) -> Result<CommandId, SubmitError> {
        if !self.is_ready() {
            return Err(SubmitError::NotReady);
        }
        assert!(data.len() <= TRANSFER_BYTES_MAX as usize, "a command moves {TRANSFER_BYTES_MAX} B at most");
        if !self.has_room() {
            return Err(SubmitError::Busy);
        }
        let (pointer, loan, inside) = self.place(data)?;
        let command_id = self.commands.issue(Command { cookie, loan }).ok_or(SubmitError::Busy)?;
        let entry = pointer.put(SubmissionQueueEntry { command_id, ..entry });
        self.statistics.submitted += 1;
        self.core.post(capsule(&entry.emit(), inside, None), (), false);
        Ok(command_id)
    }

    fn is_ready(&self) -> bool {
        self.core.is_ready()
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.is_ready() && self.commands.live() < self.window && self.core.sender.has_room()
    }

    fn outstanding(&self) -> u16 {
        self.commands.live()
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
