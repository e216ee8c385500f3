//! Number of pieces of the stream that a command takes in each direction.

use engine::Buffer;
use pcie::wire::{Kind, Packet};
use tunnel::frame::{FrameHeader, FrameKind, HEADER_LENGTH};
use tunnel::session::{Config, SEGMENT_MAX};

use super::*;

/// The frames in a piece, in order.
fn frames(mut bytes: &[u8]) -> Vec<(FrameKind, &[u8])> {
    let mut found = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<HEADER_LENGTH>() {
        let header = FrameHeader::parse(head).unwrap();
        let (body, after) = rest.split_at(usize::from(header.length));
        found.push((header.kind, body));
        bytes = after;
    }
    found
}

/// The TLPs in a piece, in order.
fn packets(bytes: &[u8]) -> Vec<Packet> {
    let tlps = frames(bytes).into_iter().filter(|(kind, _)| *kind == FrameKind::Tlp);
    tlps.map(|(_, body)| Packet::parse(&Buffer::copy_from_slice(body)).unwrap()).collect()
}

/// Payload lengths of the TLPs in a piece, in order.
pub(crate) fn tlps(bytes: &[u8]) -> Vec<usize> {
    packets(bytes).iter().map(|packet| packet.payload.len()).collect()
}

fn pair() -> Pair {
    let now = Instant::from_nanos(1_000);
    let rng = Rng::from_seed(1);
    let session = Config { lookahead: true, config_cache: true, ..Config::default() };
    let mut pair = Pair::new();
    pair.near = Near::over_tunnels(near::Config::default(), [session.clone()].into(), &rng);
    pair.far = Far::new(now, session, function_config(), rng.fork("far"));
    pair.run(ready);
    // Enumeration's acknowledgements and the first Pings are over by then.
    for _ in 0..200_000 {
        pair.now = pair.now + Nanos::from_micros(1);
        pair.step();
    }
    pair
}

/// The pieces of a command, down and up, and the pieces of the time after it, until something else
/// is due.
fn command(pair: &mut Pair, length: u32, write: bool, cookie: u64) -> [Vec<Vec<usize>>; 4] {
    let (controller, _) = pair.near.controllers().next().unwrap();
    let region = pair.near.driver(controller).unwrap().data_region();
    let data = Data { address: region.base, length };
    let (queue, namespace, blocks) = (QueueId(1), NamespaceId(1), length / 512);
    let submission = match write {
        true => Submission::on_blocks(IoOpcode::Write, queue, namespace, 8, blocks, data, cookie),
        false => Submission::on_blocks(IoOpcode::Read, queue, namespace, 8, blocks, data, cookie),
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

/// Length in bytes of a completion queue entry. This host polls; `guest::tests::segments` has a
/// host with interrupts.
const ENTRY: usize = 16;
/// More commands than a completion queue has entries.
const COMMANDS: u64 = 300;

#[test]
fn data_and_completion_of_a_read_go_up_together() {
    let mut pair = pair();
    for (cookie, length) in (0..).zip([512, 4096, 16 << 10, 128 << 10]) {
        let [down, up, ..] = command(&mut pair, length, false, cookie);
        // Acknowledgements of a long read carry no TLP.
        assert_eq!(down.iter().flatten().count(), 1, "{length} B: {down:?}");
        let whole = usize::try_from(length).unwrap();
        // As many TLPs of 4 KiB as a piece has room for; the last piece also has the entry.
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

/// Submits `count` commands of 4 KiB together and runs them. Returns the pieces down and up.
fn together(pair: &mut Pair, count: u64, write: bool, first: u64) -> [Vec<Buffer>; 2] {
    let (controller, _) = pair.near.controllers().next().unwrap();
    let region = pair.near.driver(controller).unwrap().data_region();
    pair.pieces = Default::default();
    for cookie in first..first + count {
        let data = Data { address: region.base + (cookie - first) * 4096, length: 4096 };
        let (queue, namespace) = (QueueId(1), NamespaceId(1));
        let submission = match write {
            true => Submission::on_blocks(IoOpcode::Write, queue, namespace, 8, 8, data, cookie),
            false => Submission::on_blocks(IoOpcode::Read, queue, namespace, 8, 8, data, cookie),
        };
        pair.near.submit(pair.now, controller, submission).unwrap();
    }
    pair.run(|events| (first..first + count).all(|cookie| completed(events, cookie)));
    core::mem::take(&mut pair.pieces)
}

#[test]
fn of_many_writes_the_first_do_not_wait_for_the_data_of_the_last() {
    let mut pair = pair();
    let mut before = 0;
    for round in 0..40 {
        let [pieces, _] = together(&mut pair, 32, true, round * 32);
        let ahead_of_each =
            pieces.iter().flat_map(|bytes| frames(bytes)).fold([0].to_vec(), |mut sums, frame| {
                match frame.0 {
                    FrameKind::Ahead => *sums.last_mut().unwrap() += frame.1.len(),
                    FrameKind::Tlp => sums.push(0),
                    _ => {}
                }
                sums
            });
        // All entries go up before the first data.
        assert!(ahead_of_each.iter().all(|bytes| *bytes < 24 << 10), "{ahead_of_each:?}");
        let down: Vec<_> = pieces.iter().flat_map(|bytes| packets(bytes)).collect();
        let at = |packet: &Packet| match &packet.header.kind {
            Kind::Memory(request) => request.address,
            kind => panic!("{kind:?}"),
        };
        let doorbell = at(&down[0]);
        let tails = down.iter().filter(|packet| at(packet) == doorbell);
        let tail = |packet: &Packet| u32::from_le_bytes(packet.payload[..].try_into().unwrap());
        let tails: Vec<u64> = tails.map(|packet| tail(packet).into()).collect();
        // 4 writes of 4 KiB and their entries are more than 16 KiB, and the last ones do not wait.
        let entries: u64 = near::Config::default().driver.queue_entries.into();
        let wanted: Vec<u64> = (1..=8).map(|number| (before + number * 4) % entries).collect();
        assert_eq!(tails, wanted, "round {round}");
        before = (before + 32) % entries;
    }
    let store = *pair.far.downstream().store().tally();
    assert_eq!((store.misses, store.bytes_in_vain), (0, 0), "{store:?}");
}

#[test]
fn of_many_reads_the_first_complete_before_the_data_of_the_last() {
    let mut pair = pair();
    let [_, up] = together(&mut pair, 32, false, 0);
    let lengths: Vec<usize> = up.iter().flat_map(|bytes| tlps(bytes)).collect();
    let four = [4096, 4096, 4096, 4096, 4 * ENTRY];
    assert_eq!(lengths, four.repeat(8));
}

#[test]
fn no_command_waits_for_the_doorbell_of_a_completion_queue() {
    let mut pair = pair();
    let mut doorbells = 0;
    // Commands until the host has to make room in the completion queue.
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
    let found = *pair.near.upstream().unwrap().config_cache().unwrap();
    std::println!("{found:?}");
    assert!(found.reads_near > found.reads_far, "{found:?}");
    assert!(found.properties_near > 0, "{found:?}");
}
