//! A function on a link: configuration space, BARs, DMA and MSI-X around the logic of a device.
//!
//! Packets go in and out. Host accesses to the device's registers come out as [`Output::BarRead`]
//! and [`Output::BarWrite`]. The device answers reads with [`Endpoint::bar_read_done`] and reaches
//! the host with [`Endpoint::dma`]. The endpoint itself keeps the MSI-X table and its pending bits.

mod access;
#[doc(hidden)]
pub mod fuzz;
mod msix;
#[cfg(test)]
mod tests;

pub use msix::MsixLayout;

use alloc::collections::VecDeque;

use engine::{Buffer, Engine, Instant, Pool};
use serde::{Deserialize, Serialize};

use crate::completer::{self, Completer};
use crate::config::{
    Bar, BarIndex, Builder, ConfigSpace, FunctionError, Identity, Link, PortType, Reset, Window, express,
    header, msix as msix_register, offset, report_error,
};
use crate::device::{Dma, DmaId, DmaResult};
use crate::requester::{self, Answer, CompletionTimeout, RequestError, Requester, TagWidth};
use crate::wire::{Bdf, CompletionStatus, Header, Kind, MessageRouting, Packet, message};
use access::BarReads;
use msix::MsixTable;

/// Maximum number of BAR reads that wait for the device; further reads are answered with Completer
/// Abort. A requester has at most 768 tags.
pub const BAR_READS_MAX: usize = 1024;
/// Number of Base Address Registers of a function.
const BARS: usize = header::TYPE0_BARS;

/// Parameters that a function is built with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointConfig {
    /// Vendor, device and class of the function.
    pub identity: Identity,
    /// Capabilities of the function's link.
    pub link: Link,
    /// Device Serial Number.
    pub serial_number: u64,
    /// The BARs, by register number. A 64-bit BAR also takes the next register.
    pub bars: [Option<Bar>; BARS],
    /// MSI-X vectors, if the function has interrupts.
    pub msix: Option<MsixLayout>,
}

/// Names a BAR read between its request and its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BarToken(u32);

/// An output of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output {
    /// A packet to be sent on the link.
    Packet(Packet),
    /// The host reads the device's registers or memory; answer with [`Endpoint::bar_read_done`].
    BarRead {
        /// Names the read in its answer.
        token: BarToken,
        /// The BAR that is read.
        bar: BarIndex,
        /// First byte, counted from the start of the BAR.
        offset: u64,
        /// Length of the read in bytes, 1..=4096.
        length: u32,
    },
    /// The host writes the device's registers or memory.
    BarWrite {
        /// The BAR that is written.
        bar: BarIndex,
        /// First byte, counted from the start of the BAR.
        offset: u64,
        /// The bytes to write, at least one.
        data: Buffer,
    },
    /// An answer to a [`Dma::Read`].
    Dma(DmaResult),
    /// The function was reset. The endpoint has forgotten all outstanding reads of host memory and
    /// BAR reads. Reads of host memory get no answer; answers to BAR reads are ignored.
    Reset(Reset),
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    /// Requests that were answered with Unsupported Request, or dropped as unsupported.
    pub unsupported_requests: u64,
    /// Completions that matched no outstanding request.
    pub unexpected_completions: u64,
    /// TLPs dropped as malformed because their payload exceeded Max_Payload_Size.
    pub malformed: u64,
    /// Requests dropped because their data was poisoned.
    pub poisoned: u64,
    /// Interrupts of the device that were dropped because MSI-X is absent or disabled.
    pub interrupts_lost: u64,
}

/// A function on a link.
#[derive(Debug, Serialize, Deserialize)]
pub struct Endpoint {
    space: ConfigSpace,
    bars: [Option<Bar>; BARS],
    /// Address window that each BAR decodes now; closed if the BAR does not decode.
    windows: [Window; BARS],
    /// Bus, device and function number, as captured from configuration writes.
    id: Bdf,
    bus_master: bool,
    /// Whether MSI-X is enabled.
    msix_enabled: bool,
    msix_open: bool,
    payload_size: u32,
    msix: Option<MsixTable>,
    requester: Requester,
    completer: Completer,
    reads: BarReads,
    /// DMA reads that the requester had no room for; bounded by the number of reads that the device
    /// has outstanding.
    waiting: VecDeque<(DmaId, u64, u32)>,
    /// Outputs that come before all outputs of the requester; see [`Endpoint::push`].
    outputs: VecDeque<Output>,
    pool: Pool,
    /// Four zero bytes: the answer to a zero-length read.
    zero: Buffer,
    /// Whether configuration requests are answered with Configuration Request Retry Status.
    held: bool,
    statistics: Statistics,
}

