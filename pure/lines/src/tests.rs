//! Two ends in one memory: every byte arrives once and in order, and hostile writes cause faults.

use alloc::vec;
use alloc::vec::Vec;

use engine::Rng;
use pcie::memory::{Memory, Ram};

use super::*;

fn both() -> (Ram, End, End) {
    (Ram::new(0, MEMORY_BYTES), End::new(Side::Dialler), End::new(Side::Listener))
}

/// Byte number `at` of a stream whose bytes encode their position.
fn byte(at: u64) -> u8 {
    (at % 251) as u8
}

#[test]
fn every_byte_arrives_once_and_in_order() {
    for seed in 0..30 {
        let mut rng = Rng::from_seed(seed);
        let (mut memory, mut near, mut far) = both();
        // (sent, taken) of each direction; enough for several laps of rings and areas.
        let mut streams = [(0_u64, 0_u64); 2];
        let (mut room, mut slept) = (vec![0; 100 << 10], false);
        while streams[0].1 < 6 << 20 {
            let direction = usize::from(rng.below(4) == 0);
            let (from, to) = if direction == 0 { (&mut near, &mut far) } else { (&mut far, &mut near) };
            let (sent, taken) = &mut streams[direction];
            let most = [60, 61, 241, 5000, 300_000][usize::try_from(rng.below(5)).unwrap()];
            let bytes: Vec<u8> = (*sent..*sent + rng.below(most)).map(byte).collect();
            *sent += from.send(&mut memory, &bytes).unwrap() as u64;
            if rng.below(3) == 0 {
                to.sleep(&mut memory, true).unwrap();
                slept = true;
            }
            for _ in 0..rng.below(3) {
                let length = usize::try_from(60 + rng.below(100 << 10) % 99_000).unwrap();
                let count = to.receive(&mut memory, &mut room[..length]).unwrap();
                let expected = (*taken..).map(byte);
                assert!(room[..count].iter().copied().eq(expected.take(count)), "seed {seed} at {taken}");
                *taken += count as u64;
            }
            to.sleep(&mut memory, false).unwrap();
            assert!(*taken <= *sent);
        }
        assert!(slept && streams[1].1 > 0);
    }
}

#[test]
fn a_full_ring_takes_no_more_until_the_peer_reports() {
    let (mut memory, mut near, mut far) = both();
    let mut room = vec![0; 4 << 20];
    let lines = (0..2000).take_while(|_| near.send(&mut memory, b"x").unwrap() == 1).count();
    assert_eq!(lines, 1024);
    assert_eq!(far.receive(&mut memory, &mut room), Ok(1024));
    assert_eq!(near.send(&mut memory, b"x"), Ok(1));
    let area = near.send(&mut memory, &vec![7; 4 << 20]).unwrap();
    assert_eq!(area, 1 << 20);
    assert_eq!(far.receive(&mut memory, &mut room), Ok(1 + (1 << 20)));
    assert_eq!(near.send(&mut memory, &vec![7; 4 << 20]), Ok(1 << 20));
}

#[test]
fn a_look_finds_news_without_taking_it() {
    let (mut memory, mut near, mut far) = both();
    let mut room = vec![0; 400];
    // More than a lap, with pieces that are taken in two parts.
    for round in 0..1500_u32 {
        assert_eq!(far.has_news(&memory), Ok(false), "round {round}");
        let length = if round % 3 == 0 { 500 } else { 7 };
        assert_eq!(near.send(&mut memory, &[1; 500][..length]), Ok(length));
        let mut taken = 0;
        while taken < length {
            assert_eq!(far.has_news(&memory), Ok(true), "{taken} of {length} B in round {round}");
            taken += far.receive(&mut memory, &mut room).unwrap();
        }
    }
    assert!(far.has_news(&Ram::new(0, 64)).is_err());
}

#[test]
fn a_sleeper_is_woken_once_for_stored_lines() {
    let (mut memory, mut near, mut far) = both();
    near.send(&mut memory, b"a").unwrap();
    assert_eq!(near.poll_wake(&memory), Ok(false));
    far.sleep(&mut memory, true).unwrap();
    assert!(far.is_asleep());
    assert_eq!(near.poll_wake(&memory), Ok(false), "nothing was stored since");
    near.send(&mut memory, b"b").unwrap();
    assert_eq!(near.poll_wake(&memory), Ok(true));
    assert_eq!(near.poll_wake(&memory), Ok(false));
    far.sleep(&mut memory, false).unwrap();
    near.send(&mut memory, b"c").unwrap();
    assert_eq!(near.poll_wake(&memory), Ok(false));
}

