//! The identities of a connection's two ends: keys, proofs of keys, and their use in TLS.
//!
//! An end has one key pair, an [`Identity`], for TCP and QUIC alike. Others know it by its
//! [`Fingerprint`]. TLS 1.3 proves the keys as raw public keys (RFC 7250): there are no
//! certificates, no names in them, and no dates that expire.

mod admission;
mod key;
mod known;
pub mod permit;
mod proof;
mod tls;

pub use admission::{Admission, AdmissionError, Grant};
pub(crate) use key::signer_of;
pub use key::{Identity, KeyError};
pub use known::{KnownEnds, KnownError};
pub use proof::{Pin, Verifier};
pub(crate) use tls::proved_over_quic;
pub use tls::{client, proved, server};
pub use tunnel::{Fingerprint, FingerprintError};
