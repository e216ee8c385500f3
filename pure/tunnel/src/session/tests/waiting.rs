//! Packets that have arrived and wait to be polled while something else happens.

use super::*;
use engine::Buffer;

/// Number of packets, which fill more than one segment.
const PACKETS: u32 = 20;

fn pages() -> Vec<Packet> {
    (0..PACKETS).map(|number| write(number, 4096)).collect()
}

fn pieces(session: &mut Session) -> Vec<Buffer> {
    let next = || match session.poll_output() {
        Some(Output::Transmit(piece)) => Some(piece),
        _ => None,
    };
    core::iter::from_fn(next).collect()
}

/// The stream that consists of the pieces.
fn joined(pieces: &[Buffer]) -> Vec<u8> {
    pieces.iter().flat_map(|piece| piece.iter().copied()).collect()
}

fn received(session: &mut Session) -> Vec<Packet> {
    let mut packets = Vec::new();
    while session.has_received() {
        if let Some(Output::Tlp { packet, .. }) = session.poll_output() {
            packets.push(packet);
        }
    }
    packets
}

#[test]
fn pages_arrive_whole_whether_they_are_polled_between_pieces_or_not() {
    for polled in [true, false] {
        let mut pair = Pair::joined(1);
        let packets = pages();
        for packet in &packets {
            pair.up.session.send(pair.now, packet.clone());
        }
        let pieces = pieces(&mut pair.up.session);
        let mut found = Vec::new();
        for piece in joined(&pieces).chunks(10_000) {
            pair.down.session.handle_input(pair.now, Input::Received(Buffer::copy_from_slice(piece)));
            if polled {
                found.extend(received(&mut pair.down.session));
            }
        }
        found.extend(received(&mut pair.down.session));
        assert_eq!(found, packets);
    }
}

#[test]
fn a_close_comes_behind_what_was_received_before_it() {
    let mut pair = Pair::joined(2);
    let packets = pages();
    for packet in &packets {
        pair.up.session.send(pair.now, packet.clone());
    }
    let Some(Output::Transmit(first)) = pair.up.session.poll_output() else {
        panic!("there is much to send")
    };
    pair.up.session.close(pair.now, "enough");
    let mut stream = first.to_vec();
    stream.extend(joined(&pieces(&mut pair.up.session)));
    pair.down.session.handle_input(pair.now, Input::Received(Buffer::copy_from_slice(&stream)));
    let outputs: Vec<Output> = core::iter::from_fn(|| pair.down.session.poll_output()).collect();
    let found: Vec<Packet> = outputs
        .iter()
        .filter_map(
            |output| if let Output::Tlp { packet, .. } = output { Some(packet.clone()) } else { None },
        )
        .collect();
    assert_eq!(found, packets);
    let closed = |output: &Output| matches!(output, Output::LinkDown { reason: DownReason::ClosedByPeer { text, .. } } if text == "enough");
    assert!(closed(outputs.last().unwrap()), "{:?}", outputs.last());
}

#[test]
fn what_was_received_before_a_connection_was_lost_still_comes_out_before_the_news() {
    let mut pair = Pair::joined(3);
    let packets = pages();
    for packet in &packets {
        pair.up.session.send(pair.now, packet.clone());
    }
    let stream = joined(&pieces(&mut pair.up.session));
    pair.down.session.handle_input(pair.now, Input::Received(Buffer::copy_from_slice(&stream)));
    assert!(pair.down.session.has_received());
    pair.down.session.handle_input(pair.now, Input::Disconnected);
    let outputs: Vec<Output> = core::iter::from_fn(|| pair.down.session.poll_output()).collect();
    assert!(outputs[..packets.len()].iter().all(|output| matches!(output, Output::Tlp { .. })));
    assert!(matches!(outputs[packets.len()], Output::Interrupted { .. }), "{:?}", outputs[packets.len()]);
}

#[test]
fn what_is_polled_late_arms_no_deadline_that_has_passed() {
    let mut pair = Pair::joined(4);
    pair.up.session.send(pair.now, write(0, 4096));
    let stream = joined(&pieces(&mut pair.up.session));
    pair.down.session.handle_input(pair.now, Input::Received(Buffer::copy_from_slice(&stream)));
    let late = pair.now + pair.down.session.config.acknowledge_delay * 2;
    let mut packets = 0;
    let wake = engine::settle(&mut pair.down.session, late, |output| {
        packets += u32::from(matches!(output, Output::Tlp { .. }));
    });
    assert!(packets == 1 && wake.is_some_and(|at| at > late));
}
