//! Where things are in the shared memory, and what a line consists of.

/// Bytes of a line: what x86-64 processors pass between caches at once.
pub(crate) const LINE: usize = 64;
/// Bytes of a word, the last of which in a line has its mark.
pub(crate) const WORD: usize = 8;
/// The largest number of bytes that travel inside a line.
pub const INLINE_MAX: usize = 60;
/// Lines of a ring.
pub(crate) const LINES: u64 = 1024;
/// Bytes of a data area.
pub(crate) const AREA: u64 = 1 << 20;

/// Where a region's ring begins. The state line before it has a page of its own.
const RING_AT: u64 = 4096;
/// Where a region's data area begins.
const AREA_AT: u64 = RING_AT + LINES * LINE as u64;
/// Bytes of a region, which one end writes and the other reads.
const REGION: u64 = AREA_AT + AREA;
/// Bytes of the shared memory.
#[expect(clippy::cast_possible_truncation, reason = "about 2 MiB, which any address space holds")]
pub const MEMORY_BYTES: usize = 2 * REGION as usize;

/// In a line's mark, the length that means: the bytes are in the data area.
const BY_REFERENCE: u8 = 0xff;
/// Marks have a lap from 1 to this, so that zeroed memory holds no valid line.
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

    /// Where this side tells the number of lines that it has taken, as 8 bytes; the number of bytes
    /// of the data area follows.
    pub(crate) const fn taken_at(self) -> u64 {
        self.region()
    }

    /// Where this side tells whether it sleeps, as 8 bytes: 0 if not.
    pub(crate) const fn asleep_at(self) -> u64 {
        self.region() + 16
    }

    /// Where this side stores its line number `number`.
    pub(crate) const fn line_at(self, number: u64) -> u64 {
        self.region() + RING_AT + number % LINES * LINE as u64
    }

    /// Where the last word of this side's line number `number` is.
    pub(crate) const fn word_at(self, number: u64) -> u64 {
        self.line_at(number) + (LINE - WORD) as u64
    }

    /// Where byte `offset` of this side's data area is.
    pub(crate) const fn area_at(self, offset: u64) -> u64 {
        self.region() + AREA_AT + offset
    }
}

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Nothing yet: the line is still that of the lap before.
    Empty,
    /// This many bytes at the beginning of the line.
    Inline(usize),
    /// Bytes in the data area.
    Reference { offset: u32, length: u32 },
    /// The mark is none that the other end stores here.
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
    /// Whether `word`, the last of line `number`, is still that of the lap before.
    pub(crate) const fn is_empty(word: [u8; WORD], number: u64) -> bool {
        let [.., low, high] = word;
        u16::from_le_bytes([low, high]) == lap_before(number)
    }

    /// Reads line `number` from its bytes.
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

    /// Line `number` with `bytes` inside, of which there are at most [`INLINE_MAX`].
    #[expect(clippy::cast_possible_truncation, reason = "at most 60")]
    pub(crate) fn with_bytes(bytes: &[u8], number: u64) -> [u8; LINE] {
        let mut line = [0; LINE];
        line[..bytes.len()].copy_from_slice(bytes);
        Self::mark(&mut line, bytes.len() as u8, number);
        line
    }

    /// Line `number`, which says that `length` bytes are at `offset` of the data area.
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
