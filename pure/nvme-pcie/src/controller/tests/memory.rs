//! Tests of the controller memory buffer.

use super::*;

const BUFFER: u64 = 0x7_0000_0000;

fn bench() -> TestBench {
    let config = crate::controller::Config { memory_buffer_bytes: 64 << 10, ..controller_config() };
    TestBench::new(host_config(), config)
}

fn store(bench: &mut TestBench, offset: u64, bytes: &[u8]) {
    let input = crate::controller::Input::MemoryBufferWrite { offset, bytes };
    bench.controller.handle_input(bench.now, input);
}

#[test]
fn its_registers_speak_once_they_are_enabled() {
    let mut bench = bench();
    let mut bytes = [0; 8];
    bench.controller.read_register(0, &mut bytes);
    assert_eq!(u64::from_le_bytes(bytes) >> 57 & 1, 1, "CMBS");
    assert_eq!((bench.register(0x38), bench.register(0x3c), bench.register(0x58)), (0, 0, 0));
    bench.write(0x50, &1_u64.to_le_bytes());
    // BAR 2, offset 0, 16 units of 4 KiB, for submission queues only.
    assert_eq!((bench.register(0x38), bench.register(0x3c)), (2, 16 << 12 | 1));
    bench.write(0x50, &(BUFFER | 0b11).to_le_bytes());
    assert_eq!((bench.register(0x50), bench.register(0x54), bench.register(0x58)), (3, 7, 0));
    bench.write(0x50, &((u64::MAX - 0xfff) | 0b11).to_le_bytes());
    assert_eq!(bench.register(0x58), 1, "the base address is invalid");
    bench.write(CC, &0_u32.to_le_bytes());
    assert_eq!(bench.register(0x38), 2, "a controller reset leaves it");
    bench.controller.reset();
    assert_eq!((bench.register(0x38), bench.register(0x50)), (0, 0));
    // Without a buffer, the enable bit has no effect.
    let mut without = bare();
    without.write(0x50, &(BUFFER | 0b11).to_le_bytes());
    assert_eq!((without.register(0x38), without.register(0x50)), (0, 0));
}

#[test]
fn queues_are_in_it_or_beside_it() {
    let mut bench = bench();
    bench.write(0x50, &(BUFFER | 0b11).to_le_bytes());
    let mut bench = enable(bench);
    let (cq, end) = (MEMORY_BASE + 0x5000, BUFFER + 0x1_0000);
    let invalid = StatusCode::InvalidControllerMemoryBufferUse;
    let cases = [
        (queue_command(0x05, 1, 16, 1, BUFFER), invalid),
        (queue_command(0x05, 1, 16, 1, cq), StatusCode::SuccessfulCompletion),
        (queue_command(0x01, 1, 128, 1 << 16 | 1, end - 0x1000), invalid),
        (queue_command(0x01, 1, 64, 1 << 16 | 1, end), StatusCode::SuccessfulCompletion),
        (queue_command(0x00, 1, 1, 0, 0), StatusCode::SuccessfulCompletion),
        (queue_command(0x01, 1, 4, 1 << 16 | 1, end - 0x1000), StatusCode::SuccessfulCompletion),
    ];
    for (index, (entry, expected)) in (0..).zip(cases) {
        assert_eq!(admin(&mut bench, index, entry), expected, "case {index}");
    }
    // Ten commands on a ring of four entries.
    let namespace = crate::test_bench::NAMESPACE;
    for number in 0..10_u32 {
        let command_id = nvme::wire::CommandId(u16::try_from(number).unwrap());
        let entry = SubmissionQueueEntry { command_id, namespace, ..Default::default() };
        store(&mut bench, 0xf000 + u64::from(number % 4) * 64, &entry.emit());
        bench.write(0x1008, &((number + 1) % 4).to_le_bytes());
        bench.settle();
        let done = completion(&bench, cq, number);
        assert!(done.status().is_success());
        assert_eq!(
            (u32::from(done.command_id.0), u32::from(done.submission_queue_head)),
            (number, (number + 1) % 4)
        );
    }
    let statistics = bench.controller.statistics();
    assert_eq!(statistics.pushed, 10, "{statistics:?}");
    let mut beyond = [0; 4];
    bench.controller.read_memory_buffer(0xfffe, &mut beyond);
    assert_eq!(beyond, [0, 0, 0xff, 0xff]);
    store(&mut bench, 0xffff, &[7; 8]);
    store(&mut bench, u64::MAX, &[7; 8]);
    bench.controller.read_memory_buffer(0xffff, &mut beyond[..1]);
    assert_eq!(beyond[0], 7);
}

#[test]
fn the_admin_queue_can_be_in_it() {
    let mut bench = bench();
    bench.write(0x50, &(BUFFER | 0b11).to_le_bytes());
    bench.write(AQA, &0x001f_001f_u32.to_le_bytes());
    bench.write(0x28, &(BUFFER + 0x2000).to_le_bytes());
    bench.write(0x30, &ACQ.to_le_bytes());
    bench.write(CC, &0x0046_0001_u32.to_le_bytes());
    assert_eq!(bench.register(CSTS), 1);
    let page = MEMORY_BASE + 0x8000;
    let identify =
        SubmissionQueueEntry { opcode: 6, cdw10: 1, data_pointer: [page, 0], ..Default::default() };
    store(&mut bench, 0x2000, &identify.emit());
    bench.write(0x1000, &1_u32.to_le_bytes());
    bench.settle();
    assert!(completion(&bench, ACQ, 0).status().is_success());
    assert_eq!(bench.memory.slice(page + 4, 4).unwrap(), b"TEST");
}
