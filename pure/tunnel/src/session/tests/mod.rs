mod flips;
mod waiting;

use std::string::{String, ToString};
use std::vec::Vec;

use engine::{Engine, Instant, Nanos, Rng};
use pcie::ordering::Lane;
use pcie::wire::Packet;

use super::*;
use crate::credits::{Amount, CreditLimits};
use crate::frame::{InstanceId, Role};
use crate::test_bench::{Pair, completion, config, read, write};

const UP: Role = Role::Upstream;
const DOWN: Role = Role::Downstream;

/// Sends `count` packets of all kinds each way, some at a time. Returns the packets that each end
/// must receive.
fn converse(pair: &mut Pair, count: u32, step: Nanos) -> [Vec<Packet>; 2] {
    let mut sent = [Vec::new(), Vec::new()];
    for number in 0..count {
        let size = if pair.rng.one_in(10) { 4096 } else { 4 };
        let packets = [
            (UP, if number % 3 == 0 { read(number) } else { write(number, size) }),
            (DOWN, if number % 3 == 0 { completion(number) } else { write(number, size) }),
        ];
        for (from, packet) in packets {
            sent[if from == UP { 1 } else { 0 }].push(packet.clone());
            pair.send(from, packet);
        }
        if pair.rng.one_in(3) {
            pair.run_for(step);
        }
    }
    sent
}

/// Asserts that the packets of each lane are as sent. Lanes may pass each other as PCI Express
/// allows.
fn assert_delivered(found: &[Packet], sent: &[Packet]) {
    assert_eq!(found.len(), sent.len(), "packets lost or repeated");
    for lane in Lane::ALL {
        let of = |packets: &[Packet]| -> Vec<Packet> {
            packets.iter().filter(|packet| Lane::of(&packet.header) == lane).cloned().collect()
        };
        assert_eq!(of(found), of(sent), "{lane:?}");
    }
    // Nothing may pass a posted write: packets sent after the n-th write arrive after it.
    let posted_before = |packets: &[Packet]| -> Vec<(String, usize)> {
        let mut posted = 0;
        let mut all = Vec::new();
        for packet in packets {
            if packet.is_posted() {
                posted += 1;
            } else {
                all.push((std::format!("{packet}"), posted));
            }
        }
        all.sort();
        all
    };
    for (found, sent) in posted_before(found).iter().zip(&posted_before(sent)) {
        assert!(found.0 == sent.0 && found.1 >= sent.1, "{found:?} overtook a write: {sent:?}");
    }
}

#[test]
fn packets_pass_both_ways() {
    let mut pair = Pair::joined(1);
    let [to_up, to_down] = converse(&mut pair, 2_000, Nanos::from_micros(5));
    pair.run_for(Nanos::from_millis(100));
    assert_delivered(&pair.up.packets, &to_up);
    assert_delivered(&pair.down.packets, &to_down);
    assert_eq!(pair.up.session.unacknowledged_bytes() + pair.down.session.unacknowledged_bytes(), 0);
}

#[test]
fn a_conversation_survives_a_cut_at_each_of_its_bytes() {
    let total = {
        let mut pair = Pair::joined(2);
        let before = pair.bytes;
        converse(&mut pair, 12, Nanos::from_micros(15));
        pair.run_for(Nanos::from_millis(50));
        pair.bytes - before
    };
    for cut in 0..=total {
        let mut pair = Pair::joined(2);
        pair.cut_after = Some(cut);
        let [to_up, to_down] = converse(&mut pair, 12, Nanos::from_micros(15));
        pair.run_for(Nanos::from_millis(500));
        assert_delivered(&pair.up.packets, &to_up);
        assert_delivered(&pair.down.packets, &to_down);
        assert!(!pair.up.events.iter().any(|event| event.starts_with("down")), "{cut}: {:?}", pair.up.events);
    }
}

