//! One end: what it sends, what it takes, and when it is to be woken.

use core::fmt;
use core::sync::atomic::{Ordering, fence};

use pcie::memory::{Memory, Unmapped};

use crate::layout::{AREA, INLINE_MAX, LINE, LINES, Line, Side, WORD};

/// A piece of at most this many bytes is sent in lines; a longer piece goes through the data area,
/// which takes a line more for each piece and fewer for its bytes.
const IN_LINES_MAX: usize = 4 * INLINE_MAX;
/// An end tells what it has taken once it is this part of a ring or of a data area, and before it
/// sleeps. Each telling costs the other end a cache miss.
const TELL_PART: u64 = 4;

/// What the other end has done that none does; the connection must be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Line `.0` has a mark that does not belong there.
    Line(u64),
    /// A line says that `length` bytes of the data area are at `offset`, where they can't be.
    Reference {
        /// The offset in the data area, in bytes.
        offset: u32,
        /// The length in bytes.
        length: u32,
    },
    /// The other end says that it has taken `.0` lines or bytes: fewer than before, or more than
    /// were sent.
    Taken(u64),
    /// The memory is gone.
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
            Self::Line(number) => write!(f, "the mark of its line {number} is none that belongs there"),
            Self::Reference { offset, length } => {
                write!(f, "it names {length} B at {offset} of its data area, where they can't be")
            }
            Self::Taken(count) => {
                write!(f, "it has taken {count}, fewer than before or more than it was sent")
            }
            Self::Memory(error) => write!(f, "the shared memory is gone: {error}"),
        }
    }
}

impl core::error::Error for Fault {}

/// How far one direction has come, since the connection began.
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    lines: u64,
    /// Bytes of the data area.
    bytes: u64,
}

/// One end of a connection in shared memory, which begins as [`crate::MEMORY_BYTES`] zeroes.
#[derive(Debug)]
pub struct End {
    side: Side,
    sent: Position,
    /// What the other end has told of what it took.
    acknowledged: Position,
    taken: Position,
    /// What this end has told of what it took.
    told: Position,
    /// What is left of a piece in the data area: its place there, and its length in bytes.
    rest: Option<(u64, u64)>,
    /// Something was stored that the other end waits for if it sleeps.
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
            told: START,
            rest: None,
            has_stored: false,
            is_asleep: false,
        }
    }

    /// Sends as many of `bytes` as there is room for; returns their number.
    ///
    /// # Errors
    /// When the other end tells nonsense, or the memory is gone.
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

    /// Hears how much the other end has taken.
    fn hear(&mut self, memory: &impl Memory) -> Result<(), Fault> {
        let mut told = [0; 16];
        memory.read(self.side.peer().taken_at(), &mut told)?;
        let [lines, bytes] = [0, 8].map(|at| word(&told, at));
        let heard = |heard: u64, before: u64, sent: u64| {
            if (before..=sent).contains(&heard) { Ok(heard) } else { Err(Fault::Taken(heard)) }
        };
        self.acknowledged.lines = heard(lines, self.acknowledged.lines, self.sent.lines)?;
        self.acknowledged.bytes = heard(bytes, self.acknowledged.bytes, self.sent.bytes)?;
        Ok(())
    }

    /// Copies the beginning of `bytes` into the data area, up to its end at most, and stores the
    /// line that says so; returns the number of bytes.
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

    /// Whether there may be something to receive. Looks at no more than the last word of a line,
    /// which costs a polling end next to nothing.
    ///
    /// # Errors
    /// When the memory is gone.
    pub fn has_news(&self, memory: &impl Memory) -> Result<bool, Fault> {
        let mut word = [0; WORD];
        memory.read(self.side.peer().word_at(self.taken.lines), &mut word)?;
        Ok(self.rest.is_some() || !Line::is_empty(word, self.taken.lines))
    }

    /// Takes bytes that the other end has sent into `bytes`, as long as [`INLINE_MAX`] more fit;
    /// returns their number.
    ///
    /// # Errors
    /// When the other end has written nonsense, or the memory is gone.
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
        if self.taken.lines - self.told.lines >= LINES / TELL_PART
            || self.taken.bytes - self.told.bytes >= AREA / TELL_PART
        {
            self.tell(memory)?;
        }
        Ok(count)
    }

    /// Checks where a piece is said to be: the only place is behind the piece before.
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

    /// Tells the other end how much was taken.
    fn tell(&mut self, memory: &mut impl Memory) -> Result<(), Fault> {
        let mut told = [0; 16];
        told[..8].copy_from_slice(&self.taken.lines.to_le_bytes());
        told[8..].copy_from_slice(&self.taken.bytes.to_le_bytes());
        memory.write(self.side.taken_at(), &told)?;
        self.told = self.taken;
        self.has_stored = true;
        Ok(())
    }

    /// Tells the other end that this one is about to sleep, or sleeps no more. Whoever falls asleep
    /// must look once more before it waits: what was stored before the other end could see this
    /// wakes nobody.
    ///
    /// # Errors
    /// When the memory is gone.
    pub fn sleep(&mut self, memory: &mut impl Memory, asleep: bool) -> Result<(), Fault> {
        if core::mem::replace(&mut self.is_asleep, asleep) == asleep {
            return Ok(());
        }
        if asleep && (self.told.lines < self.taken.lines || self.told.bytes < self.taken.bytes) {
            self.tell(memory)?;
        }
        memory.write(self.side.asleep_at(), &u64::from(asleep).to_le_bytes())?;
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// Whether this end has said that it sleeps.
    pub const fn is_asleep(&self) -> bool {
        self.is_asleep
    }

    /// Whether the other end must be woken: something was stored since the last call, and
    /// it sleeps.
    ///
    /// # Errors
    /// When the memory is gone.
    pub fn poll_wake(&mut self, memory: &impl Memory) -> Result<bool, Fault> {
        if !core::mem::take(&mut self.has_stored) {
            return Ok(false);
        }
        // The other end stores that it sleeps and then looks for lines; this one has stored a line
        // and now looks whether the other sleeps. Without the fence each could miss the other.
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
