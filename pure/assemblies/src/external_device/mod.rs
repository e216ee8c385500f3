//! A PCIe function that another process emulates over vfio-user: packets here, messages there.
//!
//! Hosts see an [`Endpoint`] that is made of the server's answers. It has the registers of the
//! link, decodes BARs, cuts DMA into packets and keeps the MSI-X table. Behind it, accesses to BARs
//! become accesses to regions, the server's accesses to memory become DMA, and the descriptors that
//! the server signals become interrupts.

mod dma;
mod event;
mod plan;
mod requests;
mod setup;
#[cfg(test)]
mod tests;

pub use event::{Event, Summary};
pub use plan::{Missing, Unusable, VECTORS_MAX};
pub use vfio_user::client::Config;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Buffer, Engine, Instant, Pool, Step};
use pcie::completer::{self, Completer};
use pcie::config::{header, msix, offset};
use pcie::device::{Dma, DmaResult};
use pcie::endpoint::{self, Endpoint};
use pcie::wire::Packet;
use tunnel::frame::Registers;
use vfio_user::client::{self, Client};
use vfio_user::{Errno, InterruptAction, InterruptData, RegionIndex, Token};

use crate::far::{Device, Said, show_configuration};
use dma::Reads;
use plan::Plan;
use requests::{Purpose, Requests, padded};
use setup::{AnswerResult, KIND, Question, Steps};

/// The reason sent to hosts when the device has gone.
const ABSENT: &str = "the device behind this far end has gone; it may come back";

/// Inputs of the engine.
#[derive(Debug)]
pub enum Input<D> {
    /// The connection to the server is open.
    Connected,
    /// A piece of the server's byte stream, with the descriptors that came with it.
    Received(Buffer, Vec<D>),
    /// The connection to the server has ended.
    Disconnected,
    /// The descriptors that [`Output::Descriptors`] asked for.
    Descriptors(Vec<D>),
    /// The descriptor of this vector was signalled. All bytes that the server had sent by then must
    /// have been handed in before.
    Signalled(u16),
}

/// Outputs of the engine: requests to the world, and events.
#[derive(Debug)]
pub enum Output<D> {
    /// Append this message to the server's stream; the descriptors go with its first byte.
    Transmit(Buffer, Vec<D>),
    /// Close the connection once all bytes output before this are on their way.
    Close,
    /// Give one end of a descriptor for each of this many vectors, from 0 on, at once, by
    /// [`Input::Descriptors`]. Each connection needs new descriptors and keeps them as long as it
    /// lasts.
    Descriptors(u16),
    /// An event for the application.
    Event(Event),
}

/// A device that is present.
#[derive(Debug)]
struct Present<D> {
    endpoint: Endpoint,
    plan: Plan,
    reads: Reads,
    /// Descriptors for the next time that a host enables MSI-X.
    stock: Option<Vec<D>>,
    /// MSI-X is enabled, and the descriptors are still to come.
    owed: bool,
    /// MSI-X is enabled.
    enabled: bool,
    /// Resets that the server has not answered.
    resets: u32,
    /// The registers are to be shown, once no reset is under way.
    shows: bool,
}

#[derive(Debug)]
enum State<D: 'static> {
    Away,
    Asking(Steps<D>),
    Ready(Box<Present<D>>),
}

/// A PCIe function that another process emulates, as a [`Device`] behind the far end's link.
#[derive(Debug)]
pub struct ExternalDevice<D: 'static> {
    client: Client<D>,
    state: State<D>,
    requests: Requests,
    completer: Completer,
    outputs: VecDeque<Said<Output<D>>>,
    pool: Pool,
    throttled: bool,
    /// The application knows that the server ends connections at once.
    turned_away: bool,
    now: Instant,
}

