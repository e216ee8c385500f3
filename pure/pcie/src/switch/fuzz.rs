//! Entry point for fuzzing the switch.

use engine::{Engine as _, Instant};

use super::{PortId, Switch, SwitchConfig};
use crate::config::{Identity, Link};
use crate::wire::Tlp;

/// Passes the TLPs in `bytes` to a switch. A byte before each TLP names its ingress port. Where no
/// TLP parses, links go up and down.
pub fn packets(mut bytes: &[u8]) {
    let identity = Identity { vendor: 1, device: 1, ..Identity::default() };
    let mut switch = Switch::new(&SwitchConfig {
        upstream: identity,
        downstream: identity,
        ports: 3,
        link: Link::default(),
        surprise: false,
        serial_number: 0,
    });
    while let [place, rest @ ..] = bytes {
        let port = PortId::Downstream(place % 3);
        bytes = rest;
        match Tlp::parse_first(bytes) {
            Ok((tlp, rest)) => {
                let ingress = if place & 0x80 == 0 { PortId::Upstream } else { port };
                switch.handle_input(Instant::ZERO, (ingress, tlp.to_packet()));
                bytes = rest;
            }
            Err(_) if place & 0x80 == 0 => switch.link_up(port),
            Err(_) => switch.link_down(port),
        }
        while switch.poll_output().is_some() {}
    }
}
