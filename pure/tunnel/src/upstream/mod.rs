//! The host's end of the tunnel: a switch with a session below each of its downstream ports.
//!
//! The switch answers for itself, also without any far end. A session that comes up is a device
//! plugged in, and a session that goes down is a device pulled out.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Buffer, Engine, Entropy, Instant};
use pcie::switch::{self, Ascent, Interposer, Passage, PortId, Strand, Surroundings, Switch, SwitchConfig};
use pcie::wire::{Kind, Packet};

use crate::config_cache::{self, ConfigCache};
use crate::event::Event;
use crate::session::{self, Arrival, Config, Session};
use crate::strands::LinkEnd;

/// Names a downstream port of the switch and the link below it; counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortIndex(pub u8);

/// Names a connection to a far end; counted from 0. The main connections of the ports come first,
/// in the ports' order. The further connections of spread links have the numbers after them.
/// [`Upstream::port_of`] gives the port of any connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionIndex(pub u8);

impl ConnectionIndex {
    /// The main connection of `port`.
    pub const fn main_of(port: PortIndex) -> Self {
        Self(port.0)
    }
}

/// Inputs of the host's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A packet from the root complex.
    Tlp(Packet),
    /// The connection asked for with [`Output::Connect`] exists.
    Connected(ConnectionIndex),
    /// A piece of a connection's byte stream, cut anywhere.
    Received(ConnectionIndex, Buffer),
    /// The connection ended, or could not be made.
    Disconnected(ConnectionIndex),
}

/// Outputs of the host's end: requests to the world, and events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A packet for the root complex.
    Tlp {
        /// The packet to pass on.
        packet: Packet,
        /// Port and arrival of the packet; `None` for a packet of the switch itself.
        from: Option<(PortIndex, Arrival)>,
    },
    /// Append these bytes to the stream of a connection.
    Transmit {
        /// The connection to send on.
        connection: ConnectionIndex,
        /// The bytes to append.
        bytes: Buffer,
    },
    /// Dial the far end of the connection's port. The answer is [`Input::Connected`] or
    /// [`Input::Disconnected`].
    Connect {
        /// The connection to make.
        connection: ConnectionIndex,
    },
    /// End a connection once all bytes before this output are on their way. The connection brings
    /// no further input.
    CloseConnection {
        /// The connection to end.
        connection: ConnectionIndex,
    },
    /// An event for the application.
    Event {
        /// The port whose link the event concerns.
        port: PortIndex,
        /// The event to report.
        event: Event,
    },
}

/// The host's end of the tunnel: an [`Engine`] with a switch and a session below each port.
/// Packets that pass between them pass an [`Interposer`] `I`, too; `()` stands for none.
pub struct Upstream<I = ()> {
    switch: Switch,
    ports: Vec<LinkEnd>,
    /// The connections other than the main ones of the ports.
    further: Vec<(PortIndex, Strand)>,
    /// The config cache, present if any port answers for its device, and below it the interposer
    /// of the caller, if any.
    interposers: (Option<Box<ConfigCache>>, Option<Box<I>>),
    /// The port that is polled first.
    turn: usize,
    /// Port and arrival of the packet that the switch is handling.
    from: Option<(PortIndex, Arrival)>,
    outputs: VecDeque<Output>,
    now: Instant,
}

impl Upstream {
    /// Creates a switch with one downstream port for each of `ports`. All sessions dial when the
    /// engine is first settled.
    ///
    /// # Panics
    /// When the number of `ports` differs from `switch.ports`.
    pub fn new(switch: &SwitchConfig, ports: Vec<Config>, entropy: impl Into<Entropy>) -> Self {
        Self::with_interposer(switch, ports, None, entropy)
    }
}

