//! The operating system's own things, each behind a safe interface.
//!
//! [`files`] makes and opens files where other users may write, too. [`descriptors`] decides which
//! connections are refused when descriptors run out, and [`memory`] how much memory to use for
//! others. [`huge_pages`] prepares memory for transfers. [`machine`] returns the machine's limits.
//! [`entropy`] makes names and secrets that an attacker can't guess. [`logging`] writes events to
//! the log without waiting for a reader. [`secrets`] keeps keys out of core dumps. [`sandbox`]
//! gives up the rights that a process does not need. [`service`] exchanges messages with the
//! service manager. [`shared`] is memory that another process shares with this one, and
//! [`doorbells`] a page of registers that two processes share. [`vfio`] hands a PCI function of
//! this machine to this process, and [`verbs`] has its RDMA devices. [`ublk`] makes block devices
//! of this machine whose requests this process answers, and [`block_use`] returns the users of a
//! block device. [`precedence`] says how much sooner than others a socket's packets are carried.
//! [`address`] reads addresses.

pub mod address;
pub mod block_use;
pub mod clock;
pub(crate) mod datagrams;
pub mod descriptors;
pub mod digest;
pub mod doorbells;
pub(crate) mod durable;
pub mod entropy;
mod faults;
pub mod files;
pub mod hand_over;
pub mod huge_pages;
pub(crate) mod lock;
pub mod logging;
pub mod machine;
pub(crate) mod marked;
pub mod memory;
pub(crate) mod option;
pub(crate) mod outgoing;
pub(crate) mod packet_ring;
pub(crate) mod pages;
pub mod precedence;
pub mod ptp;
pub mod runtime_folder;
pub mod sandbox;
pub mod secrets;
pub mod service;
pub mod shared;
pub(crate) mod station;
pub mod tcp_info;
#[cfg(test)]
pub(crate) mod test_bench;
pub mod ublk;
pub mod unix;
pub mod urgency;
pub mod usage;
mod user;
pub mod verbs;
pub mod vfio;
mod volatile;
pub(crate) mod xdp;
