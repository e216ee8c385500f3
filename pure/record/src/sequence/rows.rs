//! Groups of packets with numbers of their own: the blocks of a camera, the heaps of a telescope.

use alloc::collections::VecDeque;

/// The most groups that are open at once. When another begins, the oldest one is closed.
const OPEN_MAX: usize = 4;
/// The most groups that a jump of a number counts as lost. A longer jump is a new beginning.
pub(super) const JUMP_MAX: u64 = 1 << 16;
/// The same for numbers of 16 bits, of which a sender that begins anew would otherwise lose
/// nearly all.
pub(super) const SHORT_JUMP_MAX: u64 = super::window::SHORT_JUMP_MAX;

/// Groups that end when another begins.
pub(super) enum Closed<T> {
    /// A group of which at least a packet may have come.
    Open(T),
    /// This many groups of which no packet came.
    Skipped(u64),
}

/// Where a packet belongs.
pub(super) enum Place<'a, T> {
    /// To the first group of all. Packets before it are not missing.
    First(&'a mut T),
    /// To a group that is open.
    In(&'a mut T),
    /// To a group that was closed before.
    Old,
    /// To none: its group is far from all others.
    Far,
    /// To a first group: the sender has begun anew. The groups before it were closed.
    Anew(&'a mut T),
}

/// The groups of a sender, in the order of their numbers.
#[derive(Debug)]
pub(super) struct Rows<T> {
    open: VecDeque<(u64, T)>,
    /// How many numbers there are, until they begin again.
    cycle: u128,
    probe: Option<u64>,
}

impl<T: Default> Rows<T> {
    pub(super) const fn new(cycle: u128) -> Self {
        Self { open: VecDeque::new(), cycle, probe: None }
    }

    /// Finds the group `number`, and opens it and those between if it is ahead.
    pub(super) fn place(&mut self, number: u64, mut close: impl FnMut(Closed<T>)) -> Place<'_, T> {
        let Some((newest, _)) = self.open.back() else { return Place::First(self.begin(number)) };
        let ahead = self.distance(*newest, number);
        if let Some(at) = self.open.iter().position(|(open, _)| *open == number) {
            self.probe = None;
            return Place::In(&mut self.open[at].1);
        }
        if ahead <= self.jump() {
            self.probe = None;
            self.open_up_to(*newest, ahead, &mut close);
            return match self.open.back_mut() {
                Some((_, group)) => Place::In(group),
                None => Place::Far,
            };
        }
        if self.distance(number, *newest) <= OPEN_MAX as u64 * 2 {
            return Place::Old;
        }
        let is_second = self.probe.is_some_and(|probe| self.distance(probe, number) <= 1);
        self.probe = Some(number);
        if !is_second {
            return Place::Far;
        }
        self.close_all(close);
        Place::Anew(self.begin(number))
    }

    /// How many groups a number may be ahead.
    const fn jump(&self) -> u64 {
        if self.cycle <= 1 << 16 { SHORT_JUMP_MAX } else { JUMP_MAX }
    }

    /// The newest group.
    pub(super) fn newest(&mut self) -> Option<&mut T> {
        self.open.back_mut().map(|(_, newest)| newest)
    }

    /// Closes every group, oldest first.
    pub(super) fn close_all(&mut self, mut close: impl FnMut(Closed<T>)) {
        self.open.drain(..).for_each(|(_, group)| close(Closed::Open(group)));
    }

    /// Closes the oldest group, if `is_over` says so and it is not the newest, too.
    pub(super) fn close_if(&mut self, is_over: impl FnOnce(&mut T) -> bool) -> Option<T> {
        let is_over = self.open.len() > 1 && self.open.front_mut().is_some_and(|(_, oldest)| is_over(oldest));
        let group = is_over.then(|| self.open.pop_front()).flatten();
        group.map(|(_, group)| group)
    }

    /// The groups that are open, except the newest.
    pub(super) fn older(&mut self) -> impl Iterator<Item = &mut T> {
        let older = self.open.len().saturating_sub(1);
        self.open.iter_mut().take(older).map(|(_, group)| group)
    }

    fn begin(&mut self, number: u64) -> &mut T {
        self.probe = None;
        self.open.push_back((number, T::default()));
        let newest = self.open.len() - 1;
        &mut self.open[newest].1
    }

    fn open_up_to(&mut self, newest: u64, ahead: u64, close: &mut impl FnMut(Closed<T>)) {
        let skipped = ahead.saturating_sub(OPEN_MAX as u64);
        for distance in skipped + 1..=ahead {
            while self.open.len() >= OPEN_MAX || (skipped > 0 && distance == skipped + 1) {
                let Some((_, oldest)) = self.open.pop_front() else { break };
                close(Closed::Open(oldest));
            }
            if skipped > 0 && distance == skipped + 1 {
                close(Closed::Skipped(skipped));
            }
            let number = (u128::from(newest) + u128::from(distance)) % self.cycle;
            self.open.push_back((u64::try_from(number).unwrap_or(0), T::default()));
        }
    }

    /// How far `to` is ahead of `from`.
    fn distance(&self, from: u64, to: u64) -> u64 {
        let distance = (u128::from(to) + self.cycle - u128::from(from) % self.cycle) % self.cycle;
        u64::try_from(distance).unwrap_or(u64::MAX)
    }
}
