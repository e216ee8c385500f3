//! What one operation's time was spent on.

use engine::Nanos;
use link::network::Side;
use link::trail::Part;

use super::task::{Seen, What};

/// Where time is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Root complex, memory, driver, application.
    Host,
    /// The PCIe link of the host.
    HostLink,
    /// The end of the distributed switch on this side: its pipeline.
    Switch(Side),
    /// The tunnel session, and the stack's sending half until the bytes are in a segment; by the side that sends.
    Tunnel(Side),
    /// The network stack of this side.
    Stack(Side),
    /// A hop of the network of what this side sends, by its number.
    Hop(Side, usize),
    /// The PCIe link of the SSD, where that is not the host's.
    DeviceLink,
    /// Controller and flash.
    Ssd,
    /// What was not followed: other operations.
    Others,
}

/// A stretch of an operation's time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Since the operation's begin.
    pub start: Nanos,
    /// How long.
    pub length: Nanos,
    /// Where.
    pub place: Place,
    /// What kind of time it is.
    pub part: Part,
    /// What was done.
    pub what: &'static str,
    /// A packet that begins its way with this segment.
    pub packet: Option<Seen>,
}

/// The critical path of one operation: stretches that follow each other without a gap, and add up to its latency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Which operation of its task, the first being 0.
    pub number: u64,
    /// What was measured.
    pub latency: Nanos,
    /// From its begin to its end.
    pub segments: Vec<Segment>,
}

impl Seen {
    /// What the packet is in the life of an operation.
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
