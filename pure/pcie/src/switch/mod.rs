//! A switch: an upstream port, up to 32 downstream ports, and the routing between them.
//!
//! Software sees the functions of the specification: a type 1 function for the upstream port and
//! one for each downstream port. Device n on the internal bus is downstream port n. Packets are
//! routed by address, by ID or implicitly, and leave unchanged; the switch queues none. All
//! registers are in the switch, so that they answer even while the far end of a link is gone. An
//! [`Interposer`] may be between a switch and long links below it.

mod chain;
#[doc(hidden)]
pub mod fuzz;
mod interposer;
mod message;
mod port;
mod routing;
#[cfg(test)]
mod tests;

pub use interposer::{Ahead, AheadKey, Ascent, FarLink, Interposer, Passage, Refusal, Strand, Surroundings};

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Engine, Instant, Pool};

use crate::completer::{self, Completer};
use crate::config::{
    ConfigSpace, FunctionError, Identity, Link, PortType, Slot, bridge, header as config_header,
};
use crate::wire::{Bdf, CompletionStatus, ConfigRequest, ConfigType, Header, Kind, Packet};
use message::Gathered;
use port::{LinkChange, Port, Route};
use routing::{ConfigRoute, Routes};

/// Maximum number of downstream ports, which is the number of devices on the internal bus.
pub const DOWNSTREAM_PORTS_MAX: u8 = 32;

/// A port of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PortId {
    /// The port towards the root complex.
    Upstream,
    /// The downstream port with this number, 0..32, which is its device number on the internal bus.
    Downstream(u8),
}

/// Parameters that a switch is built with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// Identity of the upstream port.
    pub upstream: Identity,
    /// Identity of the downstream ports.
    pub downstream: Identity,
    /// Number of downstream ports, 1..=32.
    pub ports: u8,
    /// Capabilities of the links. The switch replaces the port number for each downstream port.
    pub link: Link,
    /// Hot-Plug Surprise of the slots: devices may vanish without causing an error.
    pub surprise: bool,
    /// Device Serial Number of all ports.
    pub serial_number: u64,
}

/// An output of a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A packet to be sent out of a port.
    Forward {
        /// The port by which the packet leaves.
        port: PortId,
        /// The packet to send.
        packet: Packet,
    },
    /// The link below a downstream port goes through a hot reset.
    HotReset {
        /// The downstream port above the link.
        port: PortId,
    },
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets forwarded.
    pub forwarded: u64,
    /// Requests refused; a refused non-posted request is answered with Unsupported Request.
    pub refused: u64,
    /// Completions that could not be routed.
    pub unexpected_completions: u64,
}

/// A switch with one upstream port.
#[derive(Debug)]
pub struct Switch {
    upstream: Port,
    downstream: Vec<Port>,
    routes: Routes,
    /// Whether requests from below are redirected upstream; see [`Switch::redirect`].
    redirect: bool,
    gathered: Gathered,
    completer: Completer,
    pool: Pool,
    outputs: VecDeque<Output>,
    statistics: Statistics,
}

impl Switch {
    /// A switch after power-up, without devices below it.
    ///
    /// # Panics
    /// When it has no downstream port or more than [`DOWNSTREAM_PORTS_MAX`].
    pub fn new(config: &SwitchConfig) -> Self {
        assert!((1..=DOWNSTREAM_PORTS_MAX).contains(&config.ports), "a switch of {} ports", config.ports);
        let serial = config.serial_number;
        let upstream = Port::new(config.upstream, PortType::Upstream, config.link, None, serial);
        let downstream: Vec<_> = (0..config.ports)
            .map(|index| {
                let link = Link { port: index + 1, ..config.link };
                let slot = Slot { number: u16::from(index) + 1, surprise: config.surprise };
                Port::new(config.downstream, PortType::Downstream, link, Some(slot), serial)
            })
            .collect();
        Self {
            routes: Routes::new(&upstream, &downstream, false),
            redirect: false,
            upstream,
            downstream,
            gathered: Gathered::default(),
            completer: Completer::new(completer::Settings::default()),
            pool: Pool::default(),
            outputs: VecDeque::new(),
            statistics: Statistics::default(),
        }
    }

    /// Counters since the start.
    pub const fn statistics(&self) -> &Statistics {
        &self.statistics
    }
    /// Number of downstream ports.
    pub const fn ports(&self) -> usize {
        self.downstream.len()
    }

    /// The configuration space of `port`.
    ///
    /// # Panics
    /// When the switch has no such port.
    pub fn config(&self, port: PortId) -> &ConfigSpace {
        match port {
            PortId::Upstream => &self.upstream.space,
            PortId::Downstream(index) => &self.downstream[usize::from(index)].space,
        }
    }

    /// Bus, device and function number of `port`'s function.
    ///
    /// # Panics
    /// When the switch has no such port.
    pub fn id(&self, port: PortId) -> Bdf {
        match port {
            PortId::Upstream => self.upstream.id,
            PortId::Downstream(index) => self.downstream[usize::from(index)].id,
        }
    }
    /// Whether packets can leave by `port`: its link is up, and software has neither disabled nor
    /// reset it.
    pub fn is_up(&self, port: PortId) -> bool {
        match port {
            PortId::Upstream => true,
            PortId::Downstream(index) => self.routes.is_up(index),
        }
    }

