//! Configurations of tunnel sessions for worlds in which much goes wrong.

use engine::{Nanos, Rng};
use tunnel::frame::{Identity, InstanceId};
use tunnel::session::Config;

use crate::digest::crc32c;

/// A random instance, as each new process has.
pub(crate) fn instance(rng: &mut Rng) -> InstanceId {
    let mut bytes = [0; 16];
    rng.fill(&mut bytes);
    InstanceId(bytes)
}

/// A session's configuration with the hold time `hold` and every other wait in proportion.
pub(crate) fn impatient(name: &str, instance: InstanceId, hold: Nanos) -> Config {
    Config {
        identity: Identity { instance, name: name.into(), ..Identity::default() },
        hold,
        silence: hold / 4,
        ping_interval: hold / 16,
        handshake: hold / 4,
        redial: (hold / 64, hold / 4),
        crc32c,
        ..Config::default()
    }
}
