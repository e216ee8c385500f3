//! The registers by which a driver controls a recorder, laid out for a BAR.
//!
//! All numbers are little-endian. Accesses are aligned and have 4 or 8 bytes. A read of the low
//! half of a 64-bit register keeps its high half for the next read, so that both halves are of one
//! moment. A register that is not here reads as 0, and a write to it does nothing.
//! `registers.md` has the table.
#![cfg_attr(doc, doc = include_str!("../../registers.md"))]

pub mod layout;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use layout as at;

const IDENTITY: u32 = u32::from_le_bytes(*b"FLRB");
const VERSION: u32 = 1;
const MODEL_END: u32 = at::MODEL + at::MODEL_BYTES;

/// Whether bytes move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Nothing moves until [`layout::START`] is written.
    #[default]
    Idle = 0,
    /// Bytes are kept until [`layout::TRIGGER`] is written.
    Armed = 1,
    /// Bytes move.
    Running = 2,
    /// No more bytes come, and the last ones are being written.
    Ending = 3,
    /// All is done.
    Ended = 4,
    /// It ended for an error.
    Failed = 5,
}

/// A way that bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the medium.
    Write,
    /// From the medium.
    Read,
}

/// The values in the registers of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Whether bytes move.
    pub state: State,
    /// Address of the first byte on the medium.
    pub first_address: u64,
    /// Address behind the last byte that may be used.
    pub maximum_address: u64,
    /// The most chunks that may be used from the first address on; 0 is no limit.
    pub chunks_max: u64,
    /// Address behind the last byte that was used.
    pub last_address: u64,
    /// Bytes of the streams that came in, or went out.
    pub bytes: u64,
    /// Bytes of the streams that are on the medium.
    pub bytes_stored: u64,
    /// Bytes of the streams that are declared lost.
    pub bytes_lost: u64,
    /// Gaps that are declared.
    pub gaps: u64,
    /// Bytes in the stream buffer now.
    pub fill: u64,
    /// Most bytes that were in the stream buffer.
    pub high_water: u64,
}

/// The values in the registers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// Size of the medium in bytes; 0 when it is not known.
    pub media_bytes: u64,
    /// Model of the medium; printable ASCII is shown, and no more of it
    /// than [`layout::MODEL_BYTES`].
    pub model: Vec<u8>,
    /// Bytes in a chunk.
    pub chunk: u32,
    /// Chunks in the stream buffer.
    pub chunks: u32,
    /// Whether a recording waits for a trigger.
    pub can_trigger: bool,
    /// Whether addresses, and the most chunks, can be written.
    pub can_address: bool,
    /// Recording, if it can be done.
    pub write: Option<Account>,
    /// Replay, if it can be done.
    pub read: Option<Account>,
}

impl Values {
    const fn of(&self, direction: Direction) -> Option<&Account> {
        match direction {
            Direction::Write => self.write.as_ref(),
            Direction::Read => self.read.as_ref(),
        }
    }
}

/// A driver's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Begin, between these addresses and with this many chunks.
    Start {
        /// The way that bytes go.
        direction: Direction,
        /// Address of the first byte on the medium.
        first_address: u64,
        /// Address behind the last byte that may be used.
        maximum_address: u64,
        /// The most chunks; 0 is no limit.
        chunks_max: u64,
    },
    /// End.
    Stop(Direction),
    /// Write the kept bytes, and all that come.
    Trigger,
}

/// The values that a driver wrote for one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    first_address: Option<u64>,
    maximum_address: Option<u64>,
    chunks_max: Option<u64>,
}

/// The block: values that the world shows, and those that a driver wrote.
#[derive(Clone, Debug, Default)]
pub struct Registers {
    values: Values,
    asked: [Asked; 2],
    /// The high half of the 64-bit register whose low half was read last, and where that half is.
    kept: Option<(u32, u32)>,
}

impl Registers {
    /// Registers that show `values`.
    pub fn new(values: Values) -> Self {
        Self { values, ..Self::default() }
    }

    /// Shows `values` from now on. Returns whether a direction's [`State`] is another now, which an
    /// interrupt may signal.
    pub fn show(&mut self, values: Values) -> bool {
        let state = |values: &Values, direction| values.of(direction).map(|account| account.state);
        let has_changed = [Direction::Write, Direction::Read]
            .into_iter()
            .any(|direction| state(&self.values, direction) != state(&values, direction));
        self.values = values;
        has_changed
    }

    /// Puts the registers back as after a reset: the values that a driver wrote are forgotten.
    pub fn reset(&mut self) {
        (self.asked, self.kept) = Default::default();
    }

    /// Reads `bytes` from `offset` of the block. Bytes outside of the block are 0.
    pub fn read(&mut self, offset: u32, bytes: &mut [u8]) {
        for (at, byte) in (u64::from(offset)..).zip(bytes.iter_mut()) {
            let at = u32::try_from(at).unwrap_or(u32::MAX);
            let half = match self.kept {
                Some((place, half)) if place == at & !3 => half,
                _ => self.half(at & !3),
            };
            *byte = half.to_le_bytes()[at as usize & 3];
        }
        let is_low_half = bytes.len() == 4 && offset.is_multiple_of(8) && is_wide(offset);
        self.kept = is_low_half.then(|| (offset + 4, self.half(offset + 4)));
    }

