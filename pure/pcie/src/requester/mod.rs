//! The requesting end of a link: issues requests, matches completions, and gives up on missing
//! completions.

mod issue;
mod tags;
#[cfg(test)]
mod tests;
mod timeout;

pub use tags::TagWidth;
pub use timeout::{CompletionTimeout, TimedOut};

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use engine::{Buffer, DeadlineList, Engine, Instant};
use serde::{Deserialize, Serialize};

use crate::wire::{Bdf, Completion, CompletionStatus, ConfigType, Header, Kind, Packet, Tag};
use tags::Tags;

/// Maximum number of outstanding requests, including those that wait for tags; further requests are
/// refused with [`Busy`].
pub const REQUESTS_MAX: usize = 2048;

/// One more than the largest tag.
const TAGS: u32 = Tag::MAX.get() as u32 + 1;
/// Lower Address in a completion is the address modulo this.
const LOWER_ADDRESS_SPAN: u64 = 128;
/// Bytes of a double word, the wire's unit.
const DWORD: usize = 4;

/// Limits of a requester. All follow from its function's control registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The function that sends the requests.
    pub id: Bdf,
    /// How many tags the requester may use.
    pub tags: TagWidth,
    /// Max_Read_Request_Size in bytes: a power of two from 128 to 4096.
    pub read_request_size: u32,
    /// Max_Payload_Size in bytes: a power of two from 128 to 4096.
    pub payload_size: u32,
    /// How long the requester waits for a completion.
    pub timeout: CompletionTimeout,
}

impl Default for Settings {
    /// The values after power-up: MRRS 512 B, MPS 128 B, 8-bit tags, 50 ms.
    fn default() -> Self {
        Self {
            id: Bdf::default(),
            tags: TagWidth::default(),
            read_request_size: 512,
            payload_size: 128,
            timeout: CompletionTimeout::default(),
        }
    }
}

/// The maximum number of requests is outstanding. Try again when one of them has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{REQUESTS_MAX} requests are outstanding already")
    }
}

impl core::error::Error for Busy {}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestError {
    /// The completer answered with Unsupported Request (UR).
    UnsupportedRequest,
    /// The completer answered with Completer Abort (CA).
    CompleterAbort,
    /// A configuration request was answered with Configuration Request Retry Status (CRS).
    ConfigRequestRetry,
    /// The data arrived poisoned.
    Poisoned,
    /// A successful completion lacked requested data, or had data that was not requested.
    Malformed,
    /// No completion arrived within the Completion Timeout.
    Timeout,
    /// The link went down.
    LinkDown,
    /// The range of the request ends beyond the last address.
    AddressOverflow,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnsupportedRequest => "unsupported request",
            Self::CompleterAbort => "completer abort",
            Self::ConfigRequestRetry => "not ready yet (configuration request retry)",
            Self::Poisoned => "poisoned data",
            Self::Malformed => "malformed completion",
            Self::Timeout => "completion timeout",
            Self::LinkDown => "link down",
            Self::AddressOverflow => "the range ends beyond the last address",
        })
    }
}

impl core::error::Error for RequestError {}

/// A double word of a function's configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigRegister {
    /// The type of the request, which depends on where the function is.
    pub routing: ConfigType,
    /// The function.
    pub target: Bdf,
    /// Offset of the double word in bytes.
    pub offset: u16,
}

/// An output of a requester.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output {
    /// A packet to be sent.
    Packet(Packet),
    /// Progress of a request.
    Answer(Answer),
    /// An Unexpected Completion, which was dropped: it does not match an outstanding request.
    Unexpected(Header),
}

