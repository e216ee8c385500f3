//! Fleets of real processes on this machine: controllers, agents, targets and hosts.
//!
//! `FARLANE_ROUNDS` makes the tests that kill longer (`make fleet-kill`).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod etcd;
mod identity;
mod snapshots;
mod stage;
#[allow(dead_code, reason = "each test program uses a part of it")]
#[path = "../store/support/mod.rs"]
mod support;
mod tests;
mod upgrade;
