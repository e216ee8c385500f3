//! What a port is told.

use alloc::vec::Vec;

use engine::Nanos;

use super::medium::{Cable, PortLatency};
use crate::frame::{CHECK_SEQUENCE, FRAME_MIN, HEADER, PREAMBLE, TAG};
use crate::tsn::gates::GateSchedule;
use crate::tsn::preemption::Preemption;
use crate::tsn::traffic::Source;
use crate::{Class, Rate};

/// How a node treats a frame that has begun to arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forwarding {
    /// It has arrived when its last bit has; damaged frames go no further.
    #[default]
    StoreAndForward,
    /// It goes on as soon as its header is there, and nothing is in the way.
    CutThrough,
}

/// What a port hands over at the other end of its cable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handover {
    /// Whole frames.
    #[default]
    Frame,
    /// Frames whose header has arrived: the next node is a cut-through switch.
    Header,
}

/// A buffer that a frame must partly fill before it goes on: a MAC for Time-Sensitive Networking has more of
/// them than an ordinary one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FifoStage {
    /// Bytes that must be in it; a shorter frame must be in it as a whole.
    pub threshold: u32,
    /// What it takes besides.
    pub latency: Nanos,
}

impl FifoStage {
    /// What a TSN MAC adds each way in the published measurements of NVMe/TSN: the tunnel's one-way time is 3405
    /// instead of 2870 ns, 535 more. One buffer that holds the smallest frame (512 ns at 1 Gbit/s) and three clocks of
    /// 125 MHz are 536 ns. Derived: the publication says what was measured, not what is inside.
    pub const TSN_MAC: Self = Self { threshold: FRAME_MIN, latency: Nanos::new(24) };

    /// What it adds to a frame of `length` bytes.
    pub fn delay(&self, rate: Rate, length: u32) -> Nanos {
        rate.time_of(u64::from(self.threshold.min(length))) + self.latency
    }
}

/// An Ethernet port that sends: its queues, what lies between it and the next node, and who else uses it.
#[derive(Clone, Debug)]
pub struct PortSettings {
    /// Bits a second.
    pub rate: Rate,
    /// The longest payload of a frame, bytes: 1500, or 9000 for jumbo frames. Longer ones are lost.
    pub mtu: u32,
    /// Frames that each queue holds; more are lost.
    pub queue_frames: u32,
    /// The queue of each class: strict priority, or all in one.
    pub queue_of: [usize; Class::COUNT],
    /// What the node takes from a frame's arrival to its place in a queue.
    pub processing: Nanos,
    /// When a frame has arrived.
    pub forwarding: Forwarding,
    /// When a frame has arrived at the other end.
    pub handover: Handover,
    /// MACs and PHYs of both ends.
    pub latency: PortLatency,
    /// What connects them.
    pub cable: Cable,
    /// Buffers that a frame passes besides.
    pub stages: Vec<FifoStage>,
    /// Gates of the queues (802.1Qbv).
    pub gates: Option<GateSchedule>,
    /// What queues with a credit-based shaper are promised (802.1Qav).
    pub idle_slopes: [Option<Rate>; Class::COUNT],
    /// Whose frames interrupt others (802.1Qbu).
    pub preemption: Option<Preemption>,
    /// Who else sends.
    pub background: Vec<Source>,
}

impl PortSettings {
    /// Payload of an ordinary frame, bytes.
    pub const MTU: u32 = 1500;
    /// Payload of a jumbo frame, bytes.
    pub const MTU_JUMBO: u32 = 9000;
    /// Frames of a queue, if nothing else is said.
    pub const QUEUE_FRAMES: u32 = 1024;
    /// Bytes of a frame after which a cut-through switch knows where it goes: preamble, addresses, type. The simulator
    /// INET takes the same 22 (`showcases/tsn/cutthroughswitching`).
    pub const HEADER_BYTES: u64 = (PREAMBLE + HEADER) as u64;

    /// A port of `rate` without any latency, with strict priorities.
    pub const fn new(rate: Rate) -> Self {
        Self {
            rate,
            mtu: Self::MTU,
            queue_frames: Self::QUEUE_FRAMES,
            queue_of: [0, 1, 2, 3, 4, 5, 6, 7],
            processing: Nanos::ZERO,
            forwarding: Forwarding::StoreAndForward,
            handover: Handover::Frame,
            latency: PortLatency::NONE,
            cable: Cable { medium: super::medium::Medium::TwistedPair, millimetres: 0 },
            stages: Vec::new(),
            gates: None,
            idle_slopes: [None; Class::COUNT],
            preemption: None,
            background: Vec::new(),
        }
    }

    /// The longest frame that it sends, header, tag and check sequence included, bytes.
    pub const fn frame_max(&self) -> u32 {
        self.mtu.saturating_add(HEADER + TAG + CHECK_SEQUENCE)
    }

    /// What lies between the two MACs' user sides for a frame of `length` bytes, besides sending it.
    pub fn passage(&self, length: u32) -> Nanos {
        let stages = self.stages.iter().map(|stage| stage.delay(self.rate, length));
        stages.fold(self.latency.total() + self.cable.latency(), |sum, stage| sum + stage)
    }
}
