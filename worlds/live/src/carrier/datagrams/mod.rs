//! The tunnel's bytes in datagrams of UDP, or in bare Ethernet frames.
//!
//! [`datagrams`] is the engine: it sends lost datagrams again, drops duplicates, and does not fill
//! the network beyond its capacity. A `Port` joins the engine to a socket; a far end's port has all
//! its connections, in a [`Listener`], a near end has one port for each connection, made by a
//! [`Dialer`]. Where keys are to be proved, TLS passes over the stream as over TCP's.

mod copies;
mod dial;
pub mod ethernet;
pub mod floor;
mod frames;
mod info;
mod launching;
mod listen;
mod options;
mod plain;
mod port;
mod stream;
#[cfg(test)]
mod tests;
mod wire;

pub use dial::{Dialer, Dialled};
pub use ethernet::Ethernet;
pub use info::{Copies, Info, Path};
pub use listen::Listener;
pub use options::{Launch, Options, quiet};
pub use stream::Stream;