/// Progress of a request: a part of its data, or its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Some bytes of a memory read, as a slice of the completion's payload.
    ReadData {
        /// The name that the caller gave the read.
        cookie: u64,
        /// Position of the bytes in the read. Pieces arrive in any order.
        offset: u32,
        /// The bytes that arrived.
        data: Buffer,
        /// Whether every byte of the read has now arrived.
        last: bool,
    },
    /// A memory read failed; no more of its data will arrive.
    ReadFailed {
        /// The name that the caller gave the read.
        cookie: u64,
        /// Why the read failed.
        error: RequestError,
    },
    /// A configuration or I/O request ended.
    Register {
        /// The name that the caller gave the request.
        cookie: u64,
        /// The double word read (little-endian, as registers are); 0 for a write.
        result: Result<u32, RequestError>,
    },
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    /// Non-posted packets sent.
    pub requests: u64,
    /// Completions accepted.
    pub completions: u64,
    /// Unexpected completions, including duplicates.
    pub unexpected: u64,
    /// Completions for packets that had timed out or were abandoned.
    pub late: u64,
    /// Packets that timed out.
    pub timeouts: u64,
    /// Completions with poisoned data.
    pub poisoned: u64,
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Purpose {
    MemoryRead {
        address: u64,
        length: u32,
    },
    /// A write has byte enables and a value.
    Config {
        register: ConfigRegister,
        write: Option<(u8, u32)>,
    },
    Io {
        address: u32,
        enables: u8,
        write: Option<u32>,
    },
}

