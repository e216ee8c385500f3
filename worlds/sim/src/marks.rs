//! Marks that the models of a fabric make while an operation is followed: causes and effects, which
//! divide the operation's time into parts.

use engine::Instant;
use network_models::network::Side;
use network_models::trail::Part;

/// A place in a fabric where time is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spot {
    /// The software of this side.
    Software(Side),
    /// The PCIe link between host and card of this side, with the host's memory.
    Bus(Side),
    /// The card of this side, or its TCP stack.
    Card(Side),
    /// A hop of the path of this side's packets, by its number.
    Hop(Side, usize),
    /// The medium of the controller.
    Medium,
}

/// The mark of the event that causes another one; `None` while no operation is followed.
pub type Cause = Option<usize>;

/// The end of a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When the stretch ended.
    pub at: Instant,
    /// The mark of the event that began it.
    pub after: Cause,
    /// Where the time was spent.
    pub spot: Spot,
    /// The kind of time.
    pub part: Part,
    /// The action.
    pub what: &'static str,
}

/// The marks of the operation that is followed.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    marks: Vec<Mark>,
    is_on: bool,
}

impl Marks {
    /// Maximum number of marks. Further ones, and their effects, are left out.
    pub const COUNT_MAX: usize = 1 << 20;

    /// Begins or ends to follow; all earlier marks are forgotten.
    pub fn switch(&mut self, on: bool) {
        self.marks.clear();
        self.is_on = on;
    }

    /// Whether something is followed.
    pub const fn is_on(&self) -> bool {
        self.is_on
    }

    /// Marks that the event that `after` has caused ended at `at`. Without a cause, the operation
    /// begins there.
    pub fn mark(&mut self, after: Cause, at: Instant, spot: Spot, part: Part, what: &'static str) -> Cause {
        if !self.is_on || self.marks.len() >= Self::COUNT_MAX {
            return None;
        }
        // Causes of an earlier operation, whose marks are forgotten.
        let after = after.filter(|after| *after < self.marks.len());
        let at = after.map_or(at, |after| at.max(self.marks[after].at));
        self.marks.push(Mark { at, after, spot, part, what });
        Some(self.marks.len() - 1)
    }

    /// The marks from the first cause of `last` to `last` itself.
    pub fn chain(&self, last: Cause) -> Vec<Mark> {
        let mut chain = Vec::new();
        let mut at = last.filter(|last| *last < self.marks.len());
        while let Some(index) = at {
            chain.push(self.marks[index]);
            at = self.marks[index].after;
        }
        chain.reverse();
        chain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_leads_from_the_first_cause_to_the_last_event() {
        let mut marks = Marks::default();
        let spot = Spot::Software(Side::Near);
        let mark = |marks: &mut Marks, after, at| {
            marks.mark(after, Instant::from_nanos(at), spot, Part::Processing, "work")
        };
        assert_eq!(mark(&mut marks, None, 1), None, "no operation is followed");
        marks.switch(true);
        let first = mark(&mut marks, None, 10);
        mark(&mut marks, first, 15);
        let second = mark(&mut marks, first, 20);
        let times: Vec<_> = marks.chain(second).iter().map(|mark| mark.at.as_nanos()).collect();
        assert_eq!(times, [10, 20]);
        marks.switch(true);
        assert!(marks.chain(second).is_empty());
    }
}
