//! What goes wrong, and when.

use engine::{Instant, Nanos};

use crate::NodeId;
use crate::media::MediaProfile;
use crate::stream::{Lane, LinkProfile};

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Every connection between two nodes is lost, at any byte; they may dial again at once.
    Cut(NodeId, NodeId),
    /// Nothing passes between two nodes for a time; then it does, and nothing was lost. Dials time out.
    Hold(NodeId, NodeId, Nanos),
    /// The link changes.
    Link(NodeId, NodeId, LinkProfile),
    /// One of several links between two nodes; the faults above happen to the first.
    Lane(NodeId, NodeId, Lane, LaneFault),
    /// A node ends without a word. Its media survive; what was outstanding at them was done or not.
    Kill(NodeId),
    /// A killed node starts again.
    Restart(NodeId),
    /// A node does nothing for a time, then sees everything that came meanwhile.
    Pause(NodeId, Nanos),
    /// A node's media change, for instance to fail.
    Media(NodeId, MediaProfile),
    /// A node's media stop answering, until [`Fault::Resume`].
    Stall(NodeId),
    /// A node's media answer again.
    Resume(NodeId),
}

/// What goes wrong with one of several links between the same two nodes, as [`Fault`] has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneFault {
    /// As [`Fault::Cut`].
    Cut,
    /// As [`Fault::Hold`]. Over a modelled network what is on its way waits at its end, dials too, and TCP repeats some of it.
    Hold(Nanos),
    /// As [`Fault::Link`]. A modelled network stays what it is, and has the profile's latency, jitter and rate besides.
    Link(LinkProfile),
}

/// Faults in order of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    faults: Vec<(Instant, Fault)>,
}

impl Plan {
    /// No faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a fault. Of two at one instant, the one added first comes first.
    pub fn at(&mut self, at: Instant, fault: Fault) {
        let place = self.faults.partition_point(|(other, _)| *other <= at);
        self.faults.insert(place, (at, fault));
    }

    /// The faults, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Instant, Fault)> {
        self.faults.iter().copied()
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.faults.len()
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_in_order_of_time_and_of_addition() {
        let (a, b) = (NodeId(0), NodeId(1));
        let mut plan = Plan::new();
        plan.at(Instant::from_nanos(5), Fault::Kill(a));
        plan.at(Instant::from_nanos(1), Fault::Cut(a, b));
        plan.at(Instant::from_nanos(5), Fault::Restart(a));
        let faults: Vec<_> = plan.iter().map(|(at, fault)| (at.as_nanos(), fault)).collect();
        assert_eq!(faults, [(1, Fault::Cut(a, b)), (5, Fault::Kill(a)), (5, Fault::Restart(a))]);
    }
}
