//! Packets that arrive from the link: requests from devices, completions of the host's requests,
//! and messages.

use core::ops::Range;

use engine::{Buffer, Instant};

use super::{MEMORY_READS_MAX, MemoryReadToken, Output, RootComplex};
use crate::wire::{CompletionStatus, Header, Kind, MemoryOperation, MemoryRequest, Message, Packet};

/// Requests must not cross a multiple of this many bytes.
const PAGE: u64 = 4096;

/// The result of [`RootComplex::receive`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// A write to host memory, like [`Output::MemoryWrite`], of some bytes of the payload.
    MemoryWrite {
        /// Host address of the first byte.
        address: u64,
        /// Range of the bytes in the payload.
        bytes: Range<usize>,
    },
    /// A read of host memory, like [`Output::MemoryRead`]; answer with [`RootComplex::complete`].
    MemoryRead {
        /// Host address of the first byte.
        address: u64,
        /// Length of the read in bytes, 4..=4096.
        length: u32,
    },
    /// A message-signalled interrupt, like [`Output::Interrupt`].
    Interrupt {
        /// The address that the message was written to.
        address: u64,
        /// The data of the message.
        data: u32,
    },
    /// The packet was handled; any remaining work is queued as outputs.
    Taken,
}

impl RootComplex {
    /// Takes a packet from the link, as [`Input::Packet`](super::Input::Packet) does. If no output
    /// is waiting, a read, write or interrupt is returned at once, bypassing the queue of outputs.
    #[inline]
    pub fn receive(&mut self, now: Instant, packet: &Packet) -> Received {
        let header = &packet.header;
        if let Kind::Memory(request) = &header.kind
            && self.outputs.is_empty()
        {
            match request.operation {
                MemoryOperation::Write => {
                    if let Some(written) = self.plain_write(request, packet) {
                        return written;
                    }
                }
                MemoryOperation::Read => {
                    if let Some(length) = self.plain_read(request, header) {
                        return Received::MemoryRead { address: request.address, length };
                    }
                }
                _ => {}
            }
        }
        self.on_packet(now, packet);
        Received::Taken
    }

    /// Answers `request`, which was returned as a [`Received::MemoryRead`], and passes the packets
    /// for the link to `send`, bypassing the queue of outputs. `None` means that there is no
    /// memory; the device then gets Unsupported Request.
    ///
    /// # Panics
    /// When the number of bytes differs from the requested length.
    #[inline]
    pub fn complete(&mut self, request: &Header, data: Option<&Buffer>, mut send: impl FnMut(Packet)) {
        match data {
            Some(data) => self.completer.data(request, data, send),
            None => {
                self.statistics.refused += 1;
                send(self.completer.status(request, CompletionStatus::UnsupportedRequest));
            }
        }
    }

    pub(super) fn on_packet(&mut self, now: Instant, packet: &Packet) {
        match &packet.header.kind {
            Kind::Completion(_) => {
                self.requester.receive(now, packet);
                self.collect(now);
            }
            Kind::Memory(request) => match request.operation {
                MemoryOperation::Write => self.on_write(request, packet),
                MemoryOperation::Read => self.on_read(request, &packet.header),
                // Neither locked reads nor AtomicOps are supported, like at a root port whose
                // Device Capabilities 2 offer no AtomicOp completion.
                _ => self.refuse(&packet.header, CompletionStatus::UnsupportedRequest),
            },
            Kind::Message(message) => self.on_message(*message),
            Kind::Io(_) | Kind::Config(_) => {
                self.refuse(&packet.header, CompletionStatus::UnsupportedRequest);
            }
        }
    }

    /// The length in bytes of a valid read of host memory, which is then counted; `None` for any
    /// other read.
    #[inline]
    fn plain_read(&mut self, request: &MemoryRequest, header: &Header) -> Option<u32> {
        let length = u32::from(header.length) * 4;
        if !within_page(request.address, length) || self.interrupts.contains(&request.address) {
            return None;
        }
        self.statistics.memory_reads += 1;
        Some(length)
    }

    fn on_read(&mut self, request: &MemoryRequest, header: &Header) {
        let length = u32::from(header.length) * 4;
        if !within_page(request.address, length) {
            return self.on_malformed(header);
        }
        if self.interrupts.contains(&request.address) {
            return self.refuse(header, CompletionStatus::UnsupportedRequest);
        }
        let index = match self.free.pop() {
            Some(index) => {
                self.reads[index as usize] = Some(*header);
                index
            }
            None if self.reads.len() < MEMORY_READS_MAX => {
                self.reads.push(Some(*header));
                u32::try_from(self.reads.len() - 1).unwrap_or(u32::MAX)
            }
            None => return self.refuse(header, CompletionStatus::CompleterAbort),
        };
        self.statistics.memory_reads += 1;
        let token = MemoryReadToken::new(self.epoch, index);
        self.outputs.push_back(Output::MemoryRead { token, address: request.address, length });
    }

