//! A bit that is flipped on the way is detected wherever it is, and everything arrives as it was
//! sent.

use super::*;

/// Time until the last handshake that can be disturbed is over. The rest of a Hello with a changed
/// length never comes, and the next Hello comes after the longest pause.
const PATIENCE: Nanos = Nanos::from_secs(20);

fn pair(seed: u64, digests: bool) -> Pair {
    let up = Config { digests, stamps: seed.is_multiple_of(2), ..config("host", 1) };
    Pair::new(up, config("box", 2), seed)
}

/// Sends a few packets of each kind each way, and a reset between them.
fn speak(pair: &mut Pair, pages: bool) -> [Vec<Packet>; 2] {
    let mut sent = [Vec::new(), Vec::new()];
    for number in 0..6 {
        let length = if pages && number == 3 { 4096 } else { 4 + 8 * usize::try_from(number).unwrap() };
        let down = if number % 3 == 0 { read(number) } else { write(number, length) };
        let up = if number % 3 == 0 { completion(number) } else { write(number, length) };
        sent[1].push(down.clone());
        sent[0].push(up.clone());
        pair.send(UP, down);
        pair.send(DOWN, up);
        pair.run_for(Nanos::from_micros(15));
    }
    sent
}

/// Number of bits that pass while `run` runs.
fn bits(pair: &mut Pair, run: impl FnOnce(&mut Pair)) -> usize {
    let before = pair.bytes;
    run(pair);
    (pair.bytes - before) * 8
}

fn went_down(pair: &Pair) -> bool {
    [&pair.up, &pair.down].iter().any(|end| end.events.iter().any(|event| event.starts_with("down")))
}

fn assert_whole(pair: &Pair, sent: &[Vec<Packet>; 2], what: &str) {
    for (end, sent) in [&pair.up, &pair.down].into_iter().zip(sent) {
        let same = end.packets == *sent;
        assert!(same, "{what}: {} of {} packets came as they were sent", end.packets.len(), sent.len());
    }
}

#[test]
fn each_bit_of_a_conversation_is_found_out_and_the_session_goes_on() {
    for pages in [false, true] {
        let mut quiet = pair(1, true);
        quiet.run_for(Nanos::from_millis(200));
        let total = bits(&mut quiet, |pair| {
            speak(pair, pages);
            pair.run_for(Nanos::from_millis(50));
        });
        // Flips each bit of the small frames, but only some bits of two pages.
        for bit in (0..total).step_by(if pages { 97 } else { 1 }) {
            let mut pair = pair(1, true);
            pair.run_for(Nanos::from_millis(200));
            pair.flip_after = Some(bit);
            let sent = speak(&mut pair, pages);
            pair.run_for(PATIENCE);
            let what = std::format!("bit {bit} of {total}");
            assert_eq!(pair.flip_after, None, "{what} was never sent");
            assert_whole(&pair, &sent, &what);
            assert!(!went_down(&pair), "{what}: {:?}, {:?}", pair.up.events, pair.down.events);
            assert!(pair.up.events.contains(&"interrupted".into()), "{what} went unnoticed");
        }
    }
}

#[test]
fn each_bit_of_a_handshake_is_found_out_and_the_link_comes_up() {
    let quiet = &mut pair(3, true);
    let total = bits(quiet, |pair| pair.run_for(Nanos::from_millis(15)));
    assert!(total > 8 * 200, "the handshake has {total} bits");
    for bit in 0..total {
        let mut pair = pair(3, true);
        pair.flip_after = Some(bit);
        pair.run_for(PATIENCE);
        let what = std::format!("bit {bit} of {total}");
        let sent = speak(&mut pair, false);
        pair.run_for(Nanos::from_millis(50));
        assert_whole(&pair, &sent, &what);
        // A session that the device's end began and the host never heard of is no loss.
        let ups = pair.up.events.iter().filter(|event| event.starts_with("up")).count();
        let downs = pair.up.events.iter().filter(|event| event.starts_with("down")).count();
        assert!((ups, downs) == (1, 0), "{what}: {:?}, {:?}", pair.up.events, pair.down.events);
        assert!(pair.up.events.len() + pair.down.events.len() > 2, "{what} went unnoticed");
    }
}