impl Endpoint {
    /// A function after power-up.
    ///
    /// # Panics
    /// When `config` asks for a BAR or an MSI-X layout that the specification does not allow.
    pub fn new(config: &EndpointConfig) -> Self {
        let mut builder = Builder::endpoint(config.identity);
        for (index, bar) in (0..).zip(config.bars) {
            if let Some(bar) = bar {
                builder = builder.bar(BarIndex::new(index), bar);
            }
        }
        builder = builder.power_management(false).express(PortType::Endpoint, config.link, None);
        if let Some(layout) = config.msix {
            builder = builder.msix(layout.bar, layout.vectors, layout.table_offset, layout.pending_offset);
        }
        let space = builder.advanced_error_reporting().serial_number(config.serial_number).build();
        let mut endpoint = Self {
            space,
            bars: config.bars,
            windows: [Window::CLOSED; BARS],
            id: Bdf::default(),
            bus_master: false,
            msix_enabled: false,
            msix_open: false,
            payload_size: 128,
            msix: config.msix.map(MsixTable::new),
            requester: Requester::new(requester::Settings::default()),
            completer: Completer::new(completer::Settings::default()),
            reads: BarReads::default(),
            waiting: VecDeque::new(),
            outputs: VecDeque::new(),
            pool: Pool::default(),
            zero: Buffer::zeroed(4),
            held: false,
            statistics: Statistics::default(),
        };
        endpoint.refresh();
        endpoint
    }

    /// Takes a packet from the link, as [`Engine::handle_input`] does.
    ///
    /// A write of whole double words that no other output precedes is not queued as
    /// [`Output::BarWrite`]. In that case, this function returns its BAR and offset, and the caller
    /// writes the whole payload there.
    #[inline]
    pub fn receive(&mut self, now: Instant, packet: &Packet) -> Option<(BarIndex, u64)> {
        if packet.header.payload_len() > self.payload_size as usize {
            self.statistics.malformed += 1;
            self.report(FunctionError::MalformedTlp, false, Some(&packet.header));
            return None;
        }
        match &packet.header.kind {
            Kind::Completion(_) => {
                self.requester.receive(now, packet);
                self.issue_waiting(now);
            }
            Kind::Memory(_) => return self.on_memory(packet),
            Kind::Config(_) => self.on_config(packet),
            Kind::Io(_) => self.refuse(&packet.header, FunctionError::UnsupportedRequest),
            Kind::Message(_) => self.on_message(packet),
        }
        None
    }

    /// Bus, device and function number, as captured from the last configuration write.
    pub const fn id(&self) -> Bdf {
        self.id
    }
    /// The configuration space of the function.
    pub const fn config(&self) -> &ConfigSpace {
        &self.space
    }
    /// Counters since the start.
    pub const fn statistics(&self) -> &Statistics {
        &self.statistics
    }
    /// Counters of the requests that the function itself sent.
    pub const fn requests(&self) -> &requester::Statistics {
        self.requester.statistics()
    }

    /// Appends a capability `id` at byte `at` to the list. `at` must be free and a multiple of 4 in
    /// 0x40..0x100. The endpoint keeps only the capability's identifier and its place in the list;
    /// the caller answers for its other registers.
    pub fn add_capability(&mut self, at: u16, id: u8) {
        self.space.append_capability(at, id);
    }

    /// Sets whether configuration requests are answered with Configuration Request Retry Status,
    /// because the device is not ready yet.
    pub const fn hold_configuration(&mut self, held: bool) {
        self.held = held;
    }

    /// Whether the device may access the host: Bus Master Enable is set and the function is in D0.
    pub const fn is_bus_master(&self) -> bool {
        self.bus_master
    }

    /// Handles the loss or reset of the link: everything but sticky bits returns to its value after
    /// power-up.
    pub fn hot_reset(&mut self) {
        self.on_reset(Reset::Hot);
    }

