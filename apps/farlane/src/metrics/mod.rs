//! The figures that several daemons have. The crate `daemon` serves them.

mod controller;
mod datagrams;
mod link;
mod namespaces;

pub(crate) use controller::ControllerFigures;
pub(crate) use daemon::metrics::{Kind, Labels, Page, seconds};
pub(crate) use datagrams::add_datagrams;
pub(crate) use link::{Link, add_connections, add_reads};
pub(crate) use namespaces::{add_all_namespaces, add_health, add_host, next_namespaces};
