//! Start and end of connections, and their faults.

use super::*;
use crate::HALF_OPEN_MAX;
use crate::wire::{MAD_LENGTH, Mad, Message, Packet};
use rdma::Disconnected;

/// The message in a datagram, if it has one.
fn message_of(datagram: &Datagram) -> Option<Message> {
    let bytes = datagram.slices().concat();
    let packet = Packet::parse(&bytes).unwrap();
    Message::parse(&Mad::parse(&bytes[packet.payload])?)
}

#[test]
fn both_ends_hear_of_the_end() {
    for side in 0..2 {
        let mut net = Net::new(0, |_| ());
        let mut ends = net.connect();
        ends[0].post_receive(receive(5, 64)).unwrap();
        ends[side].disconnect();
        let mut events = [None, None];
        net.run("the end", |_| {
            for (event, end) in events.iter_mut().zip(&mut ends) {
                *event = event.take().or_else(|| end.poll_event());
            }
            events.iter().all(Option::is_some)
        });
        let over = Some(Event::Disconnected(Disconnected::InOrder));
        assert_eq!(events, [over.clone(), over]);
        assert_eq!(completions(&mut ends[0])[0].id, 5, "it is flushed");
        drop(ends);
        net.pass(Nanos::from_secs(20));
        assert!(net.devices.iter().all(|device| device.borrow().connections() == 0));
    }
}

#[test]
fn users_and_ports_refuse() {
    let mut net = Net::new(1, |_| ());
    net.devices[1].borrow_mut().listen(PORT);
    let mut here = RoceEndpoint::connect(&net.devices[0], net.addresses[1], PORT, b"").unwrap();
    let mut nowhere = RoceEndpoint::connect(&net.devices[0], net.addresses[1], PORT + 1, b"").unwrap();
    let mut there = None;
    net.run("the request", |net| {
        there = there.take().or_else(|| RoceEndpoint::next_requested(&net.devices[1]));
        there.is_some()
    });
    there.as_mut().unwrap().reject(b"no");
    let mut event = None;
    net.run("the refusal", |_| {
        event = here.poll_event();
        event.is_some()
    });
    assert!(
        matches!(&event, Some(Event::Rejected { private_data }) if private_data.starts_with(b"no\0")),
        "{event:?}"
    );
    assert_eq!(
        nowhere.poll_event(),
        Some(Event::Disconnected(Disconnected::Reported("no service listens at that port")))
    );
}

#[test]
fn larger_packets_than_the_path_takes_are_refused() {
    let mut net = Net::new(0, |_| ());
    let mut config = Config::new(net.addresses[0]);
    config.mtu = PathMtu::B4096;
    net.devices[0] = device(config, Entropy::Seeded(Rng::from_seed(5)));
    net.devices[1].borrow_mut().listen(PORT);
    let mut here = RoceEndpoint::connect(&net.devices[0], net.addresses[1], PORT, b"").unwrap();
    let mut event = None;
    net.run("the refusal", |_| {
        event = here.poll_event();
        event.is_some()
    });
    assert_eq!(event, Some(Event::Disconnected(Disconnected::Reported("it accepts only smaller packets"))));
}

#[test]
fn a_peer_that_does_not_answer_is_given_up() {
    let mut net = Net::new(0, |_| ());
    let mut here = RoceEndpoint::connect(&net.devices[0], "192.0.2.99".parse().unwrap(), PORT, b"").unwrap();
    let mut event = None;
    net.run("the end", |_| {
        event = here.poll_event();
        event.is_some()
    });
    assert_eq!(event, Some(Event::Disconnected(Disconnected::TimedOut)));
    let requests = net.seen.iter().filter(|(_, one)| matches!(message_of(one), Some(Message::Request(_))));
    assert_eq!(requests.count(), 8, "once and 7 times again");
    assert!(net.now - Instant::ZERO > Nanos::from_secs(10));
}

