//! The host: stores packets into the card's window, and polls the lines of received ones.

use core::fmt;
use core::sync::atomic::{Ordering, fence};

use pcie::memory::{Memory, Unmapped};

use crate::layout::{QUEUES, SLOTS, asleep_at, awaited_at, credit_at, line_at, slot_at, taken_at};
use crate::line::{HEAD_MAX, INLINE_MAX, LINE, Line, PACKET_MAX, PACKET_MIN, Slot};
use crate::registers::{self as at, low, queue};

/// Maximum number of packets in transit by DMA in either direction. The same number of slots makes
/// the card report, so that a host without a free buffer learns of one.
const BUFFERS: usize = 64;
/// Length of a buffer in bytes.
const BUFFER: u32 = 9216;
/// Offset of the buffers for sending in the host's memory. The pushed credit line is before it.
const SEND: u64 = 4096;
/// Offset of the buffers for receiving.
const RECEIVE: u64 = buffer_at(SEND, BUFFERS);
/// Bytes of host memory that a host needs, and that its card must reach.
#[expect(clippy::cast_possible_truncation, reason = "about 1.2 MiB, which any address space holds")]
pub const HOST_MEMORY_BYTES: usize = buffer_at(RECEIVE, BUFFERS).next_multiple_of(4096) as usize;

const _: () = assert!(BUFFER as usize == PACKET_MAX);

const fn buffer_at(start: u64, number: usize) -> u64 {
    start + number as u64 * BUFFER as u64
}

/// The host reports the lines that it has taken once they are this part of all.
const REPORT_PART: u64 = 4;

/// The memory in which a host reads its credits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Credits {
    /// It reads them in the card's window.
    #[default]
    Read,
    /// The card writes them to host memory, where reading is cheap.
    Pushed,
}

/// How a host uses its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// The queue of the card, below [`QUEUES`].
    pub queue: usize,
    /// Address of the host's memory, [`HOST_MEMORY_BYTES`] long, as the card sees it.
    pub memory: u64,
    /// The memory in which the host reads its credits.
    pub credits: Credits,
    /// Number of first bytes of a packet by DMA that are in the line, apart from the rest; at most
    /// 44.
    pub head: u8,
    /// The largest packet in bytes that is sent in a line; at most [`INLINE_MAX`]. 0 sends
    /// everything by DMA.
    pub inline_max: usize,
}

impl Default for HostConfig {
    /// Queue 0, memory at address 0, credits read, packets whole, small ones in lines.
    fn default() -> Self {
        Self { queue: 0, memory: 0, credits: Credits::Read, head: 0, inline_max: INLINE_MAX }
    }
}

/// Why a packet was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// There is no credit, or no buffer: the card has not taken earlier packets. Try again.
    Full,
    /// The packet has this length in bytes, outside [`PACKET_MIN`] to [`PACKET_MAX`].
    Length(usize),
    /// The card is at fault.
    Fault(HostFault),
}

/// A violation of the protocol by the card; the queue must be started anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostFault {
    /// Receive line `.0` is invalid.
    Line(u64),
    /// A line names a place that is not the next buffer.
    Buffer(u64),
    /// The card reports this number of taken slots: fewer than before, or more than were sent.
    Taken(u64),
    /// The window or the host's memory is no longer mapped.
    Memory(Unmapped),
}

impl From<Unmapped> for HostFault {
    fn from(error: Unmapped) -> Self {
        Self::Memory(error)
    }
}

impl From<HostFault> for SendError {
    fn from(fault: HostFault) -> Self {
        Self::Fault(fault)
    }
}

impl fmt::Display for HostFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(number) => write!(f, "its receive line {number} is invalid"),
            Self::Buffer(address) => write!(f, "it names {address:#x}, which is not the next buffer"),
            Self::Taken(count) => {
                write!(f, "it reports {count} taken slots, fewer than before or more than were sent")
            }
            Self::Memory(error) => write!(f, "its memory is gone: {error}"),
        }
    }
}

impl core::error::Error for HostFault {}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("the card has not taken the earlier packets"),
            Self::Length(length) => {
                write!(f, "a packet of {length} B; a packet has {PACKET_MIN} to {PACKET_MAX} B")
            }
            Self::Fault(fault) => fault.fmt(f),
        }
    }
}

impl core::error::Error for SendError {}

/// How a packet travelled between the card and its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// In a line.
    Inline,
    /// In host memory, by DMA.
    Dma,
}

/// A received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its length in bytes.
    pub length: usize,
    /// Its path from the card.
    pub path: Path,
    /// Number of its first bytes that arrived apart from the rest.
    pub head: usize,
}

