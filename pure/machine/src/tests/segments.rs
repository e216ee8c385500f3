//! How many pieces of the stream a command takes in either direction.

use engine::Buffer;
use pcie::wire::Packet;
use tunnel::frame::{FrameHeader, FrameKind, HEADER_LENGTH};
use tunnel::session::{Config, SEGMENT_MAX};

use super::*;

/// Payload bytes of the TLPs in a piece, one after the other.
pub(crate) fn tlps(mut bytes: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<HEADER_LENGTH>() {
        let header = FrameHeader::parse(head).unwrap();
        let (body, after) = rest.split_at(usize::from(header.length));
        if header.kind == FrameKind::Tlp {
            found.push(Packet::parse(&Buffer::copy_from_slice(body)).unwrap().payload.len());
        }
        bytes = after;
    }
    found
}

fn pair() -> Pair {
    let now = Instant::from_nanos(1_000);
    let rng = Rng::from_seed(1);
    let session = Config { lookahead: true, shadow: true, ..Config::default() };
    let mut pair = Pair::new();
    pair.near = Near::over_tunnels(near::Config::default(), [session.clone()].into(), &rng);
    pair.far = Far::new(now, session, function_config(), rng.fork("far"));
    pair.run(ready);
    // What enumeration has left to acknowledge is done, and the first Pings are over.
    for _ in 0..200_000 {
        pair.now = pair.now + Nanos::from_micros(1);
        pair.step();
    }
    pair
}

/// The pieces of a command, down and up, and those of the time after it until something else is due.
fn command(pair: &mut Pair, length: u32, write: bool, cookie: u64) -> [Vec<Vec<usize>>; 4] {
    let (controller, _) = pair.near.controllers().next().unwrap();
    let region = pair.near.driver(controller).unwrap().data_region();
    let data = Data { address: region.base, length };
    let (queue, namespace, blocks) = (QueueId(1), NamespaceId(1), length / 512);
    let submission = match write {
        true => Submission::write(queue, namespace, 8, blocks, data, cookie),
        false => Submission::read(queue, namespace, 8, blocks, data, cookie),
    };
    pair.pieces = Default::default();
    pair.near.submit(pair.now, controller, submission).unwrap();
    pair.run(|events| completed(events, cookie));
    let [down, up] = core::mem::take(&mut pair.pieces);
    for _ in 0..2_000 {
        pair.now = pair.now + Nanos::from_micros(1);
        pair.step();
    }
    let [later_down, later_up] = core::mem::take(&mut pair.pieces);
    // An acknowledgement alone is due after 5 ms.
    for _ in 0..10_000 {
        pair.now = pair.now + Nanos::from_micros(1);
        pair.step();
    }
    [down, up, later_down, later_up].map(|pieces| pieces.iter().map(|bytes| tlps(bytes)).collect())
}

/// Of a completion queue entry. This host polls; one that is interrupted is among the guests (`guest::tests::segments`).
const ENTRY: usize = 16;
/// More than a completion queue has entries.
const COMMANDS: u64 = 300;

#[test]
fn data_and_completion_of_a_read_go_up_together() {
    let mut pair = pair();
    for (cookie, length) in (0..).zip([512, 4096, 16 << 10, 128 << 10]) {
        let [down, up, ..] = command(&mut pair, length, false, cookie);
        // What acknowledges a long one carries no TLP.
        assert_eq!(down.iter().flatten().count(), 1, "{length} B: {down:?}");
        let whole = usize::try_from(length).unwrap();
        // As many TLPs of 4 KiB as a piece has room for, and the entry in the last.
        let room = (SEGMENT_MAX - 200) / 4200;
        assert_eq!(up.len(), whole.div_ceil(room * 4096), "{length} B: {up:?}");
        let last = up.last().unwrap();
        assert_eq!(last.last(), Some(&ENTRY), "{length} B: {up:?}");
        assert_eq!(up.iter().flatten().sum::<usize>(), whole + ENTRY);
    }
}

#[test]
fn a_write_is_one_piece_down_and_one_up() {
    let mut pair = pair();
    for (cookie, length) in (0..).zip([512, 4096, 16 << 10]) {
        let [down, up, ..] = command(&mut pair, length, true, cookie);
        assert_eq!((down.len(), &up[..]), (1, &[[ENTRY].into()][..]), "{length} B: {down:?}");
    }
}

#[test]
fn nobody_waits_for_the_doorbell_of_a_completion_queue() {
    let mut pair = pair();
    let mut doorbells = 0;
    // As many as it takes until the host has to make room in the completion queue.
    for cookie in 0..COMMANDS {
        let [down, up, later_down, later_up] = command(&mut pair, 4096, false, cookie);
        doorbells += down.iter().chain(&later_down).flatten().count();
        assert_eq!((up.len(), later_up.len()), (1, 0), "nothing answers a doorbell: {up:?} {later_up:?}");
    }
    let submissions = usize::try_from(COMMANDS).unwrap();
    assert!(doorbells > submissions, "{doorbells} doorbells, {submissions} of them of the submission queue");
}

#[test]
fn enumeration_asks_little_of_the_far_end() {
    let pair = pair();
    let found = *pair.near.upstream().unwrap().shadow().unwrap();
    std::println!("{found:?}");
    assert!(found.reads_near > found.reads_far, "{found:?}");
    assert!(found.properties_near > 0, "{found:?}");
}
