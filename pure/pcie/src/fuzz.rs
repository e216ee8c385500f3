//! Entry points for fuzzing: they accept any bytes and must not panic.

use alloc::vec;

use engine::{Buffer, Engine as _, Instant};

use crate::requester::{self, Requester};
use crate::root_complex::{Config, Input, Output, Plan, RootComplex};
use crate::wire::{Bdf, CompletionStatus, Packet, Tlp};

/// Parses `bytes` as a TLP. A TLP that parses must emit the same bytes and have a line of text.
pub fn tlp(bytes: &[u8]) {
    use core::fmt::Write as _;
    struct Nowhere;
    impl core::fmt::Write for Nowhere {
        fn write_str(&mut self, _: &str) -> core::fmt::Result {
            Ok(())
        }
    }
    match Tlp::<&[u8]>::parse(bytes) {
        Err(error) => assert_eq!(write!(Nowhere, "{error}"), Ok(())),
        Ok(tlp) => {
            assert_eq!(tlp.encoded_len(), bytes.len(), "length of {tlp}");
            let mut again = vec![0; bytes.len()];
            assert_eq!(tlp.emit(&mut again), bytes.len(), "length of {tlp}");
            assert_eq!(again, bytes, "bytes of {tlp}");
            assert!(tlp.data_bytes().len() <= tlp.payload.len(), "data of {tlp}");
            assert_eq!(tlp.with_ecrc().ecrc_matches(), Some(true), "ECRC");
        }
    }
}

/// Enumerates a hierarchy in which the next bytes answer each configuration read, until the input
/// ends.
pub fn enumeration(bytes: &[u8]) {
    let mut root = RootComplex::new(Config::default());
    let mut now = Instant::ZERO;
    let mut words = bytes.chunks(4);
    root.enumerate(now, Plan::default());
    loop {
        let Some(output) = root.poll_output() else {
            now = root.poll_timeout().expect("enumeration waits for something");
            root.handle_timeout(now);
            continue;
        };
        match output {
            Output::Packet(packet) => {
                if let Some(answer) = answer(&packet, words.next()) {
                    root.handle_input(now, Input::Packet(answer));
                }
            }
            Output::Enumerated(_) => return,
            _ => {}
        }
    }
}

/// The answer of a device that returns fuzz input. An incomplete word means no answer.
fn answer(request: &Packet, word: Option<&[u8]>) -> Option<Packet> {
    let completer = Bdf::new(1, 0, 0);
    let Some(word) = word else {
        return Some(Packet::completion(completer, CompletionStatus::UnsupportedRequest, &request.header));
    };
    if request.header.has_payload() {
        return Some(Packet::completion(completer, CompletionStatus::Success, &request.header));
    }
    (word.len() == 4)
        .then(|| Packet::completion_with_data(completer, &request.header, 0, Buffer::copy_from_slice(word)))
}

/// Passes the TLPs in `bytes`, one after the other, to a requester with outstanding reads. Words
/// that do not begin a TLP are skipped.
pub fn requester(mut bytes: &[u8]) {
    let mut requester = Requester::new(requester::Settings::default());
    for cookie in 0..8 {
        assert_eq!(requester.read(Instant::ZERO, cookie, cookie * 0x7f3, 700), Ok(()));
    }
    while !bytes.is_empty() {
        match Tlp::parse_first(bytes) {
            Ok((tlp, rest)) => {
                requester.handle_input(Instant::ZERO, tlp.to_packet());
                bytes = rest;
            }
            Err(_) => bytes = bytes.get(4..).unwrap_or_default(),
        }
        while requester.poll_output().is_some() {}
    }
    requester.fail_all();
    assert!(requester.is_idle(), "a request survived the end of the link");
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn enumeration_ends_for_any_answers(words in prop::collection::vec(any::<u32>(), 0..400)) {
            enumeration(&words.into_iter().flat_map(u32::to_le_bytes).collect::<Vec<_>>());
        }

        #[test]
        fn a_requester_takes_any_completion(
            pieces in prop::collection::vec((any::<bool>(), any::<u8>(), 0u16..0x400, any::<[u8; 8]>()), 0..60)
        ) {
            // Completions with one word of data, valid enough to pass the first checks.
            let bytes = pieces.into_iter().flat_map(|(data, status, tag, rest)| {
                let [a, b, c, d, e, f, g, h] = rest;
                let kind = if data { 0x4a } else { 0x0a };
                let [_, tag] = (tag % 20).to_be_bytes();
                [kind, 0, 0, u8::from(data), a, b, status & 0xe0 | c & 15, d, 0, 0, tag, e & 0x7f, f, g, h, 0]
                    .into_iter()
                    .take(if data { 16 } else { 12 })
            });
            requester(&bytes.collect::<Vec<_>>());
        }
    }
}
