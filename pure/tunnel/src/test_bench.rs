//! Two sessions joined in virtual time, for tests.

use std::collections::BTreeMap;
use std::string::{String, ToString};
use std::vec::Vec;

use engine::{Buffer, Engine, Instant, Nanos, Rng, settle};
use pcie::wire::{Bdf, Packet, Tag};

use crate::frame::{Identity, InstanceId, Role, Tally};
use crate::session::{Config, Input, Output, Session};

#[derive(Debug)]
enum Event {
    Dialled(u32),
    Bytes(u32, Role, Vec<u8>),
    Lost(u32, Role),
}

/// An end and everything that came out of it.
pub(crate) struct End {
    pub(crate) session: Session,
    /// How far the end's clock is ahead of the world's clock, in nanoseconds.
    pub(crate) skew: u64,
    pub(crate) packets: Vec<Packet>,
    pub(crate) arrivals: Vec<crate::session::Arrival>,
    /// `LinkUp`, `LinkDown` and similar outputs, in words.
    pub(crate) events: Vec<String>,
    wake: Option<Instant>,
}

/// Two sessions joined in virtual time.
pub(crate) struct Pair {
    pub(crate) now: Instant,
    pub(crate) up: End,
    pub(crate) down: End,
    pub(crate) rng: Rng,
    /// The least delay in one direction.
    pub(crate) delay: Nanos,
    /// The delay varies by up to this many nanoseconds.
    pub(crate) jitter: u64,
    /// Pieces of the stream are cut to random lengths up to this many bytes; 0 does not cut.
    pub(crate) chunk: u64,
    /// The connection breaks when this many more bytes have arrived, at whichever end.
    pub(crate) cut_after: Option<usize>,
    /// A bit is flipped after this many bits have arrived, in both directions together.
    pub(crate) flip_after: Option<usize>,
    /// Whether dialling succeeds.
    pub(crate) reachable: bool,
    /// Bytes that have arrived at either end.
    pub(crate) bytes: usize,
    pub(crate) segments: usize,
    connection: u32,
    alive: bool,
    events: BTreeMap<(Instant, u64), Event>,
    count: u64,
    /// When the latest bytes in each direction arrive: a stream does not overtake itself.
    latest: [Instant; 2],
}

pub(crate) fn config(name: &str, instance: u8) -> Config {
    let identity = Identity {
        instance: InstanceId([instance; 16]),
        name: name.to_string(),
        vendor: "Farlane".to_string(),
        device: "test".to_string(),
    };
    Config { identity, ..Config::default() }
}

impl End {
    fn new(session: Session) -> Self {
        Self {
            session,
            skew: 0,
            packets: Vec::new(),
            arrivals: Vec::new(),
            events: Vec::new(),
            wake: Some(Instant::ZERO),
        }
    }
    fn local(&self, now: Instant) -> Instant {
        now + Nanos::new(self.skew)
    }
}

impl Pair {
    pub(crate) fn new(up: Config, down: Config, seed: u64) -> Self {
        let rng = Rng::from_seed(seed);
        Self {
            now: Instant::from_nanos(1_000),
            up: End::new(Session::upstream(up, rng.fork("up"))),
            down: End::new(Session::downstream(down, rng.fork("down"))),
            rng,
            delay: Nanos::from_micros(10),
            jitter: 0,
            chunk: 0,
            cut_after: None,
            flip_after: None,
            reachable: true,
            bytes: 0,
            segments: 0,
            connection: 0,
            alive: false,
            events: BTreeMap::new(),
            count: 0,
            latest: [Instant::ZERO; 2],
        }
    }

    /// A pair with default settings whose link is up.
    pub(crate) fn joined(seed: u64) -> Self {
        let mut pair = Self::new(config("host", 1), config("box", 2), seed);
        pair.run_for(Nanos::from_millis(200));
        assert_eq!(
            (pair.up.events.join(","), pair.down.events.join(",")),
            ("up box".into(), "up host".into())
        );
        pair
    }

    pub(crate) fn end(&mut self, role: Role) -> &mut End {
        match role {
            Role::Upstream => &mut self.up,
            Role::Downstream => &mut self.down,
        }
    }

    pub(crate) fn send(&mut self, from: Role, packet: Packet) {
        let now = self.now;
        let end = self.end(from);
        let local = end.local(now);
        end.session.send(local, packet);
    }

    fn schedule(&mut self, at: Instant, event: Event) {
        self.count += 1;
        self.events.insert((at, self.count), event);
    }

    fn jittered(&mut self) -> Instant {
        self.now + self.delay + Nanos::new(self.rng.below(self.jitter + 1))
    }

    /// Breaks the connection. Each end learns of it a delay later.
    pub(crate) fn cut(&mut self) {
        if !self.alive {
            return;
        }
        self.alive = false;
        for role in [Role::Upstream, Role::Downstream] {
            let at = self.jittered();
            let connection = self.connection;
            self.schedule(at, Event::Lost(connection, role));
        }
    }

    fn transmit(&mut self, from: Role, bytes: &[u8]) {
        let to = if from == Role::Upstream { Role::Downstream } else { Role::Upstream };
        self.segments += 1;
        if !self.alive {
            return;
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let length = match self.chunk {
                0 => rest.len(),
                most => rest.len().min(usize::try_from(self.rng.below(most)).unwrap() + 1),
            };
            let at = self.jittered().max(self.latest[from as usize - 1]);
            self.latest[from as usize - 1] = at;
            let connection = self.connection;
            self.schedule(at, Event::Bytes(connection, to, rest[..length].to_vec()));
            rest = &rest[length..];
        }
    }

