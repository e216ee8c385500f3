//! The host's end of the tunnel: a switch with a session below each of its downstream ports.
//!
//! The switch answers for itself whatever becomes of the far ends: a session that comes up is a device that was
//! plugged in, one that goes down a device that was pulled out.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Buffer, Engine, Entropy, Instant};
use pcie::switch::{self, PortId, Switch, SwitchConfig};
use pcie::wire::{Kind, Packet};

use crate::event::Event;
use crate::lookahead::{self, Lookahead};
use crate::session::{self, Arrival, Config, Session};
use crate::shadow::{self, Shadow};
use crate::strands::{Bundle, Strand};

/// A downstream port, and the session below it: 0 is the first. Where the world is told of connections, the further ones of links that
/// are spread have the numbers behind those of the ports; [`Upstream::port_of`] says whose they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortIndex(pub u8);

/// What the world tells the host's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A packet from the root complex.
    Tlp(Packet),
    /// The connection asked for is there.
    Connected(PortIndex),
    /// A piece of a port's byte stream, cut anywhere.
    Received(PortIndex, Buffer),
    /// A port's connection ended, or could not be made.
    Disconnected(PortIndex),
}

/// What the host's end asks of the world, or tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A packet for the root complex.
    Tlp {
        /// The packet.
        packet: Packet,
        /// By which port it came, and when; nothing, if it is the switch's own.
        from: Option<(PortIndex, Arrival)>,
    },
    /// Append these bytes to the stream of a port.
    Transmit {
        /// The port.
        port: PortIndex,
        /// The bytes.
        bytes: Buffer,
    },
    /// Dial the far end of a port; answered by [`Input::Connected`] or [`Input::Disconnected`].
    Connect {
        /// The port.
        port: PortIndex,
    },
    /// End the connection of a port once all bytes before this are on their way. Nothing more is expected of it.
    CloseConnection {
        /// The port.
        port: PortIndex,
    },
    /// For the application.
    Event {
        /// The port.
        port: PortIndex,
        /// What happened.
        event: Event,
    },
}

/// See the module.
pub struct Upstream {
    switch: Switch,
    ports: Vec<Bundle>,
    /// The connections besides the ports' main ones.
    further: Vec<(PortIndex, Strand)>,
    /// If any of the ports is to look ahead.
    lookahead: Option<Box<Lookahead>>,
    /// Those that are to.
    looks_ahead: Vec<bool>,
    /// If any of the ports is to answer for its device.
    shadow: Option<Box<Shadow>>,
    /// The port that is asked first for what it has to say.
    turn: usize,
    /// What the packet was that the switch is at.
    from: Option<(PortIndex, Arrival)>,
    outputs: VecDeque<Output>,
    now: Instant,
}