#[test]
fn the_handshake_survives_a_cut_at_each_of_its_bytes() {
    for cut in 0..600 {
        let mut pair = Pair::new(config("host", 1), config("box", 2), cut);
        pair.cut_after = Some(usize::try_from(cut).unwrap());
        pair.run_for(Nanos::from_millis(500));
        pair.send(UP, write(1, 4));
        pair.send(DOWN, write(2, 4));
        pair.run_for(Nanos::from_millis(500));
        assert_eq!((pair.up.packets.len(), pair.down.packets.len()), (1, 1), "{cut}: {:?}", pair.up.events);
    }
}

fn campaign(seed: u64) {
    let tiny = CreditLimits::new(
        Amount { headers: 5, data: 600 },
        Amount { headers: 2, data: 0 },
        Amount { headers: 3, data: 0 },
    );
    let mut rng = Rng::from_seed(seed);
    let (mut up, mut down) = (config("host", 1), config("box", 2));
    for config in [&mut up, &mut down] {
        config.stamps = rng.one_in(2);
        if rng.one_in(2) {
            config.window = tiny;
        }
    }
    let mut pair = Pair::new(up, down, seed);
    pair.run_for(Nanos::from_millis(200));
    pair.delay = Nanos::new(rng.below(1_000_000));
    pair.jitter = rng.below(100_000);
    pair.chunk = [0, 1, 20, 5_000][usize::try_from(rng.below(4)).unwrap()];
    let mut sent = [Vec::new(), Vec::new()];
    for _ in 0..rng.below(6) {
        pair.cut_after = rng.one_in(2).then(|| usize::try_from(rng.below(50_000)).unwrap());
        let count = u32::try_from(rng.below(60)).unwrap();
        let [to_up, to_down] = converse(&mut pair, count, Nanos::new(rng.below(300_000)));
        sent[0].extend(to_up);
        sent[1].extend(to_down);
        if rng.one_in(3) {
            pair.cut();
        }
        pair.reachable = !rng.one_in(4);
        pair.run_for(Nanos::new(rng.below(100_000_000)));
    }
    // After the network is healed, everything arrives.
    (pair.reachable, pair.cut_after) = (true, None);
    pair.run_for(Nanos::from_secs(9));
    let [to_up, to_down] = sent;
    assert_delivered(&pair.up.packets, &to_up);
    assert_delivered(&pair.down.packets, &to_down);
    assert!(!pair.up.events.iter().any(|event| event.starts_with("down")), "{:?}", pair.up.events);
}

#[test]
fn nothing_is_lost_repeated_or_reordered_over_many_seeds() {
    for seed in 0..500 {
        let result = std::panic::catch_unwind(|| campaign(seed));
        assert!(result.is_ok(), "seed {seed}");
    }
}

#[test]
fn posted_writes_pass_reads_without_credit_and_nothing_deadlocks() {
    let mut down = config("box", 2);
    let (wide, none) = (down.window.of(Lane::Posted), Amount::default());
    down.window = CreditLimits::new(wide, none, none);
    let mut pair = Pair::new(config("host", 1), down, 3);
    pair.run_for(Nanos::from_millis(200));
    let sent: Vec<_> =
        (0..600).map(|number| if number % 2 == 0 { read(number) } else { write(number, 4096) }).collect();
    sent.iter().for_each(|packet| pair.send(UP, packet.clone()));
    pair.run_for(Nanos::from_millis(100));
    assert_delivered(&pair.down.packets, &sent);
    assert!(pair.down.packets[..] != sent[..], "the window of two reads made writes pass them");
}

#[test]
fn an_exchange_takes_two_segments_and_one_acknowledgement_comes_late() {
    let mut pair = Pair::joined(4);
    pair.run_for(Nanos::from_millis(900));
    let segments = pair.segments;
    for number in 0..100 {
        pair.send(UP, read(number));
        pair.run_for(Nanos::from_micros(11));
        pair.send(DOWN, completion(number));
        pair.run_for(Nanos::from_micros(11));
    }
    assert_eq!(pair.segments - segments, 200);
    pair.run_for(Nanos::from_millis(20));
    assert_eq!(pair.segments - segments, 201, "the last completion is acknowledged alone");
    assert_eq!(pair.down.session.unacknowledged_bytes(), 0);
}

