//! The card: reads packets from the window, and writes packets into it.

use core::fmt;
use core::sync::atomic::{Ordering, fence};

use pcie::memory::Memory;

use crate::counts::Counts;
use crate::filter::{Address, Filters};
use crate::layout::{QUEUES, SLOTS, asleep_at, awaited_at, credit_at, line_at, slot_at, taken_at};
use crate::line::{HEAD_MAX, INLINE_MAX, LINE, Line, PACKET_MAX, PACKET_MIN, Slot};
use crate::registers::{self as at, low, queue};

/// The card reports the slots that it has taken once they are this part of all. Each report costs
/// the host a cache miss.
const REPORT_PART: u64 = 4;
/// Shortest receive buffer in bytes, and the unit of their length.
const BUFFER_UNIT: u64 = 64;

/// Why the card has stopped a queue. The value is that of the status register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// The host has stored a packet over one that the card had not taken: it had no credit.
    Overrun = 1,
    /// A slot has an invalid header, or an invalid packet length.
    Malformed = 2,
    /// Host memory that a slot, a buffer or the credit address names can't be reached.
    Memory = 3,
    /// The host reports fewer taken lines than before, or more than there were.
    Taken = 4,
    /// The window can't be reached.
    Window = 5,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Overrun => "the host has sent more than it had credits for",
            Self::Malformed => "a slot is malformed",
            Self::Memory => "host memory that was named can't be reached",
            Self::Taken => "the host reports fewer taken lines than before, or more than there were",
            Self::Window => "the window can't be reached",
        })
    }
}

/// The fate of a packet of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It is in a line of this queue.
    Delivered(usize),
    /// No filter accepts it.
    Unwanted,
    /// It is too short or too long for a packet.
    Misshapen,
    /// The host has no line or no buffer free, or its queue does not run.
    NoRoom,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Stopped,
    Running,
    Faulted(Fault),
}

/// Progress of a running queue since it was started.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// Slots taken.
    taken: u64,
    /// Slots that the card has reported to the host.
    reported: u64,
    /// Slots up to the last one on the wire that requested a completion.
    completed: u64,
    /// Receive lines written.
    given: u64,
    /// Receive lines that the host has taken.
    returned: u64,
    /// Buffers filled.
    filled: u64,
    /// Buffers that the host has returned.
    emptied: u64,
    /// A line was written since the last check whether the host waits for one.
    has_given: bool,
    /// The number of lines that the host was last interrupted for.
    interrupted: u64,
    /// By line: whether it names a buffer.
    has_buffer: [u64; (SLOTS / 64) as usize],
}

impl Progress {
    const fn bit(number: u64) -> (usize, u64) {
        let line = number % SLOTS;
        ((line / 64) as usize, 1 << (line % 64))
    }

    fn give(&mut self, by_buffer: bool) {
        let (word, bit) = Self::bit(self.given);
        self.has_buffer[word] &= !bit;
        if by_buffer {
            self.has_buffer[word] |= bit;
            self.filled += 1;
        }
        self.given += 1;
        self.has_given = true;
    }

    /// Whether the host waits for a line that is available, and was not interrupted for it yet.
    fn is_awaited(&mut self, index: usize, window: &impl Memory) -> Result<bool, Fault> {
        // The host stores the line that it waits for and then looks for lines. The card has stored
        // a line and now looks which line the host waits for. Without the fence, each could miss
        // the other.
        fence(Ordering::SeqCst);
        let mut word = [0; 8];
        window.read(awaited_at(index), &mut word).map_err(|_| Fault::Window)?;
        let awaited = u64::from_le_bytes(word);
        let is_due = awaited > self.interrupted && awaited <= self.given;
        if is_due {
            self.interrupted = awaited;
        }
        Ok(is_due)
    }