impl<I: Interposer> Upstream<I> {
    /// Creates a switch with one downstream port for each of `ports`, and perhaps an interposer
    /// between the switch and the links. All sessions dial when the engine is first settled.
    ///
    /// # Panics
    /// When the number of `ports` differs from `switch.ports`.
    pub fn with_interposer(
        switch: &SwitchConfig,
        ports: Vec<Config>,
        interposer: Option<I>,
        entropy: impl Into<Entropy>,
    ) -> Self {
        assert!(
            ports.len() == usize::from(switch.ports),
            "{} sessions for {} ports",
            ports.len(),
            switch.ports
        );
        let answers: Vec<bool> = ports.iter().map(|config| config.config_cache).collect();
        let mut entropy = entropy.into().fork("ports");
        let session = |config| LinkEnd::upstream(config, entropy.split());
        let ports: Vec<LinkEnd> = ports.into_iter().map(session).collect();
        let further = (0..).zip(&ports).flat_map(|(port, end)| {
            Strand::first(end.count()).skip(1).map(move |strand| (PortIndex(port), strand))
        });
        Self {
            switch: Switch::new(switch),
            further: further.collect(),
            ports,
            interposers: (
                answers.contains(&true).then(|| Box::new(ConfigCache::new(&answers))),
                interposer.map(Box::new),
            ),
            turn: 0,
            from: None,
            outputs: VecDeque::new(),
            now: Instant::ZERO,
        }
    }