#[test]
fn segments_are_as_long_as_the_connection_takes() {
    for (most, count) in [(0, 6), (SEGMENT_MAX, 6), (48 << 10, 4), (SEGMENT_LIMIT, 3), (usize::MAX, 3)] {
        let mut pair = Pair::joined(12);
        pair.run_for(Nanos::from_millis(900));
        pair.down.session.set_segment_max(most);
        let sent: Vec<_> = (0..40).map(|number| write(number, 4096)).collect();
        let segments = |pair: &mut Pair| {
            let before = pair.down.session.statistics().segments_sent;
            sent.iter().for_each(|packet| pair.send(DOWN, packet.clone()));
            pair.run_for(Nanos::from_micros(15));
            pair.down.session.statistics().segments_sent - before
        };
        assert_eq!(segments(&mut pair), count, "segments of {most} B");
        assert_delivered(&pair.up.packets, &sent);
        // For the next connection it is said again.
        pair.cut();
        pair.run_for(Nanos::from_millis(900));
        assert_eq!(segments(&mut pair), 6);
    }
}

#[test]
fn what_waits_shares_a_segment() {
    let mut pair = Pair::joined(5);
    pair.run_for(Nanos::from_millis(900));
    let segments = pair.segments;
    (0..50).for_each(|number| pair.send(UP, write(number, 64)));
    pair.run_for(Nanos::from_micros(15));
    assert_eq!((pair.segments - segments, pair.down.packets.len()), (1, 50));
}

#[test]
fn a_restarted_peer_takes_the_link_down_and_up() {
    let mut pair = Pair::joined(6);
    pair.down.session = Session::downstream(config("other box", 9), Rng::from_seed(9));
    pair.cut();
    pair.run_for(Nanos::from_millis(500));
    let [_, interrupted, down, up] = &pair.up.events[..] else { panic!("{:?}", pair.up.events) };
    assert_eq!((interrupted.as_str(), up.as_str()), ("interrupted", "up other box"));
    let (was, is) = (InstanceId([2; 16]), InstanceId([9; 16]));
    assert_eq!(down.as_str(), std::format!("down: {}", DownReason::PeerChanged { was, is }));
}

#[test]
fn a_restarted_host_takes_the_link_down_and_up() {
    let mut pair = Pair::joined(7);
    pair.up.session = Session::upstream(config("host", 8), Rng::from_seed(9));
    pair.run_for(Nanos::from_millis(500));
    let last: Vec<_> = pair.down.events.iter().map(|event| event.split(' ').next().unwrap()).collect();
    assert_eq!(last, ["up", "interrupted", "down:", "up"]);
}

#[test]
fn past_the_hold_time_the_link_goes_down_and_comes_up_anew() {
    let mut pair = Pair::joined(8);
    pair.reachable = false;
    pair.cut();
    pair.run_for(Nanos::from_millis(500));
    pair.send(UP, write(1, 4));
    // The device's end may notice the loss only by 5 s of silence.
    pair.run_for(Nanos::from_secs(16));
    for end in [&pair.up, &pair.down] {
        assert_eq!(end.events[1..], ["interrupted".to_string(), "down: no connection for 10 s".to_string()]);
    }
    pair.reachable = true;
    pair.run_for(Nanos::from_secs(3));
    assert_eq!(pair.up.events.last().unwrap(), "up box");
    assert_eq!(pair.down.packets, [], "what waited belonged to the old link");
    pair.send(UP, write(2, 4));
    pair.run_for(Nanos::from_millis(1));
    assert_eq!(pair.down.packets, [write(2, 4)]);
}

#[test]
fn silence_is_a_lost_connection() {
    let mut pair = Pair::joined(9);
    // The world swallows everything and reports nothing.
    pair.delay = Nanos::from_secs(100);
    pair.run_for(Nanos::from_secs(7));
    assert_eq!(pair.up.events[1], "interrupted");
    assert_eq!(pair.down.events[1], "interrupted");
}

