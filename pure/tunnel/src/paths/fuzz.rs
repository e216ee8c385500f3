//! Fuzz target for the paths of a stream.

use engine::{Buffer, Engine, Instant, Nanos, settle};

use super::{
    GroupId, Input, KEPT_BYTES_MAX, Opening, Output, PREAMBLE_LENGTH, PathIndex, Paths, Preamble, Token,
    opening,
};

const STEP: Nanos = Nanos::from_millis(7);

/// Feeds either end of a stream, chosen by the first byte, with pairs of bytes: an event on a path
/// and a length. As many bytes of the event's data follow each pair.
///
/// # Panics
/// When more bytes are kept than may be, or when the delivered bytes do not match the statistics.
pub fn paths(bytes: &[u8]) {
    let [mode, rest @ ..] = bytes else { return };
    let (group, token) = (GroupId([0; 16]), Token(1));
    if let Opening::Path(preamble) = opening(rest) {
        assert_eq!(preamble.emit(), rest[..PREAMBLE_LENGTH]);
    }
    let dials = mode & 1 == 0;
    let mut paths = if dials { Paths::dialling(group) } else { Paths::accepting(group, token) };
    let (mut now, mut rest, mut delivered) = (Instant::ZERO, rest, 0);
    while let [which, length, stream @ ..] = rest {
        let path = PathIndex(which & 7);
        let (piece, after) = stream.split_at(usize::from(*length).min(stream.len()));
        rest = after;
        match which >> 4 {
            0 | 1 => paths.handle_input(now, Input::Joined(path)),
            2 => paths.handle_input(now, Input::Lost(path)),
            3 => paths.handle_input(now, Input::Drained(path)),
            4 => paths.send(now, Buffer::zeroed(usize::from(*length) << 12)),
            // Bytes in the form of an answer reach further code.
            5 => {
                let answer = Preamble { group, path, token: Some(token) }.emit();
                paths.handle_input(now, Input::Received(path, Buffer::copy_from_slice(&answer)));
            }
            _ => paths.handle_input(now, Input::Received(path, Buffer::copy_from_slice(piece))),
        }
        now = now + STEP;
        settle(&mut paths, now, |output| {
            if let Output::Deliver(bytes) = output {
                delivered += bytes.len() as u64;
            }
        });
        assert!(paths.unacknowledged() <= KEPT_BYTES_MAX, "{} B wait", paths.unacknowledged());
    }
    assert_eq!(paths.statistics().first.iter().sum::<u64>(), delivered);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{ProptestConfig, any, prop, proptest};
    use std::vec::Vec;

    /// Joins a path, answers it, and sends a record of three bytes from the start of the stream.
    #[test]
    fn a_record_comes_through() {
        let record = [&[0; 16][..], &[0, 0, 0, 3, 0, 0, 0, 0], b"abc"].concat();
        let seed = [&[0, 0x00, 0, 0x50, 0, 0x60, 27][..], &record].concat();
        paths(&seed);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn nothing_panics(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            records in prop::collection::vec((any::<u8>(), 0..300_u64, 0..300_u64, 0..40_u8), 0..20),
        ) {
            paths(&bytes);
            // Bytes in the form of records reach further code.
            let mut script: Vec<u8> = [&bytes[..bytes.len().min(1)], &[0, 0, 0x50, 0, 1, 0, 0x51, 0, 0x40, 1]].concat();
            for (path, offset, acknowledged, length) in records {
                script.extend([0x60 | (path & 1), 24 + length]);
                script.extend(offset.to_be_bytes().iter().chain(&acknowledged.to_be_bytes()));
                script.extend([0, 0, 0, length, 0, 0, 0, 0]);
                script.extend((0..length).map(|_| path));
            }
            paths(&script);
        }
    }
}
