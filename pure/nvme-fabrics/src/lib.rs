//! NVMe over Fabrics (NVM Express Base Specification 2.0): the parts that are the same on every
//! fabric.
//!
//! [`wire`] has the formats. [`target`] is the controller's side, up to the command core. [`host`]
//! is the host's side. [`transport`] is the common part of the ends of a connection.
//! [`authentication`] has both ends of DH-HMAC-CHAP. [`tls`] has the keys of TLS, and
//! [`interchange`] the text form of secrets and keys.
#![cfg_attr(doc, doc = include_str!("../README.md"))]
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod authentication;
#[doc(hidden)]
pub mod fuzz;
pub mod host;
pub mod interchange;
pub mod target;
pub mod tls;
pub mod transport;
pub mod wire;
