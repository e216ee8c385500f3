//! Flow-control credits.

use super::{Allowance, Lane};

/// Payload bytes that one data credit covers.
pub const DATA_CREDIT_BYTES: usize = 16;

/// The remaining credits of one lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credit {
    /// Header credits; one covers a TLP with a header of any length. [`Credit::UNLIMITED`] is
    /// infinite.
    pub headers: u32,
    /// Data credits of 16 bytes each. [`Credit::UNLIMITED`] is infinite.
    pub data: u32,
}

impl Credit {
    /// The number that stands for infinite credit; nothing is ever subtracted from it.
    pub const UNLIMITED: u32 = u32::MAX;
    /// Infinite header and data credits.
    pub const INFINITE: Self = Self { headers: Self::UNLIMITED, data: Self::UNLIMITED };

    const fn covers(self, data: u32) -> bool {
        self.headers > 0 && self.data >= data
    }
}

/// Subtracts `spent` unless `credit` is infinite.
const fn spend(credit: u32, spent: u32) -> u32 {
    if credit == Credit::UNLIMITED { credit } else { credit.saturating_sub(spent) }
}

/// Adds `given` to `credit`. A finite sum stays below [`Credit::UNLIMITED`], and an infinite credit
/// stays infinite.
const fn refill(credit: u32, given: u32) -> u32 {
    match credit.checked_add(given) {
        _ if credit == Credit::UNLIMITED => credit,
        Some(sum) if sum < Credit::UNLIMITED => sum,
        _ => Credit::UNLIMITED - 1,
    }
}

/// Header and data credits of the three lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credits {
    lanes: [Credit; Lane::COUNT],
}

impl Credits {
    /// Infinite credits in every lane.
    pub const INFINITE: Self = Self { lanes: [Credit::INFINITE; Lane::COUNT] };

    /// Credits with the given number for each lane.
    pub const fn new(posted: Credit, non_posted: Credit, completion: Credit) -> Self {
        Self { lanes: [posted, non_posted, completion] }
    }
    /// The remaining credits of `lane`.
    pub const fn of(&self, lane: Lane) -> Credit {
        self.lanes[lane.index()]
    }
    /// Whether `lane` now has the credits for a TLP that takes `data` data credits.
    pub const fn covers(&self, lane: Lane, data: u32) -> bool {
        self.lanes[lane.index()].covers(data)
    }
    /// Returns credits to `lane` when the receiver has freed its buffers.
    pub const fn give(&mut self, lane: Lane, credit: Credit) {
        let left = &mut self.lanes[lane.index()];
        left.headers = refill(left.headers, credit.headers);
        left.data = refill(left.data, credit.data);
    }
}

impl Allowance for Credits {
    fn take(&mut self, lane: Lane, data: u32) -> bool {
        let left = &mut self.lanes[lane.index()];
        let covered = left.covers(data);
        if covered {
            *left = Credit { headers: spend(left.headers, 1), data: spend(left.data, data) };
        }
        covered
    }
}