    /// The switch, for its registers and statistics.
    pub const fn switch(&self) -> &Switch {
        &self.switch
    }
    /// The interposer between the switch and the links, if there is one.
    pub fn interposer(&self) -> Option<&I> {
        self.interposers.1.as_deref()
    }
    /// The interposer between the switch and the links, if there is one.
    pub fn interposer_mut(&mut self) -> Option<&mut I> {
        self.interposers.1.as_deref_mut()
    }
    /// Statistics of the answers given in the devices' place; `None` if no port gives such answers.
    pub fn config_cache(&self) -> Option<&config_cache::Statistics> {
        self.interposers.0.as_ref().map(|cache| cache.statistics())
    }
    /// The main session below `port`, if there is such a port.
    pub fn session(&self, port: PortIndex) -> Option<&Session> {
        self.ports.get(usize::from(port.0)).map(LinkEnd::main)
    }
    /// How many connections there may be: one for each port, and the further ones of spread links.
    pub const fn connections(&self) -> usize {
        self.ports.len() + self.further.len()
    }
    /// The port that a connection belongs to.
    pub fn port_of(&self, connection: ConnectionIndex) -> PortIndex {
        self.strand_of(connection).0
    }
    /// The port that a connection belongs to, and the connection's strand of that port.
    fn strand_of(&self, connection: ConnectionIndex) -> (PortIndex, Strand) {
        let further = usize::from(connection.0).checked_sub(self.ports.len());
        further.map_or((PortIndex(connection.0), Strand::MAIN), |index| self.further[index])
    }
    /// The number by which the world knows a strand of a port.
    fn connection(&self, port: PortIndex, strand: Strand) -> ConnectionIndex {
        if strand.is_main() {
            return ConnectionIndex::main_of(port);
        }
        let index = self.further.iter().position(|further| *further == (port, strand));
        let number = self.ports.len() + index.expect("all strands are in the list");
        ConnectionIndex(u8::try_from(number).expect("32 ports have at most 256 connections"))
    }
    /// The sessions of all connections of `port`, the main one first. A link that is not spread has
    /// one.
    pub fn strands(&self, port: PortIndex) -> impl Iterator<Item = &Session> {
        self.ports.get(usize::from(port.0)).into_iter().flat_map(LinkEnd::sessions)
    }
    /// Sends a Ping to the far end of `port` now; see [`Session::ping`].
    pub fn ping(&mut self, now: Instant, port: PortIndex) {
        self.now = now;
        if let Some(session) = self.ports.get_mut(usize::from(port.0)) {
            session.main_mut().ping(now);
        }
    }
    /// Sends all requests that devices make by address upwards from now on; see
    /// [`Switch::redirect`].
    pub fn redirect(&mut self) {
        self.switch.redirect();
    }
    /// Bytes on all connections of `port` that wait for credits or to be sent.
    pub fn queued_bytes(&self, port: PortIndex) -> usize {
        self.ports.get(usize::from(port.0)).map_or(0, LinkEnd::queued_bytes)
    }
    /// Advances the time of all sessions; see [`Session::advance`].
    pub fn advance(&mut self, now: Instant) {
        self.now = now;
        for session in &mut self.ports {
            session.advance(now);
        }
    }
    /// Says how long segments of a connection may be; see [`Session::set_segment_max`].
    pub fn set_segment_max(&mut self, connection: ConnectionIndex, bytes: usize) {
        let (port, strand) = self.strand_of(connection);
        self.ports[usize::from(port.0)].set_segment_max(strand, bytes);
    }
    /// Whether the frames of any port carry time stamps, which makes [`Upstream::advance`]
    /// necessary.
    pub fn is_stamped(&self) -> bool {
        self.ports.iter().any(|port| port.main().is_stamped())
    }
    /// Whether the next output may be something received, rather than something to send.
    pub fn has_received(&self) -> bool {
        !self.outputs.is_empty() || self.ports.iter().any(LinkEnd::has_received)
    }
    /// Reads the next packet for the root complex into `packet`, replacing its contents, and
    /// returns the packet's port and arrival. Only packets that the switch merely passes on come
    /// out here. Other packets come out as outputs.
    #[inline]
    pub fn poll_packet(&mut self, packet: &mut Packet) -> Option<(PortIndex, Arrival)> {
        if !self.outputs.is_empty() {
            return None;
        }
        for _ in 0..self.ports.len() {
            while let Some(arrival) = self.ports[self.turn].poll_packet(packet) {
                let port = PortIndex(u8::try_from(self.turn).expect("a switch has at most 32 ports"));
                if self.on_up(self.turn, packet) == Ascent::Refused {
                    self.refuse(port, packet);
                    if !self.outputs.is_empty() {
                        return None;
                    }
                    continue;
                }
                let ingress = PortId::Downstream(port.0);
                let passed = self.switch.pass(ingress, &mut packet.header);
                if passed == Some(PortId::Upstream) {
                    return Some((port, arrival));
                }
                let packet = core::mem::replace(packet, Packet::blank());
                match passed {
                    Some(PortId::Downstream(port)) => self.down(port, packet),
                    _ => {
                        self.from = Some((port, arrival));
                        self.switch.handle_input(self.now, (ingress, packet));
                        return None;
                    }
                }
            }
            self.next_turn();
        }
        None
    }
    /// Shows a packet that comes up from a port to the interposers. Returns whether it goes on.
    #[inline]
    fn on_up(&mut self, port: usize, packet: &Packet) -> Ascent {
        self.interposers.on_up(self.now, port, packet, &mut self.ports[port])
    }
    const fn next_turn(&mut self) {
        self.turn = if self.turn + 1 < self.ports.len() { self.turn + 1 } else { 0 };
    }
    /// Handles a packet from the root complex, like [`Input::Tlp`].
    #[inline]
    pub fn send(&mut self, now: Instant, mut packet: Packet) {
        self.now = now;
        if let Kind::Completion(completion) = &packet.header.kind
            && completion.requester == self.switch.id(PortId::Upstream)
        {
            let around = &mut surroundings(now, &self.switch, &mut self.ports);
            if self.interposers.on_completion(around, &packet) {
                return self.take_packets();
            }
        }
        match self.switch.pass(PortId::Upstream, &mut packet.header) {
            Some(PortId::Downstream(port)) => self.down(port, packet),
            _ => self.switch.handle_input(now, (PortId::Upstream, packet)),
        }
    }
    /// Sends a packet down to a port.
    #[inline]
    fn down(&mut self, port: u8, mut packet: Packet) {
        let index = usize::from(port);
        let around = &mut surroundings(self.now, &self.switch, &mut self.ports);
        match self.interposers.on_down(around, index, &mut packet) {
            Passage::On(strand) => self.ports[index].send_on(self.now, strand, packet),
            Passage::Kept => {}
            Passage::Answered(packet) => self.outputs.push_back(Output::Tlp { packet, from: None }),
        }
        self.take_packets();
    }
    /// Hands packets of the interposers to the root complex.
    fn take_packets(&mut self) {
        while let Some(packet) = self.interposers.poll_packet() {
            self.outputs.push_back(Output::Tlp { packet, from: None });
        }
    }
    /// Handles a reset of the link to the root complex, which goes on to the switch and all
    /// devices.
    pub fn hot_reset(&mut self, now: Instant) {
        self.now = now;
        self.switch.hot_reset();
    }
    /// Ends the session below `port`, if there is such a port, and sends the device's end `text` as
    /// the reason.
    pub fn close(&mut self, now: Instant, port: PortIndex, text: &str) {
        self.now = now;
        // Packets that the switch has sent on go out before the end.
        self.drain_switch();
        if let Some(session) = self.ports.get_mut(usize::from(port.0)) {
            session.close(now, text);
        }
    }
    /// Dials again after [`Upstream::close`] or a final refusal.
    pub fn restart(&mut self, now: Instant, port: PortIndex) {
        self.now = now;
        if let Some(session) = self.ports.get_mut(usize::from(port.0)) {
            session.main_mut().restart(now);
        }
    }

