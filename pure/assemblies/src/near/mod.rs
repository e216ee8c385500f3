//! The host: root complex, memory and NVMe drivers above a distributed switch.
//!
//! Links that come up are enumerated. NVMe controllers that are found are brought up. Devices that
//! go are held for a while, and are brought up again when they come back. Applications submit
//! commands and read registers; [`Event`]s report the results.

mod chain;
mod config;
mod driver;
mod events;
mod interrupts;
mod registers;
#[cfg(test)]
mod tests;
mod trace;
mod watched;

pub use chain::{Chain, Hop, read_chains};
pub use config::{Config, MEMORY_BASE, PORTS_MAX, switch};
pub use events::{ControllerIndex, Event, Failure};
pub use trace::{Observation, Point, Trace};

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Buffer, Deadlines, Engine, Entropy, Instant, Pool};
use nvme::wire::CommandId;
use nvme_pcie::host::{self, Submission, SubmitError};
use pcie::memory::{Memory, Ram};
use pcie::requester::{Answer, Busy};
use pcie::root_complex::{self, Received, RootComplex, Topology};
use pcie::wire::{Bdf, Packet};
use tunnel::session::{self, Arrival};
use tunnel::upstream::{self, ConnectionIndex, PortIndex};

use driver::Driver;
use registers::Readings;

use crate::Upstream;
use crate::root_port::RootPort;

/// Inputs of the host.
#[derive(Debug)]
pub enum Input {
    /// The connection that [`Output::Connect`] asked for is open.
    Connected(ConnectionIndex),
    /// A piece of a connection's byte stream, cut anywhere.
    Received(ConnectionIndex, Buffer),
    /// The connection ended, or could not be made.
    Disconnected(ConnectionIndex),
    /// A packet from the function that is attached directly.
    Packet(Packet),
}

/// Outputs of the host: requests to the world, and events.
#[derive(Debug)]
pub enum Output {
    /// Dial the far end of the connection's port. Answer with [`Input::Connected`]
    /// or [`Input::Disconnected`].
    Connect(ConnectionIndex),
    /// Append these bytes to the stream of a connection.
    Transmit(ConnectionIndex, Buffer),
    /// End the connection once all bytes output before this are on their way.
    Close(ConnectionIndex),
    /// A packet for the function that is attached directly.
    Packet(Packet),
    /// An event for the application.
    Event(Event),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    /// Enumerate without the links that are not up yet.
    Gather,
}

/// The parts that may have work or outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    /// None, until the next external call.
    Nobody,
    /// The root port.
    Port,
    /// The drivers, too: something happened that a driver may wait for, such as bytes in host
    /// memory, an answer, a time-out or a command.
    Drivers,
}

/// A part of the hierarchy that is to be enumerated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scan {
    All,
    Below(PortIndex),
}

/// A host with its root complex, memory, and one NVMe driver for each controller that was found.
#[derive(Debug)]
pub struct Near {
    config: Config,
    port: RootPort,
    memory: Ram,
    drivers: Vec<Driver>,
    readings: Readings,
    topology: Option<Topology>,
    links_up: Vec<bool>,
    /// Enumerations that wait for the one that runs.
    scans: VecDeque<Scan>,
    running: Option<Scan>,
    timers: Deadlines<Timer>,
    pool: Pool,
    outputs: VecDeque<Output>,
    writes_dropped: u64,
    work: Work,
    now: Instant,
}

impl Near {
    /// A host with a switch, and behind each port of the switch the tunnel of one of `sessions`, at
    /// most [`PORTS_MAX`]. The host dials all far ends as soon as its outputs are first polled.
    ///
    /// # Panics
    /// When `sessions` is empty or too long.
    pub fn over_tunnels(config: Config, sessions: Vec<session::Config>, entropy: impl Into<Entropy>) -> Self {
        let ports = sessions.len();
        let count = u8::try_from(ports).ok().filter(|count| (1..=PORTS_MAX).contains(&usize::from(*count)));
        let count =
            count.unwrap_or_else(|| panic!("{ports} far ends, where a switch has 1 to {PORTS_MAX} ports"));
        let upstream = crate::upstream(&config::switch(count), sessions, entropy);
        let port = RootPort::over_tunnels(RootComplex::new(config.root), upstream);
        Self::new(config, port, ports)
    }

