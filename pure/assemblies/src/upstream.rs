//! The host's end of tunnels, with lookahead and the DMA rule for the NVMe controllers at their far
//! ends.

use alloc::vec::Vec;

use engine::Entropy;
use nvme_lookahead::Lookahead;
use pcie::switch::SwitchConfig;
use tunnel::session::{self, Dma};

/// The host's end of tunnels, which looks ahead and sees to what devices may reach.
pub type Upstream = tunnel::Upstream<Lookahead>;

/// Creates a switch with one downstream port for each of `ports`; see [`tunnel::Upstream`]. Without
/// any port that is to look ahead or to be strict, nothing stands between switch and tunnels.
///
/// # Panics
/// When the number of `ports` differs from `switch.ports`.
pub fn upstream(switch: &SwitchConfig, ports: Vec<session::Config>, entropy: impl Into<Entropy>) -> Upstream {
    let strict = |port: &session::Config| port.dma == Dma::Strict;
    let is_needed = ports.iter().any(|port| port.lookahead || strict(port));
    let lookahead = is_needed.then(|| {
        let mut lookahead = Lookahead::new(ports.len());
        let strict = (0..).zip(&ports).filter(|(_, port)| strict(port));
        strict.for_each(|(port, _)| lookahead.set_strict(port));
        lookahead
    });
    Upstream::with_interposer(switch, ports, lookahead, entropy)
}
