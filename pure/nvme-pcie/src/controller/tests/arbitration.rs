//! Tests of weighted round robin.

use super::*;
use crate::controller::Output;
use pcie::device::Dma;

const QUEUES: u32 = 5;

fn sq(queue: u32) -> u64 {
    MEMORY_BASE + 0x10_0000 + u64::from(queue) * 0x2000
}

/// A controller with queues from 1 on of these `priorities`, 64 flushes on each, and few slots for
/// commands.
fn loaded(priorities: &[u32], configuration: u32, weights: u32) -> TestBench {
    let config = crate::controller::Config { commands_max: 48, ..controller_config() };
    let mut bench = TestBench::new(host_config(), config);
    bench.write(AQA, &0x001f_001f_u32.to_le_bytes());
    bench.write(0x28, &ASQ.to_le_bytes());
    bench.write(0x30, &ACQ.to_le_bytes());
    bench.write(CC, &configuration.to_le_bytes());
    assert_eq!(bench.register(CSTS), 1);
    let set = SubmissionQueueEntry { opcode: 9, cdw10: 1, cdw11: weights, ..Default::default() };
    assert_eq!(admin(&mut bench, 0, set), StatusCode::SuccessfulCompletion);
    let created = admin(&mut bench, 1, queue_command(0x05, 1, 1024, 1, MEMORY_BASE + 0x8000));
    assert_eq!(created, StatusCode::SuccessfulCompletion);
    for (queue, priority) in (1..).zip(priorities) {
        let create = queue_command(0x01, queue, 128, 1 << 16 | priority << 1 | 1, sq(queue));
        assert_eq!(admin(&mut bench, queue + 1, create), StatusCode::SuccessfulCompletion);
        for index in 0..64 {
            let namespace = crate::test_bench::NAMESPACE;
            let entry = SubmissionQueueEntry { opcode: 0, namespace, ..Default::default() };
            bench.memory.write(sq(queue) + index * 64, &entry.emit()).unwrap();
        }
    }
    for queue in 1..=u32::try_from(priorities.len()).unwrap() {
        bench.write(0x1000 + queue * 8, &64_u32.to_le_bytes());
    }
    bench
}

/// The queue from which each entry was fetched, in order.
fn order(bench: &mut TestBench, count: usize) -> Vec<u32> {
    let mut order = Vec::new();
    while order.len() < count {
        let Some(output) = bench.controller.poll_output() else { break };
        if let Output::Dma(Dma::Read { address, length, .. }) = &output {
            let queue = (1..=QUEUES).find(|queue| (sq(*queue)..sq(*queue) + 0x2000).contains(address));
            order.extend(
                queue.into_iter().flat_map(|queue| core::iter::repeat_n(queue, *length as usize / 64)),
            );
        }
        bench.on_controller(output);
    }
    order.truncate(count);
    order
}

#[test]
fn classes_are_served_by_weight_and_urgent_queues_before_all() {
    // Queues of low, medium, high and high priority; weights 4, 2 and 1 for high, medium and low;
    // bursts of 2.
    let mut bench = loaded(&[3, 2, 1, 1], 0x0046_0801, 3 << 24 | 1 << 16 | 1);
    let order = order(&mut bench, 28);
    let count = |queue: u32| order.iter().filter(|one| **one == queue).count();
    assert_eq!([1, 2, 3, 4].map(count), [4, 8, 8, 8], "{order:?}");
    assert_eq!(order[..7], [3, 3, 4, 4, 2, 2, 1]);
    let mut bench = loaded(&[3, 0, 1], 0x0046_0801, 7);
    let order = super::arbitration::order(&mut bench, 66);
    assert!(order[..64].iter().all(|queue| *queue == 2), "{order:?}");
    bench.settle();
    assert_eq!(bench.controller.statistics().commands, 5 + 3 * 64);
}

#[test]
fn without_weights_every_queue_is_alike() {
    let mut bench = loaded(&[3, 0, 1], 0x0046_0001, 3 << 24 | 1);
    let order = order(&mut bench, 12);
    assert_eq!(order, [1, 1, 2, 2, 3, 3, 1, 1, 2, 2, 3, 3]);
    // A deleted queue no longer has a class.
    let mut bench = loaded(&[1], 0x0046_0801, 7);
    bench.settle();
    assert_eq!(admin(&mut bench, 3, queue_command(0x00, 1, 1, 0, 0)), StatusCode::SuccessfulCompletion);
    assert_eq!(bench.controller.statistics().commands, 4 + 64);
}
