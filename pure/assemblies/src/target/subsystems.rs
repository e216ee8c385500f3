//! The subsystems of a target, and when each is due. Of thousands, few have a deadline or are in
//! use: neither the next deadline nor those that have passed are found by a walk over all.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use engine::Instant;

use super::subsystem::Served;

/// The most subsystems in use whose deadlines are looked up rather than filed.
const STIRRED_MAX: usize = 16;

/// The subsystems, by key.
#[derive(Debug, Default)]
pub(super) struct Subsystems {
    all: Vec<Option<Served>>,
    /// When each subsystem is due, as it was filed.
    filed: Vec<Option<Instant>>,
    due: BTreeSet<(Instant, usize)>,
    /// Subsystems that may be due at another time than is filed.
    stirred: Vec<usize>,
}

impl Subsystems {
    pub(super) const fn len(&self) -> usize {
        self.all.len()
    }

    /// Makes room for the subsystem of this index.
    pub(super) fn make_room(&mut self, index: usize) {
        if self.all.len() <= index {
            self.all.resize_with(index + 1, || None);
            self.filed.resize(index + 1, None);
        }
    }

    pub(super) fn get(&self, index: usize) -> Option<&Option<Served>> {
        self.all.get(index)
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Option<Served>> {
        if index < self.all.len() {
            self.stir(index);
        }
        self.all.get_mut(index)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Option<Served>> {
        self.all.iter()
    }

    /// Changes to every subsystem that leave its deadlines.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Option<Served>> {
        self.all.iter_mut()
    }

    #[inline]
    fn stir(&mut self, index: usize) {
        if self.stirred.contains(&index) {
            return;
        }
        if self.stirred.len() == STIRRED_MAX {
            self.file();
        }
        self.stirred.push(index);
    }

    fn due_at(&self, index: usize) -> Option<Instant> {
        self.all.get(index)?.as_ref()?.core.poll_timeout()
    }

    fn file(&mut self) {
        while let Some(index) = self.stirred.pop() {
            let now = self.due_at(index);
            let before = core::mem::replace(&mut self.filed[index], now);
            if now == before {
                continue;
            }
            if let Some(at) = before {
                self.due.remove(&(at, index));
            }
            if let Some(at) = now {
                self.due.insert((at, index));
            }
        }
    }

    /// When the first subsystem is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let in_use = self.stirred.iter().filter_map(|index| self.due_at(*index)).min();
        let mut others = self.due.iter().filter(|(_, index)| !self.stirred.contains(index));
        in_use.into_iter().chain(others.next().map(|(at, _)| *at)).min()
    }

    /// The subsystems that are due at `now`, in the order of their keys.
    pub(super) fn expired(&mut self, now: Instant) -> Vec<usize> {
        self.file();
        let mut due: Vec<_> = self.due.range(..=(now, usize::MAX)).map(|(_, index)| *index).collect();
        due.sort_unstable();
        due
    }
}

impl Index<usize> for Subsystems {
    type Output = Option<Served>;

    fn index(&self, index: usize) -> &Option<Served> {
        &self.all[index]
    }
}

impl IndexMut<usize> for Subsystems {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut Option<Served> {
        self.stir(index);
        &mut self.all[index]
    }
}