    /// The next output of the switch that is for the root complex.
    fn poll_switch(&mut self) -> Option<Output> {
        while let Some(output) = self.switch.poll_output() {
            match output {
                switch::Output::Forward { port: PortId::Upstream, packet } => {
                    return Some(Output::Tlp { packet, from: self.from });
                }
                switch::Output::Forward { port: PortId::Downstream(port), packet } => {
                    self.down(port, packet);
                }
                switch::Output::HotReset { port: PortId::Downstream(port) } => {
                    self.interposers.on_reset(usize::from(port));
                    self.ports[usize::from(port)].reset(self.now);
                }
                // A switch never resets the link above it.
                switch::Output::HotReset { port: PortId::Upstream } => (),
            }
        }
        self.from = None;
        None
    }

    fn drain_switch(&mut self) {
        while let Some(output) = self.poll_switch() {
            self.outputs.push_back(output);
        }
    }

    /// Handles an output of the session below `port`, and returns an output for the world, if any.
    fn on_session(&mut self, port: PortIndex, strand: Strand, output: session::Output) -> Option<Output> {
        use session::Output as From;
        let event = |event| Some(Output::Event { port, event });
        match output {
            From::Tlp { mut packet, arrival } => {
                if self.on_up(usize::from(port.0), &packet) == Ascent::Refused {
                    self.refuse(port, &packet);
                    return engine::pop(&mut self.outputs);
                }
                let from = Some((port, arrival));
                let ingress = PortId::Downstream(port.0);
                match self.switch.pass(ingress, &mut packet.header) {
                    Some(PortId::Upstream) => Some(Output::Tlp { packet, from }),
                    Some(PortId::Downstream(port)) => {
                        self.down(port, packet);
                        None
                    }
                    None => {
                        self.from = from;
                        self.switch.handle_input(self.now, (ingress, packet));
                        None
                    }
                }
            }
            From::Transmit(bytes) => {
                Some(Output::Transmit { connection: self.connection(port, strand), bytes })
            }
            From::Connect => Some(Output::Connect { connection: self.connection(port, strand) }),
            From::CloseConnection => {
                Some(Output::CloseConnection { connection: self.connection(port, strand) })
            }
            From::LinkUp { .. } | From::Resumed if self.lays_again(port, strand) => None,
            // The state of a further strand has no effect while the link is up.
            _ if !strand.is_main() => None,
            From::LinkUp { peer } => {
                self.on_link(port);
                self.switch.link_up(PortId::Downstream(port.0));
                self.send_waiting(port);
                event(Event::LinkUp { peer })
            }
            From::LinkDown { reason } => {
                self.on_link(port);
                self.switch.link_down(PortId::Downstream(port.0));
                event(Event::LinkDown { reason })
            }
            From::Interrupted { reason } => event(Event::Interrupted { reason }),
            From::Resumed => {
                self.send_waiting(port);
                event(Event::Resumed)
            }
            From::HandshakeFailed(error) => event(Event::HandshakeFailed(error)),
            From::Registers(registers) => {
                if let Some(cache) = &mut self.interposers.0 {
                    cache.on_registers(usize::from(port.0), registers);
                }
                None
            }
            // Resets and memory sent ahead only go down; the session makes sure of that.
            From::Reset | From::Ahead(..) | From::Forget(_) | From::WantsTally => None,
        }
    }

