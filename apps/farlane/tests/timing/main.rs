//! The parts that a busy machine can slow down: rates, latencies, captures, waits that a user
//! notices. The runner has one of these tests at a time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../support/mod.rs"]
mod support;

mod emulate;
mod emulate_packets;
mod lost_memory;
mod measure;
mod measure_emulated;
mod nic;
mod overload;
mod precedence;
mod preflight;
mod ptp;
mod rdma_measure;
mod record_trigger;
mod record_udp;
mod record_view;
mod redundancy;
mod roce_network;
mod target_permits;
mod top;
mod trace;
mod trace_network;
mod trace_rdma;
mod tshark;