impl Purpose {
    const fn is_write(self) -> bool {
        matches!(self, Self::Config { write: Some(_), .. } | Self::Io { write: Some(_), .. })
    }
    const fn timed_out(self) -> TimedOut {
        match self {
            Self::MemoryRead { address, length } => TimedOut::Memory { address, length },
            Self::Config { register: ConfigRegister { target, offset, .. }, .. } => {
                TimedOut::Config { target, offset, write: self.is_write() }
            }
            Self::Io { address, .. } => TimedOut::Io { address, write: self.is_write() },
        }
    }
    /// Number of bytes that the packets of the request ask for altogether.
    const fn length(self) -> u32 {
        match self {
            Self::MemoryRead { length, .. } => length,
            Self::Config { .. } | Self::Io { .. } => 4,
        }
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Request {
    cookie: u64,
    purpose: Purpose,
    /// Number of bytes for which packets were sent.
    issued: u32,
    /// Number of bytes that have arrived.
    arrived: u32,
    /// Number of packets that wait for completions.
    outstanding: u32,
    /// Whether the request is outstanding; otherwise its slot is free.
    live: bool,
    /// Whether the failure was reported; data that still arrives is then dropped.
    failed: bool,
}

/// The use of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Flight {
    /// The tag is not in use.
    Idle,
    /// A packet of the request in slot `request` waits for completions.
    Waiting { request: u32, offset: u32, address: u64, remaining: u32 },
    /// An abandoned packet. Its completion may still arrive.
    GivenUp,
}

/// The requesting end: a state machine between requests and completions.
///
/// It splits reads by Max_Read_Request_Size, which keeps them within 4 KiB pages, and gives each
/// packet a tag. It passes on the payloads of completions without copying. A packet for which no
/// tag is free waits in line.
#[derive(Debug, Serialize, Deserialize)]
pub struct Requester {
    settings: Settings,
    tags: Tags,
    flights: Vec<Flight>,
    deadlines: DeadlineList,
    /// The latest deadline armed. No deadline may be armed before it, even after the timeout was
    /// shortened.
    latest: Instant,
    requests: Vec<Request>,
    free: Vec<u32>,
    /// Requests with bytes still to be requested. Only the first may be issued in part.
    waiting: VecDeque<u32>,
    outputs: VecDeque<Output>,
    pool: engine::Pool,
    /// The request whose packet timed out last.
    timed_out: Option<TimedOut>,
    statistics: Statistics,
}

impl Requester {
    /// A requester with nothing outstanding.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            tags: Tags::new(settings.tags),
            flights: alloc::vec![Flight::Idle; TAGS as usize],
            deadlines: DeadlineList::new(TAGS),
            latest: Instant::ZERO,
            requests: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            outputs: VecDeque::new(),
            pool: engine::Pool::default(),
            timed_out: None,
            statistics: Statistics::default(),
        }
    }

    /// The settings in force.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }
    /// Changes the settings for all later packets.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
        let flights = &self.flights;
        let outstanding = |tag: Tag| matches!(flights[usize::from(tag.get())], Flight::Waiting { .. });
        self.tags.resize(settings.tags, outstanding);
    }
    /// Counters since the start.
    pub const fn statistics(&self) -> &Statistics {
        &self.statistics
    }
    /// The last request that ran into its Completion Timeout. [`Statistics::timeouts`] counts the
    /// packets that timed out.
    pub const fn timed_out(&self) -> Option<TimedOut> {
        self.timed_out
    }
    /// Number of outstanding requests, including those that wait for a tag.
    pub const fn in_flight(&self) -> usize {
        self.requests.len() - self.free.len()
    }
    /// Whether no request is outstanding (Transactions Pending is clear).
    pub const fn is_idle(&self) -> bool {
        self.in_flight() == 0
    }

    /// Abandons every request that is outstanding or waiting, as when the link goes down or the
    /// function is reset.
    pub fn fail_all(&mut self) {
        self.waiting.clear();
        for tag in 0..TAGS {
            if let Flight::Waiting { request, .. } = self.flights[tag as usize] {
                self.give_up(tag);
                self.fail(request, RequestError::LinkDown);
                self.retire_packet(request);
            }
        }
        // The remaining requests had no packet outstanding: they waited for their first tag.
        for index in 0..self.requests.len() {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            if self.requests[index as usize].live {
                self.fail(index, RequestError::LinkDown);
                self.retire_request(index);
            }
        }
    }

    fn on_completion(&mut self, header: &Header, completion: &Completion, payload: &Buffer) {
        let tag = completion.tag;
        let flight = &mut self.flights[usize::from(tag.get())];
        let (request, offset, address, remaining) = match *flight {
            Flight::Waiting { request, offset, address, remaining }
                if completion.requester == self.settings.id =>
            {
                (request, offset, address, remaining)
            }
            Flight::GivenUp if completion.requester == self.settings.id => {
                self.statistics.late += 1;
                return;
            }
            _ => return self.on_unexpected(header),
        };
        let purpose = self.requests[request as usize].purpose;
        let error = match completion.status {
            CompletionStatus::Success => None,
            CompletionStatus::ConfigRequestRetry if matches!(purpose, Purpose::Config { .. }) => {
                Some(RequestError::ConfigRequestRetry)
            }
            CompletionStatus::CompleterAbort => Some(RequestError::CompleterAbort),
            // A reserved status counts as Unsupported Request. So does a retry of a request that is
            // not a configuration request.
            _ => Some(RequestError::UnsupportedRequest),
        };
        if let Some(error) = error {
            return self.end_packet(tag, request, Some(error));
        }
        if completion.data == purpose.is_write() {
            return self.end_packet(tag, request, Some(RequestError::Malformed));
        }
        if header.traits.is_poisoned() && completion.data {
            self.statistics.poisoned += 1;
            self.fail(request, RequestError::Poisoned);
        }
        if !matches!(purpose, Purpose::MemoryRead { .. }) {
            return self.on_register(tag, request, payload);
        }
        let skip = usize::from(address.to_le_bytes()[0]) % DWORD;
        let expected = u64::from(completion.lower_address) == address % LOWER_ADDRESS_SPAN
            && u32::from(completion.byte_count) == remaining
            && payload.len() > skip
            && payload.len() <= (skip + remaining as usize).next_multiple_of(DWORD);
        if !expected {
            return self.on_unexpected(header);
        }
        let end = payload.len().min(skip + remaining as usize);
        let count = u32::try_from(end - skip).unwrap_or(remaining);
        self.statistics.completions += 1;
        self.on_data(request, offset, payload.slice(skip..end), count);
        if count == remaining {
            self.end_packet(tag, request, None);
        } else {
            self.flights[usize::from(tag.get())] = Flight::Waiting {
                request,
                offset: offset + count,
                address: address + u64::from(count),
                remaining: remaining - count,
            };
        }
    }

    fn on_data(&mut self, index: u32, offset: u32, data: Buffer, count: u32) {
        let request = &mut self.requests[index as usize];
        request.arrived += count;
        if !request.failed {
            let last = request.arrived == request.purpose.length();
            self.outputs.push_back(Output::Answer(Answer::ReadData {
                cookie: request.cookie,
                offset,
                data,
                last,
            }));
        }
    }

    /// Handles the completion of a configuration or I/O request.
    fn on_register(&mut self, tag: Tag, index: u32, payload: &Buffer) {
        let request = &mut self.requests[index as usize];
        let value = match (request.purpose.is_write(), <[u8; DWORD]>::try_from(&**payload)) {
            (true, _) => 0,
            (false, Ok(bytes)) => u32::from_le_bytes(bytes),
            (false, Err(_)) => return self.end_packet(tag, index, Some(RequestError::Malformed)),
        };
        request.arrived = request.purpose.length();
        if !request.failed {
            self.outputs
                .push_back(Output::Answer(Answer::Register { cookie: request.cookie, result: Ok(value) }));
        }
        self.statistics.completions += 1;
        self.end_packet(tag, index, None);
    }

    /// Takes a completion from the link, as [`Engine::handle_input`] does.
    pub fn receive(&mut self, now: Instant, packet: &Packet) {
        match &packet.header.kind {
            Kind::Completion(completion) => self.on_completion(&packet.header, completion, &packet.payload),
            _ => self.on_unexpected(&packet.header),
        }
        self.issue_waiting(now);
    }

    fn on_unexpected(&mut self, header: &Header) {
        self.statistics.unexpected += 1;
        self.outputs.push_back(Output::Unexpected(*header));
    }

    /// Ends the packet with `tag`, which has received its last completion.
    fn end_packet(&mut self, tag: Tag, request: u32, error: Option<RequestError>) {
        if let Some(error) = error {
            self.fail(request, error);
        }
        self.flights[usize::from(tag.get())] = Flight::Idle;
        self.deadlines.disarm(u32::from(tag.get()));
        self.tags.retire(tag);
        self.retire_packet(request);
    }

    /// Abandons the packet with `tag`, which will get no further completion.
    fn give_up(&mut self, tag: u32) {
        self.flights[tag as usize] = Flight::GivenUp;
        self.deadlines.disarm(tag);
        self.tags.retire(Tag::new(u16::try_from(tag).unwrap_or(u16::MAX)));
    }

    /// Reports the failure of the request, once, and requests no more of its data.
    fn fail(&mut self, index: u32, error: RequestError) {
        let request = &mut self.requests[index as usize];
        if request.failed {
            return;
        }
        request.failed = true;
        let cookie = request.cookie;
        self.outputs.push_back(match request.purpose {
            Purpose::MemoryRead { .. } => Output::Answer(Answer::ReadFailed { cookie, error }),
            _ => Output::Answer(Answer::Register { cookie, result: Err(error) }),
        });
        // Only the first request in line can have packets outstanding and bytes still to request.
        if self.waiting.front() == Some(&index) {
            self.waiting.pop_front();
        }
    }

    fn retire_packet(&mut self, index: u32) {
        let request = &mut self.requests[index as usize];
        request.outstanding -= 1;
        let ended = request.failed || request.arrived == request.purpose.length();
        if request.outstanding == 0 && ended {
            self.retire_request(index);
        }
    }

    fn retire_request(&mut self, index: u32) {
        self.requests[index as usize].live = false;
        self.free.push(index);
    }
}

impl Engine for Requester {
    /// A completion from the link.
    type Input<'a> = Packet;
    type Output = Output;

    fn handle_input(&mut self, now: Instant, packet: Packet) {
        self.receive(now, &packet);
    }
    fn handle_timeout(&mut self, now: Instant) {
        while let Some(tag) = self.deadlines.expire(now) {
            if let Flight::Waiting { request, .. } = self.flights[tag as usize] {
                self.statistics.timeouts += 1;
                self.timed_out = Some(self.requests[request as usize].purpose.timed_out());
                self.give_up(tag);
                self.fail(request, RequestError::Timeout);
                self.retire_packet(request);
            }
        }
        self.issue_waiting(now);
    }
    fn poll_output(&mut self) -> Option<Output> {
        engine::pop(&mut self.outputs)
    }
    fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.earliest()
    }
}
