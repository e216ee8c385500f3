//! The responses that prove knowledge of a secret.

use alloc::vec::Vec;

use zeroize::Zeroizing;

use super::{Group, Hash, Secret};
use crate::wire::Nqn;

/// The names of both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// NQN of the host.
    pub host: Nqn,
    /// NQN of the subsystem.
    pub subsystem: Nqn,
}

/// The state of a transaction at both ends once the controller has challenged the host.
#[derive(Clone, Debug)]
pub(super) struct Transaction {
    /// Transaction Identifier (T_ID).
    pub(super) id: u16,
    pub(super) hash: Hash,
    pub(super) group: Group,
}

/// A challenge: its value and Sequence Number (SEQNUM).
#[derive(Clone, Copy, Debug)]
pub(super) struct ChallengeValue<'a> {
    pub(super) value: &'a [u8],
    pub(super) sequence: u32,
}

/// The end that proves that it has its secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prover {
    Host,
    Controller,
}

impl Transaction {
    /// The response of `prover` to the challenge of the other end. `secret` is the prover's;
    /// `shared` is the Diffie-Hellman key, `None` for [`Group::Null`].
    pub(super) fn response(
        &self,
        prover: Prover,
        names: &Names,
        secret: &Secret,
        challenge: ChallengeValue<'_>,
        shared: Option<&[u8]>,
    ) -> Zeroizing<Vec<u8>> {
        let (role, own, other): (&[u8], _, _) = match prover {
            Prover::Host => (b"HostHost", &names.host, &names.subsystem),
            Prover::Controller => (b"Controller", &names.subsystem, &names.host),
        };
        // The augmented challenge binds the response to the exchange of keys.
        let augmented = shared.map(|key| self.hash.hmac(&self.hash.hash(key), &[challenge.value]));
        let value = augmented.as_ref().map_or(challenge.value, |one| one.as_slice());
        let parts = [
            value,
            &challenge.sequence.to_le_bytes(),
            &self.id.to_le_bytes(),
            // Secure Channel Concatenation (SC_C), which is never used.
            &[0],
            role,
            own.as_str().as_bytes(),
            &[0],
            other.as_str().as_bytes(),
        ];
        self.hash.hmac(&secret.key_of(own), &parts)
    }
}