    /// A host with one function on its root port's link, without switch and tunnel. Enumeration
    /// starts at once.
    pub fn direct(config: Config, now: Instant) -> Self {
        let port = RootPort::direct(RootComplex::new(config.root));
        let mut near = Self::new(config, port, 0);
        near.now = now;
        near.request_scan(Scan::All);
        near
    }

    fn new(config: Config, port: RootPort, ports: usize) -> Self {
        let drivers_max = ports.max(1);
        let bytes =
            usize::try_from(config.arena_bytes).expect("an arena fits the address space") * drivers_max;
        Self {
            port,
            memory: Ram::new(MEMORY_BASE, bytes),
            drivers: Vec::new(),
            readings: Readings::new(),
            topology: None,
            links_up: alloc::vec![false; ports],
            scans: VecDeque::new(),
            running: None,
            timers: Deadlines::new(),
            pool: Pool::default(),
            outputs: VecDeque::new(),
            writes_dropped: 0,
            work: Work::Port,
            now: Instant::ZERO,
            config,
        }
    }

    /// The functions that enumeration found; `None` before the first [`Event::Enumerated`].
    pub const fn topology(&self) -> Option<&Topology> {
        self.topology.as_ref()
    }
    /// The upstream end of the tunnels, if there are tunnels.
    pub fn upstream(&self) -> Option<&Upstream> {
        self.port.upstream()
    }
    /// The driver of a controller that was found.
    pub fn driver(&self, controller: ControllerIndex) -> Option<&host::Host> {
        self.drivers.get(controller.0).map(|driver| &driver.host)
    }
    /// The NVMe controllers that were found, in the order of their discovery.
    pub fn controllers(&self) -> impl Iterator<Item = (ControllerIndex, Bdf)> {
        self.drivers.iter().enumerate().map(|(index, driver)| (ControllerIndex(index), driver.bdf))
    }
    /// The root complex, for its statistics.
    pub const fn root(&self) -> &RootComplex {
        self.port.root()
    }
    /// Host memory, for the data of commands; see [`host::Host::data_region`].
    pub const fn memory(&self) -> &Ram {
        &self.memory
    }
    /// Mutable host memory, for the data of commands; see [`host::Host::data_region`].
    pub const fn memory_mut(&mut self) -> &mut Ram {
        &mut self.memory
    }

    /// Number of device writes that were dropped because they were outside of host memory. The root
    /// complex refuses and counts such reads.
    pub const fn writes_dropped(&self) -> u64 {
        self.writes_dropped
    }

    /// Submits a command; [`Event::Completed`] follows exactly once. The doorbell is rung when
    /// outputs are next polled, once for all commands submitted until then.
    ///
    /// # Errors
    /// When the command cannot be taken; it then never completes.
    pub fn submit(
        &mut self,
        now: Instant,
        controller: ControllerIndex,
        submission: Submission,
    ) -> Result<CommandId, SubmitError> {
        self.note_time(now);
        let driver = self.drivers.get_mut(controller.0).ok_or(SubmitError::NotReady)?;
        self.work = Work::Drivers;
        if self.port.watch().is_on() {
            return self.submit_watched(controller, submission);
        }
        driver.host.submit(now, &mut self.memory, submission)
    }

    /// Reads a double word of a function's configuration space; [`Event::ConfigRead`] follows.
    ///
    /// # Errors
    /// [`Busy`] when too many reads are under way.
    pub fn config_read(&mut self, now: Instant, target: Bdf, offset: u16, cookie: u32) -> Result<(), Busy> {
        self.note_time(now);
        self.port.root_mut().config_read(now, driver::config_cookie(cookie), target, offset)
    }

    /// Sets the time to `now`: outputs polled after this call leave at `now`. Received bytes are
    /// processed as they come in, so that the time stamps on frames show how long that took.
    pub fn advance(&mut self, now: Instant) {
        self.note_time(now);
        self.port.advance(now);
    }

    /// Says how long segments of a connection that was just made may be, as
    /// [`tunnel::Upstream::set_segment_max`] does.
    pub fn set_segment_max(&mut self, connection: ConnectionIndex, bytes: usize) {
        self.port.set_segment_max(connection, bytes);
    }

