//! The critical path of one operation: where its time was spent.

use engine::Nanos;
use network_models::network::Side;
use network_models::trail::Part;

use super::task::{Seen, What};

/// A place where an operation's time is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Root complex, memory, driver and application of the host.
    Host,
    /// The PCIe link of the host.
    HostLink,
    /// The pipeline of the distributed switch's end on this side.
    Switch(Side),
    /// The tunnel session, and the stack's sending half until the bytes are in a segment. The side
    /// is the sender's.
    Tunnel(Side),
    /// The network stack of this side.
    Stack(Side),
    /// The hop with this number in the network path of the packets that this side sends.
    Hop(Side, usize),
    /// The card for RDMA of this side.
    Card(Side),
    /// The software of a controller that is reached over a fabric.
    Target,
    /// The PCIe link of the SSD, if it is not the host's.
    DeviceLink,
    /// Controller and flash of the SSD.
    Ssd,
    /// Other operations, which are not followed.
    Others,
}

/// A stretch of an operation's time, spent at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Time from the operation's begin to the segment's begin.
    pub start: Nanos,
    /// Length of the segment.
    pub length: Nanos,
    /// The place where the time was spent.
    pub place: Place,
    /// The kind of time: waiting, processing and so on.
    pub part: Part,
    /// A description of the step.
    pub what: &'static str,
    /// The packet that begins its way with this segment, if any.
    pub packet: Option<Seen>,
}

/// The critical path of one operation: segments that follow each other without a gap. Their lengths
/// add up to the operation's latency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The operation's number in its task, from 0.
    pub number: u64,
    /// The measured latency of the operation.
    pub latency: Nanos,
    /// The segments from the operation's begin to its end.
    pub segments: Vec<Segment>,
}

impl Seen {
    /// A description of the packet's part in an operation.
    pub fn name(&self) -> String {
        let bytes = self.bytes;
        match (self.what, self.down) {
            (What::Config, _) => "configuration request".into(),
            (What::MemoryRead, _) => format!("read of {bytes} B"),
            (What::MemoryWrite, true) if bytes == 4 => "doorbell".into(),
            (What::MemoryWrite, _) => format!("write of {bytes} B"),
            (What::Interrupt, _) => "interrupt".into(),
            (What::Completion, _) => format!("completion of {bytes} B"),
            (What::Other, _) => "packet".into(),
        }
    }
}
