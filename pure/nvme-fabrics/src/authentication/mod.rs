//! NVMe in-band authentication: DH-HMAC-CHAP (NVM Express Base Specification 2.0, "NVMe In-band
//! Authentication"). Host and controller prove to each other that they know a secret, without
//! sending it.
//!
//! [`Host`] and [`Controller`] are the two ends of one queue's authentication. Each is a state
//! machine without I/O: messages go in and come out, randomness comes from
//! [`Entropy`](engine::Entropy). [`crate::host::Association`] and [`crate::target::Target`] carry
//! the messages in the commands Authentication Send and Authentication Receive.
//!
//! ```
//! # use farlane_nvme_fabrics as nvme_fabrics;
//! use engine::{Entropy, Instant, Rng};
//! use nvme_fabrics::authentication::{Controller, Credentials, Host, Names, Secret, Step};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut entropy = Entropy::from(Rng::from_seed(1)); // in production: the system's
//! let host = "nqn.2014-08.org.example:host".parse()?;
//! let subsystem = "nqn.2014-08.org.example:disk".parse()?;
//! let names = Names { host, subsystem };
//! let credentials = Credentials::new(Secret::generate(None, &mut entropy));
//! let mut host = Host::new(names.clone(), credentials.clone(), 1, entropy.split());
//! let mut controller = Controller::new(Instant::ZERO, names, credentials, None, entropy.split());
//! let result = loop {
//!     match host.step() {
//!         Step::Send(message) => controller.on_message(Instant::ZERO, &message),
//!         Step::Receive => host.on_message(&controller.answer(Instant::ZERO)),
//!         Step::Done(result) => break result,
//!     }
//! };
//! assert!(result.is_ok() && controller.is_authenticated());
//! # Ok(())
//! # }
//! ```
//!
//! **Trust.** Each message is checked against the state and the transaction before it is used, and
//! has at most [`MESSAGE_BYTES_MAX`] bytes. Proofs are compared in constant time. Any fault ends
//! the transaction; the controller then closes the queue, so that each guess costs a new
//! connection.

mod controller;
mod failure;
mod group;
mod hash;
mod host;
pub mod message;
mod primes;
mod response;
mod secret;
#[cfg(test)]
mod tests;

pub use controller::{AUTHENTICATION_MAX, Controller};
pub use failure::{Explanation, Failure};
pub(crate) use group::KeyPair;
pub use group::{Group, Product, Work};
pub use hash::Hash;
pub use host::{Host, Step};
pub use message::MESSAGE_BYTES_MAX;
pub use response::Names;
pub use secret::Secret;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// The credentials of one end: the secrets, and its requirements. Both ends have the same two
/// secrets.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The secret by which the host proves its identity.
    pub host: Secret,
    /// The secret by which the controller proves its identity. A host that has it demands the
    /// proof.
    pub controller: Option<Secret>,
    /// The hash functions that are accepted, the preferred one first.
    pub hashes: Vec<Hash>,
    /// The groups that are accepted, the preferred one first.
    pub groups: Vec<Group>,
    /// The source of the secrets, such as the name of a file, for messages.
    pub origin: String,
}

impl Credentials {
    /// Credentials with the host's secret alone, and with every hash function and group.
    pub fn new(host: Secret) -> Self {
        Self {
            host,
            controller: None,
            hashes: Hash::ALL.to_vec(),
            groups: Group::ALL.to_vec(),
            origin: String::new(),
        }
    }
}

impl PartialEq for Credentials {
    /// Whether the same hosts authenticate in the same way, regardless of the source of the
    /// secrets.
    fn eq(&self, other: &Self) -> bool {
        (&self.host, &self.controller, &self.hashes, &self.groups)
            == (&other.host, &other.controller, &other.hashes, &other.groups)
    }
}

impl Eq for Credentials {}

/// The result of a queue's authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authenticated {
    /// The hash function of the responses.
    pub hash: Hash,
    /// The group of the exchange of keys.
    pub group: Group,
    /// Whether the controller has proved its identity, too.
    pub both: bool,
}

impl fmt::Display for Authenticated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = if self.both { "host and controller" } else { "the host" };
        write!(f, "{who} authenticated, {}, {}", self.hash, self.group)
    }
}

/// A name is not one of the known ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownName;

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name is unknown")
    }
}

impl core::error::Error for UnknownName {}

/// A fresh Sequence Number (SEQNUM), which is never 0.
fn sequence(entropy: &mut engine::Entropy) -> u32 {
    let mut bytes = [0; 4];
    entropy.fill(&mut bytes);
    u32::from_le_bytes(bytes).max(1)
}
