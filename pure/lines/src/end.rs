//! One end: sends, receives, and decides when the other end must be woken.

use core::fmt;
use core::sync::atomic::{Ordering, fence};

use pcie::memory::{Memory, Unmapped};

use crate::layout::{AREA, INLINE_MAX, LINE, LINES, Line, Side, WORD};

/// A piece of at most this many bytes is sent in lines. A longer piece goes through the data area,
/// which costs one more line for each piece and fewer lines for its bytes.
const IN_LINES_MAX: usize = 4 * INLINE_MAX;
/// An end reports the count of taken bytes once it is this part of a ring or of a data area, and
/// before it sleeps. Each report costs the other end a cache miss.
const REPORT_PART: u64 = 4;

/// A violation of the protocol by the other end. The connection must be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Line `.0` has an invalid mark.
    Line(u64),
    /// A line refers to `length` bytes at `offset` of the data area, which is not the next place.
    Reference {
        /// The offset in the data area, in bytes.
        offset: u32,
        /// The length in bytes.
        length: u32,
    },
    /// The other end reports that it has taken `.0` lines or bytes: fewer than before, or more than
    /// were sent.
    Taken(u64),
    /// The memory is no longer mapped.
    Memory(Unmapped),
}

impl From<Unmapped> for Fault {
    fn from(error: Unmapped) -> Self {
        Self::Memory(error)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(number) => write!(f, "its line {number} has an invalid mark"),
            Self::Reference { offset, length } => {
                write!(f, "it refers to {length} B at {offset} of its data area, which is not the next place")
            }
            Self::Taken(count) => {
                write!(f, "it reports that it has taken {count}, fewer than before or more than it was sent")
            }
            Self::Memory(error) => write!(f, "the shared memory is gone: {error}"),
        }
    }
}

impl core::error::Error for Fault {}

/// Progress of one direction since the connection began.
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    lines: u64,
    /// Bytes of the data area.
    bytes: u64,
}

/// One end of a connection in shared memory. The memory starts as [`crate::MEMORY_BYTES`] zeros.
#[derive(Debug)]
pub struct End {
    side: Side,
    sent: Position,
    /// The progress that the other end has reported.
    acknowledged: Position,
    taken: Position,
    /// The progress that this end has reported.
    reported: Position,
    /// The unread rest of a piece in the data area: its offset there and its length in bytes.
    rest: Option<(u64, u64)>,
    /// This end has stored something, and must wake the other end if that sleeps.
    has_stored: bool,
    is_asleep: bool,
}

impl End {
    /// The end of `side`.
    pub const fn new(side: Side) -> Self {
        const START: Position = Position { lines: 0, bytes: 0 };
        Self {
            side,
            sent: START,
            acknowledged: START,
            taken: START,
            reported: START,
            rest: None,
            has_stored: false,
            is_asleep: false,
        }
    }

    /// Sends as many of `bytes` as there is room for, and returns their number.
    ///
    /// # Errors
    /// When the other end violates the protocol, or the memory is no longer mapped.
    pub fn send(&mut self, memory: &mut impl Memory, bytes: &[u8]) -> Result<usize, Fault> {
        let mut left = bytes;
        while !left.is_empty() {
            if !self.has_room() {
                self.hear(memory)?;
                if !self.has_room() {
                    break;
                }
            }
            let count = if left.len() > IN_LINES_MAX {
                self.store_piece(memory, left)?
            } else {
                let count = left.len().min(INLINE_MAX);
                self.store_line(memory, Line::with_bytes(&left[..count], self.sent.lines))?;
                count
            };
            left = &left[count..];
        }
        Ok(bytes.len() - left.len())
    }

    /// Whether there is room for a line, and for a byte in the data area.
    const fn has_room(&self) -> bool {
        self.sent.lines - self.acknowledged.lines < LINES && self.sent.bytes - self.acknowledged.bytes < AREA
    }

    /// Reads how much the other end has taken.
    fn hear(&mut self, memory: &impl Memory) -> Result<(), Fault> {
        let mut report = [0; 16];
        memory.read(self.side.peer().taken_at(), &mut report)?;
        let [lines, bytes] = [0, 8].map(|at| word(&report, at));
        let heard = |heard: u64, before: u64, sent: u64| {
            if (before..=sent).contains(&heard) { Ok(heard) } else { Err(Fault::Taken(heard)) }
        };
        self.acknowledged.lines = heard(lines, self.acknowledged.lines, self.sent.lines)?;
        self.acknowledged.bytes = heard(bytes, self.acknowledged.bytes, self.sent.bytes)?;
        Ok(())
    }

    /// Copies the beginning of `bytes` into the data area, at most up to its end, and stores the
    /// line that refers to it. Returns the number of bytes.
    fn store_piece(&mut self, memory: &mut impl Memory, bytes: &[u8]) -> Result<usize, Fault> {
        let offset = self.sent.bytes % AREA;
        let room = (AREA - (self.sent.bytes - self.acknowledged.bytes)).min(AREA - offset);
        let count = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
        memory.write(self.side.area_at(offset), &bytes[..count])?;
        let [place, length] = [offset, count as u64].map(|one| u32::try_from(one).unwrap_or(u32::MAX));
        self.store_line(memory, Line::with_reference(place, length, self.sent.lines))?;
        self.sent.bytes += count as u64;
        Ok(count)
    }

