//! Interfaces that carry less than two ends need to meet, nothing any more, or frames of others.

use std::process::Command;
use std::time::Duration;

use datagrams::redundancy;
use engine::{Instant, Nanos};

use super::super::ethernet;
use super::super::frames::Frames;
use super::*;
use crate::sys::station::Cable;
use crate::sys::test_bench::enter_network;

#[test]
fn an_interface_of_a_small_mtu_is_refused() {
    let interfaces =
        ["link add near mtu 1203 type veth peer name far mtu 1500", "link set near up", "link set far up"];
    if !enter_network(&interfaces) {
        return;
    }
    let open = |place: &str| {
        let opened = Frames::open(place.parse().unwrap(), &Options::default());
        opened.map(|frames| frames.datagram_max()).map_err(|error| error.to_string())
    };
    assert_eq!(open("near"), Ok(1203));
    // Copies have a tag each.
    assert_eq!(open("far+near"), Err("near: its MTU is 1203 bytes, and at least 1206 are needed".to_owned()));
    assert_eq!(open("far"), Ok(1500));
}

#[test]
fn an_interface_that_is_deleted_is_gone_and_one_that_is_down_is_not() {
    let interfaces = ["link add near type veth peer name far", "link set near up", "link set far up"];
    if !enter_network(&interfaces) {
        return;
    }
    let mut frames = Frames::open("near".parse().unwrap(), &Options::default()).unwrap();
    let mut now = Instant::ZERO;
    for (command, expected) in
        [("link set near down", None), ("link set near up", None), ("link del near", Some("near: "))]
    {
        assert!(Command::new("ip").args(command.split(' ')).status().unwrap().success(), "{command}");
        // The socket reports once that the interface went down.
        for _ in 0..3 {
            now = now + Nanos::from_millis(5);
            let looked = frames.look(now, |_, _| {}).map_err(|error| error.to_string());
            match expected {
                None => assert_eq!(looked, Ok(false), "{command}"),
                Some(begin) => assert!(looked.is_err_and(|error| error.starts_with(begin)), "{command}"),
            }
        }
        assert_eq!(frames.is_down(), command != "link set near up", "{command}");
    }
}

#[test]
fn interfaces_that_are_asked_for_one_after_the_other_may_all_be_gone() {
    let interfaces = [
        "link add near1 type veth peer name far1",
        "link add near2 type veth peer name far2",
        "link set near1 up",
        "link set far1 up",
        "link set near2 up",
        "link set far2 up",
    ];
    if !enter_network(&interfaces) {
        return;
    }
    let mut frames = Frames::open("near1+near2".parse().unwrap(), &Options::default()).unwrap();
    let cable = Cable::open("far1").unwrap();
    let frame = [&[0xff; 12][..], &redundancy::ETHER_TYPE.to_be_bytes(), &[0; 60]].concat();
    // An interface that brings something is not asked for in this look, and the other one is.
    let mut now = Instant::ZERO;
    while !frames.look(now, |_, _| {}).unwrap() {
        // The interfaces may just have come up, so that the first frames get lost.
        let _ = cable.send(&frame);
        std::thread::sleep(Duration::from_millis(1));
        now = now + Nanos::from_millis(5);
    }
    for interface in ["near1", "near2"] {
        assert!(Command::new("ip").args(["link", "del", interface]).status().unwrap().success());
    }
    let mut look = |micros| frames.look(now + Nanos::from_micros(micros), |_, _| {});
    assert!(look(500).is_ok(), "the second one was asked for half a millisecond ago");
    assert!(look(1_200).is_err());
}

#[test]
fn a_deleted_interface_keeps_no_other_listener_from_accepting() {
    let interfaces =
        ["link set lo up", "link add near type veth peer name far", "link set near up", "link set far up"];
    if !enter_network(&interfaces) {
        return;
    }
    let clock = Clock::start();
    let at = Listener::at("near".parse().unwrap(), &Options::default(), clock.now()).unwrap();
    let listeners = [at, listen(clock)];
    assert!(Command::new("ip").args(["link", "del", "near"]).status().unwrap().success());
    let accept = || {
        // Longer than until it is asked again whether the interface is there.
        std::thread::sleep(Duration::from_millis(2));
        Listener::accept_any(&listeners)
    };
    let address = listeners[1].address();
    let mut dialer = Dialer::new((None, Options::default()), vec![address], None, clock.now());
    let mut near = loop {
        assert!(accept().unwrap().is_none(), "the interface is gone, and no peer has answered");
        match dialer.poll(clock.now()) {
            Dialled::Waiting | Dialled::Began(_) => {}
            Dialled::Failed(_, error) => panic!("{error}"),
            Dialled::Connected(stream) => break stream,
        }
    };
    near.flush().unwrap();
    while !matches!(accept(), Ok(Some(_))) {
        near.receive(&mut Pool::default()).unwrap();
    }
}

#[test]
fn a_vlan_of_another_network_is_none_of_ours() {
    if !enter_network(&["link add near type veth peer name far", "link set near up", "link set far up"]) {
        return;
    }
    let mut frames = Frames::open("far,vlan=9".parse().unwrap(), &Options::default()).unwrap();
    let near = Cable::open("near").unwrap();
    let to = ethernet::station(frames.address()).unwrap();
    // The tag's type comes again as the first byte behind the EtherType.
    let frame = |kind: [u8; 2]| {
        [&to[..], &[2, 0, 0x5e, 0, 0x53, 1], &kind, &[0, 9, 0x88, 0xb5, kind[0]], &[0; 60]].concat()
    };
    let mut seen = Vec::new();
    // The interfaces may just have come up, so that the first frames get lost.
    while seen.iter().filter(|kind| **kind == 0x81).count() < 3 {
        for kind in [[0x88, 0xa8], [0x81, 0]] {
            let _ = near.send(&frame(kind));
        }
        frames.look(Clock::start().now(), |_, bytes| seen.push(bytes[0])).unwrap();
    }
    assert!(seen.iter().all(|kind| *kind == 0x81), "{seen:x?}");
}
