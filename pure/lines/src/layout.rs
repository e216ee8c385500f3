//! The layout of the shared memory and of a line.

/// Length of a line in bytes: the unit that x86-64 processors move between caches.
pub(crate) const LINE: usize = 64;
/// Length of a word in bytes. The last word of a line has its mark.
pub(crate) const WORD: usize = 8;
/// The largest number of bytes inside a line.
pub const INLINE_MAX: usize = 60;
/// Number of lines of a ring.
pub(crate) const LINES: u64 = 1024;
/// Length of a data area in bytes.
pub(crate) const AREA: u64 = 1 << 20;

/// Offset of a region's ring in bytes. The state line before it has a page of its own.
const RING_AT: u64 = 4096;
/// Offset of a region's data area in bytes.
const AREA_AT: u64 = RING_AT + LINES * LINE as u64;
/// Length of a region in bytes. One end writes it, and the other end reads it.
const REGION: u64 = AREA_AT + AREA;
/// Length of the shared memory in bytes.
#[expect(clippy::cast_possible_truncation, reason = "about 2 MiB, which any address space holds")]
pub const MEMORY_BYTES: usize = 2 * REGION as usize;

/// The length in a line's mark that refers to the data area.
const BY_REFERENCE: u8 = 0xff;
/// Marks have a lap from 1 to this number, so that zeroed memory holds no valid line.
const LAPS: u64 = 0xffff;

/// Which of the two ends: each writes a region of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The end that has dialled; it writes the first region.
    Dialler,
    /// The end that was dialled; it writes the second region.
    Listener,
}

impl Side {
    /// The other end.
    pub(crate) const fn peer(self) -> Self {
        match self {
            Self::Dialler => Self::Listener,
            Self::Listener => Self::Dialler,
        }
    }

    const fn region(self) -> u64 {
        match self {
            Self::Dialler => 0,
            Self::Listener => REGION,
        }
    }

    /// Offset of the count of lines that this side has taken, in 8 bytes. The count of bytes taken
    /// from the data area follows.
    pub(crate) const fn taken_at(self) -> u64 {
        self.region()
    }

    /// Offset of this side's sleep flag, in 8 bytes: 0 when it is awake.
    pub(crate) const fn asleep_at(self) -> u64 {
        self.region() + 16
    }

    /// Offset of this side's line `number`.
    pub(crate) const fn line_at(self, number: u64) -> u64 {
        self.region() + RING_AT + number % LINES * LINE as u64
    }

    /// Offset of the last word of this side's line `number`.
    pub(crate) const fn word_at(self, number: u64) -> u64 {
        self.line_at(number) + (LINE - WORD) as u64
    }

    /// Offset of byte `offset` of this side's data area.
    pub(crate) const fn area_at(self, offset: u64) -> u64 {
        self.region() + AREA_AT + offset
    }
}

/// The meaning of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Nothing yet: the line is still that of the lap before.
    Empty,
    /// This many bytes at the beginning of the line.
    Inline(usize),
    /// Bytes in the data area.
    Reference { offset: u32, length: u32 },
    /// The mark is not one that the other end stores here.
    Invalid,
}

const fn lap(number: u64) -> u16 {
    (number / LINES % LAPS) as u16 + 1
}

/// The mark of the line before `number` in the same place; 0 if there was none.
const fn lap_before(number: u64) -> u16 {
    match number.checked_sub(LINES) {
        Some(before) => lap(before),
        None => 0,
    }
}

impl Line {
    /// Whether `word`, the last one of line `number`, still is that of the lap before.
    pub(crate) const fn is_empty(word: [u8; WORD], number: u64) -> bool {
        let [.., low, high] = word;
        u16::from_le_bytes([low, high]) == lap_before(number)
    }

    /// Parses line `number`.
    pub(crate) fn parse(bytes: &[u8; LINE], number: u64) -> Self {
        let [.., length, reserved, lap_low, lap_high] = *bytes;
        let found = u16::from_le_bytes([lap_low, lap_high]);
        if found == lap_before(number) {
            return Self::Empty;
        }
        if found != lap(number) || reserved != 0 {
            return Self::Invalid;
        }
        match length {
            BY_REFERENCE => {
                let [a, b, c, d, e, f, g, h, ..] = *bytes;
                let offset = u32::from_le_bytes([a, b, c, d]);
                Self::Reference { offset, length: u32::from_le_bytes([e, f, g, h]) }
            }
            length if (1..=INLINE_MAX).contains(&usize::from(length)) => Self::Inline(usize::from(length)),
            _ => Self::Invalid,
        }
    }

    /// Line `number` with `bytes` inside, at most [`INLINE_MAX`] of them.
    #[expect(clippy::cast_possible_truncation, reason = "at most 60")]
    pub(crate) fn with_bytes(bytes: &[u8], number: u64) -> [u8; LINE] {
        let mut line = [0; LINE];
        line[..bytes.len()].copy_from_slice(bytes);
        Self::mark(&mut line, bytes.len() as u8, number);
        line
    }

    /// Line `number`, which refers to `length` bytes at `offset` of the data area.
    pub(crate) fn with_reference(offset: u32, length: u32, number: u64) -> [u8; LINE] {
        let mut line = [0; LINE];
        line[..4].copy_from_slice(&offset.to_le_bytes());
        line[4..8].copy_from_slice(&length.to_le_bytes());
        Self::mark(&mut line, BY_REFERENCE, number);
        line
    }

    fn mark(line: &mut [u8; LINE], length: u8, number: u64) {
        let [low, high] = lap(number).to_le_bytes();
        line[INLINE_MAX..].copy_from_slice(&[length, 0, low, high]);
    }
}
