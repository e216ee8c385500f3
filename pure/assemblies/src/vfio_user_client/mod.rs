//! The user of an NVMe function that another process offers over vfio-user. The user is a driver
//! that reaches registers by messages and shares its memory with the function. Its doorbells are
//! stores where the function lets them be mapped.

mod event;
mod setup;
#[cfg(test)]
mod tests;

pub use event::{Event, Failure};
pub use vfio_user::client::Input;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Buffer, Engine, Instant, Step, Watch};
use nvme::wire::CommandId;
use nvme_pcie::host::{self, Host, Submission, SubmitError};
use nvme_pcie::registers::{DOORBELL_BYTES, offset};
use pcie::memory::Memory;
use vfio_user::client::{self, Answer, Client, RequestId};
use vfio_user::wire::DmaMap;
use vfio_user::{Area, Errno, InterruptAction, InterruptData, InterruptIndex, RegionIndex};

use setup::{Found, Question, Steps};

use crate::near::ControllerIndex;
use crate::watch::{Connection, Direction, Port, Seen};

/// The settings of a user.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Settings of the vfio-user client.
    pub client: client::Config,
    /// Settings of the driver. Its arena is the memory that is shared. Whether it uses interrupts
    /// depends on the function.
    pub driver: host::Config,
}

/// Outputs of the user: requests to the world, and events.
#[derive(Debug)]
pub enum Output<D> {
    /// Append this message to the stream; its descriptors go with its first byte.
    Transmit {
        /// The whole message.
        bytes: Buffer,
        /// The descriptors that go with the message.
        descriptors: Vec<D>,
    },
    /// End the connection once all bytes output before this are on their way.
    Close,
    /// Map the doorbells. Answer with [`User::doorbells_mapped`].
    MapDoorbells {
        /// The file to map.
        descriptor: D,
        /// Where the doorbells begin in the file, in bytes.
        offset: u64,
        /// Length of the mapping in bytes.
        length: u64,
    },
    /// Store a doorbell. All writes of memory before it must be visible first.
    Doorbell {
        /// Offset from the beginning of the mapping in bytes, a multiple of 4.
        offset: u64,
        /// The value to store.
        value: u32,
    },
    /// An event for the application.
    Event(Event),
}

#[derive(Debug)]
enum State<D> {
    /// Not connected yet.
    Away,
    /// Waiting for the server's version.
    Greeting,
    /// The function is being set up.
    Setup(Box<Setup<D>>),
    /// The driver has the function.
    Ready,
    /// The user has failed or was closed; nothing follows.
    Failed,
}

#[derive(Debug)]
struct Setup<D> {
    script: Steps<D>,
    /// The request whose answer the script waits for; `None` while it waits for the world.
    request: Option<RequestId>,
}

/// A change of whether completions are signalled. MSI-X is enabled after the descriptors are given,
/// and disabled before they are taken away. The server thus never has an interrupt that it can not
/// signal.
#[derive(Clone, Copy, Debug)]
struct Listening {
    request: RequestId,
    on: bool,
    /// Nothing follows this request.
    last: bool,
}

/// The user of one function: the vfio-user client, the driver, and the memory that the
/// function shares.
#[derive(Debug)]
pub struct User<D, M> {
    config: Config,
    client: Client<D>,
    memory: M,
    /// The memory's file, until it is shared.
    shared: Option<D>,
    state: State<D>,
    host: Option<Host>,
    /// The register read under way, and the driver's name for the read. Drivers read one register
    /// at a time.
    register: Option<(RequestId, u64)>,
    /// The application's configuration read.
    config_read: Option<RequestId>,
    /// The application's register read.
    register_read: Option<RequestId>,
    /// Interrupts are being set up or torn down.
    listening: Option<Listening>,
    /// The part of BAR0 that holds the doorbells and is mapped, or is about to be.
    doorbells: Option<Area>,
    /// The interrupts that the driver may use.
    interrupts: Found,
    /// Number of requests without an answer.
    unanswered: usize,
    outputs: VecDeque<Output<D>>,
    watch: Watch<Port>,
    now: Instant,
}

