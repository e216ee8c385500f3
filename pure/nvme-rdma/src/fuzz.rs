//! Fuzz entries: ordinary code that must not panic on any input.

use alloc::vec::Vec;

use engine::{Buffer, Instant};
use nvme::host::Data;
use nvme::wire::{CommandId, CompletionQueueEntry, QueueId, StatusCode, SubmissionQueueEntry};
use nvme_fabrics::transport::{ControllerEnd, HostEnd};
use rdma::{
    Done, Endpoint, Exposure, Inline, Key, LocalConfig, LocalEndpoint, Operation, ReceiveRequest, Remote,
    SendRequest,
};

use crate::controller::{self, Queue, Slot};
use crate::wire::{Acceptance, DataPointer, Rejection, Request};
use crate::{SharedPool, host};

/// Maximum number of outputs handled after one step of the peer.
const OUTPUTS_MAX: usize = 4096;
const NOW: Instant = Instant::ZERO;
/// Length of the peer's steps in bytes.
const STEP_BYTES: usize = 13;

/// Checks private data and data pointers.
pub fn private_data(bytes: &[u8]) {
    if let Ok(request) = Request::parse(bytes) {
        assert_eq!(Request::parse(&request.emit()), Ok(request), "a request survives emit and parse");
    }
    if let Ok(acceptance) = Acceptance::parse(bytes) {
        assert_eq!(
            Acceptance::parse(&acceptance.emit()),
            Ok(acceptance),
            "an acceptance survives emit and parse"
        );
    }
    if let Some(rejection) = Rejection::parse(bytes) {
        assert_eq!(
            Rejection::parse(&rejection.emit()),
            Some(rejection),
            "a rejection survives emit and parse"
        );
    }
    if let Some(bytes) = bytes.first_chunk() {
        let entry = SubmissionQueueEntry::parse(bytes);
        let pointer = DataPointer::of(&entry);
        let again = DataPointer::of(&pointer.put(entry));
        assert_eq!(again, pointer, "a pointer survives emit and parse");
        assert!(pointer.key_to_invalidate().is_none() || pointer.length() > 0);
    }
}

/// A peer that acts as the input chooses.
struct Peer {
    endpoint: LocalEndpoint,
    /// Whether the peer is a host, which sends commands, or a controller, which sends responses.
    is_host: bool,
    /// Memory that the other end has named, and the peer's own.
    known: Vec<Remote>,
    /// Identifiers of received commands.
    ids: Vec<CommandId>,
}

impl Peer {
    fn new(mut endpoint: LocalEndpoint, is_host: bool) -> Self {
        let own = endpoint.register(Exposure::Write(64 << 10)).ok();
        let given = endpoint.register(Exposure::Read(Buffer::zeroed(64 << 10))).ok();
        for id in 0..64 {
            let _ = endpoint.post_receive(ReceiveRequest { id, length_max: 1 << 16 });
        }
        let known = [own, given].into_iter().flatten().collect();
        Self { endpoint, is_host, known, ids: Vec::new() }
    }

    /// Performs one step: its first byte chooses the action, the others the parameters.
    fn step(&mut self, step: [u8; STEP_BYTES], number: u64) {
        while let Some(completion) = self.endpoint.poll_completion() {
            if let Ok(Done::Received { data, .. }) = completion.result {
                self.learn(&data);
            }
        }
        while self.endpoint.poll_event().is_some() {}
        let [what, _, key, a, b, count, ..] = step;
        let remote = self.remote(key, a, b);
        let operation = match what % 16 {
            0 => return self.endpoint.disconnect(),
            1 => Operation::Read { remote },
            2 | 3 => Operation::Write { data: Buffer::zeroed(remote.length as usize & 0xffff), remote },
            4 | 5 => self.message(&step, Some(remote.key)),
            _ => self.message(&step, None),
        };
        let _ = self.endpoint.post_send(SendRequest { id: number, operation, signalled: false });
        for _ in 0..count % 4 {
            let _ = self.endpoint.post_receive(ReceiveRequest { id: number, length_max: 1 << 16 });
        }
    }

    fn message(&self, step: &[u8; STEP_BYTES], invalidate: Option<Key>) -> Operation {
        let [what, opcode, key, a, b, _, id, pointer, offset, length, moved, cut, status, ..] = *step;
        let mut inline = if self.is_host {
            let remote = self.remote(key, a, b);
            let pointer = match pointer % 8 {
                0 | 1 => DataPointer::InCapsule { offset: offset.into(), length: u32::from(length) * 16 },
                2 => DataPointer::NONE,
                3..7 => DataPointer::Keyed { remote, invalidate: pointer & 8 != 0 },
                _ => DataPointer::Invalid(StatusCode::InvalidField),
            };
            let entry = SubmissionQueueEntry {
                opcode,
                command_id: CommandId(id.into()),
                data_pointer: [what.into(), u64::from(pointer.length()) << 40],
                cdw12: u32::from(moved) << 6,
                ..SubmissionQueueEntry::EMPTY
            };
            Inline::new(&pointer.put(entry).emit())
        } else {
            let known = self.ids.get(usize::from(id) % (self.ids.len() + 1)).copied();
            let command_id = known.unwrap_or(CommandId(id.into()));
            let entry =
                CompletionQueueEntry { command_id, status_and_phase: status.into(), ..Default::default() };
            Inline::new(&entry.emit())
        };
        if cut & 0x80 != 0 {
            inline = Inline::new(&inline[..usize::from(cut & 0x7f).min(inline.len())]);
        }
        let data = if self.is_host { Buffer::zeroed(usize::from(length) * 16) } else { Buffer::EMPTY };
        Operation::Send { inline, data, invalidate, immediate: None }
    }

