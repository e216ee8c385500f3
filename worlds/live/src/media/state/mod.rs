//! Files of state: the memory of devices beyond the end of their process.
//!
//! A [`Store`] is one such file. Its sections each have a type of their own ([`Store::section`],
//! [`Store::put`]). A thread replaces the whole file, off the path of commands; a [`Store::watch`]
//! reports which changes are durable. Only one process at a time has a store. [`ssd`] is the
//! section of an SSD, and [`Keeper`] the medium through which a controller has it saved
//! ([`Config::state`](nvme::subsystem::Config::state)).

mod error;
mod file;
mod hex;
mod keeper;
pub mod ssd;
mod store;
#[cfg(test)]
mod tests;
mod text;

pub use error::{StateCause, StateError};
pub use hex::Hex;
pub use keeper::Keeper;
pub use store::{Generation, Notice, Store, Watch};