impl<D: 'static, M: Memory> User<D, M> {
    /// A user whose memory is the file `shared`, from the beginning of the file. The memory must be
    /// all of the driver's arena.
    pub fn new(config: Config, memory: M, shared: D) -> Self {
        Self {
            client: Client::new(config.client),
            config,
            memory,
            shared: Some(shared),
            state: State::Away,
            host: None,
            register: None,
            config_read: None,
            register_read: None,
            listening: None,
            doorbells: None,
            interrupts: Found { vectors: 0, control: None },
            unanswered: 0,
            outputs: VecDeque::new(),
            watch: Watch::new(),
            now: Instant::ZERO,
        }
    }

    /// The driver, once the function is set up.
    pub const fn driver(&self) -> Option<&Host> {
        self.host.as_ref()
    }
    /// The memory that the function shares.
    pub const fn memory(&self) -> &M {
        &self.memory
    }
    /// The mutable shared memory, for the data of commands; see [`Host::data_region`].
    pub const fn memory_mut(&mut self) -> &mut M {
        &mut self.memory
    }
    /// The watchers of the messages and the commands. The only controller is the first one.
    pub const fn watch(&mut self) -> &mut Watch<Port> {
        &mut self.watch
    }
    /// Whether doorbells are stores rather than messages.
    pub const fn has_doorbells(&self) -> bool {
        self.doorbells.is_some()
    }
    /// Number of vectors that must be listened to unless the application polls; 0 where the
    /// function has no usable interrupts.
    pub const fn vectors(&self) -> u32 {
        self.interrupts.vectors
    }
    /// Whether the server owes an answer.
    pub const fn awaits_answer(&self) -> bool {
        self.unanswered > 0 || matches!(self.state, State::Greeting)
    }

    /// Submits a command; [`Event::Completed`] follows exactly once. The doorbell is rung when
    /// outputs are next polled.
    ///
    /// # Errors
    /// When the command cannot be taken; it then never completes.
    pub fn submit(&mut self, now: Instant, submission: Submission) -> Result<CommandId, SubmitError> {
        self.now = now;
        let host = self.host.as_mut().filter(|_| matches!(self.state, State::Ready));
        let command = host.ok_or(SubmitError::NotReady)?.submit(now, &mut self.memory, submission)?;
        let (controller, submission) = (ControllerIndex(0), &submission);
        self.watch.show(now, move || Seen::Submitted { controller, command, submission });
        Ok(command)
    }

    /// Takes the completions that have come. Cheap where there are none.
    pub fn poll_completions(&mut self, now: Instant) {
        self.now = now;
        if let Some(host) = &mut self.host {
            host.poll_completions(now, &mut self.memory);
        }
    }

    /// Takes the next completion that has come to an I/O queue, ahead of all outputs. `None` also
    /// while outputs wait, and while a watcher sees the outputs. Meant for callers that poll all
    /// the time; see [`Host::poll_io_completed`].
    #[inline]
    pub fn poll_io_completed(&mut self, now: Instant) -> Option<host::Completed> {
        if !self.outputs.is_empty() || self.watch.is_on() {
            return None;
        }
        self.now = now;
        self.host.as_mut()?.poll_io_completed(now, &mut self.memory)
    }

    /// The next doorbell to store, ahead of all outputs: its offset in the mapping in bytes, and
    /// its value. `None` where doorbells are messages. Meant for callers that have just submitted.
    #[inline]
    pub fn poll_doorbell(&mut self) -> Option<(u64, u32)> {
        let area = self.doorbells?;
        // Other outputs go first, and a doorbell outside of the mapping must be a message.
        if !self.outputs.is_empty() || !self.rings_in(area) {
            return None;
        }
        let (offset, value) = self.host.as_mut()?.poll_doorbell()?;
        Some((u64::from(offset) - area.offset, value))
    }

    /// Reads a double word of the configuration space; [`Event::ConfigRead`] follows. Only one read
    /// at a time is allowed.
    pub fn config_read(&mut self, now: Instant, offset: u16) {
        self.now = now;
        self.unanswered += 1;
        self.config_read = Some(self.client.read(now, RegionIndex::CONFIG, u64::from(offset), 4));
    }

    /// Reads `length` bytes (4 or 8) of the registers in BAR0, from `offset` on;
    /// [`Event::RegisterRead`] follows. Only one read at a time is allowed.
    pub fn register_read(&mut self, now: Instant, offset: u32, length: u32) {
        self.now = now;
        self.unanswered += 1;
        self.register_read = Some(self.client.read(now, RegionIndex::BAR0, u64::from(offset), length));
    }

    /// Writes a double word to the registers in BAR0.
    pub fn register_write(&mut self, now: Instant, offset: u32, value: u32) {
        self.now = now;
        self.write_register(u64::from(offset), &value.to_le_bytes());
    }

    /// Starts or stops the signalling of completions. `descriptors` has one for each of
    /// [`User::vectors`], or is empty to stop. [`Event::Listening`] follows; completions that came
    /// before it may not be signalled.
    pub fn listen(&mut self, now: Instant, descriptors: Vec<D>) {
        self.now = now;
        let on = !descriptors.is_empty();
        let request = if on { self.set_descriptors(descriptors) } else { self.enable_interrupts(false) };
        self.listening = Some(Listening { request, on, last: false });
    }

    fn set_descriptors(&mut self, descriptors: Vec<D>) -> RequestId {
        self.unanswered += 1;
        let (action, index) = (InterruptAction::Trigger, InterruptIndex::Msix);
        let range = (0, self.interrupts.vectors);
        self.client.set_interrupts(self.now, index, action, range, InterruptData::Descriptors(descriptors))
    }

    fn enable_interrupts(&mut self, on: bool) -> RequestId {
        self.unanswered += 1;
        match self.interrupts.control {
            Some(control) => {
                let offset = control.offset.into();
                self.client.write(self.now, RegionIndex::CONFIG, offset, &control.value(on))
            }
            // Without vectors there is no listener; any request with an answer will do.
            None => self.client.device_info(self.now),
        }
    }

    fn on_listening(&mut self, listening: Listening, result: Result<Answer<D>, Errno>) {
        if listening.last || result.is_err() {
            return self.outputs.push_back(Output::Event(Event::Listening(result.is_ok())));
        }
        let on = listening.on;
        let request = if on { self.enable_interrupts(true) } else { self.set_descriptors(Vec::new()) };
        self.listening = Some(Listening { request, on, last: true });
    }

    /// Wakes the server in case it sleeps, by asking it something that it has answered before.
    pub fn nudge(&mut self, now: Instant) {
        self.now = now;
        self.unanswered += 1;
        let _ = self.client.device_info(now);
    }

    /// Answers [`Output::MapDoorbells`].
    pub fn doorbells_mapped(&mut self, mapped: bool) {
        if !mapped {
            self.doorbells = None;
        }
        self.on_answer(None, Ok(Answer::Done));
        self.circulate();
    }

    /// Ends the use of the function: closes the connection to the server.
    pub fn close(&mut self, now: Instant) {
        self.now = now;
        self.state = State::Failed;
        self.host = None;
        self.outputs.push_back(Output::Close);
    }

    fn fail(&mut self, failure: Failure) {
        if !matches!(self.state, State::Failed) {
            self.state = State::Failed;
            self.host = None;
            self.outputs.push_back(Output::Event(Event::Failed(failure)));
            self.outputs.push_back(Output::Close);
        }
    }

    fn on_client(&mut self, output: client::Output<D>) {
        match output {
            client::Output::Transmit { bytes, descriptors } => {
                self.outputs.push_back(Output::Transmit { bytes, descriptors });
            }
            client::Output::Negotiated(_) => {
                let (script, step) = setup::script(self.config.driver.queue_pairs);
                self.state = State::Setup(Box::new(Setup { script, request: None }));
                self.on_step(step);
            }
            client::Output::Answered { request, result } => {
                self.unanswered = self.unanswered.saturating_sub(1);
                self.on_answer(Some(request), result);
            }
            // All memory is shared by its file, so a server that asks for it by message is
            // at fault.
            client::Output::DmaRead { token, .. } => self.client.dma_read_done(token, Err(Errno::EACCES)),
            client::Output::DmaWrite { token, .. } => {
                if let Some(token) = token {
                    self.client.dma_write_done(token, Err(Errno::EACCES));
                }
            }
            client::Output::Close { reason } => self.fail(Failure::Protocol(reason)),
        }
    }

    fn on_answer(&mut self, request: Option<RequestId>, result: Result<Answer<D>, Errno>) {
        if let State::Setup(setup) = &mut self.state
            && setup.request == request
        {
            let step = setup.script.answer(result);
            return self.on_step(step);
        }
        if let Some((_, cookie)) = self.register.take_if(|(asked, _)| Some(*asked) == request) {
            let data = match &result {
                Ok(Answer::Data(data)) => Some(&data[..]),
                _ => None,
            };
            if let Some(host) = &mut self.host {
                host.handle_input(self.now, host::Input::RegisterRead { cookie, bytes: data });
            }
        } else if self.config_read.take_if(|asked| Some(*asked) == request).is_some() {
            let value = match result {
                Ok(Answer::Data(data)) => data[..].try_into().map(u32::from_le_bytes).map_err(|_| Errno::EIO),
                Ok(_) => Err(Errno::EIO),
                Err(error) => Err(error),
            };
            self.outputs.push_back(Output::Event(Event::ConfigRead(value)));
        } else if self.register_read.take_if(|asked| Some(*asked) == request).is_some() {
            let value = result.and_then(|answer| match answer {
                Answer::Data(data) => register(&data[..]).ok_or(Errno::EIO),
                _ => Err(Errno::EIO),
            });
            self.outputs.push_back(Output::Event(Event::RegisterRead(value)));
        } else if let Some(listening) = self.listening.take_if(|asked| Some(asked.request) == request) {
            self.on_listening(listening, result);
        }
    }

    fn on_step(&mut self, step: Step<Question<D>, Result<Found, Failure>>) {
        let question = match step {
            Step::Done(Ok(found)) => return self.on_found(found),
            Step::Done(Err(failure)) => return self.fail(failure),
            Step::Ask(question) => question,
        };
        let request = self.ask(question);
        if let State::Setup(setup) = &mut self.state {
            setup.request = request;
        }
    }

    fn ask(&mut self, question: Question<D>) -> Option<RequestId> {
        let now = self.now;
        if let Question::MapDoorbells { area, descriptor, offset } = question {
            self.doorbells = Some(area);
            let length = area.length;
            self.outputs.push_back(Output::MapDoorbells { descriptor, offset, length });
            return None;
        }
        self.unanswered += 1;
        Some(match question {
            Question::Device => self.client.device_info(now),
            Question::Region(region) => self.client.region_info(now, region),
            Question::Interrupts => self.client.interrupt_info(now, InterruptIndex::Msix),
            Question::ShareMemory => {
                let driver = &self.config.driver;
                let (address, length) = (driver.arena_base, driver.arena_length);
                let map = DmaMap { readable: true, writable: true, offset: 0, address, length };
                self.client.map(now, map, self.shared.take())
            }
            Question::ReadConfig { offset, count } => {
                self.client.read(now, RegionIndex::CONFIG, offset, count)
            }
            Question::WriteConfig { offset, bytes } => {
                self.client.write(now, RegionIndex::CONFIG, offset, &bytes)
            }
            Question::MapDoorbells { .. } => return None,
        })
    }

    fn on_found(&mut self, found: Found) {
        self.interrupts = found;
        let settings = host::Config { interrupts: found.vectors > 0, ..self.config.driver };
        match Host::new(settings) {
            Ok(mut host) => {
                host.start(self.now);
                self.host = Some(host);
                self.state = State::Ready;
            }
            Err(error) => self.fail(Failure::Arena(error)),
        }
    }

    fn on_host(&mut self, output: host::Output) {
        match output {
            host::Output::RegisterRead { cookie, offset, length } => {
                self.unanswered += 1;
                let request = self.client.read(self.now, RegionIndex::BAR0, u64::from(offset), length);
                self.register = Some((request, cookie));
            }
            host::Output::RegisterWrite { offset, bytes } => self.write_register(u64::from(offset), &bytes),
            host::Output::Ready(_) => self.outputs.push_back(Output::Event(Event::Ready)),
            host::Output::Failed(error) => self.fail(Failure::Controller(error)),
            host::Output::Completed(completed) => {
                self.outputs.push_back(Output::Event(Event::Completed(completed)));
            }
            host::Output::Event(event) => self.outputs.push_back(Output::Event(Event::Asynchronous(event))),
            host::Output::Resetting(reason) => {
                self.outputs.push_back(Output::Event(Event::Resetting(reason)));
            }
        }
    }

    fn write_register(&mut self, offset: u64, bytes: &[u8]) {
        if let Some(area) = self.doorbells
            && offset >= area.offset
            && offset + bytes.len() as u64 <= area.offset + area.length
            && let Ok(value) = bytes.try_into().map(u32::from_le_bytes)
        {
            self.outputs.push_back(Output::Doorbell { offset: offset - area.offset, value });
        } else {
            self.client.post(RegionIndex::BAR0, offset, bytes);
        }
    }

    /// Whether all doorbells that the driver may ring are within `area`.
    const fn rings_in(&self, area: Area) -> bool {
        let first = offset::DOORBELLS as u64;
        let last = first + (self.config.driver.queue_pairs as u64 + 1) * 2 * DOORBELL_BYTES as u64;
        area.offset <= first && last <= area.offset + area.length
    }

    /// Shows an output to the watchers, as it leaves.
    #[cold]
    fn show(&mut self, output: &Output<D>) {
        let (direction, connection) = (Direction::Down, Connection::VfioUser);
        match output {
            Output::Transmit { bytes, .. } => {
                self.watch.show(self.now, || Seen::Bytes { direction, connection, ends: None, bytes });
            }
            Output::Event(Event::Completed(completed)) => {
                let controller = ControllerIndex(0);
                self.watch.show(self.now, || Seen::Completed { controller, completed });
            }
            _ => {}
        }
    }

    /// Moves the parts' outputs to each other and to the world.
    fn circulate(&mut self) {
        loop {
            if let Some(output) = self.client.poll_output() {
                self.on_client(output);
            } else if let Some(output) = self.host.as_mut().and_then(Host::poll_output) {
                self.on_host(output);
            } else {
                return;
            }
        }
    }
}

