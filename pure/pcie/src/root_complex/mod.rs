//! The top of the hierarchy: sends requests for the host, answers the devices' DMA, and enumerates.

mod allocate;
mod capabilities;
mod enumerate;
mod receive;
mod retry;
mod scan;
#[cfg(test)]
mod tests;
mod topology;

pub use enumerate::{EnumerationError, Plan};
pub use receive::Received;
pub use topology::{
    BarRegister, Bridge, Capability, CapabilityId, Express, Fault, Function, MsiX, Slot, Space, Topology,
    Window,
};

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use engine::{Buffer, Engine, Instant, Nanos, Step};

use crate::completer::{self, Completer};
use crate::requester::{self, Answer, Busy, CompletionTimeout, Requester, TagWidth, TimedOut};
use crate::wire::{Bdf, CompletionStatus, ConfigType, Header, Message, Packet};
use enumerate::{Question, QuestionCookie, Running};
use retry::{Access, Accesses};

/// Writes to these addresses are interrupts (MSI and MSI-X), as on a PC, unless
/// [`RootComplex::set_interrupt_window`] changes them.
pub const INTERRUPT_WINDOW: Range<u64> = 0xfee0_0000..0xfef0_0000;
/// Maximum number of device reads that wait for host memory; further reads are answered with
/// Completer Abort.
pub const MEMORY_READS_MAX: usize = 16_384;
/// Default time for which a function may answer with Configuration Request Retry Status (CRS): as
/// long as common hosts wait after a reset. By then, a far end that was disconnected has
/// reconnected, or its link is down.
pub const RETRY_DEADLINE: Nanos = Nanos::from_secs(60);
const _: () = assert!(MEMORY_READS_MAX <= MemoryReadToken::EPOCH as usize);

/// Parameters that a root complex is built with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The bus below the root port. Device 0 on this bus gets configuration requests of type 0.
    pub bus: u8,
    /// Max_Payload_Size that the root port supports, in bytes.
    pub payload_size: u32,
    /// Maximum number of tags of the root port. 10-bit tags are used only if every function below
    /// supports them.
    pub tags: TagWidth,
    /// How long the root port waits for completions.
    pub timeout: CompletionTimeout,
    /// Maximum size in bytes of a completion that answers a device's read: a power of two, at least
    /// 64. Many hosts split their completions at 64 or 128 bytes, even if they support larger
    /// payloads.
    pub completion_size: u32,
    /// CRS Software Visibility Enable. When set, a host read that begins at the Vendor ID returns
    /// 0001h in the Vendor ID if the function answers with CRS. Otherwise, and for all other
    /// requests, the root complex issues the request again, invisibly to the host.
    pub retry_visible: bool,
    /// How long a request that is answered with Configuration Request Retry Status (CRS) is issued
    /// again before it fails with [`requester::RequestError::ConfigRequestRetry`].
    pub retry_deadline: Nanos,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            bus: 1,
            payload_size: 4096,
            tags: TagWidth::Bits10,
            timeout: CompletionTimeout::default(),
            completion_size: 4096,
            retry_visible: false,
            retry_deadline: RETRY_DEADLINE,
        }
    }
}

/// Names a device's read of host memory until the read is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemoryReadToken(pub u32);

impl MemoryReadToken {
    /// A token is the read's index plus this factor times the epoch.
    const EPOCH: u32 = 1 << 14;
    /// How many epochs have tokens of their own.
    const EPOCHS: u32 = u32::MAX / Self::EPOCH;

    /// The token of the read at `index`. The epoch counts how often the link has gone down.
    const fn new(epoch: u32, index: u32) -> Self {
        Self(epoch * Self::EPOCH + index)
    }
    const fn epoch(self) -> u32 {
        self.0 / Self::EPOCH
    }
    const fn index(self) -> u32 {
        self.0 % Self::EPOCH
    }
}

/// An event on the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A packet arrived.
    Packet(Packet),
    /// The link is down: no outstanding request will be answered.
    LinkDown,
}

