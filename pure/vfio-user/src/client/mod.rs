//! The side that uses a function: turns requests into messages, and the server's messages into
//! answers and accesses to memory.

mod output;
mod reason;
mod replies;
#[cfg(test)]
mod tests;
mod waiting;

pub use crate::input::Input;
pub use output::{Answer, Output, RequestId};
pub use reason::CloseReason;

use alloc::vec::Vec;

use engine::{Engine, Instant, Nanos};

use crate::connection::{Core, End};
use crate::errno::Errno;
use crate::index::{InterruptIndex, RegionIndex};
use crate::interrupt::{InterruptAction, InterruptData};
use crate::limits::WRITES_MAX;
use crate::message;
use crate::peer::Peer;
use crate::pending::{RequestHead, Token};
use crate::stream::Message;
use crate::version::{self, Negotiated};
use crate::wire::{
    Command, DeviceInfo, DmaAccess, DmaMap, DmaUnmap, Header, HeaderError, InterruptInfo, RegionAccess,
    RegionInfo, SetInterrupts, SingleWrite, Version, WriteMultiple,
};
use waiting::{Ask, Waiting};

/// The settings of a client.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How long a server may take to answer: with its version, and to each request.
    pub answer: Nanos,
}

impl Default for Config {
    /// 5 s, as long as QEMU's client waits.
    fn default() -> Self {
        Self { answer: Nanos::from_secs(5) }
    }
}

/// The first offer of room for a region's information to a server, in bytes: enough for the maximum
/// number of areas.
const REGION_ROOM: u32 = 4064;

/// The user of one server's function.
#[derive(Debug)]
pub struct Client<D> {
    config: Config,
    /// The connection to the server, whose requests are accesses to this end's memory.
    core: Core<D, DmaAccess, Output<D>>,
    waiting: Waiting,
    requests: u64,
}