    /// Memory that is known, or a part of it, or other memory.
    fn remote(&self, key: u8, a: u8, b: u8) -> Remote {
        let known = self.known.get(usize::from(key & 0x3f) % (self.known.len() + 1)).copied();
        let mut remote =
            known.unwrap_or(Remote { key: Key(key.into()), address: a.into(), length: b.into() });
        if key & 0x80 != 0 {
            remote.address = remote.address.wrapping_add(a.into());
            remote.length = u32::from(b) << 5;
        }
        remote
    }

    fn learn(&mut self, message: &Buffer) {
        let Some(bytes) = message.first_chunk() else { return };
        let entry = SubmissionQueueEntry::parse(bytes);
        if let DataPointer::Keyed { remote, .. } = DataPointer::of(&entry) {
            self.known.truncate(16);
            self.known.push(remote);
        }
        self.ids.truncate(16);
        self.ids.push(entry.command_id);
    }
}

/// The steps in `bytes`, with their numbers. The last is padded.
fn steps(bytes: &[u8]) -> impl Iterator<Item = (u64, [u8; STEP_BYTES])> {
    (0..).zip(bytes.chunks(STEP_BYTES)).map(|(number, chunk)| {
        let mut step = [0; STEP_BYTES];
        step[..chunk.len()].copy_from_slice(chunk);
        (number, step)
    })
}

fn local(first: u8) -> LocalConfig {
    LocalConfig { seed: first.into(), delays: first & 1 != 0, ..LocalConfig::default() }
}

/// Lets a hostile host loose on a controller's end.
pub fn controller(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let pool = SharedPool::default();
    let request = Request { queue: QueueId(1), host_receives: 8, host_sends: 8, controller_id: 1 };
    let [near, far] = LocalEndpoint::pair(&local(*first), &pool, &request.emit());
    let mut config = controller::Config::new(pool);
    config.backlog_bytes_max = 1 << 16;
    let mut connection = controller::Connection::new(NOW, config, far);
    connection.set_queue(Queue { size: 8, capsule_data_max: 8192, success_flag: false });
    while connection.poll().is_some() {}
    let mut peer = Peer::new(near, true);
    let mut held = Vec::new();
    for (number, step) in steps(rest) {
        peer.step(step, number);
        for _ in 0..OUTPUTS_MAX {
            let Some(output) = connection.poll() else { break };
            on_controller(&mut connection, output, &mut held);
        }
        assert!(connection.held().all() < 16 << 20, "the held data are bounded");
        let receives = connection.endpoint().receives_posted() + usize::from(connection.outstanding());
        assert!(receives <= 8, "no receive request beyond the queue");
    }
}

fn on_controller(
    connection: &mut controller::Connection<LocalEndpoint>,
    output: controller::Output,
    held: &mut Vec<Slot>,
) {
    let done = CompletionQueueEntry::default();
    match output {
        controller::Output::Command { slot, entry } => {
            let length = (entry.cdw12 % 20_000).max(1);
            let moved = match entry.opcode & 3 {
                1 => connection.pull(slot, length).map(|data| data.is_some()),
                2 => connection.push(slot, 0, length, Buffer::zeroed(length as usize)).map(|()| true),
                _ => Ok(true),
            };
            match moved {
                Ok(true) if entry.opcode & 4 == 0 => connection.complete(slot, done),
                Ok(_) => held.push(slot),
                Err(status) => connection.complete(slot, done.with_status(status, false)),
            }
        }
        controller::Output::HostData { slot, .. } => {
            held.retain(|other| *other != slot);
            connection.complete(slot, done);
        }
        controller::Output::Initialized(_) | controller::Output::Closed(_) => {}
    }
    if held.len() > 4 {
        let slot = held.remove(0);
        let status = StatusCode::CommandAbortRequested.into();
        connection.complete(slot, done.with_status(status, false));
    }
}

/// Lets a hostile controller loose on a host's end.
pub fn host(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let pool = SharedPool::default();
    let config = host::Config { queue: QueueId(1), capsule_data_max: 4096, ..host::Config::new() };
    let [near, far] = LocalEndpoint::pair(&local(*first), &pool, &config.private_data());
    let mut connection = host::Connection::new(NOW, config, near);
    let mut peer = Peer::new(far, false);
    peer.endpoint.accept(&Acceptance { controller_receives: 32 }.emit());
    while connection.poll().is_some() {}
    for (number, step) in steps(rest) {
        let length = 64 * (1 + u32::from(step[1]));
        let data = match number % 3 {
            0 => Data::None,
            1 => Data::Read(length),
            _ => Data::Write(Buffer::zeroed(length as usize)),
        };
        let _ = connection.submit(number, SubmissionQueueEntry::default(), data);
        peer.step(step, number);
        while connection.poll().is_some() {}
        assert!(connection.endpoint().regions() <= usize::from(connection.outstanding()), "loans end");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
        #[test]
        fn noise_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..1200)) {
            super::private_data(&bytes);
            super::controller(&bytes);
            super::host(&bytes);
        }
    }
}
