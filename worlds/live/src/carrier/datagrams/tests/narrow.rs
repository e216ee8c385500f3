//! Interfaces that carry less than two ends need to meet.

use super::super::frames::Frames;
use super::*;
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