impl<D: 'static> Client<D> {
    /// Creates a client without a server.
    ///
    /// # Panics
    /// When `config.answer` is zero.
    pub fn new(config: Config) -> Self {
        assert!(config.answer > Nanos::ZERO, "a server has time to answer");
        Self { config, core: Core::default(), waiting: Waiting::default(), requests: 0 }
    }

    /// The agreement with the present server, once the server has sent its version.
    pub const fn negotiated(&self) -> Option<Negotiated> {
        self.core.peer.negotiated()
    }

    /// Requests information about the device. The answer is [`Answer::Device`].
    pub fn device_info(&mut self, now: Instant) -> RequestId {
        self.ask(now, Ask::Device, [&DeviceInfo::default().emit(), &[]], Vec::new())
    }

    /// Requests information about a region. The answer is [`Answer::Region`].
    pub fn region_info(&mut self, now: Instant, region: RegionIndex) -> RequestId {
        let request = self.next_request();
        self.ask_region(now, request, region.0, REGION_ROOM);
        request
    }

    /// Requests information about a kind of interrupts. The answer is [`Answer::Interrupt`].
    pub fn interrupt_info(&mut self, now: Instant, index: InterruptIndex) -> RequestId {
        let index = index.number();
        let request = InterruptInfo { index, ..InterruptInfo::default() };
        self.ask(now, Ask::Interrupt { index }, [&request.emit(), &[]], Vec::new())
    }

    /// Shares memory: with a descriptor if the memory is that of a file, without one if the server
    /// must access it by message.
    pub fn map(&mut self, now: Instant, map: DmaMap, descriptor: Option<D>) -> RequestId {
        let descriptors = descriptor.into_iter().collect();
        self.ask(now, Ask::Done(Command::DmaMap), [&map.emit(), &[]], descriptors)
    }

    /// Takes back memory: one piece as it was shared, or all. Once the request is answered, the
    /// server does not use the memory any more.
    pub fn unmap(&mut self, now: Instant, unmap: DmaUnmap) -> RequestId {
        self.ask(now, Ask::Done(Command::DmaUnmap), [&unmap.emit(), &[]], Vec::new())
    }

    /// Reads `count` bytes at `offset` of a region. The answer is [`Answer::Data`].
    pub fn read(&mut self, now: Instant, region: RegionIndex, offset: u64, count: u32) -> RequestId {
        if self.negotiated().is_some_and(|server| count > server.data_max) {
            return self.refuse(Errno::E2BIG);
        }
        let access = RegionAccess { offset, region: region.0, count };
        self.ask(now, Ask::Read(access), [&access.emit(), &[]], Vec::new())
    }

    /// Writes `data` at `offset` of a region.
    pub fn write(&mut self, now: Instant, region: RegionIndex, offset: u64, data: &[u8]) -> RequestId {
        let Some(access) = self.write_access(region, offset, data) else { return self.refuse(Errno::E2BIG) };
        self.ask(now, Ask::Done(Command::RegionWrite), [&access.emit(), data], Vec::new())
    }

    /// Writes `data` at `offset` of a region without an answer. Does nothing if there is no server.
    /// The answer to a later request shows that the server has handled the write.
    ///
    /// # Panics
    /// When `data` is longer than the server accepts in one message.
    pub fn post(&mut self, region: RegionIndex, offset: u64, data: &[u8]) {
        if self.negotiated().is_none() {
            return;
        }
        let access = self.write_access(region, offset, data).expect("a posted write fits in a message");
        let length = RegionAccess::LENGTH + data.len();
        let header = Header::command(self.waiting.unanswered(), Command::RegionWrite, length, true);
        self.core.send(&header, [&access.emit(), data]);
    }

    /// Writes several times, at most 8 B each, in one message. Fails with `EOPNOTSUPP` if the
    /// server does not accept such messages.
    pub fn write_multiple(&mut self, now: Instant, writes: &[SingleWrite]) -> RequestId {
        if writes.len() > WRITES_MAX {
            return self.refuse(Errno::E2BIG);
        }
        if self.negotiated().is_some_and(|server| !server.write_multiple) {
            return self.refuse(Errno::EOPNOTSUPP);
        }
        let count = writes.len() as u64;
        let bytes: Vec<u8> = writes.iter().flat_map(SingleWrite::emit).collect();
        let fixed: [u8; WriteMultiple::LENGTH] = count.to_le_bytes();
        self.ask(now, Ask::WriteMultiple { count }, [&fixed, &bytes], Vec::new())
    }

    /// Sets up, tears down, masks, unmasks or triggers `count` interrupts from number `start` on. A
    /// `count` of 0 without data tears down all interrupts of the kind.
    pub fn set_interrupts(
        &mut self,
        now: Instant,
        index: InterruptIndex,
        action: InterruptAction,
        (start, count): (u32, u32),
        data: InterruptData<D>,
    ) -> RequestId {
        let action = match action {
            InterruptAction::Mask => SetInterrupts::MASK,
            InterruptAction::Unmask => SetInterrupts::UNMASK,
            InterruptAction::Trigger => SetInterrupts::TRIGGER,
        };
        let (kind, bools, descriptors) = match data {
            InterruptData::None => (SetInterrupts::NONE, Vec::new(), Vec::new()),
            InterruptData::Bools(bools) => {
                (SetInterrupts::BOOLS, bools.into_iter().map(u8::from).collect(), Vec::new())
            }
            InterruptData::Descriptors(descriptors) => (SetInterrupts::DESCRIPTORS, Vec::new(), descriptors),
        };
        let set = SetInterrupts { flags: kind | action, index: index.number(), start, count, bools: &bools };
        self.ask(now, Ask::Done(Command::DeviceSetIrqs), [&set.emit(), &bools], descriptors)
    }

    /// Resets the device.
    pub fn reset(&mut self, now: Instant) -> RequestId {
        self.ask(now, Ask::Done(Command::DeviceReset), [&[], &[]], Vec::new())
    }

    /// Answers [`Output::DmaRead`].
    ///
    /// # Panics
    /// When the number of bytes is not the requested one.
    pub fn dma_read_done(&mut self, token: Token, result: Result<&[u8], Errno>) {
        let Some((asked, access)) = self.take(token, Command::DmaRead) else { return };
        match result {
            Ok(data) => {
                assert_eq!(data.len() as u64, access.count, "the whole requested range is read");
                self.core.reply(asked, [&access.emit(), data]);
            }
            Err(error) => self.core.refuse(asked, error),
        }
    }

    /// Answers an [`Output::DmaWrite`] that carries this token.
    pub fn dma_write_done(&mut self, token: Token, result: Result<(), Errno>) {
        let Some((asked, access)) = self.take(token, Command::DmaWrite) else { return };
        match result {
            Ok(()) => self.core.reply(asked, [&access.emit(), &[]]),
            Err(error) => self.core.refuse(asked, error),
        }
    }

    /// Takes the access called `token`, if it is still waiting and `command` requested it.
    fn take(&mut self, token: Token, command: Command) -> Option<(RequestHead, DmaAccess)> {
        self.core.pending.take(token, |asked, _| asked.command == command)
    }

    fn write_access(&self, region: RegionIndex, offset: u64, data: &[u8]) -> Option<RegionAccess> {
        let count = u32::try_from(data.len()).ok()?;
        let fits = self.negotiated().is_none_or(|server| count <= server.data_max);
        (fits && count <= crate::DATA_MAX).then_some(RegionAccess { offset, region: region.0, count })
    }

    fn next_request(&mut self) -> RequestId {
        self.requests += 1;
        RequestId(self.requests)
    }

    /// Creates a request that fails at once.
    fn refuse(&mut self, error: Errno) -> RequestId {
        let request = self.next_request();
        self.answer(request, Err(error));
        request
    }

    fn answer(&mut self, request: RequestId, result: Result<Answer<D>, Errno>) {
        self.core.outputs.push_back(Output::Answered { request, result });
    }

    fn ask(&mut self, now: Instant, ask: Ask, parts: [&[u8]; 2], descriptors: Vec<D>) -> RequestId {
        let request = self.next_request();
        self.send(now, request, ask, parts, descriptors);
        request
    }

    fn ask_region(&mut self, now: Instant, request: RequestId, index: u32, room: u32) {
        let payload = RegionInfo::emit_request(index, room);
        self.send(now, request, Ask::Region { index, room }, [&payload, &[]], Vec::new());
    }

    fn send(&mut self, now: Instant, request: RequestId, ask: Ask, parts: [&[u8]; 2], descriptors: Vec<D>) {
        let Peer::Ready(server) = self.core.peer else { return self.answer(request, Err(Errno::ENOTCONN)) };
        if self.waiting.is_full() {
            return self.answer(request, Err(Errno::EBUSY));
        }
        if descriptors.len() > server.descriptors_max {
            return self.answer(request, Err(Errno::E2BIG));
        }
        let id = self.waiting.push(request, ask, now + self.config.answer);
        let header = Header::command(id, ask.command(), parts[0].len() + parts[1].len(), false);
        let bytes = message::build(&mut self.core.pool, &header, parts);
        self.core.outputs.push_back(Output::Transmit { bytes, descriptors });
    }

    fn close(&mut self, reason: CloseReason) {
        self.forget();
        self.core.outputs.push_back(Output::Close { reason });
    }
}