#[test]
fn a_sender_that_waits_for_room_is_woken_when_there_is_some() {
    let (mut memory, mut near, mut far) = both();
    while near.send(&mut memory, &[1; 300]).unwrap() > 0 {}
    near.sleep(&mut memory, true).unwrap();
    let mut room = vec![0; 4 << 20];
    assert!(far.receive(&mut memory, &mut room).unwrap() > 0);
    assert_eq!(far.poll_wake(&memory), Ok(true));
}

#[test]
fn every_wrong_mark_is_a_fault() {
    for (place, value) in [(60, 0), (60, 61), (60, 254), (61, 1), (62, 9), (63, 1)] {
        let (mut memory, mut near, mut far) = both();
        near.send(&mut memory, b"hello").unwrap();
        memory.write(4096 + place, &[value]).unwrap();
        assert_eq!(far.receive(&mut memory, &mut [0; 64]), Err(Fault::Line(0)), "{place} {value}");
    }
}

#[test]
fn a_reference_that_leads_elsewhere_is_a_fault() {
    for (offset, length) in [(1, 300), (0, 0), (0, (1 << 20) + 1), (u32::MAX, 1), (0, u32::MAX)] {
        let (mut memory, mut near, mut far) = both();
        near.send(&mut memory, &[5; 300]).unwrap();
        memory.write(4096, &[u32::to_le_bytes(offset), u32::to_le_bytes(length)].concat()).unwrap();
        let fault = far.receive(&mut memory, &mut [0; 64]);
        assert_eq!(fault, Err(Fault::Reference { offset, length }));
    }
}

#[test]
fn a_peer_that_took_more_than_was_sent_is_a_fault() {
    let (mut memory, mut near, _) = both();
    while near.send(&mut memory, b"x").unwrap() > 0 {}
    let report = MEMORY_BYTES as u64 / 2;
    memory.write(report, &1025_u64.to_le_bytes()).unwrap();
    assert_eq!(near.send(&mut memory, b"x"), Err(Fault::Taken(1025)));
    memory.write(report, &1024_u64.to_le_bytes()).unwrap();
    memory.write(report + 8, &1_u64.to_le_bytes()).unwrap();
    assert_eq!(near.send(&mut memory, b"x"), Err(Fault::Taken(1)));
    memory.write(report + 8, &0_u64.to_le_bytes()).unwrap();
    assert_eq!(near.send(&mut memory, b"x"), Ok(1));
    while near.send(&mut memory, b"x").unwrap() > 0 {}
    memory.write(report, &3_u64.to_le_bytes()).unwrap();
    assert_eq!(near.send(&mut memory, b"x"), Err(Fault::Taken(3)), "fewer than before");
}

#[test]
fn memory_that_is_gone_is_a_fault() {
    let mut memory = Ram::new(0, 64);
    let mut end = End::new(Side::Dialler);
    assert!(matches!(end.send(&mut memory, b"x"), Err(Fault::Memory(_))));
    assert!(matches!(end.receive(&mut memory, &mut [0; 64]), Err(Fault::Memory(_))));
}

#[test]
fn scribbles_anywhere_are_survived() {
    let mut faults = 0;
    for seed in 0..2000 {
        let mut rng = Rng::from_seed(seed);
        let data: Vec<u8> = (0..240).map(|_| byte(rng.below(251))).collect();
        fuzz::scribbles(&data);
        let (mut memory, mut near, mut far) = both();
        near.send(&mut memory, &[3; 1000]).unwrap();
        near.send(&mut memory, &[3; 30]).unwrap();
        let place = 4096 + rng.below(128);
        memory.write(place, &[byte(rng.below(251))]).unwrap();
        faults += u32::from(far.receive(&mut memory, &mut [0; 2000]).is_err());
    }
    assert!(faults > 100, "{faults} of 2000 seeds met a check");
}
