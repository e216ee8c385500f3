//! Number of pieces of the stream that a command takes for a client with interrupts.

use tunnel::session;

use super::far_end::Pair;
use super::*;
use crate::tests::segments::tlps;

/// Payload bytes of Identify's data, of a completion queue entry, and of the interrupt's message.
const TOGETHER: [usize; 3] = [4096, 16, 4];

#[test]
fn data_completion_and_interrupt_go_up_together() {
    for lookahead in [false, true] {
        let session = session::Config { lookahead, ..session::Config::default() };
        let mut pair = Pair::with(config(), Nanos::ZERO, session);
        pair.connect();
        pair.bring_up(BASE);
        for index in 0..ENTRIES - 1 {
            pair.pieces.clear();
            pair.bench.signals.clear();
            pair.bench.send_identify(index);
            pair.until(|bench| bench.signals == [EVENTS]);
            assert!(pair.bench.completion(index).is_some());
            let pieces: Vec<Vec<usize>> = pair.pieces.iter().map(|bytes| tlps(bytes)).collect();
            let posted: Vec<_> = pieces.iter().filter(|tlps| tlps.iter().any(|length| *length > 0)).collect();
            assert_eq!(posted, [&TOGETHER], "command {index}, lookahead {lookahead}: {pieces:?}");
            assert_eq!(
                pieces.len(),
                if lookahead { 1 } else { 2 },
                "without it, its entry is read: {pieces:?}"
            );
        }
    }
}