impl Upstream {
    /// A switch with one downstream port for each of `ports`. All of them dial as soon as this is first settled.
    ///
    /// # Panics
    /// When there are more or fewer than `switch` says.
    pub fn new(switch: &SwitchConfig, ports: Vec<Config>, entropy: impl Into<Entropy>) -> Self {
        assert!(
            ports.len() == usize::from(switch.ports),
            "{} sessions for {} ports",
            ports.len(),
            switch.ports
        );
        let looks_ahead: Vec<bool> = ports.iter().map(|config| config.lookahead).collect();
        let answers: Vec<bool> = ports.iter().map(|config| config.shadow).collect();
        let mut entropy = entropy.into().fork("ports");
        let session = |config| Bundle::upstream(config, entropy.split());
        let ports: Vec<Bundle> = ports.into_iter().map(session).collect();
        let further = (0..)
            .zip(&ports)
            .flat_map(|(port, bundle)| (1..bundle.count()).map(move |strand| (PortIndex(port), strand)));
        Self {
            switch: Switch::new(switch),
            further: further.collect(),
            ports,
            lookahead: looks_ahead.contains(&true).then(|| Box::new(Lookahead::new(looks_ahead.len()))),
            looks_ahead,
            shadow: answers.contains(&true).then(|| Box::new(Shadow::new(&answers))),
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
    /// What was sent ahead of the devices' asking, if that is wanted.
    pub fn lookahead(&self) -> Option<&lookahead::Statistics> {
        self.lookahead.as_ref().map(|lookahead| lookahead.statistics())
    }
    /// What was answered in the devices' place, if that is wanted.
    pub fn shadow(&self) -> Option<&shadow::Statistics> {
        self.shadow.as_ref().map(|shadow| shadow.statistics())
    }
    /// The session below `port`, if there is such a port.
    pub fn session(&self, port: PortIndex) -> Option<&Session> {
        self.ports.get(usize::from(port.0)).map(Bundle::main)
    }
    /// How many connections there may be: one for each port, and further ones.
    pub const fn connections(&self) -> usize {
        self.ports.len() + self.further.len()
    }
    /// The port of a connection.
    pub fn port_of(&self, connection: PortIndex) -> PortIndex {
        self.strand_of(connection).0
    }
    /// The port of a connection, and which one of that port's it is.
    fn strand_of(&self, connection: PortIndex) -> (PortIndex, Strand) {
        let further = usize::from(connection.0).checked_sub(self.ports.len());
        further.map_or((connection, 0), |index| self.further[index])
    }
    /// The name of a connection to the world.
    fn connection(&self, port: PortIndex, strand: Strand) -> PortIndex {
        if strand == 0 {
            return port;
        }
        let index = self.further.iter().position(|further| *further == (port, strand));
        let number = self.ports.len() + index.expect("all strands are in the list");
        PortIndex(u8::try_from(number).expect("32 ports have at most 256 connections"))
    }
    /// The sessions of all connections of `port`, the main one first: one unless the link is spread.
    pub fn strands(&self, port: PortIndex) -> impl Iterator<Item = &Session> {
        self.ports.get(usize::from(port.0)).into_iter().flat_map(Bundle::sessions)
    }
    /// Asks the far end of `port` how it is; see [`Session::ping`].
    pub fn ping(&mut self, now: Instant, port: PortIndex) {
        self.now = now;
        if let Some(session) = self.ports.get_mut(usize::from(port.0)) {
            session.main_mut().ping(now);
        }
    }
    /// From now on, the devices' requests by address all go up; see [`Switch::redirect`].
    pub fn redirect(&mut self) {
        self.switch.redirect();
    }
    /// The host has its functions write vector *n* of their MSI-X tables to `first` + 4*n*. Where a link is spread, interrupts travel
    /// with the completion queues whose they are then, and not behind everything.
    pub const fn set_interrupts(&mut self, first: u64) {
        if let Some(lookahead) = &mut self.lookahead {
            lookahead.interrupts = Some(first);
        }
    }
    /// Bytes that wait for credits, or to be sent, to `port`, on all its connections.
    pub fn queued_bytes(&self, port: PortIndex) -> usize {
        self.ports.get(usize::from(port.0)).map_or(0, Bundle::queued_bytes)
    }
    /// Tells the time; see [`Session::advance`].
    pub fn advance(&mut self, now: Instant) {
        self.now = now;
        for session in &mut self.ports {
            session.advance(now);
        }
    }
    /// Whether the frames of a port carry time stamps, so that [`Upstream::advance`] matters.
    pub fn is_stamped(&self) -> bool {
        self.ports.iter().any(|port| port.main().is_stamped())
    }
    /// Whether a next output may be something received, not something to send.
    pub fn has_received(&self) -> bool {
        !self.outputs.is_empty() || self.ports.iter().any(Bundle::has_received)
    }
    /// The next packet for the root complex, if it is one that came by a port and that the switch only passes on, read
    /// into `packet` in place of what that was; and by which port it came, and when. What does not come out here
    /// comes out as an output.
    #[inline]
    pub fn poll_packet(&mut self, packet: &mut Packet) -> Option<(PortIndex, Arrival)> {
        if !self.outputs.is_empty() {
            return None;
        }
        for _ in 0..self.ports.len() {
            while let Some(arrival) = self.ports[self.turn].poll_packet(packet) {
                let port = PortIndex(u8::try_from(self.turn).expect("a switch has at most 32 ports"));
                if let Some(lookahead) = &mut self.lookahead {
                    lookahead.on_up(self.turn, packet, &mut self.ports[self.turn]);
                }
                if let Some(shadow) = &mut self.shadow {
                    shadow.on_up(self.turn, packet);
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
    const fn next_turn(&mut self) {
        self.turn = if self.turn + 1 < self.ports.len() { self.turn + 1 } else { 0 };
    }
    /// As [`Input::Tlp`].
    #[inline]
    pub fn send(&mut self, now: Instant, mut packet: Packet) {
        self.now = now;
        if let Some(lookahead) = &mut self.lookahead
            && let Kind::Completion(completion) = &packet.header.kind
            && completion.requester == self.switch.id(PortId::Upstream)
        {
            lookahead.on_completion(now, &packet, &self.switch, &mut self.ports);
            return self.ask_ahead();
        }
        match self.switch.pass(PortId::Upstream, &mut packet.header) {
            Some(PortId::Downstream(port)) => self.down(port, packet),
            _ => self.switch.handle_input(now, (PortId::Upstream, packet)),
        }
    }
    /// A packet goes down to a port.
    #[inline]
    fn down(&mut self, port: u8, mut packet: Packet) {
        if let Some(shadow) = &mut self.shadow
            && packet.is_non_posted()
        {
            let index = usize::from(port);
            if !self.ports[index].main().is_open() {
                // A function that nobody has heard of asks for patience.
                let Some(back) = shadow.wait(self.now, index, packet) else { return };
                packet = back;
            }
            if self.answer(index, &packet) {
                return;
            }
        }
        let Some(lookahead) = &mut self.lookahead else {
            return self.ports[usize::from(port)].send(self.now, packet);
        };
        lookahead.send(self.now, usize::from(port), packet, &self.switch, &mut self.ports);
        self.ask_ahead();
    }
    /// Answers a request for what is below a port, if it is known what the device would answer.
    fn answer(&mut self, port: usize, packet: &Packet) -> bool {
        let Some(shadow) = &mut self.shadow else { return false };
        let (session, lookahead) = (&mut self.ports[port], &mut self.lookahead);
        // Only the root complex asks for configuration; of memory, devices may ask each other.
        let below = self.switch.is_below(packet.requester());
        // A read finds what was written before it, and who reads knows that it has arrived.
        let flushed = || {
            !below
                && session.is_flushed()
                && !lookahead.as_ref().is_some_and(|lookahead| lookahead.is_holding(port))
        };
        let Some(answer) = shadow.on_down(port, packet, flushed) else { return false };
        if let Some(lookahead) = lookahead {
            lookahead.on_answered(port, packet, &answer, session);
        }
        self.outputs.push_back(Output::Tlp { packet: answer, from: None });
        true
    }
    /// Hands the root complex the reads of lookahead.
    fn ask_ahead(&mut self) {
        while let Some(packet) = self.lookahead.as_mut().and_then(|lookahead| lookahead.poll_request()) {
            self.outputs.push_back(Output::Tlp { packet, from: None });
        }
    }
    /// The link to the root complex was reset: the reset goes on to the switch and all devices.
    pub fn hot_reset(&mut self, now: Instant) {
        self.now = now;
        self.switch.hot_reset();
    }
    /// Ends the session below `port`, if there is such a port, telling the device's end `text`.
    pub fn close(&mut self, now: Instant, port: PortIndex, text: &str) {
        self.now = now;
        // What the switch has sent on goes before the end.
        self.drain_switch();
        if let Some(session) = self.ports.get_mut(usize::from(port.0)) {
            session.close(now, text);
        }
    }
    /// Dials again after [`Upstream::close`] or a refusal that is final.
    pub fn restart(&mut self, now: Instant, port: PortIndex) {
        self.now = now;
        if let Some(session) = self.ports.get_mut(usize::from(port.0)) {
            session.main_mut().restart(now);
        }
    }

    /// What the switch wants, as far as it is for the root complex.
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
                    if let Some(lookahead) = &mut self.lookahead {
                        lookahead.on_reset(usize::from(port));
                    }
                    if let Some(shadow) = &mut self.shadow {
                        shadow.forget(usize::from(port));
                    }
                    self.ports[usize::from(port)].reset(self.now);
                }
                // A switch doesn't reset the link above it.
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

    /// An output of the session below `port`, as far as it is for the world.
    fn on_session(&mut self, port: PortIndex, strand: Strand, output: session::Output) -> Option<Output> {
        use session::Output as From;
        let event = |event| Some(Output::Event { port, event });
        match output {
            From::Tlp { mut packet, arrival } => {
                if let Some(lookahead) = &mut self.lookahead {
                    lookahead.on_up(usize::from(port.0), &packet, &mut self.ports[usize::from(port.0)]);
                }
                if let Some(shadow) = &mut self.shadow {
                    shadow.on_up(usize::from(port.0), &packet);
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
            From::Transmit(bytes) => Some(Output::Transmit { port: self.connection(port, strand), bytes }),
            From::Connect => Some(Output::Connect { port: self.connection(port, strand) }),
            From::CloseConnection => Some(Output::CloseConnection { port: self.connection(port, strand) }),
            From::LinkUp { .. } | From::Resumed if self.lays_again(port, strand) => None,
            // What becomes of a strand concerns nobody as long as the link is there.
            _ if strand > 0 => None,
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
                if let Some(shadow) = &mut self.shadow {
                    shadow.on_registers(usize::from(port.0), registers);
                }
                None
            }
            // Resets and what is sent ahead go down only; the session has seen to that.
            From::Reset | From::Ahead(..) | From::Forget(_) | From::WantsTally => None,
        }
    }

    /// A strand has come up, or has come back: the device's end has forgotten what belongs where. Whether that is all there is
    /// to it.
    fn lays_again(&mut self, port: PortIndex, strand: Strand) -> bool {
        let index = usize::from(port.0);
        if let Some(lookahead) = &mut self.lookahead
            && self.ports[index].is_spread()
        {
            lookahead.lay_again(self.now, index, strand, &mut self.ports[index]);
        }
        strand > 0
    }

    /// The link below a port came up or went down.
    fn on_link(&mut self, port: PortIndex) {
        let index = usize::from(port.0);
        if let Some(lookahead) = &mut self.lookahead {
            let window = if self.looks_ahead[index] { self.ports[index].main().ahead_window() } else { 0 };
            lookahead.on_link(index, window);
        }
        if let Some(shadow) = &mut self.shadow {
            shadow.forget(index);
        }
    }

    /// The connection of a port is there: what has waited for it goes down.
    fn send_waiting(&mut self, port: PortIndex) {
        let index = usize::from(port.0);
        while self.ports[index].main().is_open()
            && let Some(packet) = self.shadow.as_mut().and_then(|shadow| shadow.take_waiting(index))
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

    fn port_input(&mut self, port: PortIndex, input: session::Input) {
        let (port, strand) = self.strand_of(port);
        let session = self.ports.get_mut(usize::from(port.0)).expect("the world names ports that exist");
        session.handle_input(self.now, strand, input);
    }
}

impl Engine for Upstream {
    type Input<'a> = Input;
    type Output = Output;

    fn handle_input(&mut self, now: Instant, input: Input) {
        self.now = now;
        match input {
            Input::Tlp(packet) => self.send(now, packet),
            Input::Connected(port) => self.port_input(port, session::Input::Connected),
            Input::Received(port, bytes) => self.port_input(port, session::Input::Received(bytes)),
            Input::Disconnected(port) => self.port_input(port, session::Input::Disconnected),
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
        if let Some(lookahead) = &mut self.lookahead
            && lookahead.poll_timeout().is_some_and(|at| at <= now)
        {
            lookahead.handle_timeout(now, &self.switch, &mut self.ports);
            self.ask_ahead();
        }
        while let Some(packet) = self.shadow.as_mut().and_then(|shadow| shadow.give_up(now)) {
            self.outputs.push_back(Output::Tlp { packet, from: None });
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        loop {
            // The switch first: all that it has for a port shares a segment.
            if let Some(output) = self.poll_switch() {
                return Some(output);
            }
            // What went down on the way may have been answered.
            if let Some(output) = self.outputs.pop_front() {
                return Some(output);
            }
            let (port, strand, output) = self.poll_ports()?;
            if let Some(output) = self.on_session(port, strand, output) {
                return Some(output);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let ports = self.ports.iter().filter_map(Bundle::poll_timeout);
        let lookahead = self.lookahead.as_ref().and_then(|lookahead| lookahead.poll_timeout());
        let shadow = self.shadow.as_ref().and_then(|shadow| shadow.poll_timeout());
        ports.chain(self.switch.poll_timeout()).chain(lookahead).chain(shadow).min()
    }
}

impl core::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Upstream").field("ports", &self.ports).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