    fn store_line(&mut self, memory: &mut impl Memory, line: [u8; LINE]) -> Result<(), Fault> {
        memory.write(self.side.line_at(self.sent.lines), &line)?;
        self.sent.lines += 1;
        self.has_stored = true;
        Ok(())
    }

    /// Whether there may be something to receive. Reads only the last word of a line, so polling it
    /// is cheap.
    ///
    /// # Errors
    /// When the memory is no longer mapped.
    pub fn has_news(&self, memory: &impl Memory) -> Result<bool, Fault> {
        let mut word = [0; WORD];
        memory.read(self.side.peer().word_at(self.taken.lines), &mut word)?;
        Ok(self.rest.is_some() || !Line::is_empty(word, self.taken.lines))
    }

    /// Receives bytes into `bytes`, as long as there is room for [`INLINE_MAX`] more. Returns their
    /// number.
    ///
    /// # Errors
    /// When the other end violates the protocol, or the memory is no longer mapped.
    pub fn receive(&mut self, memory: &mut impl Memory, bytes: &mut [u8]) -> Result<usize, Fault> {
        let mut count = 0;
        loop {
            let room = &mut bytes[count..];
            if let Some(rest) = self.rest {
                let took = self.take_piece(memory, rest, room)?;
                count += took;
                if took == 0 {
                    break;
                }
                continue;
            }
            if room.len() < INLINE_MAX {
                break;
            }
            let mut line = [0; LINE];
            memory.read(self.side.peer().line_at(self.taken.lines), &mut line)?;
            match Line::parse(&line, self.taken.lines) {
                Line::Empty => break,
                Line::Inline(length) => {
                    room[..length].copy_from_slice(&line[..length]);
                    count += length;
                }
                Line::Reference { offset, length } => self.rest = Some(self.admit(offset, length)?),
                Line::Invalid => return Err(Fault::Line(self.taken.lines)),
            }
            self.taken.lines += 1;
        }
        if self.taken.lines - self.reported.lines >= LINES / REPORT_PART
            || self.taken.bytes - self.reported.bytes >= AREA / REPORT_PART
        {
            self.report(memory)?;
        }
        Ok(count)
    }

    /// Checks the offset of a piece: the only valid one is directly behind the piece before.
    const fn admit(&self, offset: u32, length: u32) -> Result<(u64, u64), Fault> {
        let (place, count) = (offset as u64, length as u64);
        if place != self.taken.bytes % AREA || count == 0 || count > AREA - place {
            return Err(Fault::Reference { offset, length });
        }
        Ok((place, count))
    }

    fn take_piece(
        &mut self,
        memory: &impl Memory,
        (place, left): (u64, u64),
        room: &mut [u8],
    ) -> Result<usize, Fault> {
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(room.len());
        memory.read(self.side.peer().area_at(place), &mut room[..count])?;
        let took = count as u64;
        self.taken.bytes += took;
        self.rest = (took < left).then_some((place + took, left - took));
        Ok(count)
    }

    /// Reports to the other end how much this end has taken.
    fn report(&mut self, memory: &mut impl Memory) -> Result<(), Fault> {
        let mut report = [0; 16];
        report[..8].copy_from_slice(&self.taken.lines.to_le_bytes());
        report[8..].copy_from_slice(&self.taken.bytes.to_le_bytes());
        memory.write(self.side.taken_at(), &report)?;
        self.reported = self.taken;
        self.has_stored = true;
        Ok(())
    }

    /// Stores that this end is about to sleep, or sleeps no more. An end that falls asleep must
    /// look for lines once more before it waits: the other end does not wake it for lines that were
    /// stored before this call.
    ///
    /// # Errors
    /// When the memory is no longer mapped.
    pub fn sleep(&mut self, memory: &mut impl Memory, asleep: bool) -> Result<(), Fault> {
        if core::mem::replace(&mut self.is_asleep, asleep) == asleep {
            return Ok(());
        }
        if asleep && (self.reported.lines < self.taken.lines || self.reported.bytes < self.taken.bytes) {
            self.report(memory)?;
        }
        memory.write(self.side.asleep_at(), &u64::from(asleep).to_le_bytes())?;
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// Whether this end has announced that it sleeps.
    pub const fn is_asleep(&self) -> bool {
        self.is_asleep
    }

    /// Whether the other end must be woken: this end has stored something since the last call, and
    /// the other end sleeps.
    ///
    /// # Errors
    /// When the memory is no longer mapped.
    pub fn poll_wake(&mut self, memory: &impl Memory) -> Result<bool, Fault> {
        if !core::mem::take(&mut self.has_stored) {
            return Ok(false);
        }
        // The other end stores that it sleeps and then looks for lines. This end has stored a line
        // and now looks whether the other end sleeps. Without the fence, each could miss the other.
        fence(Ordering::SeqCst);
        let mut asleep = [0; 8];
        memory.read(self.side.peer().asleep_at(), &mut asleep)?;
        Ok(asleep != [0; 8])
    }
}

fn word(bytes: &[u8; 16], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}
