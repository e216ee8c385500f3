//! Packets that a peer must not send, at each state of a connection.

use super::*;
use crate::icrc::Route;
use crate::wire::Packet;
use engine::crc32;
use rdma::{Disconnected, Exposure};

/// A packet with valid padding of `body` and a valid CRC.
pub(super) fn signed(head: &[u8], body: &[u8], from: IpAddr, to: IpAddr) -> Vec<u8> {
    let mut bytes = [head, body].concat();
    if bytes.len() < 12 {
        bytes.resize(12, 0);
    }
    let pad = bytes.len().wrapping_neg() & 3;
    bytes[1] = bytes[1] & !0x30 | u8::try_from(pad).unwrap() << 4;
    bytes.resize(bytes.len() + pad, 0);
    let route = Route { from: (from, crate::PORT).into(), to: (to, crate::PORT).into(), identification: 0 };
    let icrc = route.icrc(crc32, [&bytes, &[], &[]]);
    bytes.extend(icrc);
    bytes
}

/// Any packet in place of one of a session: the device neither panics nor hangs, and another
/// connection is not disturbed.
#[test]
fn hostile_packets_end_one_connection_at_most() {
    for seed in 0..400 {
        let mut rng = Rng::from_seed(seed).fork("hostile");
        let mut net = Net::new(seed, |_| ());
        let [mut good, mut good_there] = net.connect();
        let [mut here, mut there] = net.connect();
        let skip = net.seen.len();
        let lent = there.register(Exposure::Read(Buffer::zeroed(5000))).unwrap();
        let room = there.register(Exposure::Write(5000)).unwrap();
        for id in 0..2 {
            there.post_receive(receive(id, 2000)).unwrap();
            here.post_receive(receive(id, 2000)).unwrap();
        }
        for operation in [
            message(1, Buffer::zeroed(1500)).operation,
            Operation::Write { data: Buffer::zeroed(3000), remote: lent_part(room, 3000) },
            Operation::Read { remote: lent_part(lent, 5000) },
        ] {
            here.post_send(SendRequest { id: 1, operation, signalled: true }).unwrap();
        }
        let steps = rng.below(12);
        for _ in 0..steps {
            net.step();
        }
        for _ in 0..20 {
            let packets = &net.seen[skip.min(net.seen.len())..];
            if packets.is_empty() {
                break;
            }
            let (_, one) = &packets[usize::try_from(rng.below(packets.len() as u64)).unwrap()];
            let one = one.clone();
            let to = net.addresses.iter().position(|address| *address == one.to.ip()).unwrap();
            let whole = one.slices().concat();
            let packet = Packet::parse(&whole).unwrap();
            let mut head = whole[..packet.payload.start].to_vec();
            let mut body = whole[packet.payload].to_vec();
            match rng.below(4) {
                0 => head[0] = u8::try_from(rng.below(24)).unwrap(),
                1 => head[11] = head[11].wrapping_add(u8::try_from(rng.below(8)).unwrap()),
                2 => body.truncate(usize::try_from(rng.below(body.len() as u64 + 1)).unwrap()),
                _ => {
                    // All fields but the queue pair, which could name another connection.
                    let at = [0, 9, 10, 11, head.len() - 1];
                    let at = at[usize::try_from(rng.below(5)).unwrap()];
                    head[at] = u8::try_from(rng.below(256)).unwrap();
                }
            }
            let bytes = signed(&head, &body, one.from.ip(), one.to.ip());
            net.put(to, one.from.ip(), bytes, Nanos::ZERO);
        }
        net.pass(Nanos::from_secs(20));
        for end in [&mut here, &mut there] {
            let done = completions(end);
            assert!(done.len() <= 5, "seed {seed}: {done:?}");
        }
        good_there.post_receive(receive(1, 64)).unwrap();
        good.post_send(message(1, Buffer::copy_from_slice(b"still here"))).unwrap();
        net.run(&format!("seed {seed}: the other connection"), |_| !completions(&mut good_there).is_empty());
        assert_eq!((good.poll_event(), good_there.poll_event()), (None, None));
    }
}

fn lent_part(remote: rdma::Remote, length: u32) -> rdma::Remote {
    rdma::Remote { length, ..remote }
}

/// The answer of device 0 to this packet of its peer.
fn answer_to(net: &mut Net, head: &[u8], body: &[u8]) {
    let [to, from] = [net.addresses[0], net.addresses[1]];
    let bytes = signed(head, body, from, to);
    net.put(0, from, bytes, Nanos::ZERO);
    net.step();
    net.step();
}