    pub(crate) fn settle(&mut self, role: Role) {
        let now = self.now;
        let mut outputs = Vec::new();
        let end = self.end(role);
        let local = end.local(now);
        let wake = settle(&mut end.session, local, |output| outputs.push(output));
        end.wake = wake.map(|at| Instant::from_nanos(at.as_nanos().saturating_sub(end.skew)).max(now));
        for output in outputs {
            self.on_output(role, output);
        }
    }

    fn on_output(&mut self, role: Role, output: Output) {
        let end = self.end(role);
        match output {
            Output::Transmit(bytes) => self.transmit(role, &bytes),
            Output::Tlp { packet, arrival } => {
                end.packets.push(packet);
                end.arrivals.push(arrival);
            }
            Output::Connect => {
                let at = self.jittered();
                self.alive = false;
                self.connection += 1;
                let connection = self.connection;
                self.schedule(at, Event::Dialled(connection));
            }
            Output::CloseConnection => {
                // Transmitted bytes still arrive, and then the end of the stream.
                let other = if role == Role::Upstream { Role::Downstream } else { Role::Upstream };
                let at = self.jittered().max(self.latest[role as usize - 1]);
                let connection = self.connection;
                self.schedule(at, Event::Lost(connection, other));
            }
            Output::LinkUp { peer } => end.events.push(std::format!("up {peer}")),
            Output::LinkDown { reason } => end.events.push(std::format!("down: {reason}")),
            Output::Interrupted { .. } => end.events.push("interrupted".into()),
            Output::Resumed => end.events.push("resumed".into()),
            Output::HandshakeFailed(error) => end.events.push(std::format!("failed: {error}")),
            Output::Reset => end.events.push("reset".into()),
            Output::Ahead(..) => end.events.push("ahead".into()),
            Output::Forget(_) => end.events.push("forget".into()),
            Output::WantsTally => end.session.report_tally(Tally::default()),
            Output::Registers(_) => end.events.push("registers".into()),
        }
    }

    /// Flips a bit of arriving bytes when it is time to.
    fn flip(&mut self, bytes: &mut [u8]) {
        match &mut self.flip_after {
            Some(left) if *left < bytes.len() * 8 => {
                bytes[*left / 8] ^= 1 << (*left % 8);
                self.flip_after = None;
            }
            Some(left) => *left -= bytes.len() * 8,
            None => {}
        }
    }

    fn input(&mut self, role: Role, input: Input) {
        let now = self.now;
        let end = self.end(role);
        let local = end.local(now);
        end.session.handle_input(local, input);
        self.settle(role);
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Dialled(connection) if connection == self.connection => {
                if self.reachable {
                    self.alive = true;
                    self.input(Role::Downstream, Input::Connected);
                    self.input(Role::Upstream, Input::Connected);
                } else {
                    self.input(Role::Upstream, Input::Disconnected);
                }
            }
            Event::Bytes(connection, to, mut bytes) if connection == self.connection && self.alive => {
                let cut = self.cut_after.filter(|left| *left <= bytes.len());
                if let Some(left) = cut {
                    bytes.truncate(left);
                    self.cut_after = None;
                } else if let Some(left) = &mut self.cut_after {
                    *left -= bytes.len();
                }
                self.flip(&mut bytes);
                self.bytes += bytes.len();
                if !bytes.is_empty() {
                    self.input(to, Input::Received(Buffer::from(bytes)));
                }
                if cut.is_some() {
                    self.cut();
                }
            }
            Event::Lost(connection, role) if connection == self.connection => {
                self.input(role, Input::Disconnected);
            }
            _ => (),
        }
    }

    pub(crate) fn run_for(&mut self, length: Nanos) {
        self.run_until(self.now + length);
    }

    pub(crate) fn run_until(&mut self, end: Instant) {
        self.settle(Role::Upstream);
        self.settle(Role::Downstream);
        loop {
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let times = [event, self.up.wake, self.down.wake];
            let Some(at) = times.into_iter().flatten().min().filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            if event == Some(at)
                && let Some((_, event)) = self.events.pop_first()
            {
                self.on_event(event);
            } else if self.up.wake == Some(at) {
                self.settle(Role::Upstream);
            } else {
                self.settle(Role::Downstream);
            }
        }
        self.now = end;
    }
}

/// A write of `length` bytes, recognisable by `number`.
pub(crate) fn write(number: u32, length: usize) -> Packet {
    let mut data = std::vec![0; length];
    let stamp = number.to_be_bytes();
    data.iter_mut().zip(stamp.iter().cycle()).for_each(|(byte, stamp)| *byte = *stamp);
    Packet::memory_write(Bdf::new(1, 0, 0), 0x1000, Buffer::from(data))
}

/// A read, recognisable by `number`.
pub(crate) fn read(number: u32) -> Packet {
    let tag = Tag::new(u16::try_from(number % 1024).unwrap());
    Packet::memory_read(Bdf::new(1, 0, 0), tag, u64::from(number / 1024) * 4096, 4)
}

/// The completion of the read recognisable by `number`.
pub(crate) fn completion(number: u32) -> Packet {
    let data = Buffer::from(number.to_be_bytes().to_vec());
    Packet::completion_with_data(Bdf::new(2, 0, 0), &read(number).header, 0, data)
}
