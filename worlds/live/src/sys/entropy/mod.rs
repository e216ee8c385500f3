//! The system's random source, from which every value comes that admits a peer.

use engine::Entropy;
use rustix::rand::{GetRandomFlags, getrandom};

/// Randomness that an attacker can't guess from earlier values.
pub const fn system() -> Entropy {
    Entropy::System(fill)
}

/// Fills `bytes` from getrandom(2), which blocks only until the machine has gathered enough
/// randomness after its start.
fn fill(mut bytes: &mut [u8]) {
    while !bytes.is_empty() {
        match getrandom(&mut *bytes, GetRandomFlags::empty()) {
            Ok(count) => bytes = &mut bytes[count..],
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("Linux has had getrandom since 3.17, and it does not fail: {error}"),
        }
    }
}

#[cfg(test)]
mod tests;
