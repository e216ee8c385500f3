//! A medium that is the namespace of another target, which makes a target a proxy.

use std::collections::{BTreeMap, VecDeque};

use assemblies::initiator::Output;
use engine::{Buffer, Instant};
use nvme::host::{Data, command};
use nvme::media::{Completion, IoId, MediaError, Operation, Request};
use nvme::wire::{IoOpcode, NamespaceId, SubmissionQueueEntry};
use nvme_fabrics::host::multipath::{self, Completed, SubmitError};
use sim::Context;
use sim::stream::{self, StreamEvent};

use super::air::Parcel;
use super::wires::Wires;

/// The other target's namespace, and the requests to it.
#[derive(Debug)]
pub(super) struct Behind {
    pub(super) wires: Wires,
    block_bytes: u64,
    waiting: VecDeque<Request>,
    /// The requests in flight by cookie, with whether each is a read.
    issued: BTreeMap<u64, (IoId, bool)>,
    cookies: u64,
}

impl Behind {
    pub(super) const fn new(wires: Wires, block_bytes: u64) -> Self {
        Self { wires, block_bytes, waiting: VecDeque::new(), issued: BTreeMap::new(), cookies: 0 }
    }

    pub(super) fn submit(&mut self, request: Request) {
        self.waiting.push_back(request);
    }

    pub(super) fn handle(
        &mut self,
        now: Instant,
        connection: stream::ConnectionId,
        event: StreamEvent,
    ) -> bool {
        self.wires.handle(now, connection, event)
    }

    /// Advances all requests, and gives completions to `answer`.
    pub(super) fn settle(&mut self, context: &mut Context<'_, Parcel>, mut answer: impl FnMut(Completion)) {
        let now = context.now();
        self.wires.wake(now);
        loop {
            self.issue(now, &mut answer);
            match self.wires.poll(context) {
                None if self.wires.flush(context) => {}
                None => break,
                Some(Output::Completed(completed)) => self.on_completed(completed, &mut answer),
                Some(event) => self.wires.note(now, &event),
            }
        }
    }

    fn issue(&mut self, now: Instant, answer: &mut impl FnMut(Completion)) {
        while let Some(request) = self.waiting.pop_front() {
            self.cookies += 1;
            let (entry, data) = self.command(&request.operation);
            let of = multipath::Request { cookie: self.cookies, entry, data, queue: 0 };
            match self.wires.initiator.submit(now, of) {
                Ok(()) => {
                    let reads = matches!(request.operation, Operation::Read { .. });
                    self.issued.insert(self.cookies, (request.id, reads));
                }
                Err(SubmitError::Busy) => return self.waiting.push_front(request),
                Err(SubmitError::NoPath) => {
                    answer(Completion::Done { id: request.id, result: Err(MediaError::Unreachable) });
                }
                Err(error) => panic!("{request:?} was refused: {error}"),
            }
        }
    }

    fn command(&self, operation: &Operation) -> (SubmissionQueueEntry, Data) {
        let blocks = |bytes: u64| u32::try_from(bytes / self.block_bytes).expect("few blocks");
        let (opcode, offset, count, data) = match operation {
            Operation::Read { offset, length } => {
                (IoOpcode::Read, *offset, blocks((*length).into()), Data::Read(*length))
            }
            Operation::Write { offset, data, .. } => {
                let bytes = Buffer::copy_from_slice(data);
                (IoOpcode::Write, *offset, blocks(data.len() as u64), Data::Write(bytes))
            }
            Operation::WriteZeroes { offset, length, .. } | Operation::Deallocate { offset, length } => {
                (IoOpcode::WriteZeroes, *offset, blocks(*length), Data::None)
            }
            Operation::Flush => (IoOpcode::Flush, 0, 0, Data::None),
        };
        let entry = match opcode {
            IoOpcode::Flush => command::flush(NamespaceId(1)),
            _ => command::on_blocks(opcode, NamespaceId(1), offset / self.block_bytes, count),
        };
        (entry, data)
    }

    fn on_completed(&mut self, completed: Completed, answer: &mut impl FnMut(Completion)) {
        let Some((id, reads)) = self.issued.remove(&completed.cookie) else { return };
        let result = match (completed.entry.status().is_success(), reads) {
            (true, true) => {
                answer(Completion::Data { id, offset: 0, data: completed.data });
                Ok(())
            }
            (true, false) => Ok(()),
            (false, true) => Err(MediaError::Read),
            (false, false) => Err(MediaError::Write),
        };
        answer(Completion::Done { id, result });
    }

    /// Forgets all requests, after the node was killed and is back.
    pub(super) fn restart(&mut self) {
        self.wires.restart();
        self.waiting.clear();
        self.issued.clear();
    }
}
