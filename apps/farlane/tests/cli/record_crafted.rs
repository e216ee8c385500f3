//! Recordings that were made by hand, with checksums that are right: what `recover` calls
//! good, `verify` calls good. `pure/record` has the systematic part.

use std::path::Path;

use crate::support::{farlane, succeed};

const CHUNK: usize = 16 << 10;

/// A recording of short chunks, and its bytes.
fn recording(folder: &Path) -> (String, Vec<u8>) {
    let path = folder.join("a.rec").to_str().unwrap().to_owned();
    succeed(&["record", "--from", "generate:100MB", "--size", "100kB", "--chunk", "16k", "--to", &path]);
    let bytes = std::fs::read(&path).unwrap();
    (path, bytes)
}

/// Puts `value` to a place of the chunk in `slot`, and makes both checksums right.
fn set(medium: &mut [u8], slot: usize, place: usize, value: &[u8]) {
    let chunk = &mut medium[slot * CHUNK..][..CHUNK];
    chunk[place..place + value.len()].copy_from_slice(value);
    let length = u32::from_le_bytes(chunk[64..68].try_into().unwrap()) as usize;
    let digest = engine::crc32c(0, &chunk[128..][..length.min(CHUNK - 128)]);
    chunk[120..124].copy_from_slice(&digest.to_le_bytes());
    let digest = engine::crc32c(0, &chunk[..124]);
    chunk[124..128].copy_from_slice(&digest.to_le_bytes());
}

#[test]
fn what_recover_calls_good_verify_calls_good() {
    let folder = tempfile::tempdir().unwrap();
    let (path, good) = recording(folder.path());
    let (most, half) = (u64::MAX.to_le_bytes(), (u64::MAX / 2).to_le_bytes());
    // Slot, place and value: kinds where they don't belong, sequence numbers at their end, streams
    // and places that collide, accounts that are wrong, and a ring that is none.
    let cases: [(usize, usize, &[u8]); 14] = [
        (1, 10, &[2]),
        (1, 10, &[3]),
        (0, 10, &[2]),
        (4, 10, &[5]),
        (4, 10, &[7]),
        (4, 40, &most),
        (4, 52, &[63]),
        (4, 56, &half),
        (4, 80, &[1]),
        (1, 128 + 1, &[9]),
        (1, 128 + 4, &[64]),
        (1, 128 + 8, &most),
        (1, 128 + 96, &most),
        (0, 128, &[0]),
    ];
    let mut recovered = 0;
    for (slot, place, value) in cases {
        let mut medium = good.clone();
        set(&mut medium, slot, place, value);
        // The certificate's old place is free where its chunk became another: it lies in slot 1.
        std::fs::write(&path, &medium).unwrap();
        let recover = farlane(&["recording", "recover", &path]);
        let verify = farlane(&["recording", "verify", &path]);
        let why = format!("slot {slot}, place {place}: {recover:?} {verify:?}");
        assert_eq!(recover.status.success(), verify.status.success(), "{why}");
        assert!(matches!(recover.status.code(), Some(0..=2)), "{why}");
        recovered += u32::from(recover.status.success());
    }
    assert!(recovered > 10, "{recovered}");
}
