//! Fuzz targets: each takes any bytes and must not panic.

pub use crate::config_cache::fuzz::config_cache;
pub use crate::downstream::store::fuzz::store;
pub use crate::paths::fuzz::paths;
pub use crate::strands::fuzz::strands;

use engine::{Buffer, Engine, Instant, Nanos, Rng, settle};
use pcie::wire::{Bdf, Packet, Tag};

use crate::downstream::{self, ConnectionId, Downstream};
use crate::frame::{BODY_MAX, Frame, FrameHeader, HEADER_LENGTH};
use crate::session::{Config, Input, Output, Session};

const STEP: Nanos = Nanos::from_millis(7);

/// Parses one frame, and encodes it again.
///
/// # Panics
/// When the encoded frame differs from `bytes`.
pub fn frame(bytes: &[u8]) {
    let Some((head, body)) = bytes.split_first_chunk::<HEADER_LENGTH>() else { return };
    let Ok(header) = FrameHeader::parse(head) else { return };
    assert_eq!(header.emit(), *head);
    let Some(body) = body.get(..usize::from(header.length)) else { return };
    let Ok(frame) = Frame::parse(&header, body) else { return };
    if matches!(frame, Frame::Hello(_) | Frame::Welcome(_)) {
        // Unknown options are not kept.
        return;
    }
    let mut block = [0; HEADER_LENGTH + BODY_MAX];
    let length = frame.emit(header.sequence, header.acknowledge, &mut block);
    assert_eq!(block[..length], bytes[..length]);
}

/// Settings with a digest that is always zero, so that random bytes reach further code.
fn config() -> Config {
    Config { crc32c: |_, _| 0, ..Config::default() }
}

/// Runs a connected session with a packet under way. The first byte chooses the role, whether a
/// handshake comes first, and whether frames have digests. The rest is the peer's stream, in pieces
/// whose length is in the second byte.
pub fn session(bytes: &[u8]) {
    let [mode, size, stream @ ..] = bytes else { return };
    let upstream = mode & 1 == 0;
    let digests = mode & 4 != 0;
    let config = Config { digests, ..config() };
    let mut session = if upstream {
        Session::upstream(config, Rng::from_seed(1))
    } else {
        Session::downstream(config, Rng::from_seed(1))
    };
    let mut now = Instant::ZERO;
    settle(&mut session, now, |_| ());
    session.handle_input(now, Input::Connected);
    if mode & 2 == 0 {
        greet(&mut session, upstream, digests);
    }
    for piece in stream.chunks(usize::from(*size).max(1)) {
        session.send(now, Packet::memory_read(Bdf::new(1, 0, 0), Tag::new(1), 0x1000, 4));
        session.handle_input(now, Input::Received(Buffer::copy_from_slice(piece)));
        now = now + STEP;
        settle(&mut session, now, |_| ());
    }
    session.handle_input(now, Input::Disconnected);
    settle(&mut session, now, |_| ());
}

/// Brings `session` up with a peer of the other role.
fn greet(session: &mut Session, upstream: bool, digests: bool) {
    let config = Config { digests, ..config() };
    let mut peer = if upstream {
        Session::downstream(config, Rng::from_seed(2))
    } else {
        Session::upstream(config, Rng::from_seed(2))
    };
    settle(&mut peer, Instant::ZERO, |_| ());
    peer.handle_input(Instant::ZERO, Input::Connected);
    let pass = |from: &mut Session, to: &mut Session| {
        settle(from, Instant::ZERO, |output| {
            if let Output::Transmit(bytes) = output {
                to.handle_input(Instant::ZERO, Input::Received(bytes));
            }
        });
    };
    for _ in 0..2 {
        pass(session, &mut peer);
        pass(&mut peer, session);
    }
}

/// Runs connections to the device's end. Each step takes a byte for the connection and the event, a
/// byte for a length, and as many bytes of the connection's stream.
pub fn gate(bytes: &[u8]) {
    let mut downstream = Downstream::new(config(), Rng::from_seed(1));
    let mut now = Instant::ZERO;
    let mut rest = bytes;
    while let [which, length, stream @ ..] = rest {
        let connection = ConnectionId(u32::from(which & 3));
        let (piece, after) = stream.split_at(usize::from(*length).min(stream.len()));
        rest = after;
        let input = match which >> 6 {
            0 => downstream::Input::Accepted(
                connection,
                core::net::Ipv4Addr::from_bits(u32::from(*which)).into(),
            ),
            1 => downstream::Input::Disconnected(connection),
            _ => downstream::Input::Received(connection, Buffer::copy_from_slice(piece)),
        };
        downstream.handle_input(now, input);
        now = now + STEP;
        settle(&mut downstream, now, |_| ());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{FrameKind, Role};
    use crate::session::greeting;
    use proptest::prelude::{ProptestConfig, any, prop, proptest};

    #[test]
    fn a_greeted_session_is_up() {
        for (upstream, digests) in [(true, true), (true, false), (false, true), (false, false)] {
            let config = Config { digests, ..config() };
            let mut session = if upstream {
                Session::upstream(config, Rng::from_seed(1))
            } else {
                Session::downstream(config, Rng::from_seed(1))
            };
            settle(&mut session, Instant::ZERO, |_| ());
            session.handle_input(Instant::ZERO, Input::Connected);
            greet(&mut session, upstream, digests);
            assert!(session.is_open());
        }
    }

    #[test]
    fn the_greetings_among_the_seeds_are_understood() {
        const SEEDS: [&[u8]; 3] = [
            include_bytes!("../../../fuzz/seeds/session/up-whole"),
            include_bytes!("../../../fuzz/seeds/session/down-whole"),
            include_bytes!("../../../fuzz/seeds/gate/one"),
        ];
        for (seed, start) in SEEDS.iter().zip([2, 2, 4]) {
            let (head, body) = seed[start..].split_first_chunk().unwrap();
            let header = FrameHeader::parse(head).unwrap();
            let role = if header.kind == FrameKind::Hello { Role::Upstream } else { Role::Downstream };
            let body = Buffer::copy_from_slice(&body[..usize::from(header.length)]);
            let frame = Ok((header, body));
            assert!(greeting(&frame, header.kind, role, config().crc32c).is_ok(), "{frame:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0_usize..13) {
            let mut bytes = bytes;
            for target in [frame, session, gate] {
                target(&bytes);
            }
            // Random bytes in the form of a frame reach further code.
            if bytes.len() > 16 {
                let kinds = [1, 2, 3, 4, 0x10, 0x10, 0x11, 0x12, 0x13, 0x14, 0x18, 0x20, 0x21];
                let length = [4, 24, 8, 24, 12, 16, 4, 24, 24, 8, 20, 8, 24][kind];
                for offset in [0, 2] {
                    let head = [kinds[kind], bytes[1] & 1, 0, length, 0, 0, 0, 0, 0, 0, 0, 0];
                    bytes[offset..][..12].copy_from_slice(&head);
                    frame(&bytes[offset..]);
                    session(&bytes);
                }
            }
        }
    }
}
