//! Settings of a port.

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
    /// The frame goes on when its last bit has arrived; a damaged frame goes no further.
    #[default]
    StoreAndForward,
    /// The frame goes on as soon as its header has arrived and nothing is in the way.
    CutThrough,
}

/// When a port hands over a frame at the other end of its cable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handover {
    /// When the whole frame has arrived.
    #[default]
    Frame,
    /// When the frame's header has arrived, because the next node is a cut-through switch.
    Header,
}

/// A buffer that a frame must partly fill before it goes on. A MAC for Time-Sensitive Networking
/// has more of these buffers than an ordinary MAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FifoStage {
    /// Number of bytes that must be in the buffer. A shorter frame must be in the buffer as a
    /// whole.
    pub threshold: u32,
    /// Additional latency of the buffer.
    pub latency: Nanos,
}

impl FifoStage {
    /// The delay that a TSN MAC adds each way in the published measurements of NVMe/TSN. The
    /// tunnel's one-way time is 3405 ns instead of 2870 ns, which is 535 ns more. One buffer that
    /// holds the smallest frame (512 ns at 1 Gbit/s) and three clocks of 125 MHz are 536 ns.
    /// Derived: the publication gives the measurement, not the internals.
    pub const TSN_MAC: Self = Self { threshold: FRAME_MIN, latency: Nanos::new(24) };

    /// Delay that the buffer adds to a frame of `length` bytes.
    pub fn delay(&self, rate: Rate, length: u32) -> Nanos {
        rate.time_of(u64::from(self.threshold.min(length))) + self.latency
    }
}

/// An Ethernet port that sends: its queues, the link to the next node, and the background traffic.
#[derive(Clone, Debug)]
pub struct PortSettings {
    /// Bit rate of the link.
    pub rate: Rate,
    /// Maximum payload of a frame in bytes: 1500, or 9000 for jumbo frames. Longer frames are lost.
    pub mtu: u32,
    /// Number of frames that each queue holds; further frames are lost.
    pub queue_frames: u32,
    /// Index of the queue of each class. Queues have strict priority; one queue may serve all
    /// classes.
    pub queue_of: [usize; Class::COUNT],
    /// Time from a frame's arrival at the node to its place in a queue.
    pub processing: Nanos,
    /// When an incoming frame counts as arrived.
    pub forwarding: Forwarding,
    /// When a sent frame counts as arrived at the other end.
    pub handover: Handover,
    /// Latency of the MACs and PHYs of both ends.
    pub latency: PortLatency,
    /// The cable between both ends.
    pub cable: Cable,
    /// Additional buffers that a frame passes.
    pub stages: Vec<FifoStage>,
    /// Schedule of the queues' gates (802.1Qbv).
    pub gates: Option<GateSchedule>,
    /// Rate promised to each queue with a credit-based shaper (802.1Qav).
    pub idle_slopes: [Option<Rate>; Class::COUNT],
    /// Which queues' frames interrupt others (802.1Qbu).
    pub preemption: Option<Preemption>,
    /// Sources of background traffic.
    pub background: Vec<Source>,
}

impl PortSettings {
    /// Payload of an ordinary frame in bytes.
    pub const MTU: u32 = 1500;
    /// Payload of a jumbo frame in bytes.
    pub const MTU_JUMBO: u32 = 9000;
    /// Default number of frames in a queue.
    pub const QUEUE_FRAMES: u32 = 1024;
    /// Number of bytes after which a cut-through switch knows the destination of a frame: preamble,
    /// addresses, type. The simulator INET uses the same 22 bytes
    /// (`showcases/tsn/cutthroughswitching`).
    pub const HEADER_BYTES: u64 = (PREAMBLE + HEADER) as u64;

    /// A port of `rate` with strict priorities and without any latency.
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

    /// Length in bytes of the longest frame that the port sends, including header, tag and check
    /// sequence.
    pub const fn frame_max(&self) -> u32 {
        self.mtu.saturating_add(HEADER + TAG + CHECK_SEQUENCE)
    }

    /// Time between the two MACs' user sides for a frame of `length` bytes, without the time to
    /// send it.
    pub fn passage(&self, length: u32) -> Nanos {
        let stages = self.stages.iter().map(|stage| stage.delay(self.rate, length));
        stages.fold(self.latency.total() + self.cable.latency(), |sum, stage| sum + stage)
    }
}
