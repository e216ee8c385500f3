//! The parts of a host that do not depend on the transport: the data transfer of a command, the
//! construction of commands, the origin of a result, and the identification of the controller and
//! its namespaces.

mod ana;
pub mod command;
mod completed;
mod data;
mod event;
mod identity;
mod namespace;
mod origin;
mod persistent_events;
mod protection;
mod submitted;

pub use ana::{AnaGroup, ana_groups, ana_log_length, ana_states};
pub use completed::Completed;
pub use data::Data;
pub use event::AsynchronousEvent;
pub use identity::{Identity, queue_entries_max, ready_timeout, transfer_limit};
pub use namespace::{NAMESPACES_MAX, Namespace};
pub use origin::Origin;
pub use persistent_events::persistent_events;
pub use protection::{Mismatch, Protection, Wrong};
pub use submitted::{Command, SubmitError};
