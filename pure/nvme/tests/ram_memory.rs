//! The memory that a RAM disk takes from the system, after any writes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use engine::{Buffer, Rng};
use farlane_nvme::media::ram::RamDisk;
use farlane_nvme::media::{IoId, MediumId, Operation, Request};

const DISK: u64 = 128 << 20;

/// Bytes of this process's memory that are resident and not backed by a file.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Writes the whole disk in random order, `length` bytes at a time.
fn overwrite(disk: &mut RamDisk, length: usize, rng: &mut Rng) {
    let data = Buffer::copy_from_slice(&vec![0x5a; length]);
    let mut places: Vec<u64> = (0..DISK / length as u64).collect();
    for end in (1..places.len()).rev() {
        let other = usize::try_from(rng.below(end as u64 + 1)).unwrap();
        places.swap(end, other);
    }
    for place in places {
        let operation =
            Operation::Write { offset: place * length as u64, data: data.clone(), durable: false };
        disk.submit(Request { id: IoId(0), medium: MediumId(0), operation }, &mut |_| {});
    }
}

#[test]
fn writes_of_any_lengths_take_no_more_memory_than_the_disk_has() {
    let mut disk = RamDisk::new(DISK);
    let mut rng = Rng::from_seed(1);
    let before = resident();
    for length in [4096, 128 << 10, 512, 64 << 10, 8192, 1 << 20, 4096, 16 << 10, 128 << 10] {
        overwrite(&mut disk, length, &mut rng);
        let taken = resident() - before;
        assert!(taken <= DISK / 100 * 105, "{taken} B of {DISK} after writes of {length} B");
    }
    assert!(resident() - before >= DISK, "it was not written");
}
