//! Two ends over interfaces, and between them a cable that damages frames in all ways, with an
//! attacker that forges frames.

use std::time::{Duration, Instant as Wall};

use engine::{Buffer, Pool, Rng};

use super::*;
use crate::sys::station::Cable;
use crate::sys::test_bench::enter_network;

/// Two pairs of interfaces. Frames get from one to the other only as [`Between`] passes them on.
const INTERFACES: [&str; 6] = [
    "link add near type veth peer name port1",
    "link add far type veth peer name port2",
    "link set near up",
    "link set port1 up",
    "link set far up",
    "link set port2 up",
];
/// Bytes of a frame's addresses and EtherType, and of its longest form.
const HEAD: usize = 14;
const FRAME_MAX: usize = 2048;
/// A station that is neither of both.
const STRANGER: [u8; 6] = [2, 0, 0x5e, 0, 0x53, 0x77];
/// The kinds of datagrams that end a connection, and say that it is not known.
const ENDING: [u8; 2] = [6, 7];

/// The rates of faults: each hits one frame in this number, or none if it is 0.
#[derive(Clone, Copy, Default)]
struct Faults {
    lost: u64,
    doubled: u64,
    late: u64,
    cut: u64,
    ruined: u64,
    forged: u64,
}

/// The cable between both pairs.
struct Between {
    sides: [Cable; 2],
    faults: Faults,
    rng: Rng,
    /// Frames that others overtake: whither, and how many pass before.
    held: Vec<(usize, u64, Vec<u8>)>,
    /// Counts of the faults, in the order of [`Faults`].
    done: [u64; 6],
}

impl Between {
    fn new(seed: u64, faults: Faults) -> Self {
        let sides = ["port1", "port2"].map(|interface| Cable::open(interface).unwrap());
        Self { sides, faults, rng: Rng::from_seed(seed), held: Vec::new(), done: [0; 6] }
    }

    fn happens(&mut self, fault: usize, one_in: u64) -> bool {
        let happens = self.rng.one_in(one_in);
        self.done[fault] += u64::from(happens);
        happens
    }

    /// Passes on the frames that have come.
    fn pump(&mut self) {
        let mut room = [0; FRAME_MAX];
        for from in 0..2 {
            while let Some(length) = self.sides[from].receive(&mut room) {
                // Neighbours that ask for each other's addresses are none of ours.
                if room[12..HEAD] == [0x88, 0xb5] {
                    self.pass(1 - from, room[..length].to_vec());
                }
            }
        }
        for (to, left, frame) in std::mem::take(&mut self.held) {
            match left {
                0 => self.put(to, &frame),
                _ => self.held.push((to, left - 1, frame)),
            }
        }
    }

    fn pass(&mut self, to: usize, mut frame: Vec<u8>) {
        let Faults { lost, doubled, late, cut, ruined, forged } = self.faults;
        if self.happens(0, lost) {
            return;
        }
        if self.happens(1, doubled) {
            self.put(to, &frame);
        }
        if self.happens(2, late) {
            let passes = 1 + self.rng.below(20);
            return self.held.push((to, passes, frame));
        }
        if self.happens(3, cut) {
            let length = HEAD as u64 + self.rng.below((frame.len() - HEAD) as u64);
            frame.truncate(usize::try_from(length).unwrap());
        }
        if self.happens(4, ruined) {
            // The link's own checks catch nearly every change: such a frame is garbage.
            let at = HEAD + usize::try_from(self.rng.below(12)).unwrap();
            let flip = u8::try_from(1 + self.rng.below(255)).unwrap();
            frame.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= flip);
        }
        if self.happens(5, forged) {
            self.forge(to, &frame);
        }
        self.put(to, &frame);
    }

    /// Sends frames that an attacker could make from `frame`: its own bytes to other stations, and
    /// ends of the connection, from another station or in another VLAN.
    fn forge(&mut self, to: usize, frame: &[u8]) {
        let number = frame.len().min(HEAD + 20);
        let mut other = frame.to_vec();
        other[6..12].copy_from_slice(&STRANGER);
        // A number that was not used yet, so that it would be taken for news.
        other.get_mut(number - 1).into_iter().for_each(|byte| *byte = byte.wrapping_add(9));
        other.iter_mut().skip(HEAD + 68).for_each(|byte| *byte = 0xee);
        self.put(to, &other);
        self.put(to, &[&frame[..12], &[0x81, 0, 0, 99], &other[12..]].concat());
        for kind in ENDING {
            let mut ending = other[..other.len().min(HEAD + 12)].to_vec();
            ending.get_mut(HEAD + 1).into_iter().for_each(|byte| *byte = kind);
            ending.get_mut(HEAD + 2..HEAD + 4).into_iter().for_each(|bytes| bytes.copy_from_slice(&[0, 12]));
            self.put(to, &ending);
        }
    }

    fn put(&self, to: usize, frame: &[u8]) {
        // Frames that the interface does not take are lost.
        let _ = self.sides[to].send(frame);
    }
}