/// A host's side of one queue.
#[derive(Debug)]
pub struct Host {
    config: HostConfig,
    sent: u64,
    /// Slots that the card has taken, by its latest report.
    taken: u64,
    completed: u64,
    /// The slot that last used each buffer for sending, plus 1; 0 if none has.
    users: [u64; BUFFERS],
    /// The buffer for the next packet that is sent by DMA.
    next_out: usize,
    received: u64,
    /// The buffer of the next packet that arrives by DMA.
    next_in: usize,
    reported: u64,
    /// A slot was stored since the last check whether the card sleeps.
    has_stored: bool,
}

impl Host {
    /// A host whose queue is not started; see [`Host::start`].
    ///
    /// # Panics
    /// When `config` has an invalid queue or length.
    pub fn new(config: HostConfig) -> Self {
        assert!(config.queue < QUEUES, "a card has {QUEUES} queues");
        assert!(config.inline_max <= INLINE_MAX && usize::from(config.head) <= HEAD_MAX, "it fits a line");
        Self {
            config,
            sent: 0,
            taken: 0,
            completed: 0,
            users: [0; BUFFERS],
            next_out: 0,
            received: 0,
            next_in: 0,
            reported: 0,
            has_stored: false,
        }
    }

    /// The registers to write, in order, with their values: they start the queue anew, regardless
    /// of earlier packets. A queue with [`Credits::Pushed`] that still runs must be stopped first,
    /// by a 0 in its control register: the card could push credits for earlier packets into the
    /// line that is cleared here.
    ///
    /// # Errors
    /// When the host's memory is no longer mapped.
    pub fn start(&mut self, memory: &mut impl Memory) -> Result<[(u32, u32); 6], HostFault> {
        // Counts and credits of an earlier run do not apply to this one.
        *self = Self::new(self.config);
        memory.write(self.config.memory, &[0; LINE])?;
        let base = self.register(0);
        let halves = |address: u64| [low(address), low(address >> 32)];
        let [credit_low, credit_high] = halves(self.config.memory);
        let [buffers_low, buffers_high] = halves(self.config.memory.wrapping_add(RECEIVE));
        let push = u32::from(self.config.credits == Credits::Pushed) * queue::PUSH;
        let head = u32::from(self.config.head) << queue::HEAD_SHIFT;
        Ok([
            (base + queue::CREDIT_ADDRESS, credit_low),
            (base + queue::CREDIT_ADDRESS + 4, credit_high),
            (base + queue::BUFFERS_ADDRESS, buffers_low),
            (base + queue::BUFFERS_ADDRESS + 4, buffers_high),
            (base + queue::BUFFERS, low(BUFFERS as u64) | (BUFFER / 64) << 16),
            (base + queue::CONTROL, queue::ENABLE | push | head),
        ])
    }

    /// Sends packets of up to this many bytes in a line from now on, at most [`INLINE_MAX`], and
    /// others by DMA.
    pub fn set_inline_max(&mut self, bytes: usize) {
        self.config.inline_max = bytes.min(INLINE_MAX);
    }

    /// Sends a packet; returns the number of packets sent with it. With `completion`,
    /// [`Host::poll_completed`] reports when the card has taken it for the wire.
    ///
    /// # Errors
    /// When there is no room, the packet has an invalid length, or the card is at fault.
    pub fn send(
        &mut self,
        window: &mut impl Memory,
        memory: &mut impl Memory,
        packet: &[u8],
        completion: bool,
    ) -> Result<u64, SendError> {
        if !(PACKET_MIN..=PACKET_MAX).contains(&packet.len()) {
            return Err(SendError::Length(packet.len()));
        }
        let is_inline = packet.len() <= self.config.inline_max;
        if !self.has_room(is_inline) {
            self.hear(window, memory)?;
            if !self.has_room(is_inline) {
                return Err(SendError::Full);
            }
        }
        let number = self.sent;
        let line = if is_inline {
            Slot::inline(packet, completion, number)
        } else {
            let address = buffer_at(self.config.memory + SEND, self.next_out);
            memory.write(address, packet).map_err(HostFault::from)?;
            self.users[self.next_out] = number + 1;
            self.next_out = (self.next_out + 1) % BUFFERS;
            let length = u32::try_from(packet.len()).unwrap_or(u32::MAX);
            Slot::reference(address, length, completion, number)
        };
        window.write(slot_at(self.config.queue, number), &line).map_err(HostFault::from)?;
        self.sent += 1;
        self.has_stored = true;
        Ok(self.sent)
    }

