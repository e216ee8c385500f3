//! The function's side: turns a client's messages into requests to the world, and the world's
//! answers into replies.
//!
//! Requests are output in the order in which the client sent them, and may be answered in any
//! order. The driver of a server must not let an [`Output::RegionRead`] or [`Output::RegionWrite`]
//! wait for a [`Server::dma_read`] or [`Server::dma_write`]: some clients serve neither while they
//! wait for a region.

mod config;
mod dma;
mod memory;
mod output;
mod reason;
mod requests;
#[cfg(test)]
mod tests;

pub use crate::input::Input;
pub use config::{Config, InterruptConfig, RegionConfig};
pub use output::{Cookie, Output};
pub use reason::CloseReason;

use engine::{Buffer, Engine, Instant, Nanos, Pool};

use crate::connection::{Core, End};
use crate::errno::Errno;
use crate::index::{INTERRUPTS, InterruptIndex, RegionIndex};
pub use crate::interrupt::{InterruptAction, InterruptData};
use crate::limits::{AREAS_MAX, DATA_MAX};
use crate::message;
use crate::peer::Peer;
use crate::pending::RequestHead;
pub use crate::pending::Token;
use crate::stream::Message;
pub use crate::version::Negotiated;
use crate::wire::{Command, DmaAccess, Header, HeaderError, Kind, RegionAccess, WriteMultiple};
use dma::{Dma, Job};
use memory::{Access, Memory};
use requests::Request;

/// A function that is offered to one client at a time.
#[derive(Debug)]
pub struct Server<D> {
    config: Config,
    core: Core<D, Request, Output<D>>,
    memory: Memory,
    /// The kinds of interrupts for which the client has given descriptors.
    set_up: [bool; INTERRUPTS],
    dma: Dma,
}