/// The value of a register of 4 or 8 bytes.
fn register(bytes: &[u8]) -> Option<u64> {
    match bytes.len() {
        4 => bytes.try_into().ok().map(u32::from_le_bytes).map(u64::from),
        _ => bytes.try_into().ok().map(u64::from_le_bytes),
    }
}

impl<D: 'static, M: Memory> Engine for User<D, M> {
    type Input<'a> = Input<'a, D>;
    type Output = Output<D>;

    fn handle_input(&mut self, now: Instant, input: Input<'_, D>) {
        self.now = now;
        match &input {
            Input::Connected => self.state = State::Greeting,
            Input::Received { bytes, .. } => {
                let (direction, connection) = (Direction::Up, Connection::VfioUser);
                self.watch.show(now, || Seen::Bytes { direction, connection, ends: None, bytes });
            }
            Input::Disconnected => {
                let failure = match self.state {
                    State::Away | State::Greeting => Failure::TurnedAway,
                    _ => Failure::Gone,
                };
                self.fail(failure);
            }
        }
        self.client.handle_input(now, input);
        self.circulate();
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        self.client.handle_timeout(now);
        if let Some(host) = &mut self.host {
            host.handle_timeout(now);
        }
    }

    fn poll_output(&mut self) -> Option<Output<D>> {
        if self.outputs.is_empty() {
            self.circulate();
        }
        let output = self.outputs.pop_front();
        if self.watch.is_on()
            && let Some(output) = &output
        {
            self.show(output);
        }
        output
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let host = self.host.as_ref().and_then(Host::poll_timeout);
        self.client.poll_timeout().into_iter().chain(host).min()
    }
}
