//! The common part of every daemon: a process that offers something, answers requests and reports
//! its state meanwhile, and ends in good order.
//!
//! A [`Daemon`] defines only its differences. [`run`] does the rest, for each in this order:
//!
//! 1. **Begin**: find the service manager, raise the limit of descriptors, move to the processor
//!    that was chosen.
//! 2. **Prepare** ([`Daemon::prepare`]): steps that need the whole machine, such as loading a
//!    kernel module.
//! 3. **Confine** ([`Daemon::needs`]): files, connections and capabilities that are not needed go.
//! 4. **Open** ([`Daemon::open`]): media and listeners, which make the driver. SIGINT and SIGTERM
//!    still end the process at once.
//! 5. **Signals**: from here on SIGINT and SIGTERM end the process in good order.
//! 6. **Control socket**: clients may connect, and are answered once the loop turns.
//! 7. **Metrics** ([`Daemon::Status`]): a thread answers Prometheus.
//! 8. **Settle** ([`Daemon::settle`]): the loop turns until the offer can be used.
//! 9. **Announce** ([`Daemon::announce`]): the address on standard output.
//! 10. **Renounce**: the user changes, and system calls that no server needs go.
//! 11. **Ready** ([`Daemon::summary`]): the service manager gets a summary of the offer.
//! 12. **Serve**: the loop turns the driver. Between its turns it does jobs of other threads,
//!     reloads ([`Daemon::reload`]) and answers requests ([`Daemon::status`], [`Daemon::answer`],
//!     [`Daemon::Captures`]).
//! 13. **Leave** ([`Daemon::leave`]), instead of an end: a successor goes on with the state, if it
//!     was started as [`succession`] says. It takes the state when it opens.
//! 14. **End** ([`Daemon::end`]): captures get their last bytes, then the daemon reports and saves.
//!
//! ```
#![doc = include_str!("../examples/minimal.rs")]
//! ```

#![forbid(unsafe_code)]

#[macro_use]
extern crate tracing;

mod answer_thread;
mod confinement;
pub mod control;
mod failure;
pub mod http;
mod metrics;
mod offer;
mod run;
mod serving;
pub mod succession;

pub use confinement::Confinement;
pub use control::{Common, OnlyStatus, Request};
pub use failure::Failure;
pub use offer::{Captures, Daemon, NoCaptures, Opening, Reply, Settings};
pub use run::run;
