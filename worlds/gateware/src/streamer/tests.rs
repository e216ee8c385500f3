//! The tests of `pure/record` on the circuit, beside the engine `RawRecorder`.

#![expect(clippy::cast_possible_truncation, reason = "random numbers are below small limits")]

use super::*;
use engine::{Engine, Instant};
use record::format::Reason;
use record::{Input, Output, RawConfig, RawRecorder};

const START: u64 = 3 * 4096;

/// The writes of the engine for the same stream, and its account: offsets and bytes.
fn engine(config: Config, first: u64, bytes: &[u8]) -> (Vec<(u64, Vec<u8>)>, RawRecorder) {
    let mut recorder = RawRecorder::new(RawConfig {
        buffer: 32,
        end: Some(config.media),
        ..RawConfig::new(config.chunk, first)
    });
    let (mut writes, mut rest) = (Vec::new(), bytes);
    loop {
        if let Some(room) = recorder.room(Instant::ZERO).filter(|_| !rest.is_empty()) {
            let length = room.len().min(rest.len());
            room[..length].copy_from_slice(&rest[..length]);
            recorder.filled(length);
            rest = &rest[length..];
        } else if recorder.is_recording() {
            recorder.finish(Reason::SourceEnded);
        }
        while let Some(output) = recorder.poll_output() {
            let input = match output {
                Output::Write { name, offset, data } => {
                    writes.push((offset, data.to_vec()));
                    Input::Written { name, result: Ok(()) }
                }
                Output::Sync => Input::Synced(Ok(())),
                Output::Digest { .. } => panic!("it digests itself"),
                Output::Ended(_) => return (writes, recorder),
            };
            recorder.handle_input(Instant::ZERO, input);
        }
    }
}

fn random(rng: &mut Rng, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    rng.fill(&mut bytes);
    bytes
}

#[test]
fn a_recording_is_the_one_of_the_engine() {
    let mut circuit = StreamerCircuit::new(Config::new(1));
    let bytes = random(&mut Rng::from_seed(1), 5 * 16_384 + 4096 + 1234);
    circuit.start(at::WRITING, START, 0, 0);
    assert_eq!(circuit.state(at::WRITING), State::Running);
    circuit.give_last(&bytes);
    assert_eq!(circuit.run_until_ended(at::WRITING), State::Ended);
    let (writes, recorder) = engine(circuit.config, START, &bytes);
    let mut written = circuit.written().to_vec();
    written.sort_by_key(|one| one.offset);
    assert_eq!(written.len(), writes.len());
    for (one, (offset, data)) in written.iter().zip(&writes) {
        assert!((one.offset, &one.data) == (*offset, data), "the write at {offset}");
    }
    let (account, progress) = (circuit.account(at::WRITING), recorder.progress());
    assert_eq!(
        (account.bytes, account.bytes_stored, account.bytes_lost, account.last_address, account.fill),
        (progress.bytes_in, progress.stored, progress.lost, progress.last_address, progress.fill)
    );
    assert_eq!((circuit.flushes(), circuit.gaps()), (1, vec![]));
}

/// A circuit with these bytes recorded from `START` on.
fn recorded(config: Config, bytes: &[u8]) -> StreamerCircuit {
    let mut circuit = StreamerCircuit::new(config);
    circuit.start(at::WRITING, START, 0, 0);
    circuit.give_last(bytes);
    assert_eq!(circuit.run_until_ended(at::WRITING), State::Ended);
    circuit
}

