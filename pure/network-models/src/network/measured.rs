//! Streams of frames that share the paths of a network.

use engine::Instant;

use super::{Network, Side};
use crate::streams::{Measured, Order};

impl Network {
    /// Gives the streams of both paths an order at `now`; see [`Path::with_streams`].
    ///
    /// [`Path::with_streams`]: crate::Path::with_streams
    pub fn order_streams(&mut self, now: Instant, order: Order) {
        self.run(now);
        self.lanes.iter_mut().for_each(|lane| lane.path.order_streams(order));
        self.refresh();
    }

    /// The measurements of the streams from `side`.
    pub fn measured(&self, side: Side) -> impl ExactSizeIterator<Item = &Measured> {
        self.path(side).measured()
    }
}