impl<D: 'static> ExternalDevice<D> {
    /// A device whose server is not connected yet.
    pub fn new(config: Config) -> Self {
        Self {
            client: Client::new(config),
            state: State::Away,
            requests: Requests::default(),
            completer: Completer::default(),
            outputs: VecDeque::new(),
            pool: Pool::default(),
            throttled: false,
            turned_away: false,
            now: Instant::ZERO,
        }
    }

    /// Whether to leave the server's messages unread: the link does not take their results.
    pub const fn is_throttled(&self) -> bool {
        self.throttled
    }

    fn event(&mut self, event: Event) {
        self.outputs.push_back(Said::World(Output::Event(event)));
    }

    fn on_client(&mut self, output: client::Output<D>) {
        use client::Output as From;
        match output {
            From::Transmit { bytes, descriptors } => {
                self.outputs.push_back(Said::World(Output::Transmit(bytes, descriptors)));
            }
            From::Negotiated(server) => {
                let (steps, step) = setup::start(server.data_max);
                self.state = State::Asking(steps);
                self.on_step(step);
            }
            From::Answered { request, result } => {
                if let Some(purpose) = self.requests.take(request) {
                    self.on_answer(purpose, result);
                }
            }
            From::DmaRead { token, address, length } => match &mut self.state {
                State::Ready(present) => {
                    present.reads.push(token, address, length);
                    self.issue_reads();
                }
                _ => self.client.dma_read_done(token, Err(Errno::EFAULT)),
            },
            From::DmaWrite { token, address, data } => self.on_dma_write(token, address, data),
            From::Close { reason } => {
                self.outputs.push_back(Said::World(Output::Close));
                self.event(Event::Left(reason));
                self.leave();
            }
        }
    }

    /// Starts the reads of host memory that may be under way.
    fn issue_reads(&mut self) {
        let State::Ready(present) = &mut self.state else { return };
        while let Some(read) = present.reads.start_next() {
            present.endpoint.dma(self.now, read);
        }
    }

    fn on_dma_write(&mut self, token: Option<Token>, address: u64, data: Buffer) {
        let result = match &mut self.state {
            State::Ready(present) if present.endpoint.config().bus_master() => {
                present.endpoint.dma(self.now, Dma::Write { address, data });
                Ok(())
            }
            _ => Err(Errno::EFAULT),
        };
        if let Some(token) = token {
            self.client.dma_write_done(token, result);
        }
    }

    fn on_step(&mut self, step: Step<Question, setup::Ended>) {
        match step {
            Step::Ask(question) => {
                let now = self.now;
                let request = match question {
                    Question::Device => self.client.device_info(now),
                    Question::Region(region) => self.client.region_info(now, region),
                    Question::Vectors => self.client.interrupt_info(now, KIND),
                    Question::Configuration { offset, count } => {
                        self.client.read(now, RegionIndex::CONFIG, offset, count)
                    }
                    Question::Map(map) => self.client.map(now, map, None),
                };
                self.requests.put(request, Purpose::Setup);
            }
            Step::Done(Ok(plan)) => self.on_ready(plan),
            Step::Done(Err(why)) => {
                self.event(Event::Unusable(why));
                self.client.handle_input(self.now, client::Input::Disconnected);
                self.outputs.push_back(Said::World(Output::Close));
                self.leave();
            }
        }
    }

    fn on_ready(&mut self, plan: Plan) {
        self.turned_away = false;
        let mut endpoint = Endpoint::new(&plan.endpoint);
        for shown in &plan.shown {
            endpoint.add_capability(shown.here, shown.id);
        }
        let identity = plan.endpoint.identity;
        for missing in plan.missing.clone() {
            self.event(Event::Without(missing));
        }
        let vectors = plan.vectors();
        let (vendor, device, class) = (identity.vendor, identity.device, identity.class);
        self.event(Event::Ready(Summary { vendor, device, class, vectors }));
        if vectors > 0 {
            self.outputs.push_back(Said::World(Output::Descriptors(vectors)));
        }
        self.state = State::Ready(Box::new(Present {
            endpoint,
            plan,
            reads: Reads::default(),
            stock: None,
            owed: false,
            enabled: false,
            resets: 0,
            shows: false,
        }));
        self.outputs.push_back(Said::Present);
    }

    /// The server has gone, or was left. The client has answered or forgotten all requests.
    fn leave(&mut self) {
        self.requests.clear();
        if let State::Ready(_) = core::mem::replace(&mut self.state, State::Away) {
            self.outputs.push_back(Said::Absent(ABSENT));
        }
    }

    fn on_answer(&mut self, purpose: Purpose, result: AnswerResult<D>) {
        match (purpose, &mut self.state) {
            // The connection has ended, and the next output says so.
            (Purpose::Setup, _) if matches!(result, Err(Errno::ENOTCONN)) => {}
            (Purpose::Setup, State::Asking(steps)) => {
                let step = steps.answer(result);
                self.on_step(step);
            }
            (Purpose::Bar { token, asked, length }, State::Ready(present)) => {
                let data = setup::data_of(result, asked);
                let data = data.map(|data| padded(&mut self.pool, data, length));
                present.endpoint.bar_read_done(token, data);
            }
            (Purpose::Register { request, kept }, State::Ready(present)) => {
                let value = setup::data_of(result, 4).and_then(|data| data.first_chunk().copied());
                // A register that cannot be read reads as zero; the capability stays in its list.
                let value = u32::from_le_bytes(value.unwrap_or_default());
                let kept_bits = if kept { u32::from(u16::MAX) } else { 0 };
                let own = present.endpoint.config().read(request.config_offset());
                let value = own & kept_bits | value & !kept_bits;
                self.complete(&request, Some(value));
            }
            (Purpose::RegisterWrite { request }, State::Ready(_)) => self.complete(&request, None),
            (Purpose::Reset, State::Ready(present)) => {
                present.resets = present.resets.saturating_sub(1);
                present.endpoint.hold_configuration(present.resets > 0);
                if let Err(error) = result {
                    self.event(Event::ResetFailed(error));
                }
            }
            (Purpose::Interrupts, State::Ready(_)) => {
                if let Err(error) = result {
                    self.event(Event::InterruptsFailed(error));
                }
            }
            _ => {}
        }
    }

    /// Answers a configuration request that went to the device.
    fn complete(&mut self, request: &requests::ConfigRequest, value: Option<u32>) {
        let State::Ready(present) = &self.state else { return };
        let id = present.endpoint.id();
        self.completer.set(completer::Settings { id, ..completer::Settings::default() });
        let outputs = &mut self.outputs;
        match value {
            Some(value) => {
                let data = self.pool.copy(&value.to_le_bytes());
                let say = |packet| outputs.push_back(Said::Packet(packet));
                self.completer.data(request.header(), &data, say);
            }
            None => {
                let status = pcie::wire::CompletionStatus::Success;
                outputs.push_back(Said::Packet(self.completer.status(request.header(), status)));
            }
        }
    }

    fn on_endpoint(&mut self, output: endpoint::Output) {
        match output {
            endpoint::Output::Packet(packet) => self.outputs.push_back(Said::Packet(packet)),
            endpoint::Output::BarRead { token, bar, offset, length } => {
                self.on_bar_read(token, bar.get(), offset, length);
            }
            endpoint::Output::BarWrite { bar, offset, data } => self.on_bar_write(bar.get(), offset, &data),
            endpoint::Output::Dma(result) => self.on_dma(result),
            endpoint::Output::Reset(_) => self.on_reset(),
        }
    }

    fn on_dma(&mut self, result: DmaResult) {
        let State::Ready(present) = &mut self.state else { return };
        if let Some((token, bytes)) = present.reads.on_result(result) {
            self.client.dma_read_done(token, bytes.as_deref().ok_or(Errno::EFAULT));
            self.issue_reads();
        }
    }

    /// Bytes of a BAR's region from `offset` on; a BAR may be larger than its region.
    fn room(&self, bar: u8, offset: u64) -> u64 {
        let State::Ready(present) = &self.state else { return 0 };
        present.plan.regions.get(usize::from(bar)).map_or(0, |length| length.saturating_sub(offset))
    }

    fn on_bar_read(&mut self, token: endpoint::BarToken, bar: u8, offset: u64, length: u32) {
        let asked = u32::try_from(self.room(bar, offset)).map_or(length, |room| room.min(length));
        if asked > 0 {
            let request = self.client.read(self.now, RegionIndex(bar.into()), offset, asked);
            self.requests.put(request, Purpose::Bar { token, asked, length });
        } else if let State::Ready(present) = &mut self.state {
            let ones = padded(&mut self.pool, Buffer::EMPTY, length);
            present.endpoint.bar_read_done(token, Some(ones));
        }
    }

    fn on_bar_write(&mut self, bar: u8, offset: u64, data: &[u8]) {
        let room = usize::try_from(self.room(bar, offset)).unwrap_or(usize::MAX);
        self.post(RegionIndex(bar.into()), offset, &data[..data.len().min(room)]);
    }

    /// Writes without an answer, in messages as long as the server takes.
    fn post(&mut self, region: RegionIndex, offset: u64, data: &[u8]) {
        let Some(server) = self.client.negotiated() else { return };
        let most = usize::try_from(server.data_max).unwrap_or(usize::MAX);
        for (piece, at) in data.chunks(most).zip((offset..).step_by(most)) {
            self.client.post(region, at, piece);
        }
    }

    /// The endpoint was reset: resets the device too, and gives up the requests in flight.
    fn on_reset(&mut self) {
        let State::Ready(present) = &mut self.state else { return };
        while let Some(token) = present.reads.pop() {
            self.client.dma_read_done(token, Err(Errno::EIO));
        }
        self.requests.forget_registers();
        self.update_interrupts();
        self.post_command();
        let State::Ready(present) = &mut self.state else { return };
        present.shows = true;
        if present.plan.resettable {
            present.resets += 1;
            present.endpoint.hold_configuration(true);
            let request = self.client.reset(self.now);
            self.requests.put(request, Purpose::Reset);
        }
    }

    fn on_packet_ready(&mut self, packet: Packet) {
        let State::Ready(present) = &mut self.state else { return };
        let Some(request) = requests::ConfigRequest::of(&packet) else {
            present.endpoint.handle_input(self.now, packet);
            return;
        };
        let place = present.plan.place(request.config_offset()).filter(|_| present.resets == 0);
        match place {
            Some((there, kept)) => self.on_capability(request, &packet, there, kept),
            None => {
                present.endpoint.handle_input(self.now, packet);
                self.on_config(&request);
            }
        }
    }

    /// A configuration request to a capability of the device, whose first half-word is kept here.
    fn on_capability(&mut self, config: requests::ConfigRequest, packet: &Packet, there: u16, kept: bool) {
        let now = self.now;
        if !config.is_write() {
            let request = self.client.read(now, RegionIndex::CONFIG, there.into(), 4);
            self.requests.put(request, Purpose::Register { request: config, kept });
            return;
        }
        let enables = if kept { config.enables() & 0b1100 } else { config.enables() };
        let runs = requests::runs(enables);
        // All but the last are posted, because the server does them in order.
        for (index, run) in runs.iter().enumerate() {
            let data = packet.payload.get(run.clone()).unwrap_or_default();
            let at = u64::from(there) + run.start as u64;
            if index + 1 < runs.len() {
                self.post(RegionIndex::CONFIG, at, data);
            } else {
                let request = self.client.write(now, RegionIndex::CONFIG, at, data);
                self.requests.put(request, Purpose::RegisterWrite { request: config });
            }
        }
        if runs.is_empty() {
            self.complete(&config, None);
        }
    }

    /// The endpoint has had a configuration request: passes its effect on to the server.
    fn on_config(&mut self, request: &requests::ConfigRequest) {
        if !request.is_write() {
            return;
        }
        if request.config_offset() == header::BUS_MASTER.offset() {
            self.post_command();
        }
        self.update_interrupts();
    }

    /// Sends the server those bits of the Command register that a device may need.
    fn post_command(&mut self) {
        let State::Ready(present) = &self.state else { return };
        let space = present.endpoint.config();
        let known = [
            header::IO_SPACE,
            header::MEMORY_SPACE,
            header::BUS_MASTER,
            header::SERR,
            header::INTERRUPT_DISABLE,
        ];
        let command = known.into_iter().fold(0, |command, field| field.with(command, space.get(field)));
        let [low, high, ..] = command.to_le_bytes();
        let at = header::BUS_MASTER.offset();
        self.post(RegionIndex::CONFIG, at.into(), &[low, high]);
    }

    /// Sets up or tears down the server's interrupts as the host has enabled them.
    fn update_interrupts(&mut self) {
        let State::Ready(present) = &mut self.state else { return };
        let Some(at) = present.plan.msix else { return };
        let control = msix::ENABLE.at(offset::MSIX).offset();
        let space = present.endpoint.config();
        let enabled = space.is_set(msix::ENABLE.at(offset::MSIX));
        if enabled == present.enabled {
            return;
        }
        present.enabled = enabled;
        present.owed = enabled;
        // The server's own register, without the mask, which is kept here: virtual machine monitors
        // write it so.
        let value = msix::FUNCTION_MASK.at(offset::MSIX).with(space.read(control), 0);
        let [.., low, high] = value.to_le_bytes();
        self.post(RegionIndex::CONFIG, u64::from(at) + 2, &[low, high]);
        if enabled {
            self.give_descriptors();
        } else {
            let none = InterruptData::None;
            let (now, trigger) = (self.now, InterruptAction::Trigger);
            let request = self.client.set_interrupts(now, KIND, trigger, (0, 0), none);
            self.requests.put(request, Purpose::Interrupts);
        }
    }

    /// Gives the server its descriptors once they have come, and asks the world for the next ones.
    fn give_descriptors(&mut self) {
        let State::Ready(present) = &mut self.state else { return };
        if !present.owed {
            return;
        }
        let Some(mut stock) = present.stock.take() else { return };
        present.owed = false;
        let vectors = present.plan.vectors();
        let most = self.client.negotiated().map_or(1, |server| server.descriptors_max).max(1);
        let mut start = 0;
        while !stock.is_empty() {
            let rest = stock.split_off(stock.len().min(most));
            let piece = core::mem::replace(&mut stock, rest);
            let count = u32::try_from(piece.len()).unwrap_or(u32::MAX);
            let data = InterruptData::Descriptors(piece);
            let (now, trigger) = (self.now, InterruptAction::Trigger);
            let request = self.client.set_interrupts(now, KIND, trigger, (start, count), data);
            self.requests.put(request, Purpose::Interrupts);
            start += count;
        }
        self.outputs.push_back(Said::World(Output::Descriptors(vectors)));
    }
}