impl<D: 'static> Server<D> {
    /// Creates a server of a function that no client uses yet.
    ///
    /// # Panics
    /// When the configuration is inconsistent: an area lies outside its region, a region has too
    /// many areas or does not fit in a file, or a timeout is zero.
    pub fn new(config: Config) -> Self {
        assert!(config.handshake > Nanos::ZERO && config.answer > Nanos::ZERO, "a client has time to answer");
        for region in &config.regions {
            let end = region.file_offset.checked_add(region.length);
            assert!(
                end.is_some_and(|end| i64::try_from(end).is_ok()),
                "a region fits into a file: {region:?}"
            );
            assert!(region.areas.len() <= AREAS_MAX, "a region has at most {AREAS_MAX} areas");
            for area in &region.areas {
                let end = area.offset.checked_add(area.length);
                assert!(
                    end.is_some_and(|end| end <= region.length),
                    "{area:?} lies in its region: {region:?}"
                );
            }
        }
        Self {
            config,
            core: Core::default(),
            memory: Memory::default(),
            set_up: [false; INTERRUPTS],
            dma: Dma::default(),
        }
    }

    /// Answers [`Output::Map`]. After an error, the memory counts as not mapped, and no
    /// [`Output::Unmap`] follows for it unless the client had already taken it back.
    pub fn map_done(&mut self, token: Token, result: Result<(), Errno>) {
        let Some((asked, Request::Map { address })) =
            self.core.pending.take(token, |_, request| matches!(request, Request::Map { .. }))
        else {
            return;
        };
        match result {
            Ok(()) => self.core.reply(asked, [&[], &[]]),
            Err(error) => {
                self.memory.retract(address, token);
                self.core.refuse(asked, error);
            }
        }
    }

    /// Answers one [`Output::Unmap`] that carries this token.
    pub fn unmap_done(&mut self, token: Token) {
        let Some((_, asked, Request::Unmap { remaining, unmap })) = self.core.pending.find(token) else {
            return;
        };
        *remaining -= 1;
        if *remaining == 0 {
            let (asked, unmap) = (*asked, *unmap);
            self.core.pending.remove(token);
            self.core.reply(asked, [&unmap.emit(), &[]]);
        }
    }

    /// Answers [`Output::RegionRead`] with the bytes read, which may be fewer than requested if the
    /// device had no more.
    ///
    /// # Panics
    /// When there are more bytes than requested.
    pub fn read_done(&mut self, token: Token, result: Result<&[u8], Errno>) {
        let Some((asked, Request::Read(access))) =
            self.core.pending.take(token, |_, request| matches!(request, Request::Read(_)))
        else {
            return;
        };
        match result {
            Ok(data) => {
                let count = u32::try_from(data.len()).ok().filter(|count| *count <= access.count);
                let count = count.expect("a region's read has at most the requested bytes");
                self.core.reply(asked, [&RegionAccess { count, ..access }.emit(), data]);
            }
            Err(error) => self.core.refuse(asked, error),
        }
    }

    /// Answers an [`Output::RegionWrite`] that carries this token.
    pub fn write_done(&mut self, token: Token, result: Result<(), Errno>) {
        let Some((_, asked, request)) = self.core.pending.find(token) else { return };
        let (asked, outcome) = match request {
            Request::Write(access) => (*asked, result.map(|()| Written::One(*access))),
            Request::WriteMultiple { remaining, count, failure } => {
                *failure = failure.or(result.err());
                *remaining -= 1;
                if *remaining > 0 {
                    return;
                }
                (*asked, failure.map_or(Ok(Written::Multiple(*count as u64)), Err))
            }
            _ => return,
        };
        self.core.pending.remove(token);
        match outcome {
            Ok(Written::One(access)) => self.core.reply(asked, [&access.emit(), &[]]),
            Ok(Written::Multiple(count)) => self.core.reply(asked, [&count.to_le_bytes(), &[]]),
            Err(error) => self.core.refuse(asked, error),
        }
    }

    /// Answers [`Output::Reset`].
    pub fn reset_done(&mut self, token: Token, result: Result<(), Errno>) {
        let Some((asked, _)) = self.core.pending.take(token, |_, request| matches!(request, Request::Reset))
        else {
            return;
        };
        match result {
            Ok(()) => self.core.reply(asked, [&[], &[]]),
            Err(error) => self.core.refuse(asked, error),
        }
    }

    /// Reads `length` bytes of the client's memory by message. The read ends with a last
    /// [`Output::DmaData`], or with [`Output::DmaFailed`]: `EFAULT` or `EACCES` if the client has
    /// not shared the memory for reading.
    pub fn dma_read(&mut self, now: Instant, cookie: Cookie, address: u64, length: usize) {
        self.start_dma(now, Job::new(cookie, address, length, None), true);
    }

    /// Writes to the client's memory by message. The write ends with [`Output::DmaWritten`] or
    /// [`Output::DmaFailed`].
    pub fn dma_write(&mut self, now: Instant, cookie: Cookie, address: u64, data: Buffer) {
        self.start_dma(now, Job::new(cookie, address, data.len(), Some(data)), true);
    }

    /// Writes to an address that need not be memory which the client has mapped: a message signaled
    /// interrupt. Ends as [`Server::dma_write`] does.
    pub fn write_interrupt(&mut self, now: Instant, cookie: Cookie, address: u64, data: Buffer) {
        self.start_dma(now, Job::new(cookie, address, data.len(), Some(data)), false);
    }

    /// The agreement with the present client, once the client has sent its version.
    pub const fn negotiated(&self) -> Option<Negotiated> {
        self.core.peer.negotiated()
    }
    /// The configuration of the function.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    fn reply_sharing(&mut self, asked: RequestHead, parts: [&[u8]; 2], shared: Option<RegionIndex>) {
        if let Some(bytes) = message::reply(&mut self.core.pool, asked, parts) {
            self.core.outputs.push_back(Output::Transmit { bytes, shared });
        }
    }

    fn start_dma(&mut self, now: Instant, job: Job, is_memory: bool) {
        let access = if job.data.is_some() { Access::Write } else { Access::Read };
        let checked = match self.core.peer {
            Peer::Ready(_) if self.dma.is_full() => Err(Errno::EBUSY),
            Peer::Ready(_) if !is_memory => Ok(()),
            Peer::Ready(_) => self.memory.allows(job.address, job.length as u64, access),
            _ => Err(Errno::ENOTCONN),
        };
        match checked {
            Ok(()) => {
                self.dma.push(job);
                self.launch(now);
            }
            Err(error) => self.core.outputs.push_back(Output::DmaFailed { cookie: job.cookie, error }),
        }
    }

    /// Sends as many messages about the client's memory as the window allows.
    fn launch(&mut self, now: Instant) {
        let Peer::Ready(negotiated) = self.core.peer else { return };
        let deadline = now + self.config.answer;
        while let Some((flight, job)) = self.dma.launch(negotiated.data_max as usize, deadline) {
            let access =
                DmaAccess { address: job.address + flight.offset as u64, count: flight.length as u64 };
            let data = job.data.as_ref().map_or(&[][..], |data| &data[flight.offset..][..flight.length]);
            let header = Header::command(flight.id, job.command(), DmaAccess::LENGTH + data.len(), false);
            self.core.send(&header, [&access.emit(), data]);
        }
    }

    fn on_message(&mut self, now: Instant, message: Message<'_, D>) {
        let Message { header, payload, attached } = message;
        let no_reply = match header.kind {
            Kind::Reply { error } => return self.on_reply(now, &header, error, payload),
            Kind::Command { no_reply } => no_reply,
        };
        let asked = RequestHead { id: header.id, command: header.command, no_reply };
        if let Peer::AwaitingVersion { .. } = self.core.peer {
            match header.command {
                Command::Version => self.on_version(asked, payload),
                command => self.close(CloseReason::NotVersion { command }),
            }
            return;
        }
        let result = if attached.too_many {
            Err(Errno::EINVAL)
        } else if self.core.pending.is_full() && !is_posted(asked) {
            Err(Errno::EBUSY)
        } else {
            self.on_command(asked, payload, attached.list)
        };
        if let Err(error) = result {
            self.core.refuse(asked, error);
        }
    }

    /// Handles a client's answer about its memory. A late or unexpected answer is ignored.
    fn on_reply(&mut self, now: Instant, header: &Header, error: Option<Errno>, payload: &[u8]) {
        let Some((flight, job)) = self.dma.find(header.id) else { return };
        if job.command() != header.command {
            return;
        }
        let (cookie, is_read) = (job.cookie, job.data.is_none());
        let expected = DmaAccess { address: job.address + flight.offset as u64, count: flight.length as u64 };
        let data = match error {
            Some(Errno(0)) => Err(Errno::EIO),
            Some(error) => Err(error),
            None if is_read => read_reply(payload, expected),
            // Old versions of QEMU answer a write with a header alone. The repeated fields of other
            // clients need no check.
            None => Ok(&[][..]),
        };
        match data {
            Err(error) => self.fail_dma(flight, error),
            Ok(data) => {
                let last = self.dma.land(flight);
                if is_read {
                    let data = self.core.pool.copy(data);
                    self.core.outputs.push_back(Output::DmaData {
                        cookie,
                        offset: flight.offset,
                        data,
                        last,
                    });
                } else if last {
                    self.core.outputs.push_back(Output::DmaWritten { cookie });
                }
            }
        }
        self.launch(now);
    }

    fn fail_dma(&mut self, flight: dma::Flight, error: Errno) {
        if let Some(cookie) = self.dma.fail(flight) {
            self.core.outputs.push_back(Output::DmaFailed { cookie, error });
        }
    }

    fn close(&mut self, reason: CloseReason) {
        self.forget();
        self.core.outputs.push_back(Output::Close { reason });
    }
}

