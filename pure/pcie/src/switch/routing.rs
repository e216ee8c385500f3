//! The choice of the port by which a packet leaves.

use alloc::vec::Vec;

use super::port::{Port, Route};
use super::{PortId, Switch};
use crate::config::{Window, bridge};
use crate::wire::{Bdf, ConfigRequest, ConfigType};

/// Marks a bus that is below no downstream port.
const NO_PORT: u8 = u8::MAX;
/// Number of buses.
const BUSES: usize = 256;

/// The routing tables, derived from the ports' registers whenever one of these changes.
#[derive(Clone, Debug)]
pub(super) struct Routes {
    /// The open windows of downstream ports, with the number of the port.
    memory: Vec<(Window, u8)>,
    /// The windows of the upstream port: memory and prefetchable memory.
    upstream: [Window; 2],
    /// The downstream port that has each bus below it, or [`NO_PORT`].
    buses: [u8; BUSES],
    /// The bus between upstream and downstream ports; 0 until software numbers it.
    internal_bus: u8,
    /// The last bus below the upstream port.
    subordinate_bus: u8,
    /// Downstream ports whose link is up; bit n is port n.
    pub(super) up: u32,
    /// Downstream ports that may send requests up (Bus Master Enable); bit n is port n.
    masters: u32,
    upstream_master: bool,
    /// Whether requests from below go up even if another port of the switch claims their address.
    redirect: bool,
}

impl Routes {
    pub(super) fn new(upstream: &Port, downstream: &[Port], redirect: bool) -> Self {
        let mut routes = Self {
            memory: Vec::with_capacity(downstream.len() * 2),
            upstream: upstream.memory_windows(),
            buses: [NO_PORT; BUSES],
            internal_bus: *upstream.buses().start(),
            subordinate_bus: *upstream.buses().end(),
            up: 0,
            masters: 0,
            upstream_master: upstream.space.bus_master(),
            redirect,
        };
        if upstream.space.is_set(bridge::SECONDARY_BUS_RESET) || !upstream.space.in_d0() {
            routes.upstream = [Window::CLOSED; 2];
            routes.internal_bus = 0;
            routes.subordinate_bus = 0;
            return routes;
        }
        for (index, port) in (0_u8..).zip(downstream) {
            let windows = port.memory_windows().into_iter().filter(|window| !window.is_closed());
            routes.memory.extend(windows.map(|window| (window, index)));
            routes.up |= u32::from(port.link_usable()) << index;
            routes.masters |= u32::from(port.space.bus_master()) << index;
            // Bus 0 is the root's, so a secondary bus without a number claims nothing.
            if *port.buses().start() == 0 || !port.space.in_d0() {
                continue;
            }
            for bus in port.buses() {
                let place = &mut routes.buses[usize::from(bus)];
                if *place == NO_PORT {
                    *place = index;
                }
            }
        }
        routes
    }

    pub(super) const fn is_up(&self, port: u8) -> bool {
        self.up >> port & 1 == 1
    }

    const fn below(&self, bus: u8) -> Option<u8> {
        match self.buses[bus as usize] {
            NO_PORT => None,
            port => Some(port),
        }
    }

    /// Whether the upstream port forwards packets for `bus` down.
    const fn is_inside(&self, bus: u8) -> bool {
        self.internal_bus != 0 && self.internal_bus <= bus && bus <= self.subordinate_bus
    }

    #[inline]
    fn upstream_takes(&self, address: u64) -> bool {
        self.upstream.iter().any(|window| window.contains(address))
    }

    /// Forwards down to `port`, which refuses the packet while its link is down.
    const fn down(&self, port: u8) -> Route {
        if self.is_up(port) {
            Route::Forward(PortId::Downstream(port))
        } else {
            Route::Refuse(PortId::Downstream(port))
        }
    }

    /// Forwards up from `port` out of the switch, if the upstream port is a bus master.
    const fn up_from(&self, port: u8) -> Route {
        if !self.upstream_master {
            Route::Refuse(PortId::Downstream(port))
        } else {
            Route::Forward(PortId::Upstream)
        }
    }

    /// Whether `requester` may send requests up through `port`: the port must be a bus master, and
    /// the requester's bus must be below the port. A request in another function's name is refused,
    /// as with ACS Source Validation, which is always on here.
    const fn may_request(&self, port: u8, requester: Bdf) -> bool {
        self.masters >> port & 1 == 1 && self.buses[requester.bus() as usize] == port
    }

