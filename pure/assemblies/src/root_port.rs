//! A root complex, and what is on the link of its root port: the distributed switch with its
//! tunnels, or a single function.
//!
//! The hosts ([`Near`](crate::near::Near), [`Guest`](crate::guest::Guest)) differ above the root
//! complex. From the root complex down they have this in common. A host polls in this order:
//! [`RootPort::poll_root`] for what the root complex has for the host, [`RootPort::poll_packet`] for
//! what has come through the tunnels, and [`RootPort::poll_link`] for the rest.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use engine::{Buffer, Engine, Instant, Watch};
use pcie::root_complex::{self, Received, RootComplex};
use pcie::wire::{Header, Packet};
use tunnel::session::Arrival;
use tunnel::upstream::{self, ConnectionIndex, PortIndex};

use crate::Upstream;
use crate::watch::{Connection, Direction, Port, Seen};

/// What is on the link of the root port.
#[derive(Debug)]
enum Link {
    /// The switch, with a tunnel behind each of its ports.
    Tunnels(Box<Upstream>),
    /// A single function. The world carries the packets; these are for the function.
    Function(VecDeque<Packet>),
}

/// A root complex, and what is on the link of its root port.
#[derive(Debug)]
pub(crate) struct RootPort {
    root: RootComplex,
    link: Link,
    watch: Watch<Port>,
}

impl RootPort {
    /// A root port above the switch of `upstream`.
    pub(crate) fn over_tunnels(root: RootComplex, upstream: Upstream) -> Self {
        Self { root, link: Link::Tunnels(Box::new(upstream)), watch: Watch::new() }
    }
    /// A root port whose link leads to a single function.
    pub(crate) const fn direct(root: RootComplex) -> Self {
        Self { root, link: Link::Function(VecDeque::new()), watch: Watch::new() }
    }

    /// The root complex.
    pub(crate) const fn root(&self) -> &RootComplex {
        &self.root
    }
    /// The root complex, for requests of the host.
    pub(crate) const fn root_mut(&mut self) -> &mut RootComplex {
        &mut self.root
    }
    /// The switch and its tunnels, if there are tunnels.
    pub(crate) const fn upstream(&self) -> Option<&Upstream> {
        match &self.link {
            Link::Tunnels(upstream) => Some(upstream),
            Link::Function(_) => None,
        }
    }
    const fn upstream_mut(&mut self) -> Option<&mut Upstream> {
        match &mut self.link {
            Link::Tunnels(upstream) => Some(upstream),
            Link::Function(_) => None,
        }
    }
    /// Whoever watches this port.
    pub(crate) const fn watch(&mut self) -> &mut Watch<Port> {
        &mut self.watch
    }
    /// Whether somebody needs the time at which each thing happens: a watcher, or a far end that
    /// reads time stamps.
    pub(crate) fn is_timed(&self) -> bool {
        self.watch.is_on() || self.upstream().is_some_and(Upstream::is_stamped)
    }

    /// Tells the tunnels the time; see [`tunnel::Upstream::advance`].
    pub(crate) fn advance(&mut self, now: Instant) {
        if let Some(upstream) = self.upstream_mut() {
            upstream.advance(now);
        }
    }
    /// Asks all far ends how they are now.
    pub(crate) fn ping(&mut self, now: Instant) {
        self.each_port(|upstream, port| upstream.ping(now, port));
    }
    /// Ends all sessions in order and tells the far ends `text` as the reason.
    pub(crate) fn close(&mut self, now: Instant, text: &str) {
        self.each_port(|upstream, port| upstream.close(now, port, text));
    }

    fn each_port(&mut self, mut act: impl FnMut(&mut Upstream, PortIndex)) {
        let Some(upstream) = self.upstream_mut() else { return };
        for port in (0..=u8::MAX).map(PortIndex) {
            if upstream.session(port).is_none() {
                return;
            }
            act(upstream, port);
        }
    }