#[test]
fn clocks_are_aligned_within_the_bound() {
    for seed in 0..50 {
        let mut pair = Pair::new(config("host", 1), config("box", 2), seed);
        pair.up.skew = pair.rng.below(1 << 50);
        pair.down.skew = pair.rng.below(1 << 50);
        pair.jitter = pair.rng.below(1_000_000);
        pair.run_for(Nanos::from_secs(5));
        let truth = i64::try_from(pair.down.skew).unwrap() - i64::try_from(pair.up.skew).unwrap();
        for (end, truth) in [(&pair.up, truth), (&pair.down, -truth)] {
            let ClockAlignment { offset_ns, error } = end.session.clock().unwrap();
            assert!(offset_ns.abs_diff(truth) <= error.get(), "seed {seed}: {offset_ns} {error} {truth}");
            assert!(error <= Nanos::new(10_000 + 1_000_000));
        }
    }
}

#[test]
fn stamps_show_how_long_the_far_end_took() {
    let mut up = config("host", 1);
    up.stamps = true;
    let mut pair = Pair::new(up, config("box", 2), 1);
    pair.down.skew = 5_000_000_000;
    pair.run_for(Nanos::from_millis(200));
    pair.send(UP, read(1));
    pair.run_for(Nanos::from_micros(10));
    pair.run_for(Nanos::from_micros(123));
    pair.send(DOWN, completion(1));
    pair.run_for(Nanos::from_micros(10));
    let stamps = pair.up.arrivals[0].stamps.unwrap();
    assert_eq!(stamps.sent_at - stamps.received_at, Nanos::from_micros(123));
}

#[test]
fn a_reset_reaches_the_device_and_what_came_before_it_is_gone() {
    let mut pair = Pair::joined(10);
    pair.send(DOWN, write(1, 4));
    let now = pair.now;
    pair.up.session.reset(now);
    pair.run_for(Nanos::from_millis(1));
    pair.send(DOWN, write(2, 4));
    pair.run_for(Nanos::from_millis(1));
    assert_eq!(pair.down.events.last().unwrap(), "reset");
    assert_eq!(pair.up.packets, [write(2, 4)]);
}

#[test]
fn a_reset_survives_a_cut() {
    for cut in 0..80 {
        let mut pair = Pair::joined(11);
        pair.cut_after = Some(cut);
        let now = pair.now;
        pair.up.session.reset(now);
        pair.run_for(Nanos::from_millis(300));
        pair.send(DOWN, write(2, 4));
        pair.run_for(Nanos::from_millis(300));
        let resets = pair.down.events.iter().filter(|event| *event == "reset").count();
        assert_eq!((resets, pair.up.packets.len()), (1, 1), "{cut}");
    }
}

#[test]
fn a_close_is_reported_with_its_words_after_the_sent_bytes() {
    let mut pair = Pair::joined(12);
    pair.send(UP, write(1, 4));
    let now = pair.now;
    pair.up.session.close(now, "the host shuts down");
    pair.run_for(Nanos::from_secs(20));
    assert_eq!(pair.down.packets, [write(1, 4)]);
    assert_eq!(pair.up.events[1..], ["down: closed"]);
    assert_eq!(pair.down.events[1..], ["down: closed by the peer: the host shuts down"]);
    let now = pair.now;
    pair.up.session.restart(now);
    pair.run_for(Nanos::from_millis(100));
    assert_eq!(pair.up.events.last().unwrap(), "up box");
}

#[test]
fn two_ends_of_one_role_refuse_each_other() {
    let mut down = Session::downstream(config("a", 1), Rng::from_seed(1));
    let mut other = Session::downstream(config("b", 2), Rng::from_seed(1));
    let mut up = Session::upstream(config("c", 3), Rng::from_seed(1));
    for session in [&mut down, &mut other, &mut up] {
        session.handle_input(Instant::ZERO, Input::Connected);
    }
    // The Hello of an upstream end comes back to it.
    let Some(Output::Transmit(hello)) = up.poll_output() else { panic!("no Hello") };
    up.handle_input(Instant::ZERO, Input::Received(hello));
    let outputs: Vec<_> = core::iter::from_fn(|| up.poll_output()).collect();
    let [Output::Transmit(_), Output::CloseConnection, Output::HandshakeFailed(error)] = &outputs[..] else {
        panic!("{outputs:?}")
    };
    assert!(error.to_string().contains("Farlane"), "{error}");
}