    /// Asks all far ends how they are now; see [`tunnel::session::Session::ping`].
    pub fn ping(&mut self, now: Instant) {
        self.note_time(now);
        self.port.ping(now);
    }

    /// Whether durations are measured here, by a watcher or by time stamps, so that
    /// [`Near::advance`] matters.
    pub fn is_timed(&self) -> bool {
        self.port.is_timed()
    }

    /// Ends all sessions in order and sends the far ends `text` as the reason.
    pub fn close(&mut self, now: Instant, text: &str) {
        self.note_time(now);
        self.port.close(now, text);
    }

    fn note_time(&mut self, now: Instant) {
        debug_assert!(now >= self.now, "time went back from {:?} to {now:?}", self.now);
        self.now = now;
        self.work = self.work.max(Work::Port);
    }

    fn request_scan(&mut self, scan: Scan) {
        if !self.scans.contains(&scan) {
            self.scans.push_back(scan);
        }
        self.next_scan();
    }

    fn next_scan(&mut self) {
        if self.running.is_some() {
            return;
        }
        let plan = self.config.plan;
        while let Some(scan) = self.scans.pop_front() {
            match (scan, &self.topology) {
                (Scan::Below(port), Some(topology)) => {
                    let Some(bridge) = driver::bridge_of(topology, port) else { continue };
                    self.port.root_mut().enumerate_below(self.now, topology.clone(), bridge, plan);
                }
                _ => self.port.root_mut().enumerate(self.now, plan),
            }
            self.running = Some(scan);
            return;
        }
    }

    fn on_port(&mut self, port: PortIndex, event: tunnel::Event) {
        self.work = Work::Drivers;
        let index = usize::from(port.0);
        match &event {
            tunnel::Event::LinkUp { .. } => {
                self.links_up[index] = true;
                self.on_link_up(port);
            }
            tunnel::Event::LinkDown { .. } => {
                self.links_up[index] = false;
                for driver in self.drivers.iter_mut().filter(|driver| driver.port == Some(port)) {
                    driver.on_lost(self.now);
                }
            }
            _ => {}
        }
        self.outputs.push_back(Output::Event(Event::Link { port, event }));
    }

    fn on_link_up(&mut self, port: PortIndex) {
        if self.topology.is_some() || self.running.is_some() {
            self.request_scan(Scan::Below(port));
        } else if self.links_up.iter().all(|up| *up) {
            self.timers.disarm(Timer::Gather);
            self.request_scan(Scan::All);
        } else if !self.timers.is_armed(Timer::Gather) {
            self.timers.arm(Timer::Gather, self.now + self.config.gather);
        }
    }

    fn on_enumerated(&mut self, result: Result<Topology, root_complex::EnumerationError>) {
        self.work = Work::Drivers;
        let scan = self.running.take();
        match result {
            Ok(topology) => {
                self.adopt(&topology);
                self.topology = Some(topology);
                self.outputs.push_back(Output::Event(Event::Enumerated));
            }
            Err(error) => {
                self.outputs.push_back(Output::Event(Event::Failed(Failure::Enumeration(error))));
                if scan == Some(Scan::All) && self.links_up.contains(&true) {
                    self.scans.push_back(Scan::All);
                }
            }
        }
        self.next_scan();
    }

    /// Hands every NVMe controller in `topology` to its driver: a new one, or the one that waits
    /// for it. Controllers that there is no memory for are left out.
    fn adopt(&mut self, topology: &Topology) {
        let mut is_full = false;
        for found in driver::find_controllers(topology) {
            let known = self.drivers.iter().position(|driver| driver.bdf == found.bdf);
            let index = known.unwrap_or(self.drivers.len());
            let base = MEMORY_BASE + self.config.arena_bytes * index as u64;
            if base + self.config.arena_bytes > MEMORY_BASE + self.memory_bytes() {
                is_full = true;
                continue;
            }
            if self.config.waits_for_interrupts {
                self.enable_interrupts(topology, found.bdf, index);
            }
            match self.drivers.get_mut(index) {
                Some(driver) => driver.on_found(self.now, &found),
                None => {
                    let settings = host::Config {
                        arena_base: base,
                        arena_length: self.config.arena_bytes,
                        ..self.config.driver
                    };
                    match Driver::start(self.now, settings, &found) {
                        Ok(driver) => self.drivers.push(driver),
                        Err(error) => {
                            self.outputs.push_back(Output::Event(Event::Failed(Failure::Arena(error))))
                        }
                    }
                }
            }
        }
        if is_full {
            self.outputs.push_back(Output::Event(Event::Failed(Failure::TooManyControllers)));
        }
    }