    /// Handles what the network brings.
    pub(crate) fn on_network(&mut self, now: Instant, input: upstream::Input) {
        if let upstream::Input::Received(connection, bytes) = &input {
            let (direction, connection) = (Direction::Up, Connection::Near(*connection));
            self.watch.show(now, || Seen::Bytes { direction, connection, bytes });
        }
        if let Some(upstream) = self.upstream_mut() {
            upstream.handle_input(now, input);
        }
    }
    /// Handles a packet that has come up the link, without a queue where that is possible; see
    /// [`RootComplex::receive`].
    #[inline]
    pub(crate) fn receive(&mut self, now: Instant, packet: &Packet, arrival: Option<Arrival>) -> Received {
        self.watch.show(now, || Seen::Packet { direction: Direction::Up, packet, arrival });
        self.root.receive(now, packet)
    }
    /// Handles a packet that has come up the link. What it means for the host comes from
    /// [`RootPort::poll_root`].
    pub(crate) fn handle_packet(&mut self, now: Instant, packet: Packet, arrival: Option<Arrival>) {
        let seen = &packet;
        self.watch.show(now, || Seen::Packet { direction: Direction::Up, packet: seen, arrival });
        self.root.handle_input(now, root_complex::Input::Packet(packet));
    }
    /// Answers a [`Received::MemoryRead`] with the bytes, or with `None` where there is no memory;
    /// see [`RootComplex::complete`].
    #[inline]
    pub(crate) fn complete(&mut self, now: Instant, request: &Header, data: Option<&Buffer>) {
        let Self { root, link, watch } = self;
        root.complete(request, data, |packet| link.send(now, packet, watch));
    }
    /// Handles everything that has become due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.root.handle_timeout(now);
        if let Some(upstream) = self.upstream_mut() {
            upstream.handle_timeout(now);
        }
    }
    /// When [`RootPort::handle_timeout`] is due, if ever.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let link = self.upstream().and_then(Engine::poll_timeout);
        self.root.poll_timeout().into_iter().chain(link).min()
    }

    /// The next thing that the root complex has for the host. Packets go down the link; only
    /// packets for a single function come out, since the world carries them.
    #[inline]
    pub(crate) fn poll_root(&mut self, now: Instant) -> Option<root_complex::Output> {
        loop {
            if let Link::Function(packets) = &mut self.link
                && let Some(packet) = packets.pop_front()
            {
                return Some(root_complex::Output::Packet(packet));
            }
            match self.root.poll_output()? {
                root_complex::Output::Packet(packet) => self.link.send(now, packet, &mut self.watch),
                output => return Some(output),
            }
        }
    }
    /// Reads the next packet that a tunnel only passes on into `packet`, replacing its contents,
    /// and returns its arrival. The host hands the packet to [`RootPort::receive`].
    #[inline]
    pub(crate) fn poll_packet(&mut self, packet: &mut Packet) -> Option<Arrival> {
        self.upstream_mut()?.poll_packet(packet).map(|(_, arrival)| arrival)
    }
    /// Whether the next output of [`RootPort::poll_link`] may be something received, rather than
    /// something to send.
    #[inline]
    pub(crate) fn has_received(&self) -> bool {
        self.upstream().is_some_and(Upstream::has_received)
    }
    /// The next output of the tunnels. The host hands packets to [`RootPort::receive`] or
    /// [`RootPort::handle_packet`].
    #[inline]
    pub(crate) fn poll_link(&mut self) -> Option<upstream::Output> {
        self.upstream_mut()?.poll_output()
    }
    /// Shows bytes that leave on a connection now.
    #[inline]
    pub(crate) fn show_transmit(&mut self, now: Instant, connection: ConnectionIndex, bytes: &Buffer) {
        let (direction, connection) = (Direction::Down, Connection::Near(connection));
        self.watch.show(now, || Seen::Bytes { direction, connection, bytes });
    }
}

impl Link {
    /// Sends a packet of the root complex down the link.
    #[inline]
    fn send(&mut self, now: Instant, packet: Packet, watch: &mut Watch<Port>) {
        let (direction, shown) = (Direction::Down, &packet);
        watch.show(now, || Seen::Packet { direction, packet: shown, arrival: None });
        match self {
            Self::Tunnels(upstream) => upstream.send(now, packet),
            Self::Function(packets) => packets.push_back(packet),
        }
    }
}