impl<D: 'static> Device for ExternalDevice<D> {
    type Input = Input<D>;
    type Output = Output<D>;

    fn on_packet(&mut self, now: Instant, packet: &Packet) {
        self.now = now;
        self.on_packet_ready(packet.clone());
    }

    fn on_hot_reset(&mut self, now: Instant) {
        self.now = now;
        if let State::Ready(present) = &mut self.state {
            present.endpoint.hot_reset();
        }
    }

    fn on_input(&mut self, now: Instant, input: Input<D>) {
        self.now = now;
        match input {
            Input::Connected => self.client.handle_input(now, client::Input::Connected),
            Input::Received(bytes, descriptors) => {
                self.client.handle_input(now, client::Input::Received { bytes: &bytes, descriptors });
            }
            Input::Disconnected => {
                self.client.handle_input(now, client::Input::Disconnected);
                if matches!(self.state, State::Ready(_)) {
                    self.event(Event::Gone);
                } else if !core::mem::replace(&mut self.turned_away, true) {
                    self.event(Event::TurnedAway);
                }
                self.leave();
            }
            Input::Descriptors(descriptors) => {
                if let State::Ready(present) = &mut self.state {
                    present.stock = Some(descriptors);
                    self.give_descriptors();
                }
            }
            Input::Signalled(vector) => {
                if let State::Ready(present) = &mut self.state {
                    present.endpoint.dma(now, Dma::Interrupt { vector });
                }
            }
        }
    }

    fn poll(&mut self) -> Option<Said<Output<D>>> {
        loop {
            if let Some(said) = self.outputs.pop_front() {
                return Some(said);
            }
            // The endpoint first: the client's requests must not come before a reset.
            if let State::Ready(present) = &mut self.state
                && let Some(output) = present.endpoint.poll_output()
            {
                self.on_endpoint(output);
                continue;
            }
            let output = self.client.poll_output()?;
            self.on_client(output);
        }
    }

    fn show(&mut self, show: &mut impl FnMut(Registers)) {
        if let State::Ready(present) = &mut self.state
            && present.resets == 0
            && core::mem::replace(&mut present.shows, false)
        {
            show_configuration(present.endpoint.config(), show);
        }
    }

    fn set_throttled(&mut self, throttled: bool) {
        self.throttled = throttled;
    }

    fn is_present(&self) -> bool {
        matches!(self.state, State::Ready(_))
    }

    fn on_timeout(&mut self, now: Instant) {
        self.now = now;
        self.client.handle_timeout(now);
        if let State::Ready(present) = &mut self.state {
            present.endpoint.handle_timeout(now);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let endpoint = match &self.state {
            State::Ready(present) => present.endpoint.poll_timeout(),
            _ => None,
        };
        self.client.poll_timeout().into_iter().chain(endpoint).min()
    }
}