    /// Notes that the host has taken all lines before `returned`.
    const fn take_back(&mut self, returned: u64) {
        while self.returned < returned {
            let (word, bit) = Self::bit(self.returned);
            if self.has_buffer[word] & bit != 0 {
                self.emptied += 1;
            }
            self.returned += 1;
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    state: State,
    registers: [u32; queue::COUNT],
    progress: Progress,
}

impl Queue {
    const NEW: Self = Self {
        state: State::Stopped,
        registers: [0; queue::COUNT],
        progress: Progress {
            taken: 0,
            reported: 0,
            completed: 0,
            given: 0,
            returned: 0,
            filled: 0,
            emptied: 0,
            has_given: false,
            interrupted: 0,
            has_buffer: [0; (SLOTS / 64) as usize],
        },
    };

    const fn register(&self, offset: u32) -> u32 {
        self.registers[(offset / 4) as usize]
    }
    const fn address(&self, offset: u32) -> u64 {
        self.register(offset) as u64 | (self.register(offset + 4) as u64) << 32
    }
    /// The number of receive buffers, and the length of each in bytes.
    const fn buffers(&self) -> (u64, u64) {
        let register = self.register(queue::BUFFERS) as u64;
        (register & 0xffff, (register >> 16) * BUFFER_UNIT)
    }
    fn head(&self) -> usize {
        ((self.register(queue::CONTROL) >> queue::HEAD_SHIFT & 0xff) as usize).min(HEAD_MAX)
    }
    const fn is_running(&self) -> bool {
        matches!(self.state, State::Running)
    }
    const fn status(&self) -> u32 {
        match self.state {
            State::Stopped => 0,
            State::Running => 1,
            State::Faulted(fault) => 2 | (fault as u32) << 8,
        }
    }
}

/// A card. Its window is memory that the card and its host share; host memory is the memory that
/// the host allows it to read and write.
#[derive(Debug)]
pub struct Card {
    address: Address,
    is_promiscuous: bool,
    is_link_up: bool,
    link_changes: u32,
    filters: Filters,
    queues: [Queue; QUEUES],
    /// The queue that is looked at first.
    next: usize,
    is_asleep: bool,
    counts: Counts,
}

impl Card {
    /// A card after power-up, whose link is down. `address` is its MAC address, in the order of the
    /// wire.
    pub fn new(address: [u8; 6]) -> Self {
        Self {
            address,
            is_promiscuous: false,
            is_link_up: false,
            link_changes: 0,
            filters: Filters::default(),
            queues: [Queue::NEW; QUEUES],
            next: 0,
            is_asleep: false,
            counts: Counts::default(),
        }
    }

    /// The card's counts since its last reset.
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The fault that has stopped `queue`, if one has.
    pub fn fault(&self, queue: usize) -> Option<Fault> {
        match self.queues.get(queue)?.state {
            State::Faulted(fault) => Some(fault),
            State::Stopped | State::Running => None,
        }
    }

    /// Whether a host uses the card: a queue runs.
    pub fn is_running(&self) -> bool {
        self.queues.iter().any(Queue::is_running)
    }

    /// Sets the card's link up or down.
    pub fn set_link(&mut self, is_up: bool) {
        if self.is_link_up != is_up {
            self.is_link_up = is_up;
            self.link_changes = self.link_changes.wrapping_add(1);
        }
    }

    /// Resets all but the link: queues stop, filters and counters are empty.
    pub fn reset(&mut self) {
        let Self { address, is_link_up, link_changes, is_asleep, .. } = *self;
        *self = Self { is_link_up, link_changes, is_asleep, ..Self::new(address) };
    }

    /// Reads registers into `bytes`; other offsets read as zero.
    pub fn register_read(&self, offset: u64, bytes: &mut [u8]) {
        for (index, byte) in (0..).zip(bytes) {
            let offset = offset.saturating_add(index);
            let word = u32::try_from(offset & !3).map_or(0, |offset| self.register(offset));
            *byte = word.to_le_bytes()[(offset & 3) as usize];
        }
    }

    fn register(&self, offset: u32) -> u32 {
        let [a, b, c, d, e, f] = self.address;
        match offset {
            at::ID => at::ID_VALUE,
            at::CAPABILITIES => low(QUEUES as u64) | low(SLOTS) << 16,
            at::CONTROL => u32::from(self.is_promiscuous) * at::PROMISCUOUS,
            at::STATUS => u32::from(self.is_link_up) * at::LINK_UP,
            at::LINK_CHANGES => self.link_changes,
            at::ADDRESS => u32::from_le_bytes([a, b, c, d]),
            offset if offset == at::ADDRESS + 4 => u32::from_le_bytes([e, f, 0, 0]),
            at::FILTER..at::COUNTS => self.filters.value(((offset - at::FILTER) / 4) as usize),
            at::COUNTS..at::QUEUE => {
                let index = ((offset - at::COUNTS) / 8) as usize;
                let count = self.counts.words().get(index).copied().unwrap_or(0);
                low(count >> (offset % 8 * 8))
            }
            _ => self.queue_register(offset),
        }
    }

    fn queue_register(&self, offset: u32) -> u32 {
        let Some((index, register)) = queue_of(offset) else { return 0 };
        let queue = &self.queues[index];
        match register {
            queue::STATUS => queue.status(),
            queue::TAKEN => low(queue.progress.taken),
            queue::WAKE => 0,
            register => queue.registers.get((register / 4) as usize).copied().unwrap_or(0),
        }
    }

    /// Writes registers. Incomplete double words and unknown registers are ignored.
    pub fn register_write(&mut self, window: &mut impl Memory, offset: u64, bytes: &[u8]) {
        let Ok(offset) = u32::try_from(offset) else { return };
        let (words, rest) = bytes.as_chunks::<4>();
        if !offset.is_multiple_of(4) || !rest.is_empty() {
            return;
        }
        for (place, word) in (offset..at::LENGTH).step_by(4).zip(words) {
            self.write(window, place, u32::from_le_bytes(*word));
        }
    }

    fn write(&mut self, window: &mut impl Memory, offset: u32, value: u32) {
        match offset {
            at::CONTROL if value & at::RESET != 0 => self.reset(),
            at::CONTROL => self.is_promiscuous = value & at::PROMISCUOUS != 0,
            at::FILTER..at::COUNTS => {
                if let Some(register) = self.filters.register(((offset - at::FILTER) / 4) as usize) {
                    *register = value;
                }
            }
            _ => {
                let Some((index, register)) = queue_of(offset) else { return };
                let Some(place) = self.queues[index].registers.get_mut((register / 4) as usize) else {
                    return;
                };
                *place = value;
                if register == queue::CONTROL {
                    self.control(window, index);
                }
            }
        }
    }

    /// Starts a queue anew, or stops it.
    fn control(&mut self, window: &mut impl Memory, index: usize) {
        let queue = &mut self.queues[index];
        queue.state = State::Stopped;
        queue.progress = Progress::default();
        if queue.register(queue::CONTROL) & queue::ENABLE == 0 {
            return;
        }
        queue.state = State::Running;
        let lines = (0..SLOTS).flat_map(|number| [slot_at(index, number), line_at(index, number)]);
        for place in lines.chain([credit_at(index), taken_at(index)]) {
            if window.write(place, &[0; LINE]).is_err() {
                return self.fail(index, Fault::Window);
            }
        }
        if self.is_asleep {
            self.announce_sleep(window, index);
        }
    }

    /// Informs the hosts of all queues that this card is about to sleep, or sleeps no more. A card
    /// that falls asleep must look for slots once more before it waits: a host that stored one
    /// before this call does not wake it. A card that never sleeps, as in hardware, never calls
    /// this.
    pub fn sleep(&mut self, window: &mut impl Memory, asleep: bool) {
        if core::mem::replace(&mut self.is_asleep, asleep) == asleep {
            return;
        }
        for index in 0..QUEUES {
            if self.queues[index].is_running() {
                self.announce_sleep(window, index);
            }
        }
        fence(Ordering::SeqCst);
    }

    /// Whether this card has announced that it sleeps.
    pub const fn is_asleep(&self) -> bool {
        self.is_asleep
    }

    fn announce_sleep(&mut self, window: &mut impl Memory, index: usize) {
        if window.write(asleep_at(index), &u64::from(self.is_asleep).to_le_bytes()).is_err() {
            self.fail(index, Fault::Window);
        }
    }

    /// The next queue whose host waits for an interrupt that is due now. The interrupt's vector has
    /// the queue's number. Call this after packets were received.
    pub fn poll_interrupt(&mut self, window: &impl Memory) -> Option<usize> {
        for index in 0..QUEUES {
            if !core::mem::take(&mut self.queues[index].progress.has_given) {
                continue;
            }
            match self.queues[index].progress.is_awaited(index, window) {
                Ok(true) => return Some(index),
                Ok(false) => {}
                Err(fault) => self.fail(index, fault),
            }
        }
        None
    }

    fn fail(&mut self, index: usize, fault: Fault) {
        // A fault after a queue was stopped is not the cause of the stop.
        if self.queues[index].is_running() {
            self.queues[index].state = State::Faulted(fault);
            self.counts.faults += 1;
        }
    }

    /// Takes the next packet that a host has stored, for the wire; returns its length. While the
    /// link is down, all stored packets are taken and dropped.
    ///
    /// # Panics
    /// When `packet` is shorter than [`PACKET_MAX`].
    pub fn poll_transmit(
        &mut self,
        window: &mut impl Memory,
        memory: &mut impl Memory,
        packet: &mut [u8],
    ) -> Option<usize> {
        assert!(packet.len() >= PACKET_MAX, "there must be room for a packet");
        for turn in 0..QUEUES {
            let index = (self.next + turn) % QUEUES;
            // A host that stores all the time keeps the card for no longer than a lap.
            for _ in 0..SLOTS {
                if !self.queues[index].is_running() {
                    break;
                }
                match self.take(index, window, memory, packet) {
                    Ok(None) => break,
                    Ok(Some(length)) if self.is_link_up => {
                        self.next = (index + 1) % QUEUES;
                        self.counts.sent += 1;
                        self.counts.sent_bytes += length as u64;
                        return Some(length);
                    }
                    Ok(Some(_)) => self.counts.link_down += 1,
                    Err(fault) => self.fail(index, fault),
                }
            }
        }
        None
    }

    /// Takes the packet of a queue's next slot.
    fn take(
        &mut self,
        index: usize,
        window: &mut impl Memory,
        memory: &mut impl Memory,
        packet: &mut [u8],
    ) -> Result<Option<usize>, Fault> {
        let queue = &mut self.queues[index];
        let mut line = [0; LINE];
        let number = queue.progress.taken;
        window.read(slot_at(index, number), &mut line).map_err(|_| Fault::Window)?;
        let (length, completion) = match Slot::parse(&line, number) {
            Slot::Empty => return Ok(None),
            Slot::Overrun => return Err(Fault::Overrun),
            Slot::Malformed => return Err(Fault::Malformed),
            Slot::Inline { length, completion } => {
                packet[..length].copy_from_slice(&line[..length]);
                (length, completion)
            }
            Slot::Reference { address, length, completion } => {
                memory.read(address, &mut packet[..length]).map_err(|_| Fault::Memory)?;
                (length, completion)
            }
        };
        let progress = &mut queue.progress;
        progress.taken += 1;
        if completion {
            progress.completed = progress.taken;
        }
        if completion || progress.taken - progress.reported >= SLOTS / REPORT_PART {
            // The packet is complete: it is sent or counted, although the report to its host fails.
            if let Err(fault) = self.report(index, window, memory) {
                self.fail(index, fault);
            }
        }
        Ok(Some(length))
    }

    /// Reports to the host how many slots are free again.
    fn report(
        &mut self,
        index: usize,
        window: &mut impl Memory,
        memory: &mut impl Memory,
    ) -> Result<(), Fault> {
        let queue = &mut self.queues[index];
        let mut credit = [0; 16];
        credit[..8].copy_from_slice(&queue.progress.taken.to_le_bytes());
        credit[8..].copy_from_slice(&queue.progress.completed.to_le_bytes());
        window.write(credit_at(index), &credit).map_err(|_| Fault::Window)?;
        if queue.register(queue::CONTROL) & queue::PUSH != 0 {
            let address = queue.address(queue::CREDIT_ADDRESS);
            memory.write(address, &credit).map_err(|_| Fault::Memory)?;
        }
        queue.progress.reported = queue.progress.taken;
        Ok(())
    }

    /// Gives a packet of the wire to the host.
    pub fn receive(&mut self, window: &mut impl Memory, memory: &mut impl Memory, packet: &[u8]) -> Arrival {
        let address = packet.first_chunk::<6>().filter(|_| (PACKET_MIN..=PACKET_MAX).contains(&packet.len()));
        let Some(address) = address else {
            self.counts.misshapen += 1;
            return Arrival::Misshapen;
        };
        let Some(index) = self.queue_for(*address) else {
            self.counts.unwanted += 1;
            return Arrival::Unwanted;
        };
        match self.give(index, window, memory, packet) {
            Ok(true) => {
                self.counts.received += 1;
                self.counts.received_bytes += packet.len() as u64;
                return Arrival::Delivered(index);
            }
            Ok(false) => {}
            Err(fault) => self.fail(index, fault),
        }
        self.counts.no_room += 1;
        Arrival::NoRoom
    }

    fn queue_for(&self, address: Address) -> Option<usize> {
        let is_for_all = address == [0xff; 6] || address == self.address || self.is_promiscuous;
        self.filters.queue(address).or(is_for_all.then_some(0))
    }

    /// Puts a packet into a queue's next line; returns whether there was room for it.
    fn give(
        &mut self,
        index: usize,
        window: &mut impl Memory,
        memory: &mut impl Memory,
        packet: &[u8],
    ) -> Result<bool, Fault> {
        let queue = &mut self.queues[index];
        if !queue.is_running() {
            return Ok(false);
        }
        let (count, length_max) = queue.buffers();
        let is_inline = packet.len() <= INLINE_MAX;
        // The host's line is looked at only when a line or a buffer may be missing.
        if queue.progress.given - queue.progress.returned >= SLOTS
            || (!is_inline && queue.progress.filled - queue.progress.emptied >= count)
        {
            hear(&mut queue.progress, index, window)?;
        }
        if queue.progress.given - queue.progress.returned >= SLOTS {
            return Ok(false);
        }
        let number = queue.progress.given;
        let line = if is_inline {
            Line::inline(packet, number)
        } else {
            let (head, rest) = packet.split_at(queue.head());
            let is_free = queue.progress.filled - queue.progress.emptied < count;
            if !is_free || rest.len() as u64 > length_max {
                return Ok(false);
            }
            let start = queue.address(queue::BUFFERS_ADDRESS);
            // There is no memory beyond the last address: a wrap to 0 would hit other memory.
            let offset = queue.progress.filled % count * length_max;
            let address = start.checked_add(offset).ok_or(Fault::Memory)?;
            memory.write(address, rest).map_err(|_| Fault::Memory)?;
            Line::reference(address, u32::try_from(packet.len()).unwrap_or(0), head, number)
        };
        window.write(line_at(index, number), &line).map_err(|_| Fault::Window)?;
        queue.progress.give(!is_inline);
        Ok(true)
    }
}

/// Reads how many receive lines the host has taken.
fn hear(progress: &mut Progress, index: usize, window: &impl Memory) -> Result<(), Fault> {
    let mut word = [0; 8];
    window.read(taken_at(index), &mut word).map_err(|_| Fault::Window)?;
    let returned = u64::from_le_bytes(word);
    if !(progress.returned..=progress.given).contains(&returned) {
        return Err(Fault::Taken);
    }
    progress.take_back(returned);
    Ok(())
}

/// The queue to which the register at `offset` belongs, and its offset there.
fn queue_of(offset: u32) -> Option<(usize, u32)> {
    let offset = offset.checked_sub(at::QUEUE)?;
    let index = (offset / at::QUEUE_STRIDE) as usize;
    (index < QUEUES).then_some((index, offset % at::QUEUE_STRIDE))
}