/// Both ends, once they have met over `between`.
fn meet(between: &mut Between) -> (Listener, [Stream; 2]) {
    let clock = Clock::start();
    let listener = Listener::at("far".parse().unwrap(), &Options::default(), clock.now()).unwrap();
    let (place, station) =
        Ethernet::with_station(&format!("near/{}", listener.name().rsplit('/').next().unwrap())).unwrap();
    let mut dialer = Dialer::new((Some(place), Options::default()), vec![station], None, clock.now());
    let mut near = loop {
        between.pump();
        assert!(listener.accept().unwrap().is_none());
        match dialer.poll(clock.now()) {
            Dialled::Waiting | Dialled::Began(_) => {}
            Dialled::Failed(_, error) => panic!("{error}"),
            Dialled::Connected(stream) => break stream,
        }
    };
    near.flush().unwrap();
    let far = loop {
        between.pump();
        if let Some(far) = listener.accept().unwrap() {
            break far;
        }
        near.receive(&mut Pool::default()).unwrap();
    };
    (listener, [near, far])
}

/// Sends `length` bytes each way, and checks that they come, once and in order.
fn exchange(between: &mut Between, ends: &mut [Stream; 2], length: usize) {
    let sent: Vec<u8> = (0..=250).cycle().take(length).collect();
    let mut came = [const { Vec::new() }; 2];
    ends.iter_mut().for_each(|end| end.send(Buffer::from(sent.clone())).unwrap());
    let since = Wall::now();
    while came.iter().any(|came| came.len() < length) || ends.iter().any(|end| end.unsent() > 0) {
        let lengths = came.each_ref().map(Vec::len);
        assert!(since.elapsed() < Duration::from_secs(60), "it stopped at {lengths:?} of {length}");
        between.pump();
        for (end, came) in ends.iter_mut().zip(&mut came) {
            end.flush().unwrap();
            if let Received::Data(bytes) = end.receive(&mut Pool::default()).unwrap() {
                came.extend_from_slice(&bytes);
            }
        }
    }
    assert!(came.iter().all(|came| *came == sent), "{length} B changed on the way");
}

#[test]
fn every_byte_arrives_once_and_in_order_over_a_bad_cable() {
    if !enter_network(&INTERFACES) {
        return;
    }
    let all = Faults { lost: 30, doubled: 20, late: 20, cut: 60, ruined: 60, forged: 20 };
    let each = [
        Faults { lost: 10, ..Faults::default() },
        Faults { doubled: 3, ..Faults::default() },
        Faults { late: 5, ..Faults::default() },
        Faults { cut: 20, ..Faults::default() },
        Faults { ruined: 20, ..Faults::default() },
        Faults { forged: 1, ..Faults::default() },
        all,
    ];
    for (seed, faults) in (0..).zip(each) {
        let mut between = Between::new(seed, Faults::default());
        let (_listener, mut ends) = meet(&mut between);
        between.faults = faults;
        exchange(&mut between, &mut ends, 1 << 20);
        let Faults { lost, doubled, late, cut, ruined, forged } = faults;
        for (wanted, done) in [lost, doubled, late, cut, ruined, forged].into_iter().zip(between.done) {
            assert!((wanted > 0) == (done > 0), "seed {seed}: {:?} was done", between.done);
        }
        // Nothing but frames that did not come, or not as they were, is sent again.
        let again: u64 = ends.iter().map(|end| end.info().datagrams.lost).sum();
        let is_known = lost + late + cut + ruined == 0;
        assert!(if is_known { again == 0 } else { again > 0 || late > 0 }, "seed {seed}: {again} sent again");
    }
}

/// Copies of one frame, and frames of another station, change nothing for silent ends.
#[test]
fn forged_frames_end_no_connection_that_is_idle() {
    if !enter_network(&INTERFACES) {
        return;
    }
    let mut between = Between::new(7, Faults::default());
    let (_listener, mut ends) = meet(&mut between);
    exchange(&mut between, &mut ends, 10_000);
    between.faults.forged = 1;
    for _ in 0..50 {
        exchange(&mut between, &mut ends, 100);
    }
    assert!(between.done[5] > 50);
    assert_eq!(
        ends.each_mut().map(|end| end.receive(&mut Pool::default()).unwrap()),
        [const { Received::Nothing }; 2]
    );
}
