//! A root complex, and the hierarchy on the link of its root port: the distributed switch with its
//! tunnels, or a single function.
//!
//! The hosts ([`Near`](crate::near::Near), [`Guest`](crate::guest::Guest)) differ above the root
//! complex. From the root complex down they have this in common. A host polls in this order:
//! [`RootPort::poll_root`] for the root complex's outputs for the host, [`RootPort::poll_packet`]
//! for packets that have come through the tunnels, and [`RootPort::poll_link`] for the rest.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use engine::{Buffer, Engine, Instant, Watch};
use pcie::root_complex::{self, Received, RootComplex};
use pcie::wire::{Header, Packet};
use tunnel::session::Arrival;
use tunnel::upstream::{self, ConnectionIndex, PortIndex};

use crate::Upstream;
use crate::watch::{Connection, Direction, Port, Seen};

/// A root complex, and the hierarchy on the link of its root port.
#[derive(Debug)]
pub(crate) struct RootPort {
    root: RootComplex,
    below: Below,
}

/// The hierarchy on the link of the root port, and the watchers of the link.
#[derive(Debug)]
struct Below {
    /// The switch, with a tunnel behind each of its ports. Without it, a single function is on the
    /// link, and the world carries the packets.
    upstream: Option<Box<Upstream>>,
    /// Packets for a single function on the link.
    packets: VecDeque<Packet>,
    watch: Watch<Port>,
}