    /// Handles a strand that has come up or come back. The device's end has forgotten which queues
    /// go over it, and receives that again. Returns whether there is nothing else to do.
    fn lays_again(&mut self, port: PortIndex, strand: Strand) -> bool {
        let index = usize::from(port.0);
        self.interposers.on_strand(self.now, index, strand, &mut self.ports[index]);
        !strand.is_main()
    }

    /// Handles a link below a port that came up or went down.
    fn on_link(&mut self, port: PortIndex) {
        let index = usize::from(port.0);
        self.interposers.on_link(index, &self.ports[index]);
    }

    /// Sends the packets that have waited for the connection of a port.
    fn send_waiting(&mut self, port: PortIndex) {
        let index = usize::from(port.0);
        while self.ports[index].main().is_open()
            && let Some(packet) = self.interposers.0.as_mut().and_then(|cache| cache.take_waiting(index))
        {
            self.down(port.0, packet);
        }
    }

    fn poll_ports(&mut self) -> Option<(PortIndex, Strand, session::Output)> {
        for _ in 0..self.ports.len() {
            if let Some((strand, output)) = self.ports[self.turn].poll_output() {
                let port = PortIndex(u8::try_from(self.turn).expect("a switch has at most 32 ports"));
                return Some((port, strand, output));
            }
            self.next_turn();
        }
        None
    }

    fn connection_input(&mut self, connection: ConnectionIndex, input: session::Input) {
        let (port, strand) = self.strand_of(connection);
        let session = self.ports.get_mut(usize::from(port.0)).expect("the world names ports that exist");
        session.handle_input(self.now, strand, input);
    }
}

impl<I: Interposer> Engine for Upstream<I> {
    type Input<'a> = Input;
    type Output = Output;

    fn handle_input(&mut self, now: Instant, input: Input) {
        self.now = now;
        match input {
            Input::Tlp(packet) => self.send(now, packet),
            Input::Connected(connection) => self.connection_input(connection, session::Input::Connected),
            Input::Received(connection, bytes) => {
                self.connection_input(connection, session::Input::Received(bytes));
            }
            Input::Disconnected(connection) => {
                self.connection_input(connection, session::Input::Disconnected);
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        self.switch.handle_timeout(now);
        for session in &mut self.ports {
            if session.poll_timeout().is_some_and(|at| at <= now) {
                session.handle_timeout(now);
            }
        }
        if self.interposers.poll_timeout().is_some_and(|at| at <= now) {
            self.interposers.handle_timeout(&mut surroundings(now, &self.switch, &mut self.ports));
        }
        self.take_packets();
    }

    fn poll_output(&mut self) -> Option<Output> {
        if let Some(output) = engine::pop(&mut self.outputs) {
            return Some(output);
        }
        loop {
            // The switch comes first, so that all its packets for a port share a segment.
            if let Some(output) = self.poll_switch() {
                return Some(output);
            }
            // A packet that went down may have been answered.
            if let Some(output) = engine::pop(&mut self.outputs) {
                return Some(output);
            }
            let (port, strand, output) = self.poll_ports()?;
            if let Some(output) = self.on_session(port, strand, output) {
                return Some(output);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let ports = self.ports.iter().map(LinkEnd::poll_timeout).fold(None, Instant::earlier);
        let own = Instant::earlier(self.switch.poll_timeout(), ports);
        Instant::earlier(own, self.interposers.poll_timeout())
    }
}

/// The surroundings of a call of the interposers.
const fn surroundings<'a>(
    now: Instant,
    switch: &'a Switch,
    links: &'a mut [LinkEnd],
) -> Surroundings<'a, LinkEnd> {
    Surroundings { now, switch, links, is_clear: true }
}

impl<I> core::fmt::Debug for Upstream<I> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Upstream").field("ports", &self.ports).finish_non_exhaustive()
    }
}

mod hold;
mod refuse;
#[cfg(test)]
mod tests;
