//! The headings under which `--help` lists the options that several commands share.
//!
//! Each of these options names its heading itself. A heading that a group of options gave to what
//! follows (`next_help_heading`) would also stand above the options of the commands that have the
//! group. An option of one command has no heading of its own: clap lists it under "Options".

/// How bytes travel between the two ends of a tunnel.
pub(super) const TRANSPORT: &str = "Transport";
/// The key of an end, and the keys that it admits.
pub(super) const TRUST: &str = "Trust";
/// The secrets of hosts and controllers of NVMe over Fabrics.
pub(crate) const AUTHENTICATION: &str = "Authentication (NVMe over Fabrics)";
/// The rights that a serving process gives up.
pub(super) const PRIVILEGE: &str = "Least privilege";
/// How other programs ask a running process, and watch it.
pub(super) const MONITORING: &str = "Monitoring";
/// How a process uses its processor.
pub(super) const PROCESSOR: &str = "Processor";
/// Which events are logged, and how.
pub(super) const LOG: &str = "Log";
/// Which part of a recorded stream is used.
pub(super) const PART: &str = "Part of a stream";
