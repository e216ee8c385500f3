//! A host whose controllers follow the input.

use alloc::vec::Vec;

use engine::{Buffer, Engine, Instant, Nanos};
use nvme::wire::{CompletionQueueEntry, NamespaceId, Status, SubmissionQueueEntry};

use crate::host::discovery::{Reader, Step};
use crate::host::multipath::{Config, Output, Request};
use crate::host::{self, Association, Multipath};
use crate::wire::{HostId, Nqn};
use nvme::host::Data;

/// Maximum number of outputs handled in one run.
const OUTPUTS_MAX: usize = 400;

/// The bytes of an input; zeros follow the last byte.
struct Source<'a>(&'a [u8]);

impl Source<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn half(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// A page of at most `length` bytes: some bytes from the input, the others zero.
    fn page(&mut self, length: usize) -> Buffer {
        let length = if self.byte() == 1 { length / 2 } else { length };
        let mut page: Vec<u8> = core::iter::repeat_n(0, length).collect();
        for _ in 0..self.byte() % 16 {
            let place = usize::from(self.half()) % length.max(1);
            let value = self.byte();
            if let Some(byte) = page.get_mut(place) {
                *byte = value;
            }
        }
        Buffer::from(page)
    }
}

/// Runs a host whose completions, data, lost connections and time follow `bytes`.
pub fn host(bytes: &[u8]) {
    let _ = nvme::host::ana_states(bytes);
    discovery(bytes);
    let mut source = Source(bytes);
    let name = if source.byte() & 1 == 0 { "nqn.2014-08.org.example:x" } else { Nqn::DISCOVERY };
    let Ok(name) = name.parse::<Nqn>() else { return };
    let config = host::Config { io_queues: 3, ..host::Config::new(name.clone(), name, HostId::default()) };
    let associations = [Association::new(config.clone()), Association::new(config)];
    let mut multipath = Multipath::new(Config { commands_max: 16, ..Config::default() }, associations);
    let mut now = Instant::ZERO;
    multipath.start(now);
    for step in 0..OUTPUTS_MAX {
        if source.0.is_empty() {
            return;
        }
        multipath.settle(now);
        let Some(output) = multipath.poll_output() else {
            now = now + Nanos::from_millis(u64::from(source.half()));
            if multipath.poll_timeout().is_some_and(|at| at <= now) {
                multipath.handle_timeout(now);
            }
            let _ = multipath.submit(now, request(step as u64, &mut source));
            continue;
        };
        answer(&mut multipath, now, output, &mut source);
    }
}

fn request(cookie: u64, source: &mut Source<'_>) -> Request {
    let entry = SubmissionQueueEntry { opcode: 2, namespace: NamespaceId(1), ..Default::default() };
    Request { cookie, entry, data: Data::Read(512), queue: source.byte().into() }
}

fn answer(multipath: &mut Multipath, now: Instant, output: Output, source: &mut Source<'_>) {
    match output {
        Output::OpenQueue { path, queue, .. } if source.byte() < 250 => {
            multipath.on_queue_open(now, path, queue);
        }
        Output::OpenQueue { path, queue, .. } => multipath.on_queue_lost(now, path, queue),
        Output::Dispatch(dispatch) => {
            let how = source.byte();
            if how > 250 {
                return multipath.on_queue_lost(now, dispatch.path, dispatch.queue);
            }
            let raw = if how > 230 { source.half() } else { 0 };
            let dw0 = u32::from(source.byte());
            let entry = CompletionQueueEntry { dw0, ..CompletionQueueEntry::default() };
            let entry = entry.with_status(Status::from_raw(raw), false);
            let data = match dispatch.data {
                Data::Read(length) => source.page(length as usize),
                _ => Buffer::EMPTY,
            };
            multipath.on_completed(now, dispatch.path, dispatch.token, entry, data);
            // A second answer to the same command is dropped.
            let again = multipath.on_completed(now, dispatch.path, dispatch.token, entry, Buffer::EMPTY);
            assert!(again.is_none(), "an answer counts once");
        }
        _ => {}
    }
}

/// Reads a Discovery log whose bytes are the input.
fn discovery(bytes: &[u8]) {
    let (mut reader, mut step) = Reader::start();
    let mut rest = bytes;
    for _ in 0..64 {
        let Step::Read { length, .. } = step else { return };
        let count = rest.len().min(length as usize);
        let (now, later) = rest.split_at(count);
        rest = later;
        match reader.next(now) {
            Ok(next) => step = next,
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn noise_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
            super::host(&bytes);
        }

        /// Controllers that mostly answer correctly.
        #[test]
        fn hardly_any_noise_is_survived(bytes in prop::collection::vec(0_u8..4, 0..3000)) {
            super::host(&bytes);
        }
    }
}
