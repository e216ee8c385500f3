//! Lanes over a pair of interfaces in a network namespace of the test's own.

use std::time::{Duration, Instant};

use super::*;
use crate::sys::station::{Departing, Station};
use crate::sys::test_bench::enter_network;

const ETHER_TYPE: u16 = 0x88b5;
/// The names of a far end.
const FAR: Receiver = Receiver::Begins([0x80, 0x80]);

/// Gives this thread a network with the interfaces `near` and `far`, and opens a station at each.
/// `None` where that can't be.
fn stations() -> Option<[Station; 2]> {
    let pair = ["link add near type veth peer name far", "link set near up", "link set far up"];
    if !enter_network(&pair) {
        return None;
    }
    Some(["near", "far"].map(|interface| Station::open(interface, ETHER_TYPE).unwrap()))
}

fn lane(station: &Station, receiver: Receiver) -> io::Result<Lane> {
    let wanted = Wanted { mac: station.mac(), ether_type: ETHER_TYPE, kinds: 3..=5, receiver };
    Lane::open(station.index(), &wanted)
}

/// A datagram as the program sees it, of `length` bytes, the last of which is `mark`.
fn datagram(kind: u8, receiver: [u8; 8], length: usize, mark: u8) -> Vec<u8> {
    let mut bytes = [&[1, kind, 0, 0][..], &receiver].concat();
    bytes.resize(length, 0x5a);
    bytes[length - 1] = mark;
    bytes
}

fn head(from: &Station, to: &Station) -> Head {
    Departing { from: from.mac(), to: to.mac(), tag: None, behind: &ETHER_TYPE.to_be_bytes() }.head()
}

/// Looks until there are `count` frames in `came`, which `look` appends to.
fn until(count: usize, came: &mut Vec<Vec<u8>>, mut look: impl FnMut(&mut Vec<Vec<u8>>)) {
    let since = Instant::now();
    while came.len() < count {
        assert!(since.elapsed() < Duration::from_secs(10), "{} of {count} frames came", came.len());
        look(came);
    }
}

#[test]
fn a_lane_carries_what_is_wanted_and_leaves_the_rest() {
    let Some([near, mut far]) = stations() else { return };
    let (own, other) = ([0x80, 0x80, 2, 3, 4, 5, 6, 7], [0x70, 1, 2, 3, 4, 5, 6, 7]);
    let mut lanes = match lane(&near, Receiver::Named(other)).and_then(|near| Ok([near, lane(&far, FAR)?])) {
        Ok(lanes) => lanes,
        Err(error) => {
            eprintln!("SKIPPED: AF_XDP can't be used here: {error}");
            return;
        }
    };
    let [from, to] = &mut lanes;
    assert!(from.to_string().starts_with("AF_XDP"));
    let head = head(&near, &far);
    // Many times as many frames as the rings hold, of all lengths.
    for round in 0..100_u8 {
        let sent: Vec<_> =
            (0..64).map(|index| datagram(3 + index % 3, own, 40 + usize::from(round) * 14, index)).collect();
        assert_eq!(from.send_all(sent.iter().map(|piece| (&head, &piece[..]))), sent.len());
        let mut came = Vec::new();
        until(sent.len(), &mut came, |came| {
            to.look(|sender, bytes| {
                assert_eq!(sender, near.mac());
                came.push(bytes.to_vec());
            });
        });
        assert!(came == sent, "round {round}");
    }
    // Frames that the lane is not for reach the station.
    let rest = [datagram(1, own, 80, 1), datagram(3, other, 80, 2), datagram(7, own, 80, 3)];
    from.send_all(rest.iter().map(|piece| (&head, &piece[..])));
    let mut came = Vec::new();
    until(rest.len(), &mut came, |came| {
        far.look(engine::Instant::ZERO, |frame| came.push(frame.bytes.to_vec())).unwrap();
    });
    assert!(came == rest && !to.look(|_, _| ()));
    // The queue has one user.
    assert_eq!(lane(&far, FAR).unwrap_err().raw_os_error(), Some(libc::EBUSY));
    // Without the lane, the station has all frames.
    let [mut from, to] = lanes;
    drop(to);
    let piece = datagram(3, own, 80, 4);
    from.send_all([(&head, &piece[..])].into_iter());
    let mut came = Vec::new();
    until(1, &mut came, |came| {
        far.look(engine::Instant::ZERO, |frame| came.push(frame.bytes.to_vec())).unwrap();
    });
    assert!(came == [piece]);
}

#[test]
fn a_receiver_that_does_not_look_loses_frames_and_nothing_else() {
    let Some([near, far]) = stations() else { return };
    let own = [0x80; 8];
    let Ok(mut to) = lane(&far, FAR) else { return };
    let Ok(mut from) = lane(&near, Receiver::Named([1; 8])) else { return };
    let head = head(&near, &far);
    let piece = datagram(3, own, 1000, 0);
    let mut sent = 0;
    for _ in 0..200 {
        sent += from.send_all(std::iter::repeat_n((&head, &piece[..]), 64));
    }
    assert_eq!(sent, 200 * 64);
    let mut came = 0;
    while to.look(|_, bytes| came += usize::from(bytes == piece)) {}
    assert_eq!(came, ENTRIES as usize);
    // Afterwards frames come as before.
    let last = datagram(3, own, 1000, 1);
    from.send_all([(&head, &last[..])].into_iter());
    let mut came = Vec::new();
    until(1, &mut came, |came| {
        to.look(|_, bytes| came.push(bytes.to_vec()));
    });
    assert!(came == [last]);
}
