//! Packets from the function: reads and writes of the guest's memory, interrupts, answers.

use engine::{Buffer, Nanos};
use pcie::requester;
use pcie::root_complex::{self, MemoryReadToken};

use super::interrupts::Verdict;
use super::memory::{Answer, Message};
use super::{Event, Guest, Output};
use crate::Upstream;

/// Least time between two reports of accesses outside of the guest's memory.
const TELL_EVERY: Nanos = Nanos::from_secs(1);

impl<D: 'static> Guest<D> {
    pub(super) fn on_root(&mut self, output: root_complex::Output) {
        use root_complex::Output as From;
        match output {
            From::Packet(packet) => self.outputs.push_back(Output::Packet(packet)),
            From::MemoryRead { token, address, length } => self.on_memory_read(token, address, length),
            From::MemoryWrite { address, data } => self.on_memory_write(address, data),
            // The message data is the vector's number, as `setup::interrupts` has set it.
            From::Interrupt { data, .. } => self.on_interrupt(usize::try_from(data).unwrap_or(usize::MAX)),
            From::Answer(requester::Answer::ReadData { cookie, offset, data, last }) => {
                self.on_data(cookie, Some((offset, data)), last)
            }
            From::Answer(requester::Answer::ReadFailed { cookie, .. }) => self.on_data(cookie, None, true),
            From::Answer(requester::Answer::Register { cookie, result }) => self.on_register(cookie, result),
            From::Enumerated(result) => self.on_enumerated(result),
            // The tunnel itself reports hot-plug. The function logs errors, and the guest reads
            // them there.
            From::Message(_) | From::Unexpected(_) => {}
        }
    }

    fn on_memory_read(&mut self, token: MemoryReadToken, address: u64, length: u32) {
        // Reads of the lookahead cost no round trip.
        let lookahead = self.upstream().and_then(Upstream::interposer).map(|ahead| ahead.statistics().reads);
        let waits = lookahead.is_none_or(|reads| reads != self.reads_of_function);
        self.reads_of_function = lookahead.unwrap_or(0);
        if waits {
            // Reads that come together are answered together.
            self.statistics.read_trips += u64::from(self.read_at.replace(self.now) != Some(self.now));
        }
        let bytes = usize::try_from(length).expect("a TLP reads at most 4 KiB");
        if self.by_message.covers(address, u64::from(length)) {
            self.by_message.read(token, address, bytes, &mut self.pool);
            self.send_messages();
        } else if self.client {
            self.outputs.push_back(Output::ReadMemory { token, address, length });
        } else {
            self.port.root_mut().memory_read_done(token, None);
        }
    }

    fn on_memory_write(&mut self, address: u64, data: Buffer) {
        if self.by_message.covers(address, data.len() as u64) {
            self.by_message.write(address, data);
            self.send_messages();
        } else if self.client {
            self.outputs.push_back(Output::WriteMemory { address, data });
        }
    }

    pub(super) fn send_messages(&mut self) {
        let Some(server) = &mut self.server else { return };
        while let Some(message) = self.by_message.poll_message() {
            match message {
                Message::Read(cookie, address, length) => server.dma_read(self.now, cookie, address, length),
                Message::Write(cookie, address, data) => server.dma_write(self.now, cookie, address, data),
                Message::Interrupt(cookie, address, data) => {
                    server.write_interrupt(self.now, cookie, address, data);
                }
            }
        }
    }

    /// The function raises `vector`. For a function on the link whose accesses to mapped client
    /// memory are made by the world itself: the interrupt comes behind those accesses.
    pub fn interrupt(&mut self, vector: u16) {
        self.on_interrupt(usize::from(vector));
    }

    fn on_interrupt(&mut self, vector: usize) {
        // An interrupt by message follows the writes before it on the same way.
        if self.config.hot_plug || !self.by_message.holds_back(vector) {
            self.raise(vector);
        }
    }

    /// Raises a vector once all writes before it have ended.
    fn raise(&mut self, vector: usize) {
        let Some(slot) = &mut self.slot else { return };
        if slot.vectors.raise(vector) == Verdict::Signal {
            self.signal(vector);
        }
    }

    /// Interrupts the guest.
    pub(super) fn signal(&mut self, vector: usize) {
        self.statistics.signals += 1;
        if self.config.hot_plug {
            self.send_interrupt(vector);
        } else {
            self.outputs.push_back(Output::Signal { vector });
        }
    }

    /// The client has answered a message about its memory.
    pub(super) fn on_answer(&mut self, answer: Answer) {
        match answer {
            Answer::Read(token, data) => self.port.root_mut().memory_read_done(token, data),
            Answer::Written | Answer::Nothing => {}
        }
        self.send_messages();
        while let Some(vector) = self.by_message.poll_signal() {
            self.raise(vector);
        }
    }

    /// Answers [`Output::ReadMemory`] with the bytes, or with `None` where no readable memory is
    /// mapped.
    ///
    /// # Panics
    /// When the length of the bytes is not the length that was asked for.
    pub fn memory_read_done(
        &mut self,
        token: MemoryReadToken,
        address: u64,
        length: usize,
        data: Option<Buffer>,
    ) {
        if data.is_none() {
            self.statistics.reads_refused += 1;
            self.report_outside(address, length, false);
        }
        self.port.root_mut().memory_read_done(token, data);
    }

    /// No writable memory is mapped where an [`Output::WriteMemory`] of `length` bytes should have
    /// gone. The write is dropped.
    pub fn memory_write_failed(&mut self, address: u64, length: usize) {
        self.statistics.writes_dropped += 1;
        self.report_outside(address, length, true);
    }

    fn report_outside(&mut self, address: u64, length: usize, write: bool) {
        self.untold += 1;
        if self.now < self.quiet_until {
            return;
        }
        let times = core::mem::take(&mut self.untold);
        self.quiet_until = self.now + TELL_EVERY;
        self.event(Event::OutsideMemory { address, length, write, times });
    }
}
