//! Sets up a function that was found, and resets a function, as straight-line code.

use alloc::vec::Vec;

use engine::{Asker, Buffer, Instant, Nanos, Script, Step};
use pcie::config::{express, header, msix};
use pcie::requester::RequestError;
use pcie::root_complex::{Function, Space};
use pcie::wire::Bdf;

use super::shadow::{DWORDS, halves};

/// How long the function must be left alone after a function-level reset.
const RESET_TIME: Nanos = Nanos::from_millis(100);

/// Where the function writes its interrupts, each vector to a double word of its own. No guest has
/// memory at these addresses.
pub(super) const INTERRUPT_WINDOW: core::ops::Range<u64> = 0xffff_ffff_fee0_0000..0xffff_ffff_fef0_0000;

/// A write to a double word of the configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegisterWrite {
    pub(super) offset: u16,
    pub(super) enables: u8,
    pub(super) value: u32,
}

/// A script's requests to the root complex. All requests of one list are in flight at once.
#[derive(Debug)]
pub(super) enum Question {
    /// Read the double words at these offsets of the configuration space.
    Read(Vec<u16>),
    /// Write these double words of the configuration space.
    Write(Vec<RegisterWrite>),
    /// Write these bytes to these addresses; the writes are posted.
    Memory(Vec<(u64, Buffer)>),
    /// Wait this long.
    Wait(Nanos),
}

/// The double words that were read, each with the error in its place if the read failed.
pub(super) type Answer = Vec<Result<u32, RequestError>>;
/// The configuration space as it was found; empty after a reset.
pub(super) type Ended = Result<Vec<u32>, RequestError>;

/// The properties of a function that its set-up needs.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) function: Function,
    /// The configuration space right after enumeration; empty before it was read.
    pub(super) space: Vec<u32>,
}

pub(super) type Steps = Script<Question, Answer, Ended>;

/// Reads the configuration space of a function that was just enumerated, and sets up its
/// interrupts.
pub(super) fn find(target: Target, bus_master: bool) -> (Steps, Step<Question, Ended>) {
    Script::start(move |asker: Asker<Question, Answer>| async move {
        let dwords = if target.function.express.is_some() { DWORDS } else { 64 };
        let offsets = (0..dwords).filter_map(|index| u16::try_from(index * 4).ok()).collect();
        let space: Answer = asker.ask(Question::Read(offsets)).await;
        if space.first().is_none_or(|first| first.is_err()) {
            return Err(space.first().copied().and_then(Result::err).unwrap_or(RequestError::LinkDown));
        }
        // A double word that cannot be read counts as zero.
        let space = space.into_iter().map(|dword| dword.unwrap_or(0)).collect();
        let target = Target { space, ..target };
        write(&asker, [command(bus_master)].into()).await?;
        interrupts(&asker, &target).await?;
        Ok(target.space)
    })
}

/// Resets a function and restores the registers that the slot's root complex had set.
pub(super) fn reset(target: Target, bus_master: bool) -> (Steps, Step<Question, Ended>) {
    Script::start(move |asker: Asker<Question, Answer>| async move {
        let function = &target.function;
        if let Some(found) = function.express.filter(|found| found.function_level_reset) {
            let control = express::INITIATE_RESET.at(found.offset);
            let value = control.with(target.dword(control.offset()), 1);
            let [low, high, ..] = value.to_le_bytes();
            let value = u32::from(u16::from_le_bytes([low, high]));
            write(&asker, [RegisterWrite { offset: control.offset(), enables: 0b0011, value }].into())
                .await?;
            asker.ask(Question::Wait(RESET_TIME)).await;
            ready(&asker).await?;
        }
        write(&asker, target.registers(bus_master)).await?;
        interrupts(&asker, &target).await?;
        Ok(Vec::new())
    })
}

async fn write(asker: &Asker<Question, Answer>, writes: Vec<RegisterWrite>) -> Result<(), RequestError> {
    asker.ask(Question::Write(writes)).await.into_iter().find_map(Result::err).map_or(Ok(()), Err)
}

/// Waits until the function answers configuration requests. The root complex repeats the request
/// while the function asks for patience.
async fn ready(asker: &Asker<Question, Answer>) -> Result<(), RequestError> {
    let answer: Answer = asker.ask(Question::Read([0].into())).await;
    answer.first().copied().and_then(Result::err).map_or(Ok(()), Err)
}

