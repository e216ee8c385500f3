//! The responses that prove knowledge of a secret.

use alloc::vec::Vec;

use zeroize::Zeroizing;

use super::{Group, Hash, Secret};
use crate::wire::Nqn;

/// Who uses what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// NQN of the host.
    pub host: Nqn,
    /// NQN of the subsystem.
    pub subsystem: Nqn,
}

/// What both ends know of a transaction once the controller has challenged the host.
#[derive(Clone, Debug)]
pub(super) struct Transaction {
    /// Transaction Identifier (T_ID).
    pub(super) id: u16,
    pub(super) hash: Hash,
    pub(super) group: Group,
}

/// A challenge: its value and Sequence Number (SEQNUM).
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) value: &'a [u8],
    pub(super) sequence: u32,
}

impl Transaction {
    /// The host's response to the controller's challenge. `shared` is the Diffie-Hellman key;
    /// `None` for [`Group::Null`].
    pub(super) fn host_response(
        &self,
        names: &Names,
        secret: &Secret,
        asked: Asked<'_>,
        shared: Option<&[u8]>,
    ) -> Zeroizing<Vec<u8>> {
        self.response(secret, b"HostHost", (&names.host, &names.subsystem), asked, shared)
    }

    /// The controller's response to the host's challenge.
    pub(super) fn controller_response(
        &self,
        names: &Names,
        secret: &Secret,
        asked: Asked<'_>,
        shared: Option<&[u8]>,
    ) -> Zeroizing<Vec<u8>> {
        self.response(secret, b"Controller", (&names.subsystem, &names.host), asked, shared)
    }

    fn response(
        &self,
        secret: &Secret,
        role: &[u8],
        (own, other): (&Nqn, &Nqn),
        asked: Asked<'_>,
        shared: Option<&[u8]>,
    ) -> Zeroizing<Vec<u8>> {
        // The augmented challenge binds the response to the exchange of keys.
        let augmented = shared.map(|key| self.hash.hmac(&self.hash.hash(key), &[asked.value]));
        let challenge = augmented.as_ref().map_or(asked.value, |one| one.as_slice());
        let parts = [
            challenge,
            &asked.sequence.to_le_bytes(),
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