impl RootPort {
    /// A root port above the switch of `upstream`.
    pub(crate) fn over_tunnels(root: RootComplex, upstream: Upstream) -> Self {
        Self { root, below: Below::new(Some(Box::new(upstream))) }
    }
    /// A root port whose link leads to a single function.
    pub(crate) const fn direct(root: RootComplex) -> Self {
        Self { root, below: Below::new(None) }
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
    pub(crate) fn upstream(&self) -> Option<&Upstream> {
        self.below.upstream.as_deref()
    }
    /// The watchers of this port.
    pub(crate) const fn watch(&mut self) -> &mut Watch<Port> {
        &mut self.below.watch
    }
    /// Whether this port has a watcher.
    pub(crate) const fn is_watched(&self) -> bool {
        self.below.watch.is_on()
    }
    /// Whether the time of each event is needed: a watcher, or a far end that reads time stamps.
    pub(crate) fn is_timed(&self) -> bool {
        self.below.watch.is_on() || self.upstream().is_some_and(Upstream::is_stamped)
    }

    /// Advances the tunnels' time; see [`tunnel::Upstream::advance`].
    pub(crate) fn advance(&mut self, now: Instant) {
        if let Some(upstream) = &mut self.below.upstream {
            upstream.advance(now);
        }
    }
    /// Says how long segments of a connection may be; see [`tunnel::Upstream::set_segment_max`].
    pub(crate) fn set_segment_max(&mut self, connection: ConnectionIndex, bytes: usize) {
        if let Some(upstream) = &mut self.below.upstream {
            upstream.set_segment_max(connection, bytes);
        }
    }
    /// Defers the bytes of a connection; see [`tunnel::Upstream::hold_back`].
    pub(crate) fn hold_back(&mut self, now: Instant, connection: ConnectionIndex) -> bool {
        self.below.upstream.as_mut().is_some_and(|upstream| upstream.hold_back(now, connection))
    }
    /// Asks all far ends how they are now.
    pub(crate) fn ping(&mut self, now: Instant) {
        self.each_port(|upstream, port| upstream.ping(now, port));
    }
    /// Ends all sessions in order and sends the far ends `text` as the reason.
    pub(crate) fn close(&mut self, now: Instant, text: &str) {
        self.each_port(|upstream, port| upstream.close(now, port, text));
    }

    fn each_port(&mut self, mut act: impl FnMut(&mut Upstream, PortIndex)) {
        let Some(upstream) = &mut self.below.upstream else { return };
        for port in (0..=u8::MAX).map(PortIndex) {
            if upstream.session(port).is_none() {
                return;
            }
            act(upstream, port);
        }
    }

    /// Handles an input from the network.
    pub(crate) fn on_network(&mut self, now: Instant, input: upstream::Input) {
        match &mut self.below.upstream {
            Some(upstream) if !self.below.watch.is_on() => upstream.handle_input(now, input),
            _ => self.on_network_watched(now, input),
        }
    }

    #[cold]
    fn on_network_watched(&mut self, now: Instant, input: upstream::Input) {
        if let upstream::Input::Received(connection, bytes) = &input {
            self.show_bytes(now, Direction::Up, *connection, bytes);
        }
        if let Some(upstream) = &mut self.below.upstream {
            upstream.handle_input(now, input);
        }
    }

    /// Handles a packet that has come up the link, without a queue where that is possible;
    /// see [`RootComplex::receive`].
    #[inline]
    pub(crate) fn receive(&mut self, now: Instant, packet: &Packet, arrival: Option<&Arrival>) -> Received {
        self.below.watch.show(now, move || Seen::Packet { direction: Direction::Up, packet, arrival });
        self.root.receive(now, packet)
    }
    /// Handles a packet that has come up the link. Its meaning for the host comes from
    /// [`RootPort::poll_root`].
    pub(crate) fn handle_packet(&mut self, now: Instant, packet: Packet, arrival: Option<&Arrival>) {
        let seen = &packet;
        self.below.watch.show(now, move || Seen::Packet { direction: Direction::Up, packet: seen, arrival });
        self.root.handle_input(now, root_complex::Input::Packet(packet));
    }
    /// Answers a [`Received::MemoryRead`] with the bytes, or with `None` where there is no memory;
    /// see [`RootComplex::complete`].
    #[inline]
    pub(crate) fn complete(&mut self, now: Instant, request: &Header, data: Option<&Buffer>) {
        let Self { root, below } = self;
        root.complete(request, data, |packet| below.send(now, packet));
    }
    /// Handles everything that has become due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.root.handle_timeout(now);
        if let Some(upstream) = &mut self.below.upstream {
            upstream.handle_timeout(now);
        }
    }
    /// When [`RootPort::handle_timeout`] is due, if ever.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let link = self.upstream().and_then(Engine::poll_timeout);
        Instant::earlier(self.root.poll_timeout(), link)
    }

    /// The next thing that the root complex has for the host. Packets go down the link; only
    /// packets for a single function come out, since the world carries them.
    #[inline(always)]
    pub(crate) fn poll_root(&mut self, now: Instant) -> Option<root_complex::Output> {
        loop {
            if let Some(packet) = engine::pop(&mut self.below.packets) {
                return Some(root_complex::Output::Packet(packet));
            }
            match self.root.poll_output()? {
                root_complex::Output::Packet(packet) => self.below.send(now, packet),
                output => return Some(output),
            }
        }
    }
    /// Reads the next packet that a tunnel only passes on into `packet`, replacing its contents,
    /// and returns its port and arrival. The host hands the packet to [`RootPort::receive`].
    #[inline]
    pub(crate) fn poll_packet(&mut self, packet: &mut Packet) -> Option<(PortIndex, Arrival)> {
        self.below.upstream.as_mut()?.poll_packet(packet)
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
        self.below.upstream.as_mut()?.poll_output()
    }
    /// Shows a piece of a connection's byte stream to the watchers.
    #[inline]
    pub(crate) fn show_bytes(
        &mut self,
        now: Instant,
        direction: Direction,
        connection: ConnectionIndex,
        bytes: &Buffer,
    ) {
        let connection = Connection::Near(connection);
        self.below.watch.show(now, move || Seen::Bytes { direction, connection, ends: None, bytes });
    }
}

impl Below {
    const fn new(upstream: Option<Box<Upstream>>) -> Self {
        Self { upstream, packets: VecDeque::new(), watch: Watch::new() }
    }

    /// Sends a packet of the root complex down the link. Without a watcher, nothing refers to the
    /// packet, so the compiler need not copy it.
    #[inline]
    fn send(&mut self, now: Instant, packet: Packet) {
        match &mut self.upstream {
            Some(upstream) if !self.watch.is_on() => upstream.send(now, packet),
            _ => self.send_otherwise(now, packet),
        }
    }

    #[inline(never)]
    fn send_otherwise(&mut self, now: Instant, packet: Packet) {
        let (direction, shown) = (Direction::Down, &packet);
        self.watch.show(now, move || Seen::Packet { direction, packet: shown, arrival: None });
        match &mut self.upstream {
            Some(upstream) => upstream.send(now, packet),
            None => self.packets.push_back(packet),
        }
    }
}