/// Sends `frame` to an open downstream end whose peer has sent nothing else. Returns why the link
/// went down.
fn fault(frame: &Frame<'_>, sequence: u32, acknowledge: u32) -> String {
    let mut pair = Pair::joined(20);
    // Nothing is under way, so the numbers are known.
    pair.run_for(Nanos::from_millis(300));
    let mut bytes = std::vec![0; 8192];
    let number = crate::frame::Sequence::from_bits;
    let length = frame.emit(number(sequence), number(acknowledge), &mut bytes);
    let now = pair.now;
    pair.down.session.handle_input(now, Input::Received(Buffer::copy_from_slice(&bytes[..length])));
    pair.run_for(Nanos::from_millis(10));
    // The peer receives the same words.
    let reason = pair.down.events.get(1).expect("the link is still up").clone();
    let reported = pair.up.events.get(1).expect("the peer knows nothing").clone();
    let words = reason.strip_prefix("down: ").expect("the link went down");
    assert_eq!(reported, std::format!("down: closed by the peer: {words}"));
    reason
}

#[test]
fn a_peer_that_breaks_a_rule_gets_the_rule() {
    let mut tlp = [0; 32];
    let length = read(1).emit(&mut tlp);
    let tlp = &tlp[..length];
    let low = CreditLimits::default();
    let cases = [
        (Frame::Tlp(None, tlp), 5, 0, "frame 5 came where 0 is next"),
        (Frame::Ping(Instant::ZERO), 1, 0, "frame 1 came where 0 is next"),
        (Frame::Tlp(None, tlp), 0, 3, "acknowledgement 3 is not of 0 to 0"),
        (Frame::Tlp(None, &[0xff; 12]), 0, 0, "malformed TLP"),
        (Frame::Credit(low), 0, 0, "went backwards"),
        (Frame::Reset(ResetPhase::Done), 0, 0, "reset"),
        (Frame::Refuse(crate::frame::RefuseCode::InUse, ""), 0, 0, "Refuse has no place here"),
    ];
    for (frame, sequence, acknowledge, words) in cases {
        let reason = fault(&frame, sequence, acknowledge);
        assert!(reason.contains(words), "{reason}");
    }
}

#[test]
fn a_tlp_without_credit_is_an_error() {
    let mut down = config("box", 2);
    down.window =
        CreditLimits::new(down.window.of(Lane::Posted), Amount::default(), down.window.of(Lane::Completion));
    let mut down = Session::downstream(down, Rng::from_seed(1));
    let mut up = Session::upstream(config("host", 1), Rng::from_seed(2));
    up.handle_timeout(Instant::ZERO);
    up.poll_output();
    up.handle_input(Instant::ZERO, Input::Connected);
    down.handle_input(Instant::ZERO, Input::Connected);
    let Some(Output::Transmit(hello)) = up.poll_output() else { panic!("no Hello") };
    down.handle_input(Instant::ZERO, Input::Received(hello));
    while down.poll_output().is_some() {}
    // Two reads are granted, but three arrive before any is passed on.
    let mut bytes = Vec::new();
    for number in 0..3 {
        let (mut tlp, mut frame) = ([0; 32], [0; 64]);
        let length = read(number).emit(&mut tlp);
        let sequence = crate::frame::Sequence::from_bits(number);
        let length = Frame::Tlp(None, &tlp[..length]).emit(sequence, Default::default(), &mut frame);
        bytes.extend_from_slice(&frame[..length]);
    }
    down.handle_input(Instant::ZERO, Input::Received(Buffer::from(bytes)));
    let outputs: Vec<_> = core::iter::from_fn(|| down.poll_output()).collect();
    let reason = DownReason::Protocol(ProtocolError::Overdrawn(Lane::NonPosted));
    assert!(outputs.contains(&Output::LinkDown { reason }), "{outputs:?}");
}

