//! Bytes that are made at a rate.

use std::io;
use std::os::fd::RawFd;

use engine::{Instant, Nanos};

use super::{Feed, Intake, Took};

/// How often bytes are made.
const EVERY: Nanos = Nanos::from_millis(1);

/// Makes bytes.
pub(super) struct Generator {
    /// Bytes a second.
    rate: u64,
    start: Option<Instant>,
    made: u64,
}

impl Generator {
    pub(super) const fn new(rate: u64) -> Self {
        Self { rate, start: None, made: 0 }
    }

    /// Makes the bytes that are due, as far as there is room for them.
    fn make(&mut self, now: Instant, room: &mut [u8]) -> io::Result<usize> {
        let since = Nanos::new(now.as_nanos() - self.start.get_or_insert(now).as_nanos());
        let due = u128::from(since.get()) * u128::from(self.rate) / 1_000_000_000;
        let due = usize::try_from(due.saturating_sub(u128::from(self.made))).unwrap_or(usize::MAX);
        let bytes = room.len().min(due);
        if bytes == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        generate(self.made, &mut room[..bytes]);
        self.made += bytes as u64;
        Ok(bytes)
    }
}

impl Feed for Generator {
    fn take(&mut self, intake: &mut Intake<'_, '_>) -> Took {
        intake.read(|now, room| self.make(now, room))
    }

    fn descriptor(&self) -> Option<RawFd> {
        None
    }

    fn wake_at(&self, now: Instant) -> Option<Instant> {
        Some(now + EVERY)
    }
}

/// Fills `room` with the bytes of a generator at `place`.
fn generate(place: u64, room: &mut [u8]) {
    let byte = |place: u64| (place / 8).to_le_bytes()[usize::try_from(place % 8).unwrap_or(0)];
    let start = usize::try_from(place.next_multiple_of(8) - place).unwrap_or(0).min(room.len());
    let (start, rest) = room.split_at_mut(start);
    (place..).zip(&mut *start).for_each(|(place, made)| *made = byte(place));
    let place = place + start.len() as u64;
    let (words, end) = rest.as_chunks_mut();
    (place / 8..).zip(&mut *words).for_each(|(value, word)| *word = value.to_le_bytes());
    (place + words.len() as u64 * 8..).zip(end).for_each(|(place, made)| *made = byte(place));
}

#[cfg(test)]
mod tests {
    use super::generate;

    #[test]
    fn what_a_generator_makes_does_not_depend_on_how_it_is_cut() {
        let whole: Vec<u8> = (0..40_u64).flat_map(u64::to_le_bytes).collect();
        for from in 0..24 {
            for length in 0..40 {
                let mut room = vec![0xff; length];
                generate(from as u64, &mut room);
                assert_eq!(room, whole[from..from + length], "{length} from {from}");
            }
        }
    }
}
