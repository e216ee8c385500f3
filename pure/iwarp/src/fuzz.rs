//! Fuzz entries: ordinary code that must never panic, whatever the bytes.

use alloc::rc::Rc;
use core::cell::RefCell;

use engine::{Buffer, Engine, Entropy, Instant, Pool, Rng};
use rdma::{
    Endpoint, Event, Exposure, Inline, Operation, ProtectionDomain, QueuePairId, ReceiveRequest, Remote,
    SendRequest,
};

use crate::wire::{Enhanced, FrameKind, Revision, Startup};
use crate::{Config, Connection, Input};

const NOW: Instant = Instant::ZERO;
/// What the outbox of a connection under test may hold at most, in bytes: its requests and the
/// responses to the reads that it admits.
const OUTBOX_MAX: usize = 1 << 20;
const REGION: u32 = 4096;

/// Feeds bytes of a peer to an end. The first byte gives the end, CRCs, whether the peer's frame is
/// part of the bytes, and the length of the pieces.
pub fn connection(bytes: &[u8]) {
    let (first, rest) = bytes.split_first().unwrap_or((&0, &[]));
    let (accepts, crc, begins) = (first & 1 != 0, first & 2 != 0, first & 4 != 0);
    let mut end = end(accepts, crc);
    if !begins {
        end.handle_input(NOW, Input::Received(frame(accepts)));
    }
    let cut = usize::from(first >> 3) * 8 + 1;
    for (number, piece) in (0_u64..).zip(rest.chunks(cut)) {
        match end.landing().filter(|place| place.len() >= piece.len()) {
            Some(place) => {
                place[..piece.len()].copy_from_slice(piece);
                end.landed(piece.len());
            }
            None => end.handle_input(NOW, Input::Received(Buffer::copy_from_slice(piece))),
        }
        use_it(&mut end, number);
        assert!(end.outbox().len() < OUTBOX_MAX, "what is to be sent is bounded");
        let half = end.outbox().len() / 2;
        end.sent(half);
    }
    end.handle_input(NOW, Input::Closed);
    assert!(end.is_over(), "a connection does not outlive its stream");
}

/// An end under test, with memory to read and to write. Its keys are the same in each run.
fn end(accepts: bool, crc: bool) -> Connection {
    let pool = Rc::new(RefCell::new(Pool::new(1 << 20)));
    let domain = ProtectionDomain::new(4, Rc::clone(&pool), Entropy::Seeded(Rng::from_seed(1)));
    let mut config = Config::new(Rc::new(RefCell::new(domain)), pool, QueuePairId(1));
    config.crc = crc;
    config.send_depth = 8;
    config.receive_depth = 8;
    let mut end =
        if accepts { Connection::accept(NOW, config) } else { Connection::connect(NOW, config, b"user") };
    let _ = end.register(Exposure::Read(Buffer::zeroed(REGION as usize)));
    let _ = end.register(Exposure::Write(REGION));
    end
}

/// The frame of a peer that wants no CRCs.
fn frame(accepts: bool) -> Buffer {
    let kind = if accepts { FrameKind::Request } else { FrameKind::Reply };
    let part = Enhanced { ird: 4, ord: 4, peer_to_peer: true, send: false, write: true, read: false };
    let revision = Revision::Two;
    let head =
        Startup { kind, markers: false, crc: false, reject: false, enhanced: true, revision, length: 0 };
    head.emit(Some(part), b"").into()
}

/// Does what a user might do, and takes whatever the end tells.
fn use_it(end: &mut Connection, number: u64) {
    while let Some(event) = end.poll_event() {
        if let Event::Requested { .. } = event {
            end.accept(b"");
        }
    }
    while end.poll_completion().is_some() {}
    let _ = end.poll_output();
    let _ = end.post_receive(ReceiveRequest { id: number, length_max: REGION });
    let remote = Remote { key: rdma::Key(7), address: 0, length: 64 };
    let operation = match number % 3 {
        0 => Operation::Read { remote },
        1 => Operation::Write { data: Buffer::zeroed(64), remote },
        _ => Operation::Send {
            inline: Inline::new(b"message"),
            data: Buffer::EMPTY,
            invalidate: None,
            immediate: None,
        },
    };
    let _ = end.post_send(SendRequest { id: number, operation, signalled: true });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn noise_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            super::connection(&bytes);
        }
    }
}
