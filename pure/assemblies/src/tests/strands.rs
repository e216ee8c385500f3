//! A device whose queues are spread over several connections, between whole machines.

use super::*;

const STRANDS: u8 = 4;
const QUEUES: u16 = 3;

fn pair() -> Pair {
    let session = tunnel::session::Config {
        lookahead: true,
        config_cache: true,
        strands: STRANDS,
        ..tunnel::session::Config::default()
    };
    let mut near = near::Config::default();
    near.driver.queue_pairs = QUEUES;
    Pair::with(near, &session, 1)
}

/// Packets that each strand has carried down and up.
fn carried(pair: &Pair) -> Vec<(u64, u64)> {
    let strands = pair.near.upstream().unwrap().strands(PORT);
    strands.map(|session| (session.statistics().tlps_sent, session.statistics().tlps_received)).collect()
}

/// Writes 8 KiB with each queue at the same time, and reads the data back with the next queue.
fn write_and_read(pair: &mut Pair, round: u64, mut trouble: impl FnMut(&mut Pair)) {
    let (controller, _) = pair.near.controllers().next().unwrap();
    let region = pair.near.driver(controller).unwrap().data_region();
    let length = 8192;
    let place = |queue: u64, back: u64| Data { address: region.base + (queue * 2 + back) * 8192, length };
    let pattern = |queue: u64| -> Vec<u8> {
        let first = (round * 7 + queue).to_le_bytes()[0] % 200;
        (first..=250).cycle().take(length as usize).collect()
    };
    for back in [0, 1] {
        for queue in 0..u64::from(QUEUES) {
            let (lba, cookie) = (queue * 16, round * 100 + back * 10 + queue);
            let turn = (queue + back) % u64::from(QUEUES) + 1;
            let (id, namespace) = (QueueId(u16::try_from(turn).unwrap()), NamespaceId(1));
            let submission = if back == 0 {
                pair.near.memory_mut().write(place(queue, 0).address, &pattern(queue)).unwrap();
                Submission::on_blocks(IoOpcode::Write, id, namespace, lba, 16, place(queue, 0), cookie)
            } else {
                Submission::on_blocks(IoOpcode::Read, id, namespace, lba, 16, place(queue, 1), cookie)
            };
            pair.near.submit(pair.now, controller, submission).unwrap();
        }
        trouble(pair);
        for queue in 0..u64::from(QUEUES) {
            pair.run(|events| completed(events, round * 100 + back * 10 + queue));
        }
    }
    for queue in 0..u64::from(QUEUES) {
        let bytes = pair.near.memory().slice(place(queue, 1).address, length as usize).unwrap();
        assert_eq!(bytes, pattern(queue), "round {round}, queue {queue}");
    }
}

#[test]
fn each_queue_has_a_connection_and_the_main_one_nothing_to_carry() {
    let mut pair = pair();
    pair.run(ready);
    assert!(pair.near.upstream().unwrap().config_cache().unwrap().reads_near > 0);
    write_and_read(&mut pair, 0, |_| {});
    let before = carried(&pair);
    assert_eq!(before.len(), usize::from(STRANDS));
    for round in 1..10 {
        write_and_read(&mut pair, round, |_| {});
    }
    let after = carried(&pair);
    assert_eq!(before[0], after[0], "{before:?} {after:?}");
    for strand in 1..usize::from(STRANDS) {
        // Doorbell and completion of a write; doorbell, data and completion of a read.
        let (down, up) = (after[strand].0 - before[strand].0, after[strand].1 - before[strand].1);
        assert!(down >= 18 && up >= 9 + 9 * 2, "{strand}: {down} {up}");
    }
    assert_eq!(pair.far.downstream().store().tally().bytes_in_vain, 0);
}

#[test]
fn connections_cut_one_after_the_other_go_unnoticed() {
    let mut pair = pair();
    pair.run(ready);
    for round in 0..60 {
        write_and_read(&mut pair, round, |pair| {
            for _ in 0..round % 5 {
                pair.now = pair.now + Nanos::from_micros(1);
                pair.step();
            }
            let connection = ConnectionIndex(u8::try_from(round % u64::from(STRANDS)).unwrap());
            pair.near.handle_input(pair.now, near::Input::Disconnected(connection));
            let input = downstream::Input::Disconnected(at_far_end(connection));
            pair.far.handle_input(pair.now, far::Input::Network(input));
        });
    }
    assert!(!pair.events.iter().any(|event| {
        matches!(event, Event::Resetting { .. } | Event::Link { event: tunnel::Event::LinkDown { .. }, .. })
    }));
    let before = carried(&pair);
    write_and_read(&mut pair, 100, |_| {});
    let after = carried(&pair);
    // All strands are in use again.
    assert!(
        (1..usize::from(STRANDS)).all(|strand| after[strand].1 > before[strand].1),
        "{before:?} {after:?}"
    );
}
