//! The simulator for users: hosts, networks and SSDs in virtual time.
//!
//! [`file`](mod@file) reads descriptions of links, machines and workloads. A [`test_bench`] is the
//! machine that such a file describes, with everything that passes its root port's link.
//! [`explain`] attributes an operation's time to its steps, a [`timeline`] has the traffic over
//! time, and a [`summary`] the durations of operations. [`published`] repeats published
//! experiments, and [`releases`] compares the releases of 5G.
#![cfg_attr(doc, doc = include_str!("../README.md"))]
#![forbid(unsafe_code)]

pub mod explain;
pub mod fabric_bench;
pub mod file;
pub mod published;
pub mod releases;
pub mod summary;
pub mod test_bench;
pub mod timeline;
