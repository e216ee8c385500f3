//! The host's end of tunnels, with lookahead for the NVMe controllers at their far ends.

use alloc::vec::Vec;

use engine::Entropy;
use nvme_lookahead::Lookahead;
use pcie::switch::SwitchConfig;
use tunnel::session;

/// The host's end of tunnels, which looks ahead.
pub type Upstream = tunnel::Upstream<Lookahead>;

/// Creates a switch with one downstream port for each of `ports`; see [`tunnel::Upstream`]. Without
/// any port that is to look ahead, there is no lookahead.
///
/// # Panics
/// When the number of `ports` differs from `switch.ports`.
pub fn upstream(switch: &SwitchConfig, ports: Vec<session::Config>, entropy: impl Into<Entropy>) -> Upstream {
    let looks_ahead = ports.iter().any(|port| port.lookahead);
    let lookahead = looks_ahead.then(|| Lookahead::new(ports.len()));
    Upstream::with_interposer(switch, ports, lookahead, entropy)
}
