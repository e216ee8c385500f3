//! Fuzz entries: ordinary code that must not panic on any input.

use alloc::rc::Rc;
use core::cell::RefCell;

use engine::{Buffer, Engine, Entropy, Instant, Pool, Rng};
use rdma::{
    Endpoint, Event, Exposure, Inline, Key, Operation, ProtectionDomain, QueuePairId, ReceiveRequest, Remote,
    SendRequest,
};

use crate::wire::{Enhanced, FrameKind, Revision, Startup};
use crate::{Config, Connection, Input};

const NOW: Instant = Instant::ZERO;
/// Limit on the outbox of a connection under test in bytes: its requests and the responses to the
/// reads that it admits.
const OUTBOX_MAX: usize = 1 << 20;
const REGION: u32 = 4096;

/// Feeds bytes of a peer to an end. The first byte chooses the end, CRCs, whether the input
/// includes the peer's frame, and the length of the pieces.
pub fn connection(bytes: &[u8]) {
    let (first, rest) = bytes.split_first().unwrap_or((&0, &[]));
    let (accepts, crc, begins) = (first & 1 != 0, first & 2 != 0, first & 4 != 0);
    let (mut end, _) = end(accepts, crc);
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
        assert!(end.outbox().len() < OUTBOX_MAX, "the outbox is bounded");
        let half = end.outbox().len() / 2;
        end.sent(half);
    }
    end.handle_input(NOW, Input::Closed);
    assert!(end.is_over(), "a connection does not outlive its stream");
}

/// An end under test, and the keys of memory to read and to write, the same in each run.
fn end(accepts: bool, crc: bool) -> (Connection, [Key; 2]) {
    let pool = Rc::new(RefCell::new(Pool::new(1 << 20)));
    let domain = ProtectionDomain::new(4, Rc::clone(&pool), Entropy::Seeded(Rng::from_seed(1)));
    let mut config = Config::new(Rc::new(RefCell::new(domain)), pool, QueuePairId(1));
    config.crc = crc;
    config.send_depth = 8;
    config.receive_depth = 8;
    let mut end =
        if accepts { Connection::accept(NOW, config) } else { Connection::connect(NOW, config, b"user") };
    let lent = [Exposure::Read(Buffer::zeroed(REGION as usize)), Exposure::Write(REGION)];
    let keys = lent.map(|exposure| end.register(exposure).expect("there is room for two regions").key);
    (end, keys)
}

/// The frame of a peer without CRCs.
fn frame(accepts: bool) -> Buffer {
    let kind = if accepts { FrameKind::Request } else { FrameKind::Reply };
    let part = Enhanced { ird: 4, ord: 4, peer_to_peer: true, send: false, write: true, read: false };
    let revision = Revision::Two;
    let head =
        Startup { kind, markers: false, crc: false, reject: false, enhanced: true, revision, length: 0 };
    head.emit(Some(part), b"").into()
}

/// Acts as a user, and takes all outputs of the end.
fn use_it(end: &mut Connection, number: u64) {
    while let Some(event) = end.poll_event() {
        if let Event::Requested { .. } = event {
            end.accept(b"");
        }
    }
    while end.poll_completion().is_some() {}
    let _ = end.poll_output();
    let _ = end.post_receive(ReceiveRequest { id: number, length_max: REGION });
    let remote = Remote { key: Key(7), address: 0, length: 64 };
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
    use alloc::vec::Vec;

    use proptest::prelude::*;

    /// Almost valid headers, with data. The keys are those of lent memory.
    fn segment() -> impl Strategy<Value = Vec<u8>> {
        let (_, [read, write]) = super::end(true, false);
        let keys = [read.0, write.0, 1, 2].map(u32::to_be_bytes);
        // Addresses of a region begin with its key.
        let word = prop::sample::select(alloc::vec![0, 1, 2, 3, 64, 4096, u32::MAX, read.0, write.0]);
        let control = prop::sample::select(alloc::vec![0x01_u8, 0x41, 0x81, 0xc1, 0x42]);
        let key = prop::sample::select(keys.to_vec());
        (control, 0x40..0x49_u8, key, prop::collection::vec(word, 10), 0_usize..80).prop_map(
            |(control, opcode, key, words, length)| {
                let mut bytes = Vec::from([control, opcode]);
                bytes.extend_from_slice(&key);
                words.iter().for_each(|word| bytes.extend_from_slice(&word.to_be_bytes()));
                bytes.truncate(length);
                bytes
            },
        )
    }

    proptest! {
        #[test]
        fn noise_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            super::connection(&bytes);
        }

        #[test]
        fn segments_that_are_nearly_right_are_survived(
            first in prop::sample::select(alloc::vec![0_u8, 1, 0xf8, 0xf9]),
            segments in prop::collection::vec(segment(), 0..12),
        ) {
            let mut bytes = Vec::from([first]);
            for segment in segments {
                bytes.extend_from_slice(&crate::tests::raw_fpdu(&segment));
            }
            super::connection(&bytes);
        }
    }
}
