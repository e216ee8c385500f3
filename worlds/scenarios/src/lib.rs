//! The simulator that people run: hosts, networks and SSDs in virtual time.
//!
//! [`file`](mod@file) reads what people write about links, machines and workloads. A [`test_bench`]
//! is the machine that such a file describes, with everything that passes its root port's link.
//! [`explain`] tells where an operation's time went, a [`timeline`] what passed when, and a
//! [`summary`] how long operations took. [`published`] repeats published experiments.
#![cfg_attr(doc, doc = include_str!("../README.md"))]
#![forbid(unsafe_code)]

pub mod explain;
pub mod fabric_bench;
pub mod file;
pub mod published;
pub mod summary;
pub mod test_bench;
pub mod timeline;