    /// Counts and returns the write or interrupt of a valid write without holes; `None` for any
    /// other write.
    #[inline]
    fn plain_write(&mut self, request: &MemoryRequest, packet: &Packet) -> Option<Received> {
        let header = &packet.header;
        let (lead, length) = (usize::from(header.lead()), header.byte_length() as usize);
        let fits = within_page(request.address, u32::from(header.length) * 4)
            && lead + length <= packet.payload.len();
        if !fits || length == 0 || header.traits.is_poisoned() || !contiguous(header) {
            return None;
        }
        let (address, bytes) = (request.address + lead as u64, lead..lead + length);
        if !self.interrupts.contains(&address) {
            self.statistics.memory_writes += 1;
            return Some(Received::MemoryWrite { address, bytes });
        }
        let data = u32::from_le_bytes(<[u8; 4]>::try_from(&*packet.payload).ok()?);
        self.statistics.interrupts += 1;
        Some(Received::Interrupt { address, data })
    }

    fn on_write(&mut self, request: &MemoryRequest, packet: &Packet) {
        match self.plain_write(request, packet) {
            Some(Received::MemoryWrite { address, bytes }) => {
                let data = packet.payload.slice(bytes);
                self.outputs.push_back(Output::MemoryWrite { address, data });
            }
            Some(Received::Interrupt { address, data }) => {
                self.outputs.push_back(Output::Interrupt { address, data });
            }
            _ => self.on_odd_write(request, packet),
        }
    }

    fn on_odd_write(&mut self, request: &MemoryRequest, packet: &Packet) {
        let header = &packet.header;
        let (lead, length) = (usize::from(header.lead()), header.byte_length() as usize);
        if !within_page(request.address, u32::from(header.length) * 4) || lead + length > packet.payload.len()
        {
            return self.on_malformed(header);
        }
        if header.traits.is_poisoned() || length == 0 {
            // Bad data must not reach memory. A write of no bytes only flushes.
            self.statistics.malformed += u64::from(header.traits.is_poisoned());
            return;
        }
        let address = request.address + lead as u64;
        if self.interrupts.contains(&address) {
            return self.on_interrupt(address, packet);
        }
        self.statistics.memory_writes += 1;
        self.on_sparse_write(request.address, packet);
    }

    /// Performs a write with holes between its enabled bytes, byte by byte. A write with holes has
    /// at most two double words.
    fn on_sparse_write(&mut self, address: u64, packet: &Packet) {
        for index in 0..packet.payload.len() {
            let dword = u16::try_from(index / 4).unwrap_or(u16::MAX);
            if packet.header.enables_of(dword) >> (index % 4) & 1 == 1 {
                let data = packet.payload.slice(index..index + 1);
                self.outputs.push_back(Output::MemoryWrite { address: address + index as u64, data });
            }
        }
    }

    fn on_interrupt(&mut self, address: u64, packet: &Packet) {
        match <[u8; 4]>::try_from(&*packet.payload) {
            Ok(bytes) => {
                self.statistics.interrupts += 1;
                self.outputs.push_back(Output::Interrupt { address, data: u32::from_le_bytes(bytes) });
            }
            Err(_) => self.on_malformed(&packet.header),
        }
    }

    fn on_message(&mut self, message: Message) {
        use crate::wire::message as code;
        let count = match message.code {
            code::ERR_COR => &mut self.statistics.errors_correctable,
            code::ERR_NONFATAL => &mut self.statistics.errors_non_fatal,
            code::ERR_FATAL => &mut self.statistics.errors_fatal,
            code::PM_PME | code::PME_TO_ACK => &mut self.statistics.power_management,
            _ => &mut self.statistics.other_messages,
        };
        *count += 1;
        self.outputs.push_back(Output::Message(message));
    }

    fn on_malformed(&mut self, header: &Header) {
        self.statistics.malformed += 1;
        self.outputs.push_back(Output::Unexpected(*header));
    }

    pub(super) fn refuse(&mut self, request: &Header, status: CompletionStatus) {
        self.statistics.refused += 1;
        self.outputs.push_back(Output::Packet(self.completer.status(request, status)));
    }
}

/// Whether a request stays within one 4 KiB page.
const fn within_page(address: u64, length: u32) -> bool {
    address % PAGE + length as u64 <= PAGE
}

/// Whether every byte from the first enabled one to the last enabled one is enabled.
fn contiguous(header: &Header) -> bool {
    if header.length > 2 {
        return true;
    }
    let enabled = (0..header.length).map(|index| header.enables_of(index).count_ones()).sum::<u32>();
    enabled == header.byte_length()
}
