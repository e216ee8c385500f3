//! The programs of a fleet: the controller, the agent of a machine, the CSI driver, and the
//! command line. They run the engines of `pure/fleet`.

#![forbid(unsafe_code)]

pub mod agent;
pub mod api;
pub mod channel;
pub mod cli;
pub mod controller;
pub mod csi;
pub mod naming;
pub mod predict;
pub mod store;
pub mod wire;
