//! Names of NVMe over Fabrics that follow from those of a fleet.

use fleet::Name;
use sha2::{Digest, Sha256};

/// The beginning of the names of hosts.
const HOST: &str = "nqn.2026-01.io.farlane:fleet-host:";

/// The NVMe Qualified Name of a machine as a host.
pub fn host_nqn(node: &Name) -> String {
    format!("{HOST}{node}")
}

/// The Host Identifier of a machine: the same as long as the machine has its name, since the
/// kernel's initiator allows one name for each identifier. It has the form of a UUID (RFC 9562,
/// version 8).
pub fn host_identifier(node: &Name) -> [u8; 16] {
    let digest = Sha256::digest(host_nqn(node));
    let mut identifier = [0; 16];
    identifier.copy_from_slice(&digest[..16]);
    identifier[6] = identifier[6] & 0x0f | 0x80;
    identifier[8] = identifier[8] & 0x3f | 0x80;
    identifier
}