#[test]
fn with_the_least_credit_both_ways_everything_still_arrives() {
    for stamps in [false, true] {
        let (mut up, mut down) = (config("host", 1), config("box", 2));
        (up.window, down.window) = Default::default();
        (up.stamps, down.stamps) = (stamps, stamps);
        let mut pair = Pair::new(up, down, 21);
        pair.run_for(Nanos::from_millis(200));
        let sent: Vec<_> = (0..300)
            .map(|number| match number % 3 {
                0 => read(number),
                1 => completion(number),
                _ => write(number, 4096),
            })
            .collect();
        for packet in &sent {
            pair.send(UP, packet.clone());
            pair.send(DOWN, packet.clone());
        }
        pair.run_for(Nanos::from_millis(100));
        assert_delivered(&pair.up.packets, &sent);
        assert_delivered(&pair.down.packets, &sent);
    }
}

#[test]
fn a_peer_that_takes_nothing_is_given_up_when_too_much_waits() {
    let mut pair = Pair::joined(22);
    pair.reachable = false;
    pair.cut();
    pair.run_for(Nanos::from_millis(100));
    let page = write(1, 4096);
    for _ in 0..=QUEUE_BYTES_MAX / 4096 {
        pair.send(UP, page.clone());
    }
    assert_eq!(pair.up.session.queued_bytes(), 0);
    pair.run_for(Nanos::from_millis(1));
    assert!(pair.up.events.last().unwrap().contains("wait for a peer that takes nothing"));
}

#[test]
fn what_is_kept_for_replay_is_bounded() {
    let mut down = config("box", 2);
    let wide = Amount { headers: 1 << 20, data: 1 << 28 };
    down.window = CreditLimits::new(wide, wide, wide);
    let mut pair = Pair::new(config("host", 1), down, 23);
    pair.run_for(Nanos::from_millis(200));
    pair.delay = Nanos::from_millis(50);
    let page = write(1, 4096);
    let count = 2 * REPLAY_BYTES_MAX / 4096;
    (0..count).for_each(|_| pair.send(UP, page.clone()));
    pair.run_for(Nanos::from_millis(1));
    assert_eq!(pair.up.session.unacknowledged_bytes(), REPLAY_BYTES_MAX);
    pair.run_for(Nanos::from_secs(1));
    assert_eq!(pair.down.packets.len(), count);
}

#[test]
fn a_payload_that_the_peer_does_not_take_is_dropped_and_counted() {
    let mut down = config("box", 2);
    down.max_payload = 128;
    let mut pair = Pair::new(config("host", 1), down, 24);
    pair.run_for(Nanos::from_millis(200));
    pair.send(UP, write(1, 132));
    pair.send(UP, write(2, 128));
    pair.run_for(Nanos::from_millis(1));
    assert_eq!((&pair.down.packets[..], pair.up.session.statistics().dropped), (&[write(2, 128)][..], 1));
}

#[test]
fn an_end_without_an_instance_makes_one_up() {
    let mut pair = Pair::new(Config::default(), Config::default(), 25);
    pair.run_for(Nanos::from_millis(100));
    let instances = [&pair.up, &pair.down].map(|end| end.session.peer().unwrap().instance);
    assert!(instances[0] != instances[1] && !instances.contains(&InstanceId::default()));
}