/// NVM Express Base 2.0, 4.1 and 4.1.1: a Write of the second chunk, 32 KiB at 32 KiB, and of the
/// last, 5 KiB in two pages.
#[test]
fn entries_and_lists_are_those_of_the_specification() {
    let mut circuit = StreamerCircuit::new(Config { chunk: 32 << 10, ..Config::new(2) });
    circuit.start(at::WRITING, 0, 0, 0);
    circuit.give_last(&[7; (64 << 10) + (5 << 10)]);
    assert_eq!(circuit.run_until_ended(at::WRITING), State::Ended);
    let entries: Vec<[u8; 64]> = circuit.entries().iter().map(SubmissionQueueEntry::emit).collect();
    let entry = |dwords: [u32; 16]| {
        let mut bytes = [0; 64];
        for (to, word) in bytes.chunks_exact_mut(4).zip(dwords) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    };
    let expected = [
        // CID and opcode; NSID; PRP1 at 6; PRP2 at 8, a list; SLBA at 10; NLB at 12, less one.
        entry([0x0000_0001, 1, 0, 0, 0, 0, 0, 2, 0x8040_0000, 0, 0, 0, 63, 0, 0, 0]),
        entry([0x0001_0001, 1, 0, 0, 0, 0, 0x8000, 2, 0x8040_0100, 0, 64, 0, 63, 0, 0, 0]),
        entry([0x0002_0001, 1, 0, 0, 0, 0, 0x1_0000, 2, 0x1_1000, 2, 128, 0, 15, 0, 0, 0]),
        entry([0xffff_0000, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    ];
    assert_eq!(entries, expected);
    let pages: Vec<u8> = (1..8_u64).flat_map(|page| (BUFFER + 0x8000 + 4096 * page).to_le_bytes()).collect();
    assert!(circuit.lists().contains(&(WINDOW + 0x40_0100, pages)), "{:x?}", circuit.lists());
}

#[test]
fn an_ssd_that_pauses_longer_than_the_buffer_lasts_costs_counted_chunks() {
    let mut circuit = StreamerCircuit::new(Config::new(3));
    let chunk = u64::from(circuit.config.chunk);
    circuit.start(at::WRITING, START, 0, 0);
    let bytes = random(&mut Rng::from_seed(3), 48 * chunk as usize);
    // The buffer has 32 chunks of 1,024 beats; the medium is back when 40 have come.
    circuit.pause_ssd(40 * 1_024);
    circuit.give_last(&bytes);
    assert_eq!(circuit.run_until_ended(at::WRITING), State::Ended);
    let (account, gaps) = (circuit.account(at::WRITING), circuit.gaps());
    assert_eq!(account.bytes, bytes.len() as u64);
    assert_eq!((account.gaps, account.high_water), (1, 32 * chunk));
    let [Gap { address, chunks, is_of_medium: false }] = gaps[..] else { panic!("{gaps:?}") };
    assert_eq!((address, account.bytes_lost), (START + 32 * chunk, u64::from(chunks) * chunk));
    assert!((8..=10).contains(&chunks), "{chunks} chunks are lost");
    assert_eq!(circuit.waited(), 0);
    let (lost, medium) =
        (32 * chunk as usize..(32 + chunks as usize) * chunk as usize, circuit.contents(START, 48 * chunk));
    assert!(medium[..lost.start] == bytes[..lost.start] && medium[lost.end..] == bytes[lost.end..]);
    assert!(medium[lost].iter().all(|byte| *byte == 0), "nothing is written where chunks are lost");
}

#[test]
fn a_stream_that_waits_loses_nothing() {
    let mut circuit = StreamerCircuit::new(Config { waits: true, ..Config::new(4) });
    circuit.start(at::WRITING, START, 0, 0);
    circuit.pause_ssd(50_000);
    let bytes = random(&mut Rng::from_seed(4), 40 * 16_384);
    circuit.give_last(&bytes);
    assert_eq!(circuit.run_until_ended(at::WRITING), State::Ended);
    assert!(circuit.waited() > 10_000 && circuit.contents(START, 40 * 16_384) == bytes);
    assert_eq!(circuit.account(at::WRITING).bytes_lost, 0);
}

#[test]
fn playback_gives_the_same_bytes() {
    let config = Config { stalls: Stalls(Some(5)), chunk: 64 << 10, ..Config::new(5) };
    let bytes = random(&mut Rng::from_seed(5), 5 * 65_536 + 8_192);
    let mut circuit = recorded(config, &bytes);
    for (first, length) in [(0, bytes.len()), (4096, 65_536), (65_536 + 12_288, 4096)] {
        let from = START + first as u64;
        circuit.start(at::READING, from, from + length as u64, 0);
        circuit.open_sink(false);
        circuit.run(5_000);
        circuit.open_sink(true);
        assert_eq!(circuit.run_until_ended(at::READING), State::Ended);
        assert!(circuit.played().unwrap() == bytes[first..first + length], "{length} B from {first} on");
        let account = circuit.account(at::READING);
        assert_eq!((account.bytes, account.last_address), (length as u64, from + length as u64));
        assert_eq!((account.fill, account.bytes_lost), (0, 0));
    }
    // A recording of before is still shown.
    assert_eq!(circuit.account(at::WRITING).bytes, bytes.len() as u64);
}

#[test]
fn a_medium_that_always_fails_ends_the_recording() {
    let mut circuit = StreamerCircuit::new(Config::new(6));
    circuit.set_temper(Temper { latency_max: 100, fails_one_in: 1 });
    circuit.start(at::WRITING, START, 0, 0);
    circuit.give(&random(&mut Rng::from_seed(6), 40 * 16_384));
    assert_eq!(circuit.run_until_ended(at::WRITING), State::Failed);
    let (account, gaps) = (circuit.account(at::WRITING), circuit.gaps());
    assert_eq!((account.bytes, account.bytes_stored), (account.bytes_lost, 0));
    assert!(matches!(gaps[..], [Gap { address: START, is_of_medium: true, chunks: 16.. }]), "{gaps:?}");
    // Three attempts each.
    let first = circuit.written().iter().filter(|one| one.offset == START).count();
    assert_eq!(first, 3);
    circuit.discard();
    circuit.set_temper(Temper { latency_max: 100, fails_one_in: 0 });
    circuit.start(at::WRITING, START, 0, 0);
    circuit.give_last(&[1; 100]);
    assert_eq!(circuit.run_until_ended(at::WRITING), State::Ended);
    assert_eq!(circuit.account(at::WRITING).bytes_stored, 100);
}

#[test]
fn it_ends_at_the_maximum_address_and_after_so_many_chunks() {
    let bytes = random(&mut Rng::from_seed(7), 3 * 16_384);
    for (maximum, chunks_max, most) in
        [(START + 20_480, 0, 20_480), (0, 2, 32_768), (START + 40_960, 2, 32_768), (START + 4096, 2, 4096)]
    {
        let mut circuit = StreamerCircuit::new(Config::new(7));
        circuit.start(at::WRITING, START, maximum, chunks_max);
        circuit.give(&bytes);
        assert_eq!(circuit.run_until_ended(at::WRITING), State::Ended);
        let account = circuit.account(at::WRITING);
        assert_eq!((account.bytes, account.bytes_stored), (most, most));
        assert!(circuit.contents(START, most) == bytes[..most as usize]);
        assert_eq!(circuit.contents(START + most, 4096), vec![0; 4096]);
    }
}

#[test]
fn a_driver_sees_the_medium_and_the_buffer() {
    let mut circuit = StreamerCircuit::new(Config::new(8));
    assert_eq!(circuit.read(at::IDENTITY).to_le_bytes(), *b"FLRB");
    assert_eq!(circuit.read(at::VERSION), 1);
    assert_eq!(circuit.read(at::CAPABILITIES), at::CAN_WRITE | at::CAN_READ | at::CAN_ADDRESS);
    assert_eq!(circuit.read_wide(at::MEDIA_BYTES), 16 << 20);
    assert_eq!([circuit.read(at::CHUNK_BYTES), circuit.read(at::CHUNKS)], [16 << 10, 32]);
    let model: Vec<u8> = (0..10).flat_map(|word| circuit.read(at::MODEL + 4 * word).to_le_bytes()).collect();
    assert_eq!(model, *b"A disk in memory                        ");
    for register in [0x048, 0x300, at::WRITING + 0x58, at::READING + at::GAPS, 0xffc] {
        assert_eq!(circuit.read(register), 0, "{register:#x}");
    }
    let (first, maximum) = (at::WRITING + at::FIRST_ADDRESS, at::WRITING + at::MAXIMUM_ADDRESS);
    circuit.write(maximum + 4, 9);
    assert_eq!([circuit.read_wide(maximum), circuit.read_wide(first)], [9 << 32, 0]);
    circuit.write(at::WRITING + at::CONTROL, at::STOP);
    assert_eq!(circuit.state(at::WRITING), State::Idle, "a stop of what does not run is ignored");
}

#[test]
fn what_cannot_be_started_fails_and_what_runs_is_left_alone() {
    let mut circuit = StreamerCircuit::new(Config::new(9));
    for (first, maximum) in [(1, 8192), (0, 8191), (8192, 8192), (8192, 4096), (0, 1 << 40), (1 << 60, 0)] {
        circuit.start(at::WRITING, first, maximum, 0);
        assert_eq!(circuit.run_until_ended(at::WRITING), State::Failed, "{first:#x} to {maximum:#x}");
    }
    let changes = circuit.changes();
    circuit.start(at::WRITING, 4096, 8192, 0);
    assert_eq!(circuit.state(at::WRITING), State::Running);
    // Neither an address, nor a start of either direction is taken.
    circuit.start(at::WRITING, 0, 0, 0);
    circuit.start(at::READING, 0, 4096, 0);
    assert_eq!(circuit.account(at::WRITING).first_address, 4096);
    assert_eq!(circuit.state(at::READING), State::Idle);
    circuit.give(&[1; 64]);
    circuit.run_until_given();
    assert_eq!(circuit.account(at::WRITING).fill, 64);
    circuit.stop(at::WRITING);
    assert_eq!(circuit.run_until_ended(at::WRITING), State::Ended);
    assert_eq!(circuit.contents(4096, 64), [1; 64]);
    circuit.run(20);
    // Running, ending and ended.
    assert_eq!((circuit.changes() - changes, circuit.is_busy()), (3, false));
}

#[test]
fn an_error_of_the_memory_fails_the_direction() {
    let bytes = random(&mut Rng::from_seed(11), 4 * 16_384);
    let mut circuit = recorded(Config { has_large_blocks: true, ..Config::new(11) }, &bytes);
    circuit.fail_memory(true);
    circuit.start(at::READING, START, START + 65_536, 0);
    assert_eq!(circuit.run_until_ended(at::READING), State::Failed);
    circuit.start(at::WRITING, START, 0, 0);
    circuit.give(&bytes);
    assert_eq!(circuit.run_until_ended(at::WRITING), State::Failed);
    circuit.fail_memory(false);
    circuit.discard();
    circuit.start(at::WRITING, START, 0, 0);
    circuit.give_last(&bytes);
    assert_eq!(circuit.run_until_ended(at::WRITING), State::Ended);
    assert!(circuit.contents(START, 65_536) == bytes);
}

#[test]
#[should_panic(expected = "the stream waits for the circuit")]
fn the_watchdog_says_who_waits() {
    let mut circuit = StreamerCircuit::new(Config::new(10));
    circuit.give(&[1; 64]);
    circuit.run_until_given();
}

#[test]
fn the_engine_agrees_over_seeds() {
    for seed in 0..4 {
        let outcome = campaign::run(seed);
        assert!(outcome.failures.is_empty(), "{outcome}");
    }
}