    /// Performs a DMA request of the device.
    ///
    /// Without Bus Master Enable, reads fail, writes are dropped, and interrupts become pending.
    pub fn dma(&mut self, now: Instant, dma: Dma) {
        match dma {
            Dma::Read { id, .. } if !self.bus_master => {
                self.push(Output::Dma(DmaResult::Failed { id }));
            }
            Dma::Read { id, address, length } => {
                let cookie = u64::from(id.0);
                let refused =
                    !self.waiting.is_empty() || self.requester.read(now, cookie, address, length).is_err();
                if refused {
                    self.waiting.push_back((id, address, length));
                }
            }
            Dma::Write { address, data } => {
                if self.bus_master {
                    self.requester.write(address, &data);
                }
            }
            Dma::Interrupt { vector } => self.on_interrupt(vector),
        }
    }

    /// Performs a DMA request as [`Endpoint::dma`] does, but passes packets to `send` at once if
    /// they need not wait behind any output.
    #[inline]
    pub fn dma_into(&mut self, now: Instant, dma: Dma, send: &mut impl FnMut(Packet)) {
        if !self.bus_master || !self.outputs.is_empty() || self.requester.has_outputs() {
            return self.dma(now, dma);
        }
        match dma {
            Dma::Write { address, data } => self.requester.write_into(address, &data, send),
            Dma::Interrupt { vector } if self.msix_open => {
                let Some(table) = &mut self.msix else { return };
                match table.message(vector) {
                    Some((address, data)) => self.requester.write_into(address, data, send),
                    None => table.set_pending(vector),
                }
            }
            dma => self.dma(now, dma),
        }
    }

    fn on_interrupt(&mut self, vector: u16) {
        let Some(table) = self.msix.as_mut().filter(|_| self.msix_enabled) else {
            self.statistics.interrupts_lost += 1;
            return;
        };
        match table.message(vector) {
            Some((address, data)) if self.msix_open && self.bus_master => self.requester.write(address, data),
            _ => table.set_pending(vector),
        }
    }

    /// Sends the interrupts that were pending and may now be sent.
    fn send_pending(&mut self) {
        let Some(table) = self.msix.as_mut().filter(|_| self.msix_open && self.bus_master) else { return };
        for vector in table.pending_vectors() {
            if let Some((address, data)) = table.take_pending(vector) {
                self.requester.write(address, &data);
            }
        }
    }

    /// Answers the BAR read `token` with its bytes; `None` answers it with Completer Abort. A read
    /// that a reset has forgotten is ignored.
    ///
    /// # Panics
    /// When `data` is longer or shorter than the read.
    pub fn bar_read_done(&mut self, token: BarToken, data: Option<Buffer>) {
        let Some(request) = self.reads.take(token) else { return };
        match data {
            Some(data) => self.complete(&request, &data),
            None => self.refuse(&request, FunctionError::CompleterAbort),
        }
    }

    /// Answers the BAR read `token` with a copy of `bytes`; meant for registers.
    ///
    /// # Panics
    /// When `bytes` is longer or shorter than the read.
    pub fn bar_read_done_bytes(&mut self, token: BarToken, bytes: &[u8]) {
        let data = self.pool.copy(bytes);
        self.bar_read_done(token, Some(data));
    }

    /// Queues `output` behind all earlier outputs.
    #[inline]
    fn push(&mut self, output: Output) {
        self.flush();
        self.outputs.push_back(output);
    }

    /// Queues the requester's outputs, so that the next output queued comes after them. There are
    /// usually none, because callers poll them from the requester directly and they are not moved
    /// twice.
    #[inline]
    fn flush(&mut self) {
        while let Some(output) = self.requester.poll_output() {
            if let Some(output) = self.on_requester(output) {
                self.outputs.push_back(output);
            }
        }
    }

    fn complete(&mut self, request: &Header, data: &Buffer) {
        self.flush();
        let outputs = &mut self.outputs;
        self.completer.data(request, data, |packet| outputs.push_back(Output::Packet(packet)));
    }

    fn answer(&mut self, request: &Header, status: CompletionStatus) {
        let packet = self.completer.status(request, status);
        self.push(Output::Packet(packet));
    }