    /// Routes a request by memory address.
    #[inline]
    pub(super) fn by_address(&self, ingress: PortId, requester: Bdf, address: u64) -> Route {
        let claimed = self.memory.iter().find(|(window, _)| window.contains(address)).map(|(_, port)| *port);
        match (ingress, claimed) {
            (PortId::Upstream, Some(port)) if self.upstream_takes(address) => self.down(port),
            (PortId::Upstream, _) => Route::Refuse(PortId::Upstream),
            (PortId::Downstream(from), _) if !self.may_request(from, requester) => Route::Refuse(ingress),
            (PortId::Downstream(from), _) if self.redirect => self.up_from(from),
            // A request from below a port never has an address below the same port.
            (PortId::Downstream(from), Some(port)) if port == from => Route::Refuse(ingress),
            (PortId::Downstream(_), Some(port)) => self.down(port),
            (PortId::Downstream(_), None) if self.upstream_takes(address) => Route::Refuse(ingress),
            (PortId::Downstream(from), None) => self.up_from(from),
        }
    }

    /// Routes a completion, or a message that is routed by ID.
    #[inline]
    pub(super) fn by_id(&self, ingress: PortId, target: Bdf) -> Route {
        let bus = target.bus();
        match (ingress, self.below(bus)) {
            (PortId::Upstream, Some(port)) if self.is_inside(bus) => self.down(port),
            (PortId::Upstream, _) => Route::Refuse(PortId::Upstream),
            (PortId::Downstream(from), Some(port)) if port == from => Route::Refuse(ingress),
            (PortId::Downstream(_), Some(port)) => self.down(port),
            (PortId::Downstream(_), None) if self.is_inside(bus) => Route::Refuse(ingress),
            (PortId::Downstream(_), None) => Route::Forward(PortId::Upstream),
        }
    }

    /// Routes a configuration request.
    pub(super) fn by_config(&self, ingress: PortId, request: &ConfigRequest, ports: usize) -> ConfigRoute {
        let PortId::Upstream = ingress else { return ConfigRoute::Refuse(ingress) };
        let (bus, device, function) =
            (request.target.bus(), request.target.device(), request.target.function());
        if request.routing == ConfigType::Type0 {
            return if function == 0 { ConfigRoute::Port(ingress) } else { ConfigRoute::Refuse(ingress) };
        }
        if self.internal_bus != 0 && bus == self.internal_bus {
            let exists = usize::from(device) < ports && function == 0;
            return if exists {
                ConfigRoute::Port(PortId::Downstream(device))
            } else {
                ConfigRoute::Refuse(ingress)
            };
        }
        let Some(port) = self.below(bus).filter(|_| self.is_inside(bus)) else {
            return ConfigRoute::Refuse(ingress);
        };
        ConfigRoute::Below(port)
    }
}

/// The route of a configuration request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConfigRoute {
    /// To the registers of this port.
    Port(PortId),
    /// Below this downstream port.
    Below(u8),
    /// Nowhere; this port answers the request.
    Refuse(PortId),
}

impl Switch {
    /// Whether `requester`, below downstream port `port`, may now send requests for `address` up
    /// and out of the switch.
    pub fn may_read(&self, port: u8, requester: Bdf, address: u64) -> bool {
        let ingress = PortId::Downstream(port);
        self.routes.by_address(ingress, requester, address) == Route::Forward(PortId::Upstream)
    }

    /// Whether the bus of `requester` is below a downstream port.
    pub const fn is_below(&self, requester: Bdf) -> bool {
        self.routes.below(requester.bus()).is_some()
    }

    /// Routes a request by I/O address. Such requests are rare, so the registers are read each
    /// time.
    pub(super) fn route_io(&self, ingress: PortId, requester: Bdf, address: u32) -> Route {
        let inside = self.upstream.takes_io(address);
        let mut ports = (0_u8..).zip(&self.downstream);
        let claimed = ports.find(|(_, port)| port.takes_io(address)).map(|(index, _)| index);
        match (ingress, claimed) {
            (PortId::Upstream, Some(port)) if inside => self.routes.down(port),
            (PortId::Upstream, _) => Route::Refuse(PortId::Upstream),
            (PortId::Downstream(from), _) if !self.routes.may_request(from, requester) => {
                Route::Refuse(ingress)
            }
            (PortId::Downstream(from), Some(port)) if port != from => self.routes.down(port),
            (PortId::Downstream(_), Some(_)) => Route::Refuse(ingress),
            (PortId::Downstream(_), None) if inside => Route::Refuse(ingress),
            (PortId::Downstream(from), None) => self.routes.up_from(from),
        }
    }
}