/// An output of a root complex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A packet to be sent down the link.
    Packet(Packet),
    /// Progress of a request of the host.
    Answer(Answer),
    /// A device reads host memory; answer with [`RootComplex::memory_read_done`]. The read is of
    /// whole double words: the address and the length are multiples of 4.
    MemoryRead {
        /// Names the read in its answer.
        token: MemoryReadToken,
        /// Host address of the first byte.
        address: u64,
        /// Length of the read in bytes, 4..=4096.
        length: u32,
    },
    /// A device writes to host memory. Bytes outside of host memory are dropped, as for any posted
    /// write.
    MemoryWrite {
        /// Host address of the first byte.
        address: u64,
        /// The bytes to write.
        data: Buffer,
    },
    /// A device raises a message-signalled interrupt, behind its earlier writes.
    Interrupt {
        /// The address in the interrupt window that the message was written to.
        address: u64,
        /// The data of the message.
        data: u32,
    },
    /// A message for the root complex: power management, hot-plug, errors.
    Message(Message),
    /// Enumeration has ended, or re-enumeration below a port.
    Enumerated(Result<Topology, EnumerationError>),
    /// The link delivered an unexpected completion or a malformed request, which was dropped.
    Unexpected(Header),
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Reads of host memory by devices.
    pub memory_reads: u64,
    /// Writes to host memory by devices.
    pub memory_writes: u64,
    /// Message-signalled interrupts from devices.
    pub interrupts: u64,
    /// ERR_COR messages received.
    pub errors_correctable: u64,
    /// ERR_NONFATAL messages received.
    pub errors_non_fatal: u64,
    /// ERR_FATAL messages received.
    pub errors_fatal: u64,
    /// Power-management messages received.
    pub power_management: u64,
    /// Other messages received.
    pub other_messages: u64,
    /// Requests answered with Unsupported Request or Completer Abort.
    pub refused: u64,
    /// Configuration requests of the host that were answered with Configuration Request Retry
    /// Status. Enumeration's requests are not counted.
    pub retries: u64,
    /// Packets dropped as malformed.
    pub malformed: u64,
}

/// A root complex with one root port.
#[derive(Debug)]
pub struct RootComplex {
    config: Config,
    interrupts: Range<u64>,
    requester: Requester,
    completer: Completer,
    outputs: VecDeque<Output>,
    /// Reads that wait for host memory; a free slot is `None`.
    reads: Vec<Option<Header>>,
    free: Vec<u32>,
    /// Number of times that the link has gone down, modulo [`MemoryReadToken::EPOCHS`]. A token
    /// from an earlier epoch is invalid.
    epoch: u32,
    enumeration: Option<Running>,
    /// Number of the last question that enumeration asked; an answer to an earlier question is
    /// stale.
    question: u64,
    accesses: Accesses,
    statistics: Statistics,
}

impl RootComplex {
    /// A root complex with an empty hierarchy.
    pub fn new(config: Config) -> Self {
        let settings = requester::Settings {
            id: Bdf::new(0, 0, 0),
            tags: config.tags.min(TagWidth::Bits8),
            read_request_size: 4096,
            // Tags and payloads that every function supports, until enumeration has found the real
            // limits.
            payload_size: 128,
            timeout: config.timeout,
        };
        let answers = completer::Settings {
            id: settings.id,
            boundary: 64,
            payload_size: 128.min(config.completion_size),
        };
        Self {
            config,
            interrupts: INTERRUPT_WINDOW,
            requester: Requester::new(settings),
            completer: Completer::new(answers),
            outputs: VecDeque::new(),
            reads: Vec::new(),
            free: Vec::new(),
            epoch: 0,
            enumeration: None,
            question: 0,
            accesses: Accesses::default(),
            statistics: Statistics::default(),
        }
    }

    /// The parameters that the root complex was built with.
    pub const fn config(&self) -> &Config {
        &self.config
    }
    /// Counters since the start.
    pub const fn statistics(&self) -> &Statistics {
        &self.statistics
    }
    /// Counters of the requests that the root complex itself sent.
    pub const fn requester_statistics(&self) -> &requester::Statistics {
        self.requester.statistics()
    }
    /// The last request of the root complex that ran into its Completion Timeout.
    pub const fn timed_out(&self) -> Option<TimedOut> {
        self.requester.timed_out()
    }
    /// Treats writes to `window`, and no other writes, as interrupts from now on.
    pub const fn set_interrupt_window(&mut self, window: Range<u64>) {
        self.interrupts = window;
    }

    /// Reads `length` bytes of a device's memory (BARs) at `address`.
    ///
    /// # Errors
    /// [`Busy`] when too many requests are outstanding.
    pub fn read(&mut self, now: Instant, cookie: u64, address: u64, length: u32) -> Result<(), Busy> {
        self.requester.read(now, cookie, address, length)?;
        self.collect(now);
        Ok(())
    }