    /// Answers a request that can't be served, or drops it if it is posted, and logs the error.
    fn refuse(&mut self, request: &Header, error: FunctionError) {
        let status = match error {
            FunctionError::CompleterAbort => CompletionStatus::CompleterAbort,
            _ => CompletionStatus::UnsupportedRequest,
        };
        self.statistics.unsupported_requests += u64::from(status == CompletionStatus::UnsupportedRequest);
        if request.is_non_posted() {
            self.answer(request, status);
        }
        // The requester handles an error that was answered, so the error is advisory here.
        self.report(error, request.is_non_posted(), Some(request));
    }

    fn report(&mut self, error: FunctionError, advisory: bool, blamed: Option<&Header>) {
        if let Some(message) = report_error(&mut self.space, error, advisory, blamed) {
            // Not flushed: errors of the requester are reported from within a flush.
            self.outputs.push_back(Output::Packet(message.packet(self.id)));
        }
    }

    fn on_config(&mut self, packet: &Packet) {
        let Kind::Config(request) = &packet.header.kind else { return };
        let here = request.routing == crate::wire::ConfigType::Type0 && request.target.function() == 0;
        if !here {
            return self.refuse(&packet.header, FunctionError::UnsupportedRequest);
        }
        if self.held {
            return self.answer(&packet.header, CompletionStatus::ConfigRequestRetry);
        }
        if !request.write {
            let mut value = self.space.read(request.offset);
            let pending = express::TRANSACTIONS_PENDING.at(offset::EXPRESS);
            if request.offset == pending.offset() {
                value = pending.with(value, u32::from(!self.requester.is_idle()));
            }
            let data = self.pool.copy(&value.to_le_bytes());
            return self.complete(&packet.header, &data);
        }
        if packet.header.traits.is_poisoned() {
            return self.on_poisoned(&packet.header);
        }
        self.id = request.target;
        let asleep = !self.space.in_d0();
        let value = packet.payload.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        self.space.write(request.offset, value, request.enables);
        self.refresh();
        self.answer(&packet.header, CompletionStatus::Success);
        if self.space.is_set(express::INITIATE_RESET.at(offset::EXPRESS)) {
            self.on_reset(Reset::FunctionLevel);
        } else if asleep && self.space.in_d0() {
            self.on_reset(Reset::PowerState);
        }
        self.send_pending();
    }

    fn on_poisoned(&mut self, request: &Header) {
        self.statistics.poisoned += 1;
        self.space.set(header::DETECTED_PARITY_ERROR, 1);
        if request.is_non_posted() {
            self.answer(request, CompletionStatus::UnsupportedRequest);
        }
        self.report(FunctionError::PoisonedTlp, request.is_non_posted(), Some(request));
    }

    fn on_message(&mut self, packet: &Packet) {
        let Kind::Message(received) = &packet.header.kind else { return };
        match received.code {
            message::PME_TURN_OFF => {
                let routing = MessageRouting::GatheredToRootComplex;
                let acknowledgement = Packet::message(self.id, routing, message::PME_TO_ACK, 0);
                self.push(Output::Packet(acknowledgement));
            }
            message::UNLOCK | message::SET_SLOT_POWER_LIMIT | message::VENDOR_DEFINED_1 => {}
            _ => self.refuse(&packet.header, FunctionError::UnsupportedRequest),
        }
    }

    fn on_reset(&mut self, reset: Reset) {
        self.flush();
        self.space.reset(reset);
        self.waiting.clear();
        self.requester.fail_all();
        // The device forgets its reads at a reset, so it must not receive their failures.
        while self.requester.poll_output().is_some() {}
        self.reads.clear();
        if let Some(table) = &mut self.msix {
            table.reset();
        }
        if reset == Reset::Hot {
            self.id = Bdf::default();
        }
        self.refresh();
        self.outputs.push_back(Output::Reset(reset));
    }

