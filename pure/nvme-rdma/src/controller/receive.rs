//! Handles a controller's events: requests for the connection, commands, and completed reads.

use engine::Buffer;
use nvme::wire::{StatusCode, SubmissionQueueEntry};
use rdma::{Done, Endpoint, WorkError};

use super::transfer::Pull;
use super::{Closed, Command, Connection, Fault, Output, Parameters, Posted, Slot};
use crate::connection::News;
use crate::wire::{Acceptance, DataPointer, Rejection, Request};
use crate::{ADMIN_CAPSULE_DATA_MAX, COMMAND_BYTES, TRANSFER_BYTES_MAX};

impl<E: Endpoint> Connection<E> {
    /// The next output, after an event of the endpoint.
    /// [`Engine::poll_output`](engine::Engine::poll_output) does the same for endpoints that are
    /// engines.
    #[inline]
    pub fn poll(&mut self) -> Option<Output> {
        loop {
            if let Some(output) = self.next_command() {
                return Some(output);
            }
            if self.is_over() {
                let why = self.core.take_closed()?;
                self.forget();
                return Some(Output::Closed(why));
            }
            let Some(news) = self.core.poll() else {
                if self.is_over() {
                    continue;
                }
                return None;
            };
            if let Some(output) = self.on_news(news) {
                return Some(output);
            }
        }
    }

    #[inline]
    pub(super) fn on_news(&mut self, news: News) -> Option<Output> {
        match news {
            News::Received(message, _) => {
                self.arrived_bytes += message.len() as u64;
                self.arrived.push_back(message);
                None
            }
            News::Done(id, done) => self.on_done(id, done),
            News::Requested(private_data) => {
                self.on_requested(&private_data);
                None
            }
            News::Established(_) => self.on_established(),
        }
    }

    fn on_requested(&mut self, private_data: &[u8]) {
        if self.request.is_some() {
            return;
        }
        let request = match self.judge(private_data) {
            Ok(request) => request,
            Err(why) => return self.core.reject(why),
        };
        let capsule_data_max = self.config.capsule_data_max.max(ADMIN_CAPSULE_DATA_MAX);
        for _ in 0..request.host_sends {
            self.core.post_receive(COMMAND_BYTES + capsule_data_max);
        }
        if !self.is_over() {
            let controller_receives = receives(&request);
            self.core.endpoint.accept(&Acceptance { controller_receives }.emit());
            self.request = Some(request);
        }
    }

    /// Whether a request for the connection can be granted.
    fn judge(&self, private_data: &[u8]) -> Result<Request, Rejection> {
        let request = Request::parse(private_data)?;
        if let Some(why) = self.config.refusal {
            return Err(why);
        }
        if request.queue.0 > self.config.queue_id_max {
            return Err(Rejection::QueueId);
        }
        if request.host_sends > self.config.queue_size_max.min(self.limits.receive_requests).into() {
            return Err(Rejection::HostSendQueueSize);
        }
        if request.controller_id > self.config.controller_id_max {
            return Err(Rejection::ControllerId);
        }
        Ok(request)
    }

    fn on_established(&mut self) -> Option<Output> {
        let request = self.request.filter(|_| self.core.is_initialising())?;
        self.core.begin();
        Some(Output::Initialized(Parameters {
            queue: request.queue,
            controller_id: request.controller_id,
            host_receives: request.host_receives,
            controller_receives: receives(&request),
            remote_invalidate: self.config.remote_invalidate && self.limits.invalidate,
        }))
    }

    /// Takes the next received command, if the connection may accept it.
    #[inline]
    fn next_command(&mut self) -> Option<Output> {
        while self.core.is_ready() && !self.arrived.is_empty() && !self.is_stuffed() {
            let message = self.arrived.pop_front()?;
            self.arrived_bytes -= message.len() as u64;
            let Some(bytes) = message.first_chunk() else {
                self.core.close(Closed::PeerFault(Fault::CapsuleLength(message.len())));
                return None;
            };
            let entry = SubmissionQueueEntry::parse(bytes);
            let data = message.slice(SubmissionQueueEntry::LENGTH..message.len());
            if let Some(output) = self.begin(entry, data) {
                return Some(output);
            }
        }
        None
    }

    /// Begins a received command.
    #[inline]
    fn begin(&mut self, entry: SubmissionQueueEntry, capsule: Buffer) -> Option<Output> {
        self.statistics.commands += 1;
        let pointer = DataPointer::of(&entry);
        let brought = u32::try_from(capsule.len()).expect("a capsule has a limit");
        let room = pointer.length().min(TRANSFER_BYTES_MAX);
        let reserved = brought + if is_to_host(entry.opcode) { room } else { 0 };
        let command = Command {
            id: entry.command_id,
            pointer,
            capsule,
            pull: Pull::default(),
            has_pushed: false,
            reserved,
            pulled: 0,
            response: None,
        };
        match self.commands.issue(&entry, command) {
            Ok(slot) => {
                self.reserved += u64::from(reserved);
                Some(Output::Command { slot: Slot(slot), entry })
            }
            Err(Some(code)) => {
                self.statistics.last_conflict = Some(entry.command_id);
                self.refuse(&entry, code);
                None
            }
            Err(None) => {
                self.core.close(Closed::PeerFault(Fault::TooManyCommands));
                None
            }
        }
    }

    fn refuse(&mut self, entry: &SubmissionQueueEntry, code: StatusCode) {
        self.statistics.refused += 1;
        let response =
            nvme::wire::CompletionQueueEntry { command_id: entry.command_id, ..Default::default() };
        // The key may be that of the outstanding command: the host ends the loan itself.
        self.send_response(response.with_status(code.into(), false), None, false);
    }

    /// A request of the send queue is done, and so are those before it.
    #[inline]
    fn on_done(&mut self, id: u64, done: Done) -> Option<Output> {
        let mut done = Some(done);
        let mut output = None;
        while let Some((posted, is_last)) = self.core.sender.take_done(id) {
            match posted {
                Posted::Write(length) => self.unsent -= u64::from(length),
                Posted::Response => {}
                Posted::Read { slot, offset, length } => {
                    // A read always has a completion of its own, with its data.
                    let data = match done.take() {
                        Some(Done::Read(data)) if is_last && data.len() == length as usize => data,
                        _ => {
                            self.core.close(Closed::Failed(WorkError::BadResponse));
                            return None;
                        }
                    };
                    output = self.on_data(slot, offset, data);
                }
            }
        }
        self.core.post_waiting();
        output
    }

    /// Handles received data of a slot's transfer.
    fn on_data(&mut self, slot: u16, offset: u32, data: Buffer) -> Option<Output> {
        self.reads -= 1;
        self.pulling -= data.len() as u64;
        let command = self.commands.get(slot)?;
        let pull = &mut command.pull;
        pull.take(offset, data, &self.config.pool);
        let is_done = pull.arrived == pull.length;
        if let Some(entry) = command.response.take_if(|_| !pull.is_coming()) {
            self.respond(slot, entry);
            self.ask_waiting();
            return None;
        }
        if !is_done {
            self.ask_waiting();
            return None;
        }
        let pull = core::mem::take(pull);
        self.ask_waiting();
        let data = pull.finish(&self.config.pool);
        Some(Output::HostData { slot: Slot(slot), data })
    }
}

/// Receive requests that are posted for the commands of a host.
fn receives(request: &Request) -> u16 {
    u16::try_from(request.host_sends).expect("a queue is limited")
}

/// Whether a command of `opcode` moves data to the host, by its two lowest bits.
const fn is_to_host(opcode: u8) -> bool {
    opcode & 0b11 == 0b10
}