#[test]
fn a_user_that_does_not_decide_is_not_waited_for_for_ever() {
    let mut net = Net::new(0, |config| config.response_retries = 15);
    net.devices[1].borrow_mut().listen(PORT);
    let here = RoceEndpoint::connect(&net.devices[0], net.addresses[1], PORT, b"").unwrap();
    net.pass(Nanos::from_secs(30));
    let asked_to_wait =
        net.seen.iter().any(|(_, one)| matches!(message_of(one), Some(Message::MoreTime(..))));
    assert!(asked_to_wait);
    let mut there = RoceEndpoint::next_requested(&net.devices[1]).unwrap();
    assert!(RoceEndpoint::next_requested(&net.devices[1]).is_none(), "repeated requests are one");
    assert!(matches!(there.poll_event(), Some(Event::Requested { .. })));
    net.pass(Nanos::from_secs(60));
    assert_eq!(there.poll_event(), Some(Event::Disconnected(Disconnected::TimedOut)));
    drop((here, there));
    net.pass(Nanos::from_secs(60));
    assert!(net.devices.iter().all(|device| device.borrow().connections() == 0));
}

#[test]
fn connections_are_made_and_ended_over_a_bad_network() {
    for seed in 0..100 {
        let mut net = Net::new(seed, |config| config.response_retries = 15);
        net.faults = Faults { lost: 4, doubled: 3, late: 3, corrupt: 10 };
        let [mut here, mut there] = net.connect();
        here.disconnect();
        let mut ends = [false; 2];
        net.run("the end", |_| {
            for (is_over, end) in ends.iter_mut().zip([&mut here, &mut there]) {
                *is_over |= matches!(end.poll_event(), Some(Event::Disconnected(_)));
            }
            ends[0]
        });
        drop((here, there));
        net.faults = Faults::default();
        net.pass(Nanos::from_secs(60));
        assert!(net.devices.iter().all(|device| device.borrow().connections() == 0), "seed {seed}");
    }
}

/// Every datagram of a session is replayed at every later moment, and the connections survive.
#[test]
fn replayed_messages_change_nothing() {
    let mut net = Net::new(0, |_| ());
    let [mut here, mut there] = net.connect();
    let old: Vec<_> = net.seen.iter().map(|(_, one)| one.clone()).collect();
    for _ in 0..3 {
        for datagram in old.iter().rev().chain(&old) {
            net.carry(datagram.clone());
        }
        net.pass(Nanos::from_millis(1));
    }
    assert!(RoceEndpoint::next_requested(&net.devices[1]).is_none());
    there.post_receive(receive(1, 64)).unwrap();
    here.post_send(message(1, Buffer::copy_from_slice(b"still here"))).unwrap();
    net.run("the message", |_| !completions(&mut there).is_empty());
    assert_eq!((here.poll_event(), there.poll_event()), (None, None));
    drop((here, there));
    net.pass(Nanos::from_secs(1));
    for datagram in &old {
        net.carry(datagram.clone());
    }
    net.pass(Nanos::from_millis(1));
    assert!(RoceEndpoint::next_requested(&net.devices[1]).is_none(), "a late request makes no connection");
    assert!(net.devices.iter().all(|device| device.borrow().connections() == 0));
}