/// Gives every vector an address in the slot's window, and unmasks all of them. Vectors that the
/// guest does not want yet are kept here, so that none is lost while the guest changes its mind.
async fn interrupts(asker: &Asker<Question, Answer>, target: &Target) -> Result<(), RequestError> {
    let Some((found, table)) = target.table() else { return Ok(()) };
    let mut writes = Vec::new();
    for vector in 0..found.vectors {
        let entry = table + u64::from(vector) * u64::from(msix::ENTRY_SIZE);
        let [low, high] = halves(INTERRUPT_WINDOW.start + u64::from(vector) * 4);
        writes.push((entry, quad_word(low, high)));
        writes.push((entry + 8, quad_word(u32::from(vector), 0)));
    }
    asker.ask(Question::Memory(writes)).await;
    let control = msix::ENABLE.at(found.offset);
    let value = control.with(target.dword(control.offset()), 1);
    let value = msix::FUNCTION_MASK.at(found.offset).with(value, 0);
    let enable = RegisterWrite { offset: control.offset(), enables: 0b1100, value };
    write(asker, [enable].into()).await
}

fn quad_word(low: u32, high: u32) -> Buffer {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&low.to_le_bytes());
    bytes[4..].copy_from_slice(&high.to_le_bytes());
    Buffer::copy_from_slice(&bytes)
}

/// The write to the Command register of a function in use.
pub(super) const fn command(bus_master: bool) -> RegisterWrite {
    let value = header::SERR.with(header::MEMORY_SPACE.with(0, 1), 1);
    let value = header::BUS_MASTER.with(value, bus_master as u32);
    RegisterWrite { offset: header::BUS_MASTER.offset(), enables: 0b0011, value }
}

impl Target {
    fn dword(&self, offset: u16) -> u32 {
        self.space.get(usize::from(offset / 4)).copied().unwrap_or(0)
    }

    /// The MSI-X capability and the address of its table, if a BAR with an address holds the table.
    fn table(&self) -> Option<(pcie::root_complex::MsiX, u64)> {
        let found = self.function.msix?;
        let base = self.function.bar(found.table_bar)?.address?;
        Some((found, base + u64::from(found.table_offset)))
    }

    /// The registers that a reset clears and the slot restores.
    fn registers(&self, bus_master: bool) -> Vec<RegisterWrite> {
        let mut writes = Vec::new();
        let whole = |offset, value| RegisterWrite { offset, enables: 0b1111, value };
        for bar in &self.function.bars {
            let Some(address) = bar.address else { continue };
            let offset = header::BAR0 + u16::from(bar.index) * 4;
            let [low, high] = halves(address);
            writes.push(whole(offset, low));
            if bar.space == Space::Memory64 {
                writes.push(whole(offset + 4, high));
            }
        }
        if let Some(found) = self.function.express {
            for field in [express::PAYLOAD_SIZE, express::TIMEOUT_VALUE] {
                let offset = field.at(found.offset).offset();
                // The upper half is status, which is cleared by writing ones.
                writes.push(RegisterWrite { offset, enables: 0b0011, value: self.dword(offset) });
            }
        }
        writes.push(command(bus_master));
        writes
    }
}

/// A script that is under way.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) script: Steps,
    /// The function that the script works on.
    pub(super) bdf: Bdf,
    /// When the script's wait ends.
    pub(super) wake: Option<Instant>,
    /// Answers that have come, and the number that is still to come.
    answers: Answer,
    missing: usize,
}

impl Running {
    pub(super) const fn new(script: Steps, bdf: Bdf) -> Self {
        Self { script, bdf, wake: None, answers: Answer::new(), missing: 0 }
    }

    /// Expects as many answers as `answers` has entries.
    pub(super) fn expect(&mut self, answers: Answer) {
        self.missing = answers.len();
        self.answers = answers;
    }

    /// Records answer `number`. Returns all answers if it was the last.
    pub(super) fn on_answer(&mut self, number: u64, result: Result<u32, RequestError>) -> Option<Answer> {
        let place = usize::try_from(number).ok().and_then(|number| self.answers.get_mut(number))?;
        *place = result;
        self.missing -= 1;
        (self.missing == 0).then(|| core::mem::take(&mut self.answers))
    }
}