    fn port_mut(&mut self, port: PortId) -> &mut Port {
        match port {
            PortId::Upstream => &mut self.upstream,
            PortId::Downstream(index) => &mut self.downstream[usize::from(index)],
        }
    }

    /// Handles the link below downstream port `port` coming up: its far end is attached.
    ///
    /// # Panics
    /// When the switch has no such downstream port.
    pub fn link_up(&mut self, port: PortId) {
        self.on_attach(port, true);
    }

    /// Handles the link below downstream port `port` going down: its far end is gone. Requests that
    /// were forwarded but not completed end with their requesters' Completion Timeout.
    ///
    /// # Panics
    /// When the switch has no such downstream port.
    pub fn link_down(&mut self, port: PortId) {
        self.on_attach(port, false);
    }

    fn on_attach(&mut self, port: PortId, attached: bool) {
        let PortId::Downstream(index) = port else { panic!("the upstream link's state is not the switch's") };
        let change = self.port_mut(port).attach(attached);
        self.routes = Routes::new(&self.upstream, &self.downstream, self.redirect);
        if change == LinkChange::WentDown {
            self.forget_below(index);
            if !self.port_mut(port).expects_surprise() {
                self.report(port, FunctionError::SurpriseDown, false, None);
            }
        }
        self.send_interrupt(port);
    }

    /// Sends requests by address from below upstream from now on, even if a window of this switch
    /// has the address, as with ACS P2P Request Redirect and ACS Upstream Forwarding. This is for
    /// devices whose addresses are not those of this hierarchy.
    pub fn redirect(&mut self) {
        self.redirect = true;
        self.routes = Routes::new(&self.upstream, &self.downstream, self.redirect);
    }

    /// Handles a reset of the upstream link. Everything but sticky bits returns to its value after
    /// power-up in every port, and the switch passes the reset on below.
    pub fn hot_reset(&mut self) {
        self.upstream.reset();
        self.upstream.id = Bdf::default();
        self.reset_below();
        self.refresh();
    }

    /// A hot reset of the internal bus: resets the downstream ports and everything below them.
    fn reset_below(&mut self) {
        for (index, port) in (0..).zip(&mut self.downstream) {
            port.reset();
            if port.attached {
                self.outputs.push_back(Output::HotReset { port: PortId::Downstream(index) });
            }
            // The link itself comes up again with the port.
            port.follow_link();
        }
        self.gathered = Gathered::default();
    }

    /// Sends the hot-plug interrupt of `port`, if one is due, as a memory write.
    fn send_interrupt(&mut self, port: PortId) {
        if let Some(packet) = self.port_mut(port).poll_interrupt() {
            self.outputs.push_back(Output::Forward { port: PortId::Upstream, packet });
        }
    }

    /// Caches the registers that routing needs.
    fn refresh(&mut self) {
        let bus = u8::try_from(self.upstream.space.get(bridge::SECONDARY_BUS)).unwrap_or(0);
        for (device, port) in (0..).zip(&mut self.downstream) {
            port.id = Bdf::new(bus, device, 0);
        }
        self.routes = Routes::new(&self.upstream, &self.downstream, self.redirect);
    }

    /// The egress port of a packet with `header`, if it needs only forwarding, as almost always.
    /// The packet is then counted as forwarded and need not be moved into the switch and out again.
    /// Returns `None` while outputs are waiting, because these go first.
    #[inline]
    pub fn pass(&mut self, ingress: PortId, header: &mut Header) -> Option<PortId> {
        if header.traits.is_poisoned() || !self.outputs.is_empty() {
            return None;
        }
        let route = match &mut header.kind {
            Kind::Memory(request) => self.routes.by_address(ingress, request.requester, request.address),
            Kind::Completion(completion) => self.routes.by_id(ingress, completion.requester),
            Kind::Config(request) => match self.routes.by_config(ingress, request, self.downstream.len()) {
                ConfigRoute::Below(index) => {
                    let (route, routing) = self.descend(index, request);
                    if matches!(route, Route::Forward(_)) {
                        request.routing = routing;
                    }
                    route
                }
                _ => return None,
            },
            Kind::Io(_) | Kind::Message(_) => return None,
        };
        match route {
            Route::Forward(port) => {
                self.statistics.forwarded += 1;
                Some(port)
            }
            Route::Refuse(_) => None,
        }
    }

    /// Forwards `packet`, or answers it for the missing receiver.
    #[inline]
    fn deliver(&mut self, ingress: PortId, route: Route, packet: Packet) {
        match route {
            Route::Forward(port) => {
                self.statistics.forwarded += 1;
                self.outputs.push_back(Output::Forward { port, packet });
            }
            Route::Refuse(port) => self.refuse(ingress, port, &packet.header),
        }
    }

