//! Stock Linux guests under QEMU on the program's daemons. Two of them run at a time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../support/mod.rs"]
mod support;

mod authentication;
mod cmb;
mod connect;
mod connect_queues;
mod devices;
mod emulate;
mod fabrics;
mod far;
mod hot_plug;
mod manage;
mod nvmet;
mod perftest;
mod protection;
mod rdma;
mod recorder;
mod sockets;
mod start;
mod systemd;
mod third_party;
mod tls;
mod tsn;
mod verbs;
mod vfio;
