//! Packets of foreign stacks, over one path for each direction.
//!
//! A [`Passage`] is an engine like [`Network`](crate::Network), but without TCP. Whole IP packets
//! enter and become Ethernet frames; the packets that have arrived come out. The senders must cope
//! with losses.

use alloc::collections::VecDeque;

use engine::{Buffer, Engine, Instant};

use crate::frame::{CHECK_SEQUENCE, HEADER};
use crate::network::{Config, Side};
use crate::{Class, Counts, Frame, Hop, Path};

/// An IP packet that enters or leaves a [`Passage`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The side that sends the packet, or the side that receives it.
    pub side: Side,
    /// The packet, starting with its first header.
    pub data: Buffer,
}

/// State of the direction that begins at one side.
#[derive(Debug)]
struct Lane {
    path: Path,
    /// Total length in bytes of the frames that entered.
    bytes: u64,
    /// Number of packets that do not fit into a frame.
    too_long: u64,
}

/// An engine that carries whole packets between two sides, over one path for each direction.
#[derive(Debug)]
pub struct Passage {
    mtu: u32,
    class: Class,
    lanes: [Lane; 2],
    frames: u64,
    outputs: VecDeque<Packet>,
}

impl Passage {
    /// A passage through the given paths: from near to far, and from far to near. Of `config`, only
    /// the MTU and the class of frames are used.
    pub fn new(config: &Config, paths: [Path; 2]) -> Self {
        Self {
            mtu: config.mtu,
            class: config.class,
            lanes: paths.map(|path| Lane { path, bytes: 0, too_long: 0 }),
            frames: 0,
            outputs: VecDeque::new(),
        }
    }

    /// Counters of the frames that `side` sent. Packets that do not fit into a frame count as lost.
    pub fn counts(&self, side: Side) -> Counts {
        let lane = &self.lanes[side.index()];
        let counts = lane.path.counts();
        Counts { entered: counts.entered + lane.too_long, lost: counts.lost + lane.too_long, ..counts }
    }

    /// Total length in bytes of the frames that `side` has sent.
    pub fn bytes(&self, side: Side) -> u64 {
        self.lanes[side.index()].bytes
    }

    /// Maximum length of a packet in bytes.
    pub const fn mtu(&self) -> u32 {
        self.mtu
    }

    fn run(&mut self, now: Instant) {
        for side in Side::BOTH {
            while let Some(frame) = self.lanes[side.index()].path.poll(now) {
                self.outputs.push_back(Packet { side: side.other(), data: frame.payload });
            }
        }
    }
}

impl Engine for Passage {
    type Input<'a> = Packet;
    type Output = Packet;

    fn handle_input(&mut self, now: Instant, packet: Packet) {
        self.run(now);
        let lane = &mut self.lanes[packet.side.index()];
        let Some(length) = u32::try_from(packet.data.len()).ok().filter(|length| *length <= self.mtu) else {
            lane.too_long += 1;
            return;
        };
        self.frames += 1;
        let mut frame = Frame::new(self.frames, HEADER + length + CHECK_SEQUENCE, self.class, packet.data);
        frame.sent = now;
        lane.bytes += u64::from(frame.length);
        lane.path.enter(now, frame);
        self.run(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.run(now);
    }

    fn poll_output(&mut self) -> Option<Packet> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.lanes.iter().filter_map(|lane| lane.path.next()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Behaviour;
    use crate::{AnyHop, Chance, Faults, Rate, Wire};
    use alloc::vec::Vec;
    use engine::{Nanos, Rng, drain};

    fn wires() -> [Path; 2] {
        [10, 20].map(|latency| {
            let wire = Wire::new(Nanos::from_millis(latency), Some(Rate::from_gigabits(1)));
            Path::new([AnyHop::from(wire)])
        })
    }

    fn packet(side: Side, length: usize) -> Packet {
        Packet { side, data: Buffer::zeroed(length) }
    }

    /// The times of the packets that come out.
    fn run(passage: &mut Passage) -> Vec<(u64, Side, usize)> {
        let mut out = Vec::new();
        drain(passage, |packet| out.push((0, packet.side, packet.data.len())));
        while let Some(at) = passage.poll_timeout() {
            passage.handle_timeout(at);
            drain(passage, |packet| out.push((at.as_nanos(), packet.side, packet.data.len())));
        }
        out
    }

    #[test]
    fn a_packet_takes_the_time_of_its_frame() {
        let mut passage = Passage::new(&Config::default(), wires());
        passage.handle_input(Instant::ZERO, packet(Side::Near, 1500));
        passage.handle_input(Instant::ZERO, packet(Side::Far, 20));
        // 1518 bytes and the preamble of 8 bytes at 1 Gbit/s. The smallest frame has 64 bytes.
        assert_eq!(run(&mut passage), [(10_012_208, Side::Far, 1500), (20_000_576, Side::Near, 20)]);
        assert_eq!((passage.bytes(Side::Near), passage.bytes(Side::Far)), (1518, 64));
    }

    #[test]
    fn what_fits_into_no_frame_is_lost() {
        let mut passage = Passage::new(&Config::default(), wires());
        passage.handle_input(Instant::ZERO, packet(Side::Near, 1501));
        assert_eq!(run(&mut passage), []);
        let counts = passage.counts(Side::Near);
        assert_eq!((counts.entered, counts.lost), (1, 1));
    }

    #[test]
    fn what_a_path_loses_or_doubles_is_lost_or_doubled() {
        let behaviour =
            Behaviour { loss: Chance::percent(10), duplication: Chance::percent(10), ..Behaviour::default() };
        let paths =
            [1, 2].map(|seed| Path::new([AnyHop::from(Faults::new(behaviour, Rng::from_seed(seed)))]));
        let mut passage = Passage::new(&Config::default(), paths);
        for at in 0..1_000 {
            passage.handle_input(Instant::from_nanos(at), packet(Side::Near, 100));
        }
        let arrived = run(&mut passage).len() as u64;
        let counts = passage.counts(Side::Near);
        assert_eq!((counts.entered, counts.left), (1_000, arrived));
        assert!(counts.lost > 50 && counts.copied > 50, "{counts:?}");
        assert_eq!(passage.counts(Side::Far), Counts::default());
    }
}