    /// Refuses a request from `ingress` without a receiver, at `port`: answers it, or drops it if
    /// it is posted, and logs the error.
    fn refuse(&mut self, ingress: PortId, port: PortId, request: &Header) {
        if request.is_completion() {
            self.statistics.unexpected_completions += 1;
            return self.report(port, FunctionError::UnexpectedCompletion, true, Some(request));
        }
        self.statistics.refused += 1;
        if request.is_non_posted() {
            self.answer(ingress, port, request, CompletionStatus::UnsupportedRequest);
        }
        self.report(port, FunctionError::UnsupportedRequest, request.is_non_posted(), Some(request));
    }

    /// Makes `port` the completer of the next answers.
    fn answer_as(&mut self, port: PortId) {
        let id = self.id(port);
        self.completer.set(completer::Settings { id, ..completer::Settings::default() });
    }

    fn answer(&mut self, ingress: PortId, port: PortId, request: &Header, status: CompletionStatus) {
        self.answer_as(port);
        let packet = self.completer.status(request, status);
        self.outputs.push_back(Output::Forward { port: ingress, packet });
    }

    fn on_config(&mut self, ingress: PortId, mut packet: Packet) {
        let Kind::Config(request) = &mut packet.header.kind else { return };
        match self.routes.by_config(ingress, request, self.downstream.len()) {
            ConfigRoute::Refuse(port) => self.refuse(ingress, port, &packet.header),
            ConfigRoute::Port(port) => {
                let request = *request;
                self.on_port_config(port, &request, &packet);
            }
            ConfigRoute::Below(index) => {
                let (route, routing) = self.descend(index, request);
                request.routing = routing;
                self.deliver(ingress, route, packet);
            }
        }
    }

    /// The route of a configuration request to a function below downstream port `index`, and the
    /// type that the request has there.
    fn descend(&self, index: u8, request: &ConfigRequest) -> (Route, ConfigType) {
        let port = PortId::Downstream(index);
        let direct = request.target.bus() == *self.downstream[usize::from(index)].buses().start();
        // A link has one device, number 0 (no ARI forwarding).
        let is_vacant = direct && request.target.device() != 0;
        let routing = if direct && !is_vacant { ConfigType::Type0 } else { request.routing };
        let passes = !is_vacant && self.routes.is_up(index);
        (if passes { Route::Forward(port) } else { Route::Refuse(port) }, routing)
    }

    /// Handles a configuration request for one of the switch's own functions.
    fn on_port_config(&mut self, port: PortId, request: &ConfigRequest, packet: &Packet) {
        let header = &packet.header;
        if !request.write {
            let value = self.config(port).read(request.offset);
            self.answer_as(port);
            let data = self.pool.copy(&value.to_le_bytes());
            let outputs = &mut self.outputs;
            // Only the root complex sends configuration requests.
            return self.completer.data(header, &data, |packet| {
                outputs.push_back(Output::Forward { port: PortId::Upstream, packet });
            });
        }
        if header.traits.is_poisoned() {
            self.port_mut(port).space.set(config_header::DETECTED_PARITY_ERROR, 1);
            self.answer(PortId::Upstream, port, header, CompletionStatus::UnsupportedRequest);
            return self.report(port, FunctionError::PoisonedTlp, true, Some(header));
        }
        if port == PortId::Upstream {
            self.upstream.id = request.target;
        }
        let value = packet.payload.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let in_reset = self.upstream.space.is_set(bridge::SECONDARY_BUS_RESET);
        self.port_mut(port).space.write(request.offset, value, request.enables);
        self.answer(PortId::Upstream, port, header, CompletionStatus::Success);
        match port {
            PortId::Upstream => {
                if !in_reset && self.upstream.space.is_set(bridge::SECONDARY_BUS_RESET) {
                    self.reset_below();
                }
            }
            PortId::Downstream(index) => {
                if self.port_mut(port).follow_link() == LinkChange::WentDown {
                    self.outputs.push_back(Output::HotReset { port });
                    self.forget_below(index);
                }
            }
        }
        self.refresh();
        self.send_interrupt(port);
    }
}

impl Engine for Switch {
    /// A packet, and its ingress port.
    type Input<'a> = (PortId, Packet);
    type Output = Output;

    #[inline]
    fn handle_input(&mut self, _now: Instant, (ingress, packet): (PortId, Packet)) {
        if packet.header.traits.is_poisoned() {
            self.report(ingress, FunctionError::PoisonedTlp, true, Some(&packet.header));
        }
        let route = match &packet.header.kind {
            Kind::Memory(request) => self.routes.by_address(ingress, request.requester, request.address),
            Kind::Completion(completion) => self.routes.by_id(ingress, completion.requester),
            Kind::Io(request) => self.route_io(ingress, request.requester, request.address),
            Kind::Config(_) => return self.on_config(ingress, packet),
            Kind::Message(_) => return self.on_message(ingress, packet),
        };
        self.deliver(ingress, route, packet);
    }
    fn handle_timeout(&mut self, _now: Instant) {}
    fn poll_output(&mut self) -> Option<Output> {
        engine::pop(&mut self.outputs)
    }
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}