    const fn has_room(&self, is_inline: bool) -> bool {
        let has_credit = self.sent - self.taken < SLOTS;
        has_credit && (is_inline || self.users[self.next_out] <= self.taken)
    }

    /// Reads how many slots the card has taken and sent.
    fn hear(&mut self, window: &impl Memory, memory: &impl Memory) -> Result<(), HostFault> {
        let mut credit = [0; 16];
        match self.config.credits {
            Credits::Read => window.read(credit_at(self.config.queue), &mut credit)?,
            Credits::Pushed => memory.read(self.config.memory, &mut credit)?,
        }
        let [taken, completed] = [0, 8].map(|start| {
            let mut word = [0; 8];
            word.copy_from_slice(&credit[start..start + 8]);
            u64::from_le_bytes(word)
        });
        if !(self.taken..=self.sent).contains(&taken) {
            return Err(HostFault::Taken(taken));
        }
        if !(self.completed..=taken).contains(&completed) {
            return Err(HostFault::Taken(completed));
        }
        (self.taken, self.completed) = (taken, completed);
        Ok(())
    }

    /// The register to write, with its value, if the card must be woken: something was stored since
    /// the last call, and the card sleeps.
    ///
    /// # Errors
    /// When the window is no longer mapped.
    pub fn poll_wake(&mut self, window: &impl Memory) -> Result<Option<(u32, u32)>, HostFault> {
        if !core::mem::take(&mut self.has_stored) {
            return Ok(None);
        }
        // The card announces that it sleeps and then looks for slots. This host has stored a slot
        // and now looks whether the card sleeps. Without the fence, each could miss the other.
        fence(Ordering::SeqCst);
        let mut asleep = [0; 8];
        window.read(asleep_at(self.config.queue), &mut asleep)?;
        Ok((asleep != [0; 8]).then_some((self.register(queue::WAKE), 1)))
    }

    /// Requests one interrupt with the next packet. Look for a packet once more before waiting: a
    /// packet that arrived before the card could see this request causes no interrupt.
    ///
    /// # Errors
    /// When the window is no longer mapped.
    pub fn await_interrupt(&self, window: &mut impl Memory) -> Result<(), HostFault> {
        window.write(awaited_at(self.config.queue), &(self.received + 1).to_le_bytes())?;
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// The place of a register of this host's queue.
    fn register(&self, offset: u32) -> u32 {
        at::QUEUE + at::QUEUE_STRIDE * u32::try_from(self.config.queue).unwrap_or(0) + offset
    }

    /// The number of packets up to the last one that requested a completion and was taken for the
    /// wire.
    ///
    /// # Errors
    /// When the card is at fault.
    pub fn poll_completed(&mut self, window: &impl Memory, memory: &impl Memory) -> Result<u64, HostFault> {
        self.hear(window, memory)?;
        Ok(self.completed)
    }

    /// The number of packets that the card has taken, by its latest report.
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    /// Takes the next received packet, into the beginning of `packet`.
    ///
    /// # Errors
    /// When the card is at fault.
    ///
    /// # Panics
    /// When `packet` is shorter than [`PACKET_MAX`].
    pub fn receive(
        &mut self,
        window: &mut impl Memory,
        memory: &mut impl Memory,
        packet: &mut [u8],
    ) -> Result<Option<Received>, HostFault> {
        assert!(packet.len() >= PACKET_MAX, "there must be room for a packet");
        let number = self.received;
        let mut line = [0; LINE];
        window.read(line_at(self.config.queue, number), &mut line)?;
        let received = match Line::parse(&line, number) {
            Line::Empty => return Ok(None),
            Line::Malformed => return Err(HostFault::Line(number)),
            Line::Inline(length) => {
                packet[..length].copy_from_slice(&line[..length]);
                Received { length, path: Path::Inline, head: 0 }
            }
            Line::Reference { address, length, head } => {
                let buffer = buffer_at(self.config.memory + RECEIVE, self.next_in);
                if address != buffer {
                    return Err(HostFault::Buffer(address));
                }
                packet[..head].copy_from_slice(Line::head(&line, head));
                memory.read(address, &mut packet[head..length])?;
                self.next_in = (self.next_in + 1) % BUFFERS;
                Received { length, path: Path::Dma, head }
            }
        };
        self.received += 1;
        // As many packets by DMA as there are buffers would make the card wait as well.
        if self.received - self.reported >= (SLOTS / REPORT_PART).min(BUFFERS as u64 / 2) {
            window.write(taken_at(self.config.queue), &self.received.to_le_bytes())?;
            self.reported = self.received;
        }
        Ok(Some(received))
    }
}
