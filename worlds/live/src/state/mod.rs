//! What devices remember when their process ends: files of state.
//!
//! A [`Store`] is one such file, of sections that each have a type of their own ([`Store::section`], [`Store::put`]). A
//! thread replaces the file whole, off the path of commands; who needs to know that something is durable watches
//! ([`Store::watch`]). One process at a time has a store. [`ssd`] is the section of an SSD, and [`Keeper`] the medium by which
//! a controller has it saved ([`Config::state`](nvme::subsystem::Config::state)).

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