impl<D: 'static> End<D> for Client<D> {
    type Request = DmaAccess;
    type Sent = Output<D>;

    fn core(&mut self) -> &mut Core<D, DmaAccess, Output<D>> {
        &mut self.core
    }

    fn on_connected(&mut self, now: Instant) {
        self.forget();
        self.core.peer = Peer::AwaitingVersion { until: now + self.config.answer };
        let version =
            Version { major: version::MAJOR, minor: version::MINOR, capabilities: Some(version::ours()) }
                .emit();
        let header = Header::command(self.waiting.unanswered(), Command::Version, version.len(), false);
        self.core.send(&header, [&version, &[]]);
    }

    fn on_message(&mut self, now: Instant, message: Message<'_, D>) {
        self.on_message(now, message);
    }
    fn on_bad_header(&mut self, error: HeaderError) {
        self.close(CloseReason::Header(error));
    }

    /// Forgets the server, which has disconnected or is being disconnected. All requests fail.
    fn forget(&mut self) {
        self.core.forget();
        while let Some(request) = self.waiting.pop() {
            self.answer(request, Err(Errno::ENOTCONN));
        }
    }
}

impl<D: 'static> Engine for Client<D> {
    type Input<'a> = Input<'a, D>;
    type Output = Output<D>;

    fn handle_input(&mut self, now: Instant, input: Input<'_, D>) {
        self.on_input(now, input);
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.core.peer.is_late(now) {
            self.close(CloseReason::Handshake);
        }
        while let Some(request) = self.waiting.expire(now) {
            self.answer(request, Err(Errno::ETIMEDOUT));
        }
    }

    fn poll_output(&mut self) -> Option<Output<D>> {
        self.core.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.core.peer.deadline(self.waiting.earliest())
    }
}