    /// Caches the configuration registers that the hot paths need.
    fn refresh(&mut self) {
        let space = &self.space;
        let enabled = space.memory_enabled();
        for (index, (window, bar)) in (0..).zip(self.windows.iter_mut().zip(self.bars)) {
            *window = match bar {
                Some(bar) if enabled => bar.window(space, BarIndex::new(index)),
                _ => Window::CLOSED,
            };
        }
        self.bus_master = space.bus_master();
        self.msix_enabled = self.msix.is_some() && space.is_set(msix_register::ENABLE.at(offset::MSIX));
        self.msix_open = self.msix_enabled && !space.is_set(msix_register::FUNCTION_MASK.at(offset::MSIX));
        self.payload_size = space.payload_size();
        let at = |field: crate::config::Field| field.at(offset::EXPRESS);
        let tags = if space.is_set(at(express::TEN_BIT_ENABLE)) {
            TagWidth::Bits10
        } else if space.is_set(at(express::EXTENDED_TAG)) {
            TagWidth::Bits8
        } else {
            TagWidth::Bits5
        };
        let timeout = if space.is_set(at(express::TIMEOUT_DISABLE)) {
            // The timeout is long but finite: a tag without its completion would be lost for good.
            CompletionTimeout::D2
        } else {
            let code = u8::try_from(space.get(at(express::TIMEOUT_VALUE))).unwrap_or(0);
            CompletionTimeout::from_code(code).unwrap_or_default()
        };
        let (id, payload_size) = (self.id, self.payload_size);
        let read_request_size = space.read_request_size();
        self.requester.set(requester::Settings { id, tags, read_request_size, payload_size, timeout });
        let boundary = space.read_completion_boundary();
        self.completer.set(completer::Settings { id, boundary, payload_size });
    }

    /// Passes the waiting reads to the requester, as far as it has room.
    fn issue_waiting(&mut self, now: Instant) {
        while let Some((id, address, length)) = self.waiting.front().copied() {
            if self.requester.read(now, u64::from(id.0), address, length).is_err() {
                return;
            }
            self.waiting.pop_front();
        }
    }

    #[inline]
    fn on_requester(&mut self, output: requester::Output) -> Option<Output> {
        let id = |cookie: u64| DmaId(u32::try_from(cookie).unwrap_or(u32::MAX));
        match output {
            requester::Output::Packet(packet) => Some(Output::Packet(packet)),
            requester::Output::Answer(Answer::ReadData { cookie, offset, data, last }) => {
                Some(Output::Dma(DmaResult::Data { id: id(cookie), offset, data, last }))
            }
            requester::Output::Answer(Answer::ReadFailed { cookie, error }) => {
                self.on_read_failed(error);
                Some(Output::Dma(DmaResult::Failed { id: id(cookie) }))
            }
            requester::Output::Unexpected(blamed) => {
                self.statistics.unexpected_completions += 1;
                self.report(FunctionError::UnexpectedCompletion, true, Some(&blamed));
                None
            }
            requester::Output::Answer(Answer::Register { .. }) => None,
        }
    }

    fn on_read_failed(&mut self, error: RequestError) {
        match error {
            RequestError::UnsupportedRequest => self.space.set(header::RECEIVED_MASTER_ABORT, 1),
            RequestError::CompleterAbort => self.space.set(header::RECEIVED_TARGET_ABORT, 1),
            RequestError::Timeout => self.report(FunctionError::CompletionTimeout, false, None),
            RequestError::Poisoned => {
                self.space.set(header::DETECTED_PARITY_ERROR, 1);
                if self.space.is_set(header::PARITY_RESPONSE) {
                    self.space.set(header::MASTER_DATA_PARITY, 1);
                }
                self.report(FunctionError::PoisonedTlp, false, None);
            }
            _ => {}
        }
    }
}

impl Engine for Endpoint {
    /// A packet from the link.
    type Input<'a> = Packet;
    type Output = Output;

    fn handle_input(&mut self, now: Instant, packet: Packet) {
        if let Some((bar, offset)) = self.receive(now, &packet) {
            self.outputs.push_back(Output::BarWrite { bar, offset, data: packet.payload });
        }
    }
    fn handle_timeout(&mut self, now: Instant) {
        self.requester.handle_timeout(now);
        self.issue_waiting(now);
    }
    #[inline]
    fn poll_output(&mut self) -> Option<Output> {
        loop {
            if let Some(output) = engine::pop(&mut self.outputs) {
                return Some(output);
            }
            let output = self.requester.poll_output()?;
            if let Some(output) = self.on_requester(output) {
                return Some(output);
            }
        }
    }
    fn poll_timeout(&self) -> Option<Instant> {
        self.requester.poll_timeout()
    }
}
