//! The keys of TLS 1.3 for NVMe over TCP (NVM Express TCP Transport Specification 1.1, "TLS PSK and
//! PSK Identity Derivation").
//!
//! Host and target have the same [`TlsKey`]. From the key and their two names, each derives a
//! [`Psk`]: the secret of the handshake, and the [`Identity`] by which the target selects the
//! host's key. The handshake itself belongs to a library of the world.
//!
//! ```
//! # use farlane_nvme_fabrics as nvme_fabrics;
//! use nvme_fabrics::tls::{Derivation, Identity, IdentityVersion, TlsKey};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let text = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
//! let key: TlsKey = text.parse()?;
//! let host = "nqn.2014-08.org.example:host".parse()?;
//! let disk = "nqn.2014-08.org.example:disk".parse()?;
//! let psk = key.psk(IdentityVersion::One, Derivation::Specified, &host, &disk);
//! let identity = Identity::parse(psk.identity.as_bytes())?;
//! assert_eq!((identity.host, identity.subsystem), (host, disk));
//! # Ok(())
//! # }
//! ```
//!
//! **Trust.** An identity is untrusted input. It has at most [`IDENTITY_MAX`] bytes, and it names a
//! key only if it equals a derived one.

mod derive;
mod hello;
mod identity;
mod key;
#[cfg(test)]
mod tests;

pub use derive::{Derivation, Psk, TlsCredentials};
pub use hello::offered_identities;
pub use identity::{IDENTITY_MAX, Identity, IdentityError, IdentityVersion};
pub use key::TlsKey;