    /// Writes `data` to a device's memory (BARs) at `address`. The write is posted.
    pub fn write(&mut self, address: u64, data: &Buffer) {
        self.requester.write(address, data);
        self.collect_packets();
    }

    /// Reads a double word of `target`'s configuration space. `cookie` must be below 2^63.
    ///
    /// # Errors
    /// [`Busy`] when too many requests are outstanding.
    ///
    /// # Panics
    /// When `cookie` is 2^63 or more: enumeration uses those.
    pub fn config_read(&mut self, now: Instant, cookie: u64, target: Bdf, offset: u16) -> Result<(), Busy> {
        assert!(QuestionCookie::parse(cookie).is_none(), "a cookie that enumeration uses");
        self.config_request(now, Access { cookie, target, offset, write: None })
    }

    /// Writes the bytes selected by `enables` to a double word of `target`'s configuration space.
    ///
    /// # Errors
    /// [`Busy`] when too many requests are outstanding.
    ///
    /// # Panics
    /// When `cookie` is 2^63 or more: enumeration uses those.
    pub fn config_write(
        &mut self,
        now: Instant,
        cookie: u64,
        target: Bdf,
        offset: u16,
        enables: u8,
        value: u32,
    ) -> Result<(), Busy> {
        assert!(QuestionCookie::parse(cookie).is_none(), "a cookie that enumeration uses");
        self.config_request(now, Access { cookie, target, offset, write: Some((enables, value)) })
    }

    fn config_request(&mut self, now: Instant, access: Access) -> Result<(), Busy> {
        self.accesses.room()?;
        self.issue(now, &access)?;
        self.accesses.start(access);
        self.collect(now);
        Ok(())
    }

    /// Answers an [`Output::MemoryRead`] with the requested bytes. `None` means that there is no
    /// memory; the device then gets Unsupported Request. A token that is no longer open is ignored.
    ///
    /// # Panics
    /// When the number of bytes differs from the requested length.
    pub fn memory_read_done(&mut self, token: MemoryReadToken, data: Option<Buffer>) {
        let index = token.index();
        if token.epoch() != self.epoch {
            return;
        }
        let Some(request) = self.reads.get_mut(index as usize).and_then(Option::take) else { return };
        self.free.push(index);
        match data {
            None => self.refuse(&request, CompletionStatus::UnsupportedRequest),
            Some(data) => {
                let outputs = &mut self.outputs;
                self.completer.data(&request, &data, |packet| outputs.push_back(Output::Packet(packet)));
            }
        }
    }

    /// Finds, sizes, places and enables everything below the root port. Ends with
    /// [`Output::Enumerated`]. An enumeration that is still running is dropped without a result.
    pub fn enumerate(&mut self, now: Instant, plan: Plan) {
        let (running, step) = Running::start(self.config, plan);
        self.enumeration = Some(running);
        self.on_step(now, step);
    }

    /// Enumerates again the part below the downstream port `port` of `topology` (hot-plug). It uses
    /// the buses and windows of the port, and leaves the rest unchanged. Ends with
    /// [`Output::Enumerated`].
    pub fn enumerate_below(&mut self, now: Instant, topology: Topology, port: Bdf, plan: Plan) {
        let (running, step) = Running::start_below(self.config, plan, topology, port);
        self.enumeration = Some(running);
        self.on_step(now, step);
    }

    /// Whether an enumeration is running.
    pub const fn is_enumerating(&self) -> bool {
        self.enumeration.is_some()
    }

    const fn routing(&self, target: Bdf) -> ConfigType {
        if target.bus() == self.config.bus { ConfigType::Type0 } else { ConfigType::Type1 }
    }

    fn on_step(&mut self, now: Instant, step: Step<Question, Result<Topology, EnumerationError>>) {
        match step {
            Step::Done(result) => {
                self.enumeration = None;
                if let Ok(topology) = &result {
                    let payload_size = topology.payload_size();
                    let all = if topology.takes_ten_bit_tags() { TagWidth::Bits10 } else { TagWidth::Bits8 };
                    let tags = self.config.tags.min(all);
                    let settings = requester::Settings { payload_size, tags, ..*self.requester.settings() };
                    self.requester.set(settings);
                    // Devices that accept smaller payloads request less: see
                    // `Function::read_request_size`.
                    let payload_size = self.config.payload_size.min(self.config.completion_size);
                    self.completer.set(completer::Settings { payload_size, ..*self.completer.settings() });
                }
                self.outputs.push_back(Output::Enumerated(result));
            }
            Step::Ask(question) => self.ask(now, question),
        }
    }

