//! Faults of a world, and when they happen.

use engine::{Instant, Nanos};

use crate::NodeId;
use crate::media::MediaProfile;
use crate::stream::{Lane, LinkProfile};

/// A fault, which a world applies at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Every connection between two nodes is lost, at any byte. The nodes may dial again at once.
    Cut(NodeId, NodeId),
    /// Nothing passes between two nodes for this time. Afterwards everything does, and nothing is
    /// lost. Dials time out.
    Hold(NodeId, NodeId, Nanos),
    /// The link between two nodes gets another profile.
    Link(NodeId, NodeId, LinkProfile),
    /// A fault of one of several links between two nodes; the faults without a lane happen to the
    /// first link.
    Lane(NodeId, NodeId, Lane, LaneFault),
    /// A node ends without notice. Its media survive; each outstanding request was done, in part or
    /// not at all.
    Kill(NodeId),
    /// A killed node starts again, as a new process with its old media.
    Restart(NodeId),
    /// A node does nothing for this time, and then handles all events of the meantime.
    Pause(NodeId, Nanos),
    /// A node's media get another profile, for instance one that fails.
    Media(NodeId, MediaProfile),
    /// A node's media stop answering until [`Fault::Resume`].
    Stall(NodeId),
    /// A node's media answer again after [`Fault::Stall`].
    Resume(NodeId),
}

/// A fault of one of several links between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneFault {
    /// Every connection of the link is lost, as in [`Fault::Cut`].
    Cut,
    /// Nothing passes over the link for this time, as in [`Fault::Hold`]. On a modelled network,
    /// frames in flight wait at its end, those of dials included, and TCP repeats some of them.
    Hold(Nanos),
    /// The link gets another profile, as in [`Fault::Link`]. A modelled network keeps its own
    /// models, and has the profile's latency, jitter and rate in addition.
    Link(LinkProfile),
}

/// Faults, ordered by time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    faults: Vec<(Instant, Fault)>,
}

impl Plan {
    /// A plan without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a fault at time `at`. Of two faults at one instant, the one added first happens first.
    pub fn at(&mut self, at: Instant, fault: Fault) {
        let place = self.faults.partition_point(|(other, _)| *other <= at);
        self.faults.insert(place, (at, fault));
    }

    /// The faults with their times, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Instant, Fault)> {
        self.faults.iter().copied()
    }

    /// Number of faults.
    pub const fn len(&self) -> usize {
        self.faults.len()
    }

    /// Whether the plan has no faults.
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