/// Messages truncated at each byte, with every identifier wrong, at the wrong time, or from
/// elsewhere.
#[test]
fn broken_messages_change_nothing() {
    let mut net = Net::new(0, |_| ());
    let [mut here, mut there] = net.connect();
    let old: Vec<_> = net.seen.iter().map(|(_, one)| one.clone()).collect();
    let strangers: IpAddr = "192.0.2.77".parse().unwrap();
    for datagram in &old {
        let to = net.addresses.iter().position(|address| *address == datagram.to.ip()).unwrap();
        let from = datagram.from.ip();
        let whole = datagram.slices().concat();
        let packet = Packet::parse(&whole).unwrap();
        let head = whole[..packet.payload.start].to_vec();
        let mad = &whole[packet.payload.clone()];
        let mut variants: Vec<Vec<u8>> = (0..MAD_LENGTH).map(|length| mad[..length].to_vec()).collect();
        // Identifiers, service, and each field of the header.
        for at in (0..24).chain(24..44) {
            let mut wrong = mad.to_vec();
            wrong[at] ^= 0x41;
            // Another identifier or service of the sender is another request, which may be valid.
            let is_request = matches!(message_of(datagram), Some(Message::Request(_)));
            if !((8..16).contains(&at) || is_request && (24..44).contains(&at)) {
                variants.push(wrong);
            }
        }
        for variant in variants {
            let bytes = super::hostile::signed(&head, &variant, from, net.addresses[to]);
            net.put(to, from, bytes, Nanos::ZERO);
        }
        let bytes = super::hostile::signed(&head, mad, strangers, net.addresses[to]);
        if !matches!(message_of(datagram), Some(Message::Request(_))) {
            net.put(to, strangers, bytes, Nanos::ZERO);
        }
    }
    net.pass(Nanos::from_millis(1));
    assert!(RoceEndpoint::next_requested(&net.devices[1]).is_none());
    there.post_receive(receive(1, 64)).unwrap();
    here.post_send(message(1, Buffer::copy_from_slice(b"still here"))).unwrap();
    net.run("the message", |_| !completions(&mut there).is_empty());
    assert_eq!((here.poll_event(), there.poll_event()), (None, None));
}

#[test]
fn half_open_connections_are_limited_and_time_out() {
    let mut net = Net::new(0, |_| ());
    net.devices[1].borrow_mut().listen(PORT);
    // Many peers send a request and nothing more.
    let first = RoceEndpoint::connect(&net.devices[0], net.addresses[1], PORT, b"").unwrap();
    net.settle(0);
    let asked = net.seen[0].1.slices().concat();
    drop(first);
    net.under_way.clear();
    let packet = Packet::parse(&asked).unwrap();
    let (head, mad) = (asked[..packet.payload.start].to_vec(), asked[packet.payload].to_vec());
    let peer: IpAddr = "192.0.2.50".parse().unwrap();
    for number in 0..u32::try_from(HALF_OPEN_MAX).unwrap() + 50 {
        let mut mad = mad.clone();
        mad[24..28].copy_from_slice(&number.to_be_bytes());
        let bytes = super::hostile::signed(&head, &mad, peer, net.addresses[1]);
        net.put(1, peer, bytes, Nanos::ZERO);
    }
    net.step();
    let counters = net.devices[1].borrow().counters();
    assert_eq!((net.devices[1].borrow().connections(), counters.overflowed), (HALF_OPEN_MAX, 50));
    // Half of them are accepted, and the peer never reports that it is ready.
    let mut kept = Vec::new();
    for _ in 0..HALF_OPEN_MAX / 2 {
        let mut one = RoceEndpoint::next_requested(&net.devices[1]).unwrap();
        one.accept(b"");
        kept.push(one);
    }
    net.pass(Nanos::from_secs(61));
    drop(kept);
    net.pass(Nanos::from_secs(30));
    assert_eq!(net.devices[1].borrow().connections(), 0);
    // Other peers can connect again.
    net.connect();
}

