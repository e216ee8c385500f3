use std::sync::Arc as StdArc;
use std::sync::atomic::AtomicBool;

use engine::Rng;
use nvme::media::MediumId;

use super::*;

fn request(operation: Operation) -> Request {
    Request { id: IoId(7), medium: MediumId(0), operation }
}

fn run(ram: &mut SharedRam, operation: Operation) -> (Vec<Buffer>, Result<(), MediaError>) {
    let (mut pieces, mut result) = (Vec::new(), None);
    ram.submit(request(operation), &mut |completion| match completion {
        Completion::Data { offset, data, .. } => {
            let before: usize = pieces.iter().map(|piece: &Buffer| piece.len()).sum();
            assert_eq!(usize::try_from(offset), Ok(before), "pieces come in their order");
            pieces.push(data);
        }
        Completion::Done { result: ended, .. } => result = Some(ended),
    });
    (pieces, result.expect("it has ended"))
}

fn write(offset: u64, data: &[u8]) -> Operation {
    Operation::Write { offset, data: Buffer::copy_from_slice(data), durable: false }
}

fn read(ram: &mut SharedRam, offset: u64, length: usize) -> Vec<Buffer> {
    let length = u32::try_from(length).unwrap();
    let (pieces, result) = run(ram, Operation::Read { offset, length });
    result.unwrap();
    pieces
}

fn joined(pieces: &[Buffer]) -> Vec<u8> {
    pieces.iter().flat_map(|piece| piece.iter().copied()).collect()
}

#[test]
fn it_reads_like_an_array_and_what_was_read_stays() {
    for seed in 0..20 {
        let mut rng = Rng::from_seed(seed);
        let mut ram = SharedRam::new(400_000);
        let mut other = ram.for_lane().open();
        let mut model = vec![0_u8; 400_000];
        let mut held: Vec<(Vec<Buffer>, Vec<u8>)> = Vec::new();
        for step in 0..300 {
            let one = if rng.one_in(2) { &mut ram } else { &mut other };
            let unit = if rng.one_in(2) { 4096 } else { 1 };
            let offset = rng.below(400_000) / unit * unit;
            let most = [20_000_u64, 200_000][usize::from(rng.one_in(4))];
            let length = (1 + rng.below(most)).next_multiple_of(unit).min(400_000 - offset);
            let range = usize::try_from(offset).unwrap()..usize::try_from(offset + length).unwrap();
            match rng.below(4) {
                0 => {
                    let value = u8::try_from(1 + step % 255).unwrap();
                    run(one, write(offset, &vec![value; range.len()])).1.unwrap();
                    model[range].fill(value);
                }
                1 => {
                    run(one, Operation::Deallocate { offset, length }).1.unwrap();
                    model[range].fill(0);
                }
                _ => {
                    let pieces = read(one, offset, range.len());
                    assert!(joined(&pieces) == model[range.clone()], "seed {seed}, step {step}");
                    held.push((pieces, model[range].to_vec()));
                }
            }
            if rng.one_in(4) && !held.is_empty() {
                let index = usize::try_from(rng.below(held.len() as u64)).unwrap();
                let (pieces, bytes) = held.swap_remove(index);
                assert!(joined(&pieces) == bytes, "seed {seed}, step {step}: what was read has changed");
            }
        }
        drop((ram, other));
        assert!(held.iter().all(|(pieces, bytes)| joined(pieces) == *bytes), "seed {seed}");
    }
}

#[test]
fn long_writes_and_first_writes_have_few_pieces_and_short_ones_cost_little_memory() {
    let mut ram = SharedRam::new(1 << 24);
    run(&mut ram, write(0, &vec![1; 2 * RUN])).1.unwrap();
    assert_eq!(read(&mut ram, 0, 2 * RUN).len(), 2);
    for page in 0..RUN_PAGES {
        run(&mut ram, write((4 * RUN + page * PAGE) as u64, &[2; PAGE])).1.unwrap();
    }
    assert_eq!(read(&mut ram, 4 * RUN as u64, RUN).len(), 1, "first writes are in place");
    assert_eq!(read(&mut ram, 8 * RUN as u64, RUN).len(), 1, "zeroes are one piece");
    run(&mut ram, write(PAGE as u64, &[3; PAGE])).1.unwrap();
    assert_eq!(read(&mut ram, 0, RUN).len(), 3);
    run(&mut ram, write(0, &[4; 5 * PAGE])).1.unwrap();
    assert_eq!(read(&mut ram, 0, RUN).len(), 1, "a longer write makes a new block");
    for round in 0..20_u8 {
        for page in 0..(1 << 24) / PAGE {
            run(&mut ram, write((page * PAGE) as u64, &[round; PAGE])).1.unwrap();
        }
        let most = (1 << 24) / 4 * 5 + (2 * (RETIRED + KEPT) + 64) * PAGE + 16 * RUN;
        assert!(ram.resident_bytes() <= most, "{} B", ram.resident_bytes());
    }
    run(&mut ram, Operation::Deallocate { offset: 0, length: 1 << 24 }).1.unwrap();
    assert!(
        ram.resident_bytes() <= (2 * (RETIRED + KEPT) + 64) * PAGE + 32 * RUN,
        "{} B",
        ram.resident_bytes()
    );
}