/// The headers of the last packet that device 0 has sent.
fn last_sent(net: &Net) -> Vec<u8> {
    let from = net.addresses[0];
    let (_, last) = net.seen.iter().rfind(|(_, one)| one.from.ip() == from).unwrap();
    last.slices().concat()
}

/// The queue pair of device 0's connection.
fn queue_pair(net: &Net) -> [u8; 3] {
    let from = net.addresses[1];
    let (_, one) = net.seen.iter().rfind(|(_, one)| one.from.ip() == from).unwrap();
    let bytes = one.slices().concat();
    bytes[5..8].try_into().unwrap()
}

#[test]
fn unsent_packets_cannot_be_acknowledged() {
    let mut net = Net::new(0, |_| ());
    let [mut here, mut there] = net.connect();
    there.post_receive(receive(0, 64)).unwrap();
    here.post_send(message(1, Buffer::copy_from_slice(b"one"))).unwrap();
    net.run("the message", |_| !completions(&mut here).is_empty());
    let sent = last_sent(&net);
    let [a, b, c] = queue_pair(&net);
    let number = u32::from_be_bytes([0, sent[9], sent[10], sent[11]]);
    here.post_send(message(2, Buffer::copy_from_slice(b"two"))).unwrap();
    for ahead in [2, 3, 100, 0x7f_ffff] {
        let [_, x, y, z] = (number.wrapping_add(ahead) & 0xff_ffff).to_be_bytes();
        let head = [17, 0x40, 0xff, 0xff, 0, a, b, c, 0, x, y, z, 0x1f, 0, 0, 9];
        answer_to(&mut net, &head, &[]);
    }
    assert!(completions(&mut here).is_empty());
    assert_eq!(here.poll_event(), None);
    there.post_receive(receive(0, 64)).unwrap();
    net.run("the message", |_| !completions(&mut here).is_empty());
}

#[test]
fn an_answer_to_no_read_ends_the_connection() {
    let mut net = Net::new(0, |_| ());
    let [mut here, mut there] = net.connect();
    there.post_receive(receive(0, 64)).unwrap();
    here.post_send(message(1, Buffer::copy_from_slice(b"one"))).unwrap();
    net.run("the message", |_| !completions(&mut here).is_empty());
    let sent = last_sent(&net);
    let [a, b, c] = queue_pair(&net);
    here.post_send(message(2, Buffer::copy_from_slice(b"two"))).unwrap();
    net.settle(0);
    let number = u32::from_be_bytes([0, sent[9], sent[10], sent[11]]) + 1;
    let [_, x, y, z] = (number & 0xff_ffff).to_be_bytes();
    let head = [16, 0x40, 0xff, 0xff, 0, a, b, c, 0, x, y, z, 0x1f, 0, 0, 2];
    answer_to(&mut net, &head, &[1, 2, 3, 4]);
    let done = completions(&mut here);
    assert_eq!(done[0].result, Err(rdma::WorkError::BadResponse), "{done:?}");
    assert!(matches!(here.poll_event(), Some(Event::Disconnected(Disconnected::PeerFault(_)))));
}

#[test]
fn an_unimplemented_request_is_an_invalid_request() {
    let mut net = Net::new(0, |_| ());
    let [mut here, mut there] = net.connect();
    here.post_receive(receive(0, 64)).unwrap();
    there.post_send(message(1, Buffer::copy_from_slice(b"one"))).unwrap();
    net.run("the message", |_| !completions(&mut here).is_empty());
    net.pass(Nanos::from_millis(1));
    let from = net.addresses[1];
    let (_, one) = net.seen.iter().rfind(|(_, one)| one.from.ip() == from).unwrap();
    let sent = one.slices().concat();
    let number = u32::from_be_bytes([0, sent[9], sent[10], sent[11]]) + 1;
    let [_, x, y, z] = (number & 0xff_ffff).to_be_bytes();
    // Compare and swap, with its header of 28 bytes.
    let mut head = vec![19, 0x40, 0xff, 0xff, 0, sent[5], sent[6], sent[7], 0x80, x, y, z];
    head.resize(12 + 28, 0);
    answer_to(&mut net, &head, &[]);
    assert!(matches!(here.poll_event(), Some(Event::Disconnected(Disconnected::PeerFault(_)))));
    let negative = net.seen.iter().any(|(_, one)| {
        let bytes = one.slices().concat();
        one.to.ip() == from && bytes[0] == 17 && bytes[12] == 0x61
    });
    assert!(negative, "a negative acknowledgement");
}