    fn memory_bytes(&self) -> u64 {
        self.config.arena_bytes * self.links_up.len().max(1) as u64
    }

    /// Handles the root complex's outputs for this host.
    fn on_root(&mut self, output: root_complex::Output) {
        match output {
            root_complex::Output::Packet(packet) => self.outputs.push_back(Output::Packet(packet)),
            root_complex::Output::MemoryWrite { address, data } => self.write_memory(address, &data),
            root_complex::Output::MemoryRead { token, address, length } => {
                let data = self.read_memory(address, length);
                self.port.root_mut().memory_read_done(token, data);
            }
            root_complex::Output::Interrupt { address, data } => self.on_interrupt(address, data),
            root_complex::Output::Answer(Answer::ReadData { cookie, offset, data, last }) => {
                self.on_register_data(cookie, offset, &data, last);
            }
            root_complex::Output::Answer(Answer::ReadFailed { cookie, .. }) => {
                self.on_register_failed(cookie);
            }
            root_complex::Output::Answer(Answer::Register { cookie: driver::SET_UP, .. }) => {}
            root_complex::Output::Answer(Answer::Register { cookie, result }) => {
                let cookie = driver::config_cookie_of(cookie);
                self.outputs.push_back(Output::Event(Event::ConfigRead { cookie, result }));
            }
            root_complex::Output::Enumerated(result) => self.on_enumerated(result),
            root_complex::Output::Message(_) | root_complex::Output::Unexpected(_) => {}
        }
    }

    /// A packet has come up the root port's link.
    fn on_packet(&mut self, packet: &mut Packet, arrival: Option<&Arrival>) {
        match self.port.receive(self.now, packet, arrival) {
            Received::MemoryWrite { address, bytes } => {
                self.write_memory(address, &packet.payload[bytes]);
                // The payload is part of a receive block, which can be used again from here on.
                packet.payload = Buffer::EMPTY;
            }
            Received::MemoryRead { address, length } => {
                let data = self.read_memory(address, length);
                self.port.complete(self.now, &packet.header, data.as_ref());
            }
            Received::Interrupt { address, data } => self.on_interrupt(address, data),
            Received::Taken => self.drain_root(),
        }
    }

    #[inline]
    fn drain_root(&mut self) {
        while let Some(output) = self.port.poll_root(self.now) {
            self.on_root(output);
        }
    }

    fn write_memory(&mut self, address: u64, bytes: &[u8]) {
        // A write outside of memory is dropped, as posted writes are.
        self.writes_dropped += u64::from(self.memory.write(address, bytes).is_err());
        if !self.config.waits_for_interrupts {
            self.work = Work::Drivers;
        }
    }

    /// The bytes that a device wants to read, if memory has them.
    fn read_memory(&mut self, address: u64, length: u32) -> Option<Buffer> {
        let length = usize::try_from(length).expect("a TLP reads at most 4 KiB");
        self.memory.slice(address, length).ok().map(|bytes| self.pool.copy(bytes))
    }

    fn on_interrupt(&mut self, address: u64, data: u32) {
        self.work = Work::Drivers;
        if let Some(driver) = self.drivers.get_mut(driver::index_of_interrupt(address)) {
            driver.on_interrupt(self.now, data);
        }
    }

    /// Lets the drivers look at memory and go on, if something happened that they may wait for.
    /// Returns whether any driver did something.
    fn run_drivers(&mut self) -> bool {
        if self.work < Work::Drivers {
            return false;
        }
        self.work = Work::Port;
        let mut done = false;
        for index in 0..self.drivers.len() {
            let driver = &mut self.drivers[index];
            driver.host.poll_completions(self.now, &mut self.memory);
            driver.host.ring();
            while let Some(output) = self.drivers[index].host.poll_output() {
                done = true;
                self.on_driver(ControllerIndex(index), output);
            }
        }
        done
    }