    fn ask(&mut self, now: Instant, question: Question) {
        self.question += 1;
        let cookie = QuestionCookie::of(self.question).0;
        let sent = match question {
            Question::Read { target, offset } => {
                self.issue(now, &Access { cookie, target, offset, write: None })
            }
            Question::Write { target, offset, enables, value } => {
                self.issue(now, &Access { cookie, target, offset, write: Some((enables, value)) })
            }
            Question::Wait(length) => {
                self.sleep(now + length, None);
                Ok(())
            }
        };
        if sent == Err(Busy) {
            self.sleep(now + BUSY_PAUSE, Some(question));
        }
        self.collect(now);
    }

    fn sleep(&mut self, until: Instant, again: Option<Question>) {
        if let Some(running) = &mut self.enumeration {
            running.sleep = Some((until, again));
        }
    }

    fn answer(&mut self, now: Instant, answer: enumerate::Answer) {
        if let Some(running) = &mut self.enumeration {
            let step = running.script.answer(answer);
            self.on_step(now, step);
        }
    }

    /// Passes on the requester's outputs. An answer to enumeration's question continues
    /// enumeration.
    fn collect(&mut self, now: Instant) {
        while let Some(output) = self.requester.poll_output() {
            match output {
                requester::Output::Answer(Answer::Register { cookie, result }) => {
                    match QuestionCookie::parse(cookie) {
                        None => self.on_register(now, cookie, result),
                        Some(asked) if asked == QuestionCookie::of(self.question) => {
                            self.answer(now, result);
                        }
                        Some(_) => {}
                    }
                }
                output => self.pass_on(output),
            }
        }
    }

    /// As [`RootComplex::collect`], for when no answer to a configuration request can be due.
    fn collect_packets(&mut self) {
        while let Some(output) = self.requester.poll_output() {
            self.pass_on(output);
        }
    }

    fn pass_on(&mut self, output: requester::Output) {
        self.outputs.push_back(match output {
            requester::Output::Packet(packet) => Output::Packet(packet),
            requester::Output::Answer(answer) => Output::Answer(answer),
            requester::Output::Unexpected(header) => Output::Unexpected(header),
        });
    }
}

/// How long enumeration waits when the host's driver has used up all requests.
const BUSY_PAUSE: Nanos = Nanos::from_millis(1);

impl RootComplex {
    fn on_link_down(&mut self, now: Instant) {
        // The requesters are gone. A late answer must not match a later read.
        for (index, read) in self.reads.iter_mut().enumerate() {
            if read.take().is_some() {
                self.free.push(u32::try_from(index).unwrap_or(u32::MAX));
            }
        }
        self.epoch = (self.epoch + 1) % MemoryReadToken::EPOCHS;
        self.give_up_retries();
        self.requester.fail_all();
        self.collect(now);
    }
}

impl Engine for RootComplex {
    type Input<'a> = Input;
    type Output = Output;

    fn handle_input(&mut self, now: Instant, input: Input) {
        match input {
            Input::Packet(packet) => self.on_packet(now, &packet),
            Input::LinkDown => self.on_link_down(now),
        }
    }
    fn handle_timeout(&mut self, now: Instant) {
        self.requester.handle_timeout(now);
        self.collect(now);
        if self.accesses.deadline().is_some_and(|at| at <= now) {
            self.retry(now);
        }
        let due = self.enumeration.as_mut().and_then(|running| running.sleep.take_if(|(at, _)| *at <= now));
        match due {
            Some((_, Some(question))) => self.ask(now, question),
            Some((_, None)) => self.answer(now, Ok(0)),
            None => {}
        }
    }
    fn poll_output(&mut self) -> Option<Output> {
        engine::pop(&mut self.outputs)
    }
    fn poll_timeout(&self) -> Option<Instant> {
        let wake = self.enumeration.as_ref().and_then(|running| running.sleep).map(|(at, _)| at);
        let requests = Instant::earlier(self.requester.poll_timeout(), self.accesses.deadline());
        Instant::earlier(requests, wake)
    }
}
