//! The right to number frames over several paths, and paths that go away and come back.

use std::process::Command;

use engine::{Instant, Nanos};

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
    // The host was first: frames from the far end to its peer count as lost.
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

fn ip(arguments: &str) {
    assert!(Command::new("ip").args(arguments.split(' ')).status().unwrap().success(), "ip {arguments}");
}

/// Looks at both ends a little later than before; returns how many frames have come to the second.
fn look(ends: &mut [Frames; 2], now: &mut Instant, later: Nanos) -> usize {
    let mut count = 0;
    *now = *now + later;
    ends[0].look(*now, |_, _| {}).unwrap();
    ends[1].look(*now, |_, _| count += 1).unwrap();
    count
}

/// The first interface gives an end its address, so it is the one that is hard to do without.
#[test]
fn a_path_whose_interfaces_are_made_anew_is_used_again() {
    if !enter_network(&INTERFACES) {
        return;
    }
    let mut ends = ["near1+near2", "far1+far2"].map(open);
    let (address, to) = (ends[0].address(), ends[0].reached(ends[1].address()));
    ends[1].claim(None).unwrap();
    ends[0].claim(Some(to)).unwrap();
    let (mut now, millis) = (Instant::ZERO, Nanos::from_millis);
    // Its peer goes with it.
    ip("link del near1");
    for _ in 0..3 {
        look(&mut ends, &mut now, millis(5));
    }
    assert!(ends.iter().all(|end| end.is_waiting() && !end.is_down()));
    let of = |end: &Frames| end.paths(to).0.iter().map(|path| path.is_failing).collect::<Vec<_>>();
    assert_eq!(of(&ends[0]), [true, false]);
    // It is there again, and too narrow for the longest frame.
    ip("link add near1 mtu 1400 type veth peer name far1 mtu 1500");
    ip("link set near1 up");
    ip("link set far1 up");
    look(&mut ends, &mut now, millis(2_000));
    assert!(ends[0].is_waiting() && !ends[1].is_waiting());
    ip("link set near1 mtu 1500");
    look(&mut ends, &mut now, millis(2_000));
    assert!(ends.iter().all(|end| !end.is_waiting()));
    assert_eq!(of(&ends[0]), [false, false]);
    // A far end's port is taken at the new interface, too.
    let error = open("far1").claim(None).unwrap_err().to_string();
    assert!(error.contains("another far end has port 0"), "{error}");
    // It alone is left.
    ip("link del near2");
    let datagram = [7; 100];
    let mut came = 0;
    while came == 0 {
        // The interfaces may just have come up.
        assert_eq!(ends[0].send(to, &datagram, datagram.len()), datagram.len());
        came = look(&mut ends, &mut now, millis(5));
    }
    assert_eq!(ends[0].address(), address);
}