/// Whether a request is a write without a reply. Such a write takes no room among the requests,
/// because losing it would be worse than any wait.
const fn is_posted(asked: RequestHead) -> bool {
    asked.no_reply && matches!(asked.command, Command::RegionWrite | Command::RegionWriteMulti)
}

/// The required content of the reply to a write.
enum Written {
    One(RegionAccess),
    Multiple(u64),
}

const _: () = assert!(WriteMultiple::LENGTH == size_of::<u64>());

/// The data of a client's answer to a read of its memory, if the answer is the expected one.
fn read_reply(payload: &[u8], expected: DmaAccess) -> Result<&[u8], Errno> {
    match DmaAccess::parse(payload) {
        Ok((access, data)) if access == expected && data.len() as u64 == access.count => Ok(data),
        _ => Err(Errno::EINVAL),
    }
}

impl<D: 'static> End<D> for Server<D> {
    type Request = Request;
    type Sent = Output<D>;

    fn core(&mut self) -> &mut Core<D, Request, Output<D>> {
        &mut self.core
    }

    fn on_connected(&mut self, now: Instant) {
        self.forget();
        self.core.peer = Peer::AwaitingVersion { until: now + self.config.handshake };
    }

    fn on_message(&mut self, now: Instant, message: Message<'_, D>) {
        self.on_message(now, message);
    }
    fn on_bad_header(&mut self, error: HeaderError) {
        self.close(CloseReason::Header(error));
    }

    /// Takes back all resources of the client, which has disconnected or is being disconnected.
    fn forget(&mut self) {
        self.core.forget();
        for cookie in self.dma.clear() {
            self.core.outputs.push_back(Output::DmaFailed { cookie, error: Errno::ENOTCONN });
        }
        for index in InterruptIndex::ALL {
            if core::mem::take(&mut self.set_up[index.slot()]) {
                let (action, data) = (InterruptAction::Trigger, InterruptData::None);
                self.core.outputs.push_back(Output::SetInterrupts {
                    index,
                    action,
                    start: 0,
                    count: 0,
                    data,
                });
            }
        }
        while let Some((address, length)) = self.memory.pop() {
            self.core.outputs.push_back(Output::Unmap { token: None, address, length });
        }
    }
}

impl<D: 'static> Engine for Server<D> {
    type Input<'a> = Input<'a, D>;
    type Output = Output<D>;

    fn handle_input(&mut self, now: Instant, input: Input<'_, D>) {
        self.on_input(now, input);
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.core.peer.is_late(now) {
            self.close(CloseReason::Handshake);
        }
        while let Some(flight) = self.dma.overdue(now) {
            self.fail_dma(flight, Errno::ETIMEDOUT);
        }
        self.launch(now);
    }

    fn poll_output(&mut self) -> Option<Output<D>> {
        self.core.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.core.peer.deadline(self.dma.earliest())
    }
}

/// The pool must provide the longest data that clients are offered.
const _: () = assert!(DATA_MAX as usize <= Pool::LENGTH_MAX);
