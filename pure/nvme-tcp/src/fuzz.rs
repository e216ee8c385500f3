//! Fuzz entries: ordinary code that must not panic on any input.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use engine::{Buffer, Engine, Instant, Pool};
use nvme::wire::{CompletionQueueEntry, StatusCode, SubmissionQueueEntry};

use crate::controller::{self, Queue};
use crate::host::{self, DigestUse};
use crate::wire::{Agreement, CommonHeader, Framing, InitializeRequest, InitializeResponse, Receiver};
use nvme::host::Data;
use nvme_fabrics::transport::{ControllerEnd, HostEnd};

/// Maximum number of outputs handled after one input.
const OUTPUTS_MAX: usize = 4096;
const NOW: Instant = Instant::ZERO;

/// Checks common headers under every agreement.
pub fn pdu(bytes: &[u8]) {
    let Some(Ok(header)) = bytes.first_chunk().map(CommonHeader::parse) else { return };
    for alignment in [4, 32, 128] {
        for digests in 0..4_u8 {
            let (header_digest, data_digest) = (digests & 1 != 0, digests & 2 != 0);
            let agreement = Agreement { header_digest, data_digest, alignment };
            for receiver in [Receiver::Controller, Receiver::Host] {
                if let Ok(framing) = Framing::check(&header, receiver, agreement) {
                    assert_eq!(framing.length(), header.length, "parts make up the whole");
                }
            }
        }
    }
}

/// Decodes the settings of a run. The first byte gives the digests and the length of the pieces;
/// the rest is the peer's stream.
fn settings(bytes: &[u8]) -> (bool, bool, usize, &[u8]) {
    let (first, rest) = bytes.split_first().unwrap_or((&0, &[]));
    (first & 1 != 0, first & 2 != 0, usize::from(first >> 2) + 1, rest)
}

/// Feeds a host's bytes to a controller's end.
pub fn controller(bytes: &[u8]) {
    let (header_digest, data_digest, cut, rest) = settings(bytes);
    let mut config = controller::Config::new(Rc::new(RefCell::new(Pool::new(1 << 20))));
    config.backlog_bytes_max = 1 << 16;
    let mut connection = controller::Connection::new(NOW, config);
    let request = InitializeRequest { alignment: 4, header_digest, data_digest, ready_to_transfer_max: 2 };
    connection.handle_input(NOW, controller::Input::Received(Buffer::copy_from_slice(&request.emit())));
    connection.set_queue(Queue { size: 8, capsule_data_max: 8192, success_flag: true });
    let mut held = Vec::new();
    for piece in rest.chunks(cut * 16) {
        let piece = land(piece, connection.landing());
        if let Ok(count) = piece {
            connection.landed(count);
        } else if let Err(piece) = piece {
            connection.handle_input(NOW, controller::Input::Received(Buffer::copy_from_slice(piece)));
        }
        for _ in 0..OUTPUTS_MAX {
            let Some(output) = connection.poll_output() else { break };
            on_controller(&mut connection, output, &mut held);
        }
        assert!(connection.outbox().len() < 2 << 20, "the outbox is bounded");
    }
}

/// Puts a piece straight into its place if it fits, and returns the length. Otherwise returns the
/// piece.
fn land<'a>(piece: &'a [u8], place: Option<&mut [u8]>) -> Result<usize, &'a [u8]> {
    match place {
        Some(place) if place.len() >= piece.len() => {
            place[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        }
        _ => Err(piece),
    }
}

fn on_controller(
    connection: &mut controller::Connection,
    output: controller::Output,
    held: &mut Vec<controller::Slot>,
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
        controller::Output::HostData { slot, .. } | controller::Output::HostDataFailed { slot, .. } => {
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

/// Feeds a controller's bytes to a host's end.
pub fn host(bytes: &[u8]) {
    let (header_digest, data_digest, cut, rest) = settings(bytes);
    let mut config = host::Config::new(Rc::new(RefCell::new(Pool::new(1 << 20))));
    config.header_digest = DigestUse::preferred_if(header_digest);
    config.data_digest = DigestUse::preferred_if(data_digest);
    let mut connection = host::Connection::new(NOW, config);
    let response = InitializeResponse { alignment: 4, header_digest, data_digest, host_data_max: 4096 };
    connection.handle_input(NOW, host::Input::Received(Buffer::copy_from_slice(&response.emit())));
    for (number, piece) in (0_u64..).zip(rest.chunks(cut * 16)) {
        match land(piece, connection.landing()) {
            Ok(count) => connection.landed(count),
            Err(piece) => {
                connection.handle_input(NOW, host::Input::Received(Buffer::copy_from_slice(piece)));
            }
        }
        while connection.poll_output().is_some() {}
        let data = match number % 3 {
            0 => Data::None,
            1 => Data::Read(4096 * (1 + u32::from(piece[0]))),
            _ => Data::Write(Buffer::zeroed(4096 * (1 + usize::from(piece[0])))),
        };
        let _ = connection.submit(number, SubmissionQueueEntry::default(), data);
        let all = connection.outbox().len();
        connection.sent(all / 2);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn noise_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            super::pdu(&bytes);
            super::controller(&bytes);
            super::host(&bytes);
        }
    }
}