#[test]
fn a_host_that_is_asked_to_come_later_has_not_lost_the_session() {
    let mut pair = Pair::joined(24);
    pair.reachable = false;
    pair.cut();
    pair.run_for(Nanos::from_millis(50));
    let mut bytes = [0; 64];
    let first = crate::frame::Sequence::FIRST;
    let length = Frame::Refuse(crate::frame::RefuseCode::Busy, "later").emit(first, first, &mut bytes);
    let now = pair.now;
    pair.up.session.handle_input(now, Input::Connected);
    pair.up.session.handle_input(now, Input::Received(Buffer::copy_from_slice(&bytes[..length])));
    pair.reachable = true;
    pair.run_for(Nanos::from_secs(3));
    pair.send(UP, write(1, 4));
    pair.run_for(Nanos::from_millis(10));
    assert!(!pair.up.events.iter().any(|event| event.starts_with("down")), "{:?}", pair.up.events);
    assert_eq!(pair.up.events.last().unwrap(), "resumed");
    assert_eq!(pair.down.packets, [write(1, 4)]);
}

/// Everything that `session` transmits, and all its other outputs.
fn outputs_of(session: &mut Session) -> (Vec<Buffer>, Vec<Output>) {
    let (mut sent, mut said) = (Vec::new(), Vec::new());
    while let Some(output) = session.poll_output() {
        match output {
            Output::Transmit(bytes) => sent.push(bytes),
            output => said.push(output),
        }
    }
    (sent, said)
}

#[test]
fn a_box_that_stood_still_finds_connections_that_were_left_and_resumes_on_the_last() {
    let (mut up, mut down) = (config("host", 1), config("box", 2));
    for config in [&mut up, &mut down] {
        config.hold = Nanos::from_secs(60);
    }
    let mut up = Session::upstream(up, Rng::from_seed(1));
    let mut down = Session::downstream(down, Rng::from_seed(2));
    let mut now = Instant::ZERO;
    up.handle_timeout(now);
    up.poll_output();
    up.handle_input(now, Input::Connected);
    down.handle_input(now, Input::Connected);
    for _ in 0..3 {
        let (sent, _) = outputs_of(&mut up);
        sent.into_iter().for_each(|bytes| down.handle_input(now, Input::Received(bytes)));
        let (sent, _) = outputs_of(&mut down);
        sent.into_iter().for_each(|bytes| up.handle_input(now, Input::Received(bytes)));
    }
    // The device's end hears nothing of this until later: one connection after the other is made
    // and abandoned.
    up.handle_input(now, Input::Disconnected);
    let (mut left, mut waiting) = (Vec::new(), None);
    while left.len() < 3 {
        let at = up.poll_timeout().expect("the host dials again and again");
        now = at.max(now);
        up.handle_timeout(now);
        let (mut sent, said) = outputs_of(&mut up);
        if said.contains(&Output::Connect) {
            up.handle_input(now, Input::Connected);
            sent.extend(outputs_of(&mut up).0);
            waiting = Some(Vec::new());
        }
        waiting.as_mut().into_iter().for_each(|stream| stream.append(&mut sent));
        if said.contains(&Output::CloseConnection) {
            left.extend(waiting.take());
        }
    }
    for stream in left {
        down.handle_input(now, Input::Connected);
        stream.into_iter().for_each(|bytes| down.handle_input(now, Input::Received(bytes)));
        down.handle_input(now, Input::Disconnected);
        let (_, said) = outputs_of(&mut down);
        let lost = said.iter().any(|output| matches!(output, Output::Interrupted { .. }));
        assert!(lost && !said.iter().any(|output| matches!(output, Output::LinkDown { .. })), "{said:?}");
    }
    while waiting.is_none() {
        now = up.poll_timeout().expect("the host dials again").max(now);
        up.handle_timeout(now);
        if outputs_of(&mut up).1.contains(&Output::Connect) {
            up.handle_input(now, Input::Connected);
            waiting = Some(Vec::new());
        }
    }
    down.handle_input(now, Input::Connected);
    let (sent, _) = outputs_of(&mut up);
    sent.into_iter().for_each(|bytes| down.handle_input(now, Input::Received(bytes)));
    let (sent, said) = outputs_of(&mut down);
    assert!(said.contains(&Output::Resumed), "{said:?}");
    sent.into_iter().for_each(|bytes| up.handle_input(now, Input::Received(bytes)));
    assert!(outputs_of(&mut up).1.contains(&Output::Resumed));
}
