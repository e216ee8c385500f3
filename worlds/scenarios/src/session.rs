//! The tunnel's sessions of worlds in which much goes wrong.

use engine::{Nanos, Rng};
use tunnel::frame::{Identity, InstanceId};
use tunnel::session::Config;

use crate::digest::crc32c;

/// A new process's instance.
pub(crate) fn instance(rng: &mut Rng) -> InstanceId {
    let mut bytes = [0; 16];
    rng.fill(&mut bytes);
    InstanceId(bytes)
}

/// A session that is held for `hold`, with every other wait in proportion to that.
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