/// The number of messages to an address that requests a connection once, and sends nothing more.
fn messages_to_silence(then: impl Fn(&mut RoceEndpoint)) -> usize {
    let mut net = Net::new(0, |_| ());
    net.devices[1].borrow_mut().listen(PORT);
    let here = RoceEndpoint::connect(&net.devices[0], net.addresses[1], PORT, b"").unwrap();
    net.settle(0);
    let asked = net.seen[0].1.slices().concat();
    drop(here);
    net.under_way.clear();
    let packet = Packet::parse(&asked).unwrap();
    let peer: IpAddr = "192.0.2.50".parse().unwrap();
    let (head, body) = (&asked[..packet.payload.start], &asked[packet.payload.clone()]);
    let bytes = super::hostile::signed(head, body, peer, net.addresses[1]);
    let length = bytes.len();
    net.put(1, peer, bytes, Nanos::ZERO);
    net.step();
    net.seen.clear();
    if let Some(mut there) = RoceEndpoint::next_requested(&net.devices[1]) {
        there.accept(b"");
        net.pass(Nanos::from_secs(3));
        then(&mut there);
        net.pass(Nanos::from_secs(90));
    }
    assert_eq!(net.devices[1].borrow().connections(), 0);
    let answers: Vec<_> = net.seen.iter().filter(|(_, one)| one.to.ip() == peer).collect();
    let sent: usize = answers.iter().map(|(_, one)| one.slices().concat().len()).sum();
    assert!(sent <= 3 * length, "{sent} bytes for {length}");
    answers.len()
}

#[test]
fn an_address_that_may_be_another_machines_gets_three_messages_at_most() {
    assert_eq!(messages_to_silence(RoceEndpoint::disconnect), 3, "the user ends it");
    assert_eq!(messages_to_silence(|_| ()), 3, "the time ends it");
}

#[test]
fn an_end_says_that_it_is_ready_until_the_peer_knows() {
    let mut net = Net::new(0, |_| ());
    net.devices[1].borrow_mut().listen(PORT);
    let mut here = RoceEndpoint::connect(&net.devices[0], net.addresses[1], PORT, b"").unwrap();
    let mut there = None;
    net.run("the request", |net| {
        there = there.take().or_else(|| RoceEndpoint::next_requested(&net.devices[1]));
        there.is_some()
    });
    let mut there = there.unwrap();
    there.accept(b"");
    net.run("the reply", |_| matches!(here.poll_event(), Some(Event::Established { .. })));
    // All messages of the first end in the next seconds are lost.
    net.settle(0);
    net.under_way.clear();
    net.faults.lost = 1;
    net.pass(Nanos::from_secs(3));
    net.faults.lost = 0;
    net.pass(Nanos::from_secs(10));
    assert!(matches!(there.poll_event(), Some(Event::Requested { .. })));
    assert!(matches!(there.poll_event(), Some(Event::Established { .. })));
    let ready = |net: &Net| {
        net.seen.iter().filter(|(_, one)| matches!(message_of(one), Some(Message::ReadyToUse(_)))).count()
    };
    // It stops the repetition once the peer has sent something.
    there.post_send(message(1, Buffer::copy_from_slice(b"heard"))).unwrap();
    here.post_receive(receive(5, 64)).unwrap();
    net.run("the message", |_| !completions(&mut here).is_empty());
    let before = ready(&net);
    net.pass(Nanos::from_secs(60));
    assert_eq!(ready(&net), before);
}

#[test]
fn a_device_without_network_ends_its_connections_and_makes_new_ones() {
    let mut net = Net::new(0, |_| ());
    let [mut here, there] = net.connect();
    here.post_receive(receive(1, 100)).unwrap();
    here.post_send(message(2, Buffer::zeroed(9))).unwrap();
    let before = net.seen.len();
    net.devices[0].borrow_mut().cut();
    net.pass(Nanos::from_secs(1));
    assert_eq!(net.seen.len(), before, "peers are not informed");
    assert_eq!(here.poll_event(), Some(Event::Disconnected(Disconnected::NetworkFailed)));
    assert!(completions(&mut here).iter().all(|one| one.result == Err(rdma::WorkError::Flushed)));
    drop(here);
    assert_eq!(net.devices[0].borrow().connections(), 0);
    let [mut here, mut again] = net.connect();
    again.post_receive(receive(1, 100)).unwrap();
    here.post_send(message(2, Buffer::zeroed(9))).unwrap();
    net.run("the message", |_| !completions(&mut again).is_empty());
    drop(there);
}