    /// Writes `bytes` to `offset` of the block. Returns the driver's request, if the write is one.
    /// A write that is not aligned, or has neither 4 nor 8 bytes, does nothing.
    pub fn write(&mut self, offset: u32, bytes: &[u8]) -> Option<Command> {
        let (number, is_whole) = match *bytes {
            [a, b, c, d] if offset.is_multiple_of(4) => (u64::from(u32::from_le_bytes([a, b, c, d])), false),
            [a, b, c, d, e, f, g, h] if offset.is_multiple_of(8) => {
                (u64::from_le_bytes([a, b, c, d, e, f, g, h]), true)
            }
            _ => return None,
        };
        let (direction, register) = place(offset)?;
        let account = *self.values.of(direction)?;
        if register == at::CONTROL {
            return self.control(direction, number, &account);
        }
        let may_write = self.values.can_address && !is_busy(account.state);
        let asked = &mut self.asked[direction as usize];
        let (written, now) = match register & !7 {
            at::FIRST_ADDRESS => (&mut asked.first_address, account.first_address),
            at::MAXIMUM_ADDRESS => (&mut asked.maximum_address, account.maximum_address),
            at::CHUNKS_MAX => (&mut asked.chunks_max, account.chunks_max),
            _ => return None,
        };
        if may_write {
            let before = written.unwrap_or(now);
            *written = Some(match (is_whole, register & 4) {
                (true, _) => number,
                (false, 0) => before & !u64::from(u32::MAX) | number,
                (false, _) => before & u64::from(u32::MAX) | number << 32,
            });
        }
        None
    }

    /// The first of several bits that can be obeyed now counts.
    fn control(&mut self, direction: Direction, number: u64, account: &Account) -> Option<Command> {
        let is_set = |bit: u32| number & u64::from(bit) != 0;
        let is_busy = is_busy(account.state);
        if is_set(at::STOP) && is_busy {
            Some(Command::Stop(direction))
        } else if is_set(at::TRIGGER) && account.state == State::Armed && direction == Direction::Write {
            Some(Command::Trigger)
        } else if is_set(at::START) && !is_busy {
            let asked = core::mem::take(&mut self.asked[direction as usize]);
            Some(Command::Start {
                direction,
                first_address: asked.first_address.unwrap_or(account.first_address),
                maximum_address: asked.maximum_address.unwrap_or(account.maximum_address),
                chunks_max: asked.chunks_max.unwrap_or(account.chunks_max),
            })
        } else {
            None
        }
    }

    /// The 4 bytes at `offset`, which is a multiple of 4.
    fn half(&self, offset: u32) -> u32 {
        let values = &self.values;
        match offset {
            at::IDENTITY => IDENTITY,
            at::VERSION => VERSION,
            at::CAPABILITIES => self.capabilities(),
            at::CHUNK_BYTES => values.chunk,
            at::CHUNKS => values.chunks,
            at::MODEL..MODEL_END => {
                let from = (offset - at::MODEL) as usize;
                u32::from_le_bytes(core::array::from_fn(|byte| self.model_byte(from + byte)))
            }
            _ => {
                let [low, high] = halves(self.number(offset & !7));
                if offset & 4 == 0 { low } else { high }
            }
        }
    }

    fn model_byte(&self, place: usize) -> u8 {
        let byte = self.values.model.get(place).copied();
        byte.filter(|byte| (b' '..=b'~').contains(byte)).unwrap_or(b' ')
    }

    fn capabilities(&self) -> u32 {
        let values = &self.values;
        let bits = [
            (values.write.is_some(), at::CAN_WRITE),
            (values.read.is_some(), at::CAN_READ),
            (values.can_trigger, at::CAN_TRIGGER),
            (values.can_address, at::CAN_ADDRESS),
        ];
        bits.into_iter().filter_map(|(can, bit)| can.then_some(bit)).sum()
    }

    /// The 64 bits at `offset`, which is a multiple of 8.
    fn number(&self, offset: u32) -> u64 {
        if offset == at::MEDIA_BYTES {
            return self.values.media_bytes;
        }
        let Some((direction, register)) = place(offset) else { return 0 };
        let Some(account) = self.values.of(direction) else { return 0 };
        let asked = self.asked[direction as usize];
        match register {
            at::CONTROL => (account.state as u64) << 32,
            at::FIRST_ADDRESS => asked.first_address.unwrap_or(account.first_address),
            at::MAXIMUM_ADDRESS => asked.maximum_address.unwrap_or(account.maximum_address),
            at::CHUNKS_MAX => asked.chunks_max.unwrap_or(account.chunks_max),
            at::LAST_ADDRESS => account.last_address,
            at::BYTES => account.bytes,
            at::BYTES_STORED => account.bytes_stored,
            at::BYTES_LOST => account.bytes_lost,
            at::GAPS => account.gaps,
            at::FILL => account.fill,
            at::HIGH_WATER => account.high_water,
            _ => 0,
        }
    }
}

const fn halves(number: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = number.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}

const fn is_busy(state: State) -> bool {
    matches!(state, State::Armed | State::Running | State::Ending)
}

/// The direction whose register lies at `offset`, and the register's place among its own.
const fn place(offset: u32) -> Option<(Direction, u32)> {
    match offset {
        at::WRITING..at::READING => Some((Direction::Write, offset - at::WRITING)),
        at::READING..at::LENGTH => Some((Direction::Read, offset - at::READING)),
        _ => None,
    }
}

/// Whether a 64-bit register lies at `offset`, which is a multiple of 8.
const fn is_wide(offset: u32) -> bool {
    match place(offset) {
        Some((_, register)) => register != at::CONTROL,
        None => offset == at::MEDIA_BYTES,
    }
}