#[test]
fn each_bit_of_a_resumption_is_found_out_and_nothing_is_lost() {
    let begin = |digests| {
        let mut pair = pair(5, digests);
        pair.run_for(Nanos::from_millis(200));
        pair.cut();
        let sent = speak(&mut pair, false);
        (pair, sent)
    };
    let total = bits(&mut begin(true).0, |pair| pair.run_for(Nanos::from_millis(50)));
    for bit in 0..total {
        let (mut pair, sent) = begin(true);
        pair.flip_after = Some(bit);
        pair.run_for(PATIENCE);
        let what = std::format!("bit {bit} of {total}");
        assert_whole(&pair, &sent, &what);
        assert!(!went_down(&pair), "{what}: {:?}, {:?}", pair.up.events, pair.down.events);
    }
}

#[test]
fn a_refusal_that_was_changed_on_its_way_stops_no_host() {
    let mut bytes = [0; 64];
    let first = crate::frame::Sequence::FIRST;
    let length = Frame::Refuse(crate::frame::RefuseCode::Busy, "later").emit(first, first, &mut bytes);
    crate::frame::sign(engine::crc32c, &mut bytes[..length]);
    for bit in 0..length * 8 {
        let mut pair = pair(6, true);
        pair.run_for(Nanos::from_millis(200));
        pair.reachable = false;
        pair.cut();
        pair.run_for(Nanos::from_millis(50));
        let mut bent = bytes;
        bent[bit / 8] ^= 1 << (bit % 8);
        let now = pair.now;
        pair.up.session.handle_input(now, Input::Connected);
        pair.up.session.handle_input(now, Input::Received(Buffer::copy_from_slice(&bent[..length])));
        pair.reachable = true;
        pair.run_for(Nanos::from_secs(9));
        assert!(!went_down(&pair), "bit {bit}: {:?}", pair.up.events);
        assert_eq!(pair.up.events.last().unwrap(), "resumed", "bit {bit}");
    }
}

#[test]
fn a_thousand_flips_in_streams_of_all_kinds_are_found_out() {
    let mut flips = 0;
    for seed in 0..1_100 {
        let mut pair = pair(seed, true);
        pair.run_for(Nanos::from_millis(200));
        pair.delay = Nanos::new(pair.rng.below(1_000_000));
        pair.chunk = [0, 1, 20, 5_000][usize::try_from(pair.rng.below(4)).unwrap()];
        let spread = 8 * 10_000;
        pair.flip_after = Some(usize::try_from(pair.rng.below(spread)).unwrap());
        let count = u32::try_from(20 + pair.rng.below(60)).unwrap();
        let [to_up, to_down] = converse(&mut pair, count, Nanos::from_micros(200));
        pair.run_for(Nanos::from_secs(9));
        flips += u32::from(pair.flip_after.is_none());
        // Nothing is used after a panic but what the message shows.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            assert_delivered(&pair.up.packets, &to_up);
            assert_delivered(&pair.down.packets, &to_down);
        }));
        assert!(result.is_ok() && !went_down(&pair), "seed {seed}: {:?}", pair.up.events);
    }
    assert!(flips >= 1_000, "{flips} bits were turned over");
}

#[test]
fn without_digests_a_flip_may_go_unnoticed() {
    let changed = (0..200).filter(|seed| {
        let mut pair = pair(*seed, false);
        pair.run_for(Nanos::from_millis(200));
        pair.flip_after = Some(8 * 100 + usize::try_from(pair.rng.below(8 * 4_000)).unwrap());
        let sent = [write(1, 4096)];
        pair.send(UP, sent[0].clone());
        pair.run_for(Nanos::from_millis(50));
        pair.down.packets.len() == 1 && pair.down.packets != sent
    });
    assert!(changed.count() > 100, "this is what digests are for");
}