    fn on_driver(&mut self, controller: ControllerIndex, output: host::Output) {
        let event = match output {
            host::Output::RegisterRead { cookie, offset, length } => {
                let driver = &mut self.drivers[controller.0];
                if driver
                    .read_register(self.now, self.port.root_mut(), controller.0, cookie, offset, length)
                    .is_err()
                {
                    driver.on_register_busy(self.now, cookie);
                }
                return;
            }
            host::Output::RegisterWrite { offset, bytes } => {
                let address = self.drivers[controller.0].bar + u64::from(offset);
                let data = self.pool.copy(&bytes);
                self.port.root_mut().write(address, &data);
                return;
            }
            host::Output::Completed(completed) => Event::Completed { controller, completed },
            host::Output::Ready(_) => Event::Ready { controller },
            host::Output::Failed(error) => Event::Failed(Failure::Controller { controller, error }),
            host::Output::Event(event) => Event::Asynchronous { controller, event },
            host::Output::Resetting(reason) => Event::Resetting { controller, reason },
        };
        self.outputs.push_back(Output::Event(event));
    }

    /// Moves the parts' outputs to each other until nothing more is received. With `transmit`, also
    /// until no part has anything for the world.
    fn circulate(&mut self, transmit: bool) {
        let mut packet = Packet::blank();
        loop {
            self.drain_root();
            while let Some((_, arrival)) = self.port.poll_packet(&mut packet) {
                self.on_packet(&mut packet, Some(&arrival));
            }
            // The drivers look at memory once everything that has arrived is in it.
            let received = self.port.has_received();
            if !received && self.run_drivers() {
                continue;
            }
            if !(received || transmit) || !self.step() {
                return;
            }
        }
    }

    /// Moves one output of the tunnels. Returns whether there was one.
    #[inline]
    fn step(&mut self) -> bool {
        match self.port.poll_link() {
            None => return false,
            Some(upstream::Output::Tlp { mut packet, from }) => {
                self.on_packet(&mut packet, from.as_ref().map(|(_, arrival)| arrival));
            }
            Some(upstream::Output::Transmit { connection, bytes }) => {
                self.outputs.push_back(Output::Transmit(connection, bytes));
            }
            Some(upstream::Output::Connect { connection }) => {
                self.outputs.push_back(Output::Connect(connection));
            }
            Some(upstream::Output::CloseConnection { connection }) => {
                self.outputs.push_back(Output::Close(connection));
            }
            Some(upstream::Output::Event { port, event }) => self.on_port(port, event),
        }
        true
    }
}

impl Engine for Near {
    type Input<'a> = Input;
    type Output = Output;

    fn handle_input(&mut self, now: Instant, input: Input) {
        self.note_time(now);
        match input {
            Input::Connected(connection) => self.port.on_network(now, upstream::Input::Connected(connection)),
            Input::Received(connection, bytes) => {
                self.port.on_network(now, upstream::Input::Received(connection, bytes));
            }
            Input::Disconnected(connection) => {
                self.port.on_network(now, upstream::Input::Disconnected(connection))
            }
            Input::Packet(mut packet) => self.on_packet(&mut packet, None),
        }
        self.circulate(false);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.note_time(now);
        self.work = Work::Drivers;
        self.port.handle_timeout(now);
        for driver in &mut self.drivers {
            driver.host.handle_timeout(now);
        }
        while let Some(Timer::Gather) = self.timers.expire(now) {
            self.request_scan(Scan::All);
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        if self.outputs.is_empty() && self.work > Work::Nobody {
            self.circulate(true);
            self.work = Work::Nobody;
        }
        let output = engine::pop(&mut self.outputs);
        if self.port.watch().is_on() {
            self.show(output.as_ref());
        }
        output
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let own = Instant::earlier(self.port.poll_timeout(), self.timers.earliest());
        let drivers = self.drivers.iter().map(|driver| driver.host.poll_timeout());
        drivers.fold(own, Instant::earlier)
    }
}
