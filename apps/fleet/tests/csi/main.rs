//! The CSI driver: each call against a fleet in memory, `csi-sanity`, and the Helm chart.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod chart;
mod controller;
mod guest;
mod machine;
mod memory;
mod node;
mod sanity;
mod snapshots;
mod stage;
