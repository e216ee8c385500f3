//! Who may number frames over several paths.

use super::super::ethernet;
use super::super::frames::Frames;
use super::*;
use crate::sys::test_bench::enter_network;

/// Two pairs of interfaces.
const INTERFACES: [&str; 6] = [
    "link add near1 type veth peer name far1",
    "link add near2 type veth peer name far2",
    "link set near1 up",
    "link set far1 up",
    "link set near2 up",
    "link set far2 up",
];

fn open(place: &str) -> Frames {
    Frames::open(place.parse().unwrap(), &Options::default()).unwrap()
}

/// How many frames have come.
fn came(frames: &mut Frames) -> usize {
    let mut count = 0;
    while frames.look(Clock::start().now(), |_, _| count += 1).unwrap() {}
    count
}

#[test]
fn a_peer_has_the_numbers_of_one_process_of_a_station() {
    if !enter_network(&INTERFACES) {
        return;
    }
    let [mut far_end, mut host, mut peer] = ["near1+near2", "near1+near2", "far1+far2"].map(open);
    let to = host.reached(peer.address());
    far_end.claim(None).unwrap();
    host.claim(Some(to)).unwrap();
    // The host was first: what the far end sends to its peer counts as lost.
    let datagram = [7; 100];
    while came(&mut peer) == 0 {
        // The interfaces may just have come up.
        assert_eq!(host.send(to, &datagram, datagram.len()), datagram.len());
    }
    while came(&mut peer) > 0 {}
    assert_eq!(far_end.send(to, &datagram, datagram.len()), datagram.len());
    assert_eq!(came(&mut peer), 0);
    // Other peers are answered.
    let other = ethernet::link_local([2, 0, 0x5e, 0, 0x53, 9], 0);
    far_end.send(other, &datagram, datagram.len());
    let third = open("near1+near2").claim(Some(other)).unwrap_err().to_string();
    assert!(third.contains("another process sends copies"), "{third}");
    // The numbers are free once the host has gone, and once the far end knows the peer no longer.
    drop(host);
    far_end.send(to, &datagram, datagram.len());
    assert!(open("near1+near2").claim(Some(to)).is_err());
    far_end.keep_peers(|_| false);
    let mut host = open("near1+near2");
    host.claim(Some(to)).unwrap();
    host.claim(Some(to)).unwrap();
    assert!(open("near1+near2").claim(None).is_err(), "a second far end");
}