const RETIRED: usize = 256 + RUN_PAGES * LOCKED_MAX;
const KEPT: usize = 256;

#[test]
fn what_is_outside_fails_and_a_new_length_counts_at_once() {
    let mut ram = SharedRam::new(8192);
    let mut other = ram.for_lane().open();
    let out_of_range = Err(MediaError::OutOfRange);
    assert_eq!(run(&mut other, write(8191, &[1; 2])).1, out_of_range);
    assert_eq!(run(&mut other, write(u64::MAX, &[1; 2])).1, out_of_range);
    run(&mut other, write(0, &[1; 8192])).1.unwrap();
    ram.resize(100).unwrap();
    assert_eq!(run(&mut other, Operation::Read { offset: 99, length: 2 }).1, out_of_range);
    ram.resize(1 << 30).unwrap();
    assert_eq!(joined(&read(&mut other, 96, 8)), [1, 1, 1, 1, 0, 0, 0, 0]);
    assert_eq!(other.bytes(), 1 << 30);
    ram.resize(BYTES_MAX).unwrap();
    run(&mut ram, write(BYTES_MAX - 512, &[5; 512])).1.unwrap();
    assert_eq!(joined(&read(&mut other, BYTES_MAX - 512, 512)), [5; 512]);
    run(&mut ram, Operation::Deallocate { offset: 0, length: BYTES_MAX }).1.unwrap();
    assert_eq!(joined(&read(&mut other, BYTES_MAX - 512, 512)), [0; 512]);
}

/// Extents that threads write as a whole. They overlap no other one.
const EXTENTS: [(u64, usize); 6] = [
    (512, 512),
    (4096 - 512, 1024),
    (3 * 4096, 4096),
    (40_000, 100_000),
    (262_144, 131_072),
    (400_000 + 512, 50_000),
];

#[test]
fn each_read_is_a_snapshot_whatever_other_threads_write() {
    let ram = SharedRam::new(1 << 20);
    let stop = StdArc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..6_u64)
        .map(|seed| {
            let (lane, stop) = (ram.for_lane(), StdArc::clone(&stop));
            std::thread::spawn(move || {
                let (mut ram, mut rng, mut reads) = (lane.open(), Rng::from_seed(seed), 0_u32);
                let mut held: Vec<(u8, Vec<Buffer>)> = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let (offset, length) = EXTENTS[usize::try_from(rng.below(6)).unwrap()];
                    if rng.below(10) < 3 {
                        let value = u8::try_from(rng.below(256)).unwrap();
                        if value == 0 {
                            let length = length as u64;
                            run(&mut ram, Operation::Deallocate { offset, length }).1.unwrap();
                        } else {
                            run(&mut ram, write(offset, &vec![value; length])).1.unwrap();
                        }
                        continue;
                    }
                    let pieces = read(&mut ram, offset, length);
                    let first = pieces[0][0];
                    assert!(pieces.iter().all(|piece| piece.iter().all(|byte| *byte == first)), "torn");
                    reads += 1;
                    held.push((first, pieces));
                    if held.len() > 100 {
                        let (first, pieces) = held.swap_remove(usize::try_from(rng.below(100)).unwrap());
                        let stays = pieces.iter().all(|piece| piece.iter().all(|byte| *byte == first));
                        assert!(stays, "what was read has changed");
                    }
                }
                reads
            })
        })
        .collect();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    stop.store(true, Ordering::Relaxed);
    let reads: Vec<u32> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert!(reads.iter().all(|reads| *reads > 0), "{reads:?}");
}

/// A data race on purpose: `scripts/races` sees by it that its detector finds one.
#[test]
#[ignore = "a data race on purpose, for scripts/races"]
fn a_planted_race() {
    struct Plain(std::cell::UnsafeCell<u64>);
    // SAFETY: No rule allows this: two threads change the value at once. No other test has it.
    unsafe impl Sync for Plain {}
    let value = Plain(std::cell::UnsafeCell::new(0));
    let add = || {
        let value = &value;
        for _ in 0..10_000 {
            // SAFETY: As above: this is the race.
            unsafe { *value.0.get() += 1 };
            std::hint::spin_loop();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(add);
        scope.spawn(add);
    });
}
