//! What comes from the function: reads and writes of the guest's memory, interrupts, answers.

use engine::{Buffer, Engine, Nanos};
use pcie::root_complex::{self, MemoryReadToken};
use tunnel::Upstream;

use super::interrupts::Verdict;
use super::memory::{Answer, Message};
use super::{Event, Guest, Output};

/// Accesses outside of the guest's memory are told of this often at most.
const TELL_EVERY: Nanos = Nanos::from_secs(1);

impl<D: 'static> Guest<D> {
    pub(super) fn on_root(&mut self, output: root_complex::Output) {
        use root_complex::Output as From;
        match output {
            From::Packet(packet) => match &mut self.below {
                super::Below::Tunnel(upstream) => {
                    upstream.handle_input(self.now, tunnel::upstream::Input::Tlp(packet));
                }
                super::Below::Link => self.outputs.push_back(Output::Packet(packet)),
            },
            From::MemoryRead { token, address, length } => self.on_memory_read(token, address, length),
            From::MemoryWrite { address, data } => self.on_memory_write(address, data),
            // The message is the vector's number; see `setup::interrupts`.
            From::Interrupt { data, .. } => self.on_interrupt(usize::try_from(data).unwrap_or(usize::MAX)),
            From::ReadData { cookie, offset, data, last } => self.on_data(cookie, Some((offset, data)), last),
            From::ReadFailed { cookie, .. } => self.on_data(cookie, None, true),
            From::Register { cookie, result } => self.on_register(cookie, result),
            From::Enumerated(result) => self.on_enumerated(result),
            // Hot-plug is told by the tunnel itself. Errors are logged by the function, where the guest reads them.
            From::Message(_) | From::Unexpected(_) => {}
        }
    }

    fn on_memory_read(&mut self, token: MemoryReadToken, address: u64, length: u32) {
        // What lookahead reads costs nobody a trip.
        let lookahead = self.upstream().and_then(Upstream::lookahead).map(|ahead| ahead.reads);
        let waits = lookahead.is_none_or(|reads| reads != self.reads_of_function);
        self.reads_of_function = lookahead.unwrap_or(0);
        if waits {
            // What comes together is answered together.
            self.statistics.read_trips += u64::from(self.read_at.replace(self.now) != Some(self.now));
        }
        let bytes = usize::try_from(length).expect("a TLP reads at most 4 KiB");
        if self.by_message.covers(address, u64::from(length)) {
            self.by_message.read(token, address, bytes, &mut self.pool);
            self.send_messages();
        } else if self.client {
            self.outputs.push_back(Output::ReadMemory { token, address, length });
        } else {
            self.root.memory_read_done(token, None);
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

    fn send_messages(&mut self) {
        let Some(server) = &mut self.server else { return };
        while let Some(message) = self.by_message.poll_message() {
            match message {
                Message::Read(cookie, address, length) => server.dma_read(self.now, cookie, address, length),
                Message::Write(cookie, address, data) => server.dma_write(self.now, cookie, address, data),
            }
        }
    }

    /// The function raises `vector`, behind accesses to the client's memory that the world has made by itself: those of a
    /// function of its own to memory that is mapped.
    pub fn interrupt(&mut self, vector: u16) {
        self.on_interrupt(usize::from(vector));
    }

    fn on_interrupt(&mut self, vector: usize) {
        if !self.by_message.holds_back(vector) {
            self.raise(vector);
        }
    }

    /// A vector has something to say, and all that was written before it has been.
    fn raise(&mut self, vector: usize) {
        let Some(slot) = &mut self.slot else { return };
        if slot.vectors.raise(vector) == Verdict::Signal {
            self.statistics.signals += 1;
            self.outputs.push_back(Output::Signal { vector });
        }
    }

    /// The client has answered a message about its memory.
    pub(super) fn on_answer(&mut self, answer: Answer) {
        match answer {
            Answer::Read(token, data) => self.root.memory_read_done(token, data),
            Answer::Written | Answer::Nothing => {}
        }
        self.send_messages();
        while let Some(vector) = self.by_message.poll_signal() {
            self.raise(vector);
        }
    }

    /// Answers [`Output::ReadMemory`]: with the bytes, or with `None` where no readable memory is mapped.
    ///
    /// # Panics
    /// When the bytes are not as many as were asked for.
    pub fn memory_read_done(
        &mut self,
        token: MemoryReadToken,
        address: u64,
        length: usize,
        data: Option<Buffer>,
    ) {
        if data.is_none() {
            self.statistics.reads_refused += 1;
            self.tell_outside(address, length, false);
        }
        self.root.memory_read_done(token, data);
    }

    /// No writable memory is mapped where an [`Output::WriteMemory`] of `length` bytes should have gone: it is dropped.
    pub fn memory_write_failed(&mut self, address: u64, length: usize) {
        self.statistics.writes_dropped += 1;
        self.tell_outside(address, length, true);
    }

    fn tell_outside(&mut self, address: u64, length: usize, write: bool) {
        self.untold += 1;
        if self.now < self.quiet_until {
            return;
        }
        let times = core::mem::take(&mut self.untold);
        self.quiet_until = self.now + TELL_EVERY;
        self.event(Event::OutsideMemory { address, length, write, times });
    }
}
