//! Handles a host's events: the established connection, and responses.

use engine::Buffer;
use nvme::wire::CompletionQueueEntry;
use rdma::{Endpoint, Key};

use super::{Closed, Completed, Connection, Fault, Output, Parameters};
use crate::RESPONSE_BYTES;
use crate::connection::News;
use crate::wire::Acceptance;

impl<E: Endpoint> Connection<E> {
    #[inline]
    pub(super) fn on_news(&mut self, news: News) -> Option<Output> {
        match news {
            News::Received(message, invalidated) => self.on_response(&message, invalidated),
            News::Done(id, _) => {
                while self.core.sender.take_done(id).is_some() {}
                None
            }
            News::Established(private_data) => self.on_established(&private_data),
            // The requesting side gets no request.
            News::Requested(_) => None,
        }
    }

    fn on_established(&mut self, private_data: &[u8]) -> Option<Output> {
        if !self.core.is_initialising() {
            return None;
        }
        let controller_receives = match Acceptance::parse(private_data) {
            Ok(acceptance) => acceptance.controller_receives,
            Err(error) => {
                self.core.close(Closed::PeerFault(Fault::PrivateData(error)));
                return None;
            }
        };
        self.window = self.config.queue_size.min(controller_receives);
        self.core.begin();
        Some(Output::Initialized(Parameters {
            queue: self.config.queue,
            controller_id: self.config.controller_id,
            host_receives: self.config.queue_size,
            controller_receives,
            remote_invalidate: self.remote_invalidate,
        }))
    }

    #[inline]
    fn on_response(&mut self, message: &Buffer, invalidated: Option<Key>) -> Option<Output> {
        self.core.post_receive(RESPONSE_BYTES);
        match self.complete(message, invalidated) {
            Ok(completed) => Some(Output::Completed(completed)),
            Err(fault) => {
                self.core.close(Closed::PeerFault(fault));
                None
            }
        }
    }

    #[inline]
    fn complete(&mut self, message: &Buffer, invalidated: Option<Key>) -> Result<Completed, Fault> {
        let bytes = message.first_chunk().ok_or(Fault::CapsuleLength(message.len()))?;
        let entry = CompletionQueueEntry::parse(bytes);
        let command =
            self.commands.retire(entry.command_id).ok_or(Fault::UnknownCommand(entry.command_id))?;
        // The loan ends here, whether or not the controller has invalidated the key, before the
        // owner gets the memory back.
        let memory = command.loan.and_then(|loan| self.core.endpoint.deregister(loan.key));
        if invalidated.is_some() {
            if invalidated != command.loan.map(|loan| loan.key) {
                return Err(Fault::ForeignKey(entry.command_id));
            }
            self.statistics.invalidated += 1;
        }
        self.statistics.completed += 1;
        self.statistics.last_completed = Some(entry.command_id);
        let is_read = command.loan.is_some_and(|loan| loan.is_read);
        let data = memory.filter(|_| is_read).unwrap_or_default();
        Ok(Completed { cookie: command.cookie, entry, data })
    }
}
