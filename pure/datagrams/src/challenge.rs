//! Challenges: proof that the sender of a datagram has the datagram's source address.
//!
//! The value of a challenge is a keyed digest of the address, the sender's name and the time. The
//! endpoint can check it without stored state, as with QUIC's Retry (RFC 9000, 8.1.2).

use core::hash::{Hash, Hasher};

use engine::{Entropy, Instant, Nanos};
use sha2::{Digest, Sha256};

use crate::packet::Name;

/// How long a value is good at least; at most twice as long.
const GOOD_FOR: Nanos = Nanos::from_secs(16);

/// Makes and checks the values of challenges.
#[derive(Debug)]
pub(crate) struct Challenges {
    secret: [u64; 4],
}

impl Challenges {
    pub(crate) fn new(entropy: &mut Entropy) -> Self {
        Self { secret: core::array::from_fn(|_| entropy.next_u64()) }
    }

    /// The value for the end that calls itself `name` at `address`.
    pub(crate) fn value(&self, now: Instant, address: &impl Hash, name: Name) -> u64 {
        self.at(period(now), address, name)
    }

    /// Whether `value` was sent to `address` recently.
    pub(crate) fn is_met(&self, now: Instant, address: &impl Hash, name: Name, value: u64) -> bool {
        let period = period(now);
        [Some(period), period.checked_sub(1)]
            .into_iter()
            .flatten()
            .any(|period| self.at(period, address, name) == value)
    }

    fn at(&self, period: u64, address: &impl Hash, name: Name) -> u64 {
        let mut digest = Keyed(Sha256::new());
        // The length of the digested bytes is fixed for each kind of address.
        (self.secret, period, name.0).hash(&mut digest);
        address.hash(&mut digest);
        // 0 means no value.
        digest.finish().max(1)
    }
}

fn period(now: Instant) -> u64 {
    now.as_nanos() / GOOD_FOR.get()
}

/// Digests the hashed bytes.
struct Keyed(Sha256);

impl Hasher for Keyed {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let digest: [u8; 32] = self.0.clone().finalize().into();
        digest.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
    }
}
