//! The interrupts of a served card: a vector of MSI-X for each queue.

use std::io;
use std::os::fd::OwnedFd;

use niq::{QUEUES, registers};
use vfio_user::{InterruptAction, InterruptData};

use crate::drivers::guest::signal::Signaller;

/// Bytes of the table: 16 for each vector.
const TABLE_BYTES: usize = QUEUES * 16;
/// Vector Control of a vector after a reset: masked.
const MASKED: u8 = 1;

/// The vectors that a client has given descriptors for, and the table as the client has written it.
/// The client's own table, which the guest sees, says where the messages go and which are masked.
#[derive(Debug)]
pub(super) struct Vectors {
    signallers: [Option<Signaller>; QUEUES],
    table: [u8; TABLE_BYTES],
}

impl Default for Vectors {
    fn default() -> Self {
        let mut vectors = Self { signallers: [const { None }; QUEUES], table: [0; TABLE_BYTES] };
        vectors.reset();
        vectors
    }
}

impl Vectors {
    /// Number of vectors.
    #[expect(clippy::cast_possible_truncation, reason = "a card has 4 queues")]
    pub(super) const COUNT: u16 = QUEUES as u16;

    /// Brings the table to its state after a reset. The client keeps its descriptors.
    pub(super) fn reset(&mut self) {
        self.table.fill(0);
        self.table.iter_mut().skip(12).step_by(16).for_each(|control| *control = MASKED);
    }

    /// Gives vectors their descriptors, takes them away, or signals them.
    pub(super) fn set(
        &mut self,
        action: InterruptAction,
        (start, count): (u32, u32),
        data: InterruptData<OwnedFd>,
    ) {
        if action != InterruptAction::Trigger {
            return;
        }
        let range = start as usize..(start as usize).saturating_add(count as usize).min(QUEUES);
        match data {
            InterruptData::None if count == 0 => self.signallers = [const { None }; QUEUES],
            InterruptData::None => range.for_each(|vector| drop(self.signal(vector))),
            InterruptData::Bools(wanted) => {
                let wanted = range.zip(wanted).filter(|(_, is_wanted)| *is_wanted);
                wanted.for_each(|(vector, _)| drop(self.signal(vector)));
            }
            InterruptData::Descriptors(descriptors) => {
                let mut descriptors = descriptors.into_iter();
                for vector in range {
                    self.signallers[vector] = descriptors.next().map(Signaller::new);
                }
            }
        }
    }

    /// Signals an interrupt to the client, if it has given a descriptor for this vector.
    ///
    /// # Errors
    /// When the descriptor can't be written. It is given up.
    pub(super) fn signal(&mut self, vector: usize) -> io::Result<()> {
        let Some(signaller) = &self.signallers[vector] else { return Ok(()) };
        signaller.signal().inspect_err(|_| self.signallers[vector] = None)
    }

    /// Whether the table is at `offset` of BAR0.
    pub(super) fn has(offset: u64) -> bool {
        place(offset).is_some()
    }

    /// Reads the table at `offset` of BAR0; bytes behind it read as 0.
    pub(super) fn read(&self, offset: u64, bytes: &mut [u8]) {
        let table = place(offset).map_or(&[][..], |at| &self.table[at..]);
        bytes.fill(0);
        bytes.iter_mut().zip(table).for_each(|(byte, value)| *byte = *value);
    }

    /// Writes the table at `offset` of BAR0.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        if let Some(at) = place(offset) {
            self.table[at..].iter_mut().zip(bytes).for_each(|(value, byte)| *value = *byte);
        }
    }
}

/// The place in the table of `offset` in BAR0.
fn place(offset: u64) -> Option<usize> {
    let at = offset.checked_sub(registers::MSIX_TABLE.into())?;
    usize::try_from(at).ok().filter(|at| *at < TABLE_BYTES)
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    fn count(event: &OwnedFd) -> u64 {
        let mut bytes = [0; 8];
        rustix::io::read(event, &mut bytes).map_or(0, |_| u64::from_ne_bytes(bytes))
    }

    #[test]
    fn vectors_signal_what_they_were_given() {
        let events = [(); QUEUES].map(|()| eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        let mut vectors = Vectors::default();
        vectors.signal(0).unwrap();
        let given = events[1..3].iter().map(|event| event.try_clone().unwrap()).collect();
        let trigger = InterruptAction::Trigger;
        vectors.set(trigger, (1, 2), InterruptData::Descriptors(given));
        for vector in 0..QUEUES {
            vectors.signal(vector).unwrap();
        }
        assert_eq!(events.each_ref().map(count), [0, 1, 1, 0]);
        vectors.set(trigger, (0, 3), InterruptData::Bools(vec![true, false, true]));
        assert_eq!(events.each_ref().map(count), [0, 0, 1, 0]);
        vectors.set(trigger, (0, 4), InterruptData::None);
        assert_eq!(events.each_ref().map(count), [0, 1, 1, 0]);
        vectors.set(trigger, (2, 1), InterruptData::Descriptors(Vec::new()));
        vectors.signal(2).unwrap();
        vectors.set(trigger, (0, 0), InterruptData::None);
        vectors.signal(1).unwrap();
        // More vectors than there are.
        vectors.set(trigger, (3, u32::MAX), InterruptData::None);
        assert_eq!(events.each_ref().map(count), [0; QUEUES]);
    }

    #[test]
    fn the_table_keeps_what_is_written_and_has_an_end() {
        let mut vectors = Vectors::default();
        let table = u64::from(registers::MSIX_TABLE);
        assert!(!Vectors::has(table - 1) && Vectors::has(table) && Vectors::has(table + 63));
        assert!(!Vectors::has(table + 64));
        let mut word = [0; 4];
        vectors.read(table + 12, &mut word);
        assert_eq!(word, [1, 0, 0, 0], "a vector is masked after a reset");
        vectors.write(table + 62, &[7; 8]);
        let mut long = [9; 8];
        vectors.read(table + 60, &mut long);
        assert_eq!(long, [1, 0, 7, 7, 0, 0, 0, 0]);
    }
}
