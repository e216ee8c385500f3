//! The fuzz targets' entries: an endpoint that is sent anything, and frames of several paths.

use alloc::vec::Vec;

use engine::{Entropy, Instant, Nanos, Rng};

use crate::Endpoint;
use crate::packet::{Datagram, MEETING_BYTES};

/// Sends an endpoint datagrams that begin as valid ones of a connection and are then changed by
/// `data`.
///
/// # Panics
/// When a parsed datagram is emitted differently, or the endpoint violates a rule of its own.
pub fn datagrams(data: &[u8]) {
    if let Ok(datagram) = Datagram::parse(data) {
        let mut again = Vec::new();
        datagram.emit(&mut again);
        assert_eq!(Datagram::parse(&again), Ok(datagram));
    }
    let mut far = Endpoint::new(Entropy::Seeded(Rng::from_seed(1)), 9000, Some(0));
    let mut near = Endpoint::new(Entropy::Seeded(Rng::from_seed(2)), 9000, None);
    let (mut now, mut room) = (Instant::ZERO, Vec::new());
    let id = near.connect(now, (), 0);
    for step in data.chunks(16) {
        let [length, at, value, kind, ..] = *step else { return };
        if let Some(connection) = near.get(id) {
            connection.send(engine::Buffer::zeroed(usize::from(length) * 16));
        }
        for _ in 0..4 {
            room.clear();
            if near.poll_transmit(now, &mut room).is_some() {
                if kind & 1 == 1 && !room.is_empty() {
                    let at = usize::from(at) % room.len();
                    room[at] = value;
                }
                room.truncate(if kind & 2 == 2 { usize::from(value) } else { room.len() });
                far.handle_datagram(now, (), &room);
            }
            room.clear();
            if far.poll_transmit(now, &mut room).is_some() {
                near.handle_datagram(now, (), &room);
            }
        }
        far.handle_datagram(now, (), step);
        now = now + Nanos::from_micros(u64::from(value) * 100);
        far.handle_timeout(now);
        near.handle_timeout(now);
        assert!(far.poll_timeout().is_none_or(|at| at > now), "a deadline outlived its timeout");
        while let Some((id, ())) = far.accept() {
            while far.get(id).and_then(crate::Connection::receive).is_some() {}
        }
    }
    assert!(room.len() <= 9000.max(MEETING_BYTES));
}

/// Merges frames of two paths at times and with numbers from `data`.
///
/// # Panics
/// When a parsed tag is emitted differently, a frame passes twice in a row, or frames are not
/// counted.
pub fn redundancy(data: &[u8]) {
    let (mut merge, mut now, mut count) = (crate::redundancy::Merge::new(2), Instant::ZERO, 0);
    for step in data.chunks_exact(8) {
        let Some((tag, rest)) = crate::redundancy::Tag::parse(step) else { return };
        let again = tag.emit();
        assert_eq!(crate::redundancy::Tag::parse(&again), Some((tag, &[][..])));
        now = now + Nanos::from_millis(u64::from(rest[0]) * 8);
        let path = usize::from(rest[1] % 3);
        if merge.accept(now, path, tag.sequence) {
            count += 1;
            assert!(!merge.accept(now, path, tag.sequence), "a frame has passed twice");
        }
    }
    assert_eq!(merge.counters().passed, count);
}
