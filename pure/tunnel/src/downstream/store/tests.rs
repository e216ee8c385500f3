use std::vec::Vec;

use engine::{Buffer, Instant, Nanos};
use pcie::wire::{Bdf, Kind, Packet, Tag};
use proptest::prelude::{ProptestConfig, any, prop, proptest};

use super::{KEPT_FOR, Store};
use crate::frame::{Ahead, AheadKey};

const ROOT: Bdf = Bdf::new(0, 0, 0);
const DEVICE: Bdf = Bdf::new(3, 0, 0);

fn ahead(address: u64, key: u32) -> Ahead {
    Ahead { address, key: AheadKey(key), completer: ROOT, payload_size: 128, once: false }
}

fn bytes(length: usize) -> Buffer {
    (0..=250).cycle().take(length).collect::<Vec<u8>>().into()
}

/// The completions that answer a read; `None` if the read goes to the host.
fn read(store: &mut Store, now: Instant, address: u64, length: u32) -> Option<Vec<Packet>> {
    let mut answers = Vec::new();
    let request = Packet::memory_read(DEVICE, Tag::new(5), address, length);
    store.take(now, &request, |answer| answers.push(answer)).then_some(answers)
}

#[test]
fn answers_are_cut_as_the_completer_would() {
    let mut store = Store::new(1 << 20);
    store.insert(Instant::ZERO, ahead(0x1040, 1), bytes(300 * 4));
    let answers = read(&mut store, Instant::ZERO, 0x1050, 400).unwrap();
    let lengths: Vec<_> = answers.iter().map(|answer| answer.payload.len()).collect();
    // The first completion reaches the next multiple of 128 B, the others have as much as a payload
    // may have.
    assert_eq!(lengths, [48, 128, 128, 96]);
    let data: Vec<u8> = answers.iter().flat_map(|answer| answer.payload.to_vec()).collect();
    assert_eq!(data, bytes(300 * 4)[0x10..0x10 + 400]);
    for answer in &answers {
        let Kind::Completion(completion) = &answer.header.kind else { panic!("{answer}") };
        assert_eq!((completion.completer, completion.requester, completion.tag), (ROOT, DEVICE, Tag::new(5)));
    }
}

#[test]
fn a_piece_is_gone_when_it_was_read_written_forgotten_or_has_grown_old() {
    let (now, mut store) = (Instant::ZERO, Store::new(1 << 20));
    let hit = |store: &mut Store, now, address, length| read(store, now, address, length).is_some();
    // A piece answers reads of its parts once.
    store.insert(now, ahead(0x1000, 1), bytes(128));
    assert!(hit(&mut store, now, 0x1040, 64) && hit(&mut store, now, 0x1000, 64));
    assert!(!hit(&mut store, now, 0x1000, 64));
    // Several pieces answer one read, but not across a gap.
    for address in [0x2000, 0x2040, 0x20c0] {
        store.insert(now, ahead(address, 2), bytes(64));
    }
    assert!(hit(&mut store, now, 0x2020, 64) && !hit(&mut store, now, 0x2060, 64));
    // The device writes to a piece.
    store.take(now, &Packet::memory_write(DEVICE, 0x20f0, bytes(4)), |_| ());
    assert!(!hit(&mut store, now, 0x20c0, 4));
    // With `once`, any read ends the piece, even one that goes to the host.
    for (address, length) in [(0x3140, 4), (0x3130, 64)] {
        store.insert(now, Ahead { once: true, ..ahead(0x3140, 3) }, bytes(64));
        hit(&mut store, now, address, length);
        assert!(!hit(&mut store, now, 0x3140, 64));
    }
    // Pieces are forgotten by their key, and by the key that stands for all.
    for key in [4, 0] {
        store.insert(now, ahead(0x4000, 4), bytes(64));
        store.forget(AheadKey(key));
        assert!(!hit(&mut store, now, 0x4000, 4));
    }
    // A piece grows old.
    store.insert(now, ahead(0x5000, 5), bytes(64));
    assert!(hit(&mut store, now + (KEPT_FOR.saturating_sub(Nanos::new(1))), 0x5000, 4));
    assert!(!hit(&mut store, now + KEPT_FOR, 0x5004, 4));
}

#[test]
fn what_is_no_plain_read_goes_to_the_host() {
    let mut store = Store::new(1 << 20);
    store.insert(Instant::ZERO, ahead(0x1000, 1), bytes(4096));
    let plain = Packet::memory_read(DEVICE, Tag::new(0), 0x1000, 64);
    let digest = Packet { digest: Some(1), ..plain.clone() };
    let flush = Packet::memory_read(DEVICE, Tag::new(0), 0x1000, 0);
    for packet in [digest, flush] {
        assert!(!store.take(Instant::ZERO, &packet, |_| ()), "{packet}");
    }
    assert!(store.take(Instant::ZERO, &plain, |_| ()));
}

#[test]
fn the_store_keeps_to_its_bounds() {
    let mut store = Store::new(256);
    for number in 0..10_u32 {
        store.insert(Instant::from_nanos(number.into()), ahead(u64::from(number) * 0x100, 1), bytes(100));
        assert!(store.bytes() <= 256);
    }
    assert_eq!(store.tally().evicted, 8);
    assert!(read(&mut store, Instant::ZERO, 0x900, 100).is_some());
    store.insert(Instant::ZERO, ahead(0, 1), bytes(1000));
    assert!(read(&mut store, Instant::ZERO, 0, 100).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]
    #[test]
    fn nothing_is_answered_but_what_was_sent(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        super::fuzz::store(&bytes);
    }
}
