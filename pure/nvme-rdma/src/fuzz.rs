//! Fuzz entries: ordinary code that must never panic, whatever the bytes.

use alloc::vec::Vec;

use engine::{Buffer, Instant};
use nvme::host::Data;
use nvme::wire::{CompletionQueueEntry, QueueId, StatusCode, SubmissionQueueEntry};
use rdma::{
    Done, Endpoint, Inline, Key, LocalConfig, LocalEndpoint, Operation, ReceiveRequest, Remote, SendRequest,
};

use crate::controller::{self, Queue, Slot};
use crate::wire::{Acceptance, DataPointer, Rejection, Request};
use crate::{SharedPool, host};

/// Maximum number of outputs handled after one step of the peer.
const OUTPUTS_MAX: usize = 4096;
const NOW: Instant = Instant::ZERO;
/// Length of the peer's steps in bytes.
const STEP_BYTES: usize = 24;

/// Checks private data and data pointers.
pub fn private_data(bytes: &[u8]) {
    if let Ok(request) = Request::parse(bytes) {
        assert_eq!(Request::parse(&request.emit()), Ok(request), "a request comes back");
    }
    if let Ok(acceptance) = Acceptance::parse(bytes) {
        assert_eq!(Acceptance::parse(&acceptance.emit()), Ok(acceptance), "an acceptance comes back");
    }
    if let Some(rejection) = Rejection::parse(bytes) {
        assert_eq!(Rejection::parse(&rejection.emit()), Some(rejection), "a rejection comes back");
    }
    if let Some(bytes) = bytes.first_chunk() {
        let entry = SubmissionQueueEntry::parse(bytes);
        let pointer = DataPointer::of(&entry);
        let again = DataPointer::of(&pointer.put(entry));
        assert_eq!(again, pointer, "a pointer comes back");
        assert!(pointer.key_to_invalidate().is_none() || pointer.length() > 0);
    }
}

/// A peer that does what bytes say.
struct Peer {
    endpoint: LocalEndpoint,
    /// Keys that the other end has named, and its own.
    keys: Vec<Remote>,
}

impl Peer {
    fn new(mut endpoint: LocalEndpoint) -> Self {
        let own = endpoint.register(rdma::Exposure::Write(64 << 10)).ok();
        let data = Buffer::zeroed(64 << 10);
        let given = endpoint.register(rdma::Exposure::Read(data)).ok();
        Self { endpoint, keys: [own, given].into_iter().flatten().collect() }
    }

    /// Does one step: its first byte says what, the others with what.
    fn step(&mut self, step: &[u8], number: u64) {
        let byte = |index: usize| step.get(index).copied().unwrap_or_default();
        let remote = self.remote(&step[1..]);
        let operation = match byte(0) % 8 {
            0 => return self.endpoint.disconnect(),
            1 => Operation::Read { remote },
            2 => Operation::Write { data: Buffer::zeroed(remote.length as usize & 0xffff), remote },
            3 => self.message(step, Some(remote.key)),
            _ => self.message(step, None),
        };
        let request = SendRequest { id: number, operation, signalled: false };
        let _ = self.endpoint.post_send(request);
        if byte(1) & 0x80 != 0 {
            let _ = self.endpoint.post_receive(ReceiveRequest { id: number, length_max: 1 << 16 });
        }
        while let Some(completion) = self.endpoint.poll_completion() {
            if let Ok(Done::Received { data, .. }) = completion.result {
                self.learn(&data);
            }
        }
        while self.endpoint.poll_event().is_some() {}
    }

    /// An entry whose command identifier, opcode and data pointer come from the step.
    fn message(&self, step: &[u8], invalidate: Option<Key>) -> Operation {
        let mut bytes = [0; 64];
        let length = step.len().min(bytes.len());
        bytes[..length].copy_from_slice(&step[..length]);
        let mut entry = SubmissionQueueEntry::parse(&bytes);
        entry.cdw12 = u32::from(bytes[8]) << 6;
        let (offset, length) = (u64::from(bytes[9]), u32::from(bytes[10]) * 16);
        entry = match bytes[11] % 4 {
            0 => DataPointer::InCapsule { offset, length }.put(entry),
            1 | 2 => DataPointer::Keyed { remote: self.remote(&step[1..]), invalidate: bytes[11] & 4 != 0 }
                .put(entry),
            _ => entry,
        };
        // The identifier of a response is in bytes 12 and 13.
        let emitted = entry.emit();
        let count = if bytes[7] & 1 == 0 { 64 } else { usize::from(bytes[7]) % 64 };
        let data = Buffer::zeroed(usize::from(bytes[6]) * 8);
        Operation::Send { inline: Inline::new(&emitted[..count]), data, invalidate, immediate: None }
    }

    /// Memory that the other end has named, or has not.
    fn remote(&self, bytes: &[u8]) -> Remote {
        let byte = |index: usize| bytes.get(index).copied().unwrap_or_default();
        let known = self.keys.get(usize::from(byte(0) & 0x7f) % (self.keys.len() + 1)).copied();
        let guessed = Remote { key: Key(byte(1).into()), address: byte(2).into(), length: byte(3).into() };
        let mut remote = known.unwrap_or(guessed);
        if byte(4) & 3 == 0 {
            remote.address = remote.address.wrapping_add(byte(2).into());
            remote.length = u32::from(byte(3)) << 5;
        }
        Remote { length: remote.length & 0x00ff_ffff, ..remote }
    }

    fn learn(&mut self, message: &Buffer) {
        let Some(bytes) = message.first_chunk() else { return };
        if let DataPointer::Keyed { remote, .. } = DataPointer::of(&SubmissionQueueEntry::parse(bytes)) {
            self.keys.truncate(16);
            self.keys.push(remote);
        }
    }
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
    let mut peer = Peer::new(near);
    let mut held = Vec::new();
    for (number, step) in (0..).zip(rest.chunks(STEP_BYTES)) {
        peer.step(step, number);
        for _ in 0..OUTPUTS_MAX {
            let Some(output) = connection.poll() else { break };
            on_controller(&mut connection, output, &mut held);
        }
        assert!(connection.held().all() < 16 << 20, "what is held is bounded");
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
    let mut peer = Peer::new(far);
    peer.endpoint.accept(&Acceptance { controller_receives: 32 }.emit());
    for (number, step) in (0_u64..).zip(rest.chunks(STEP_BYTES)) {
        while connection.poll().is_some() {}
        let length = 4096 * (1 + u32::from(step[0]));
        let data = match number % 3 {
            0 => Data::None,
            1 => Data::Read(length),
            _ => Data::Write(Buffer::zeroed(length as usize)),
        };
        let _ = connection.submit(number, SubmissionQueueEntry::default(), data);
        peer.step(step, number);
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
