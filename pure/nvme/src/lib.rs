//! NVM Express Base Specification 2.0 and NVM Command Set Specification 1.0, as pure engines.
//!
//! Start at [`subsystem::Subsystem`], the command core that every transport shares. [`host`] has
//! the parts that hosts of every transport share, [`wire`] the data structures in bytes, [`media`]
//! the storage behind namespaces. Module [`mod@pointer`] follows PRP entries and SGLs through host
//! memory. The crates `farlane-nvme-pcie` and `farlane-nvme-tcp` are transports.
//!
//! # The run loop
//!
//! A `Subsystem` is an [`Engine`](engine::Engine) between a transport and media. The world passes
//! on each command with a token of its choice, and takes outputs until `poll_output` returns
//! `None`. It moves data ([`PullHostData`](subsystem::Output::PullHostData),
//! [`PushHostData`](subsystem::Output::PushHostData)), sends requests to media
//! ([`Media`](subsystem::Output::Media)) and posts completions
//! ([`Complete`](subsystem::Output::Complete)). Media answer at once or later. The world calls
//! `handle_timeout` at the deadline of `poll_timeout`. It sleeps until an input arrives or that
//! deadline passes. Commands wait for no time; only background work has deadlines.
//! [`Notify`](subsystem::Output::Notify) reports state that must outlive the process. The next
//! start gets it back in [`Config`](subsystem::Config).
//!
//! In this example the world is a transport and a RAM disk. A host writes a block and reads it.
//!
//! ```
//! use engine::{Buffer, Engine, Instant, fire};
//! use farlane_nvme::host::command;
//! use farlane_nvme::media::{MediumId, ram::RamDisk};
//! use farlane_nvme::subsystem::{
//!     CommandToken, Config, ControllerConfig, Input, Output, Subsystem,
//! };
//! use farlane_nvme::wire::{IoOpcode, NamespaceId, QueueId};
//!
//! let mut now = Instant::ZERO;
//! let mut disk = RamDisk::new(1 << 20);
//! let config = Config::new("S1").with_namespace(MediumId(0), disk.bytes());
//! let mut subsystem = Subsystem::new(now, config);
//! let controller = subsystem.add_controller(now, ControllerConfig::pcie(1));
//! let (written, mut read) = ([0x5a; 512], [0; 512]);
//! for opcode in [IoOpcode::Write, IoOpcode::Read] {
//!     let entry = command::on_blocks(opcode, NamespaceId(1), 8, 1);
//!     let (token, queue) = (CommandToken(0), QueueId(1));
//!     subsystem.handle_input(now, Input::Command { controller, token, queue, entry });
//!     let mut status = None;
//!     while status.is_none() {
//!         fire(&mut subsystem, now);
//!         while let Some(output) = subsystem.poll_output() {
//!             match output {
//!                 Output::PullHostData { token, .. } => {
//!                     let data = Buffer::copy_from_slice(&written);
//!                     subsystem.handle_input(now, Input::HostData { token, data });
//!                 }
//!                 Output::PushHostData { offset, data, .. } => {
//!                     read[offset as usize..][..data.len()].copy_from_slice(&data);
//!                 }
//!                 Output::Media(request) => disk.submit(request, &mut |completion| {
//!                     subsystem.handle_input(now, Input::Media(completion));
//!                 }),
//!                 Output::Complete { completion, .. } => status = Some(completion.status),
//!                 Output::Notify(_) => {} // A live world saves these for the next start.
//!                 _ => {} // Only a subsystem with lanes has these.
//!             }
//!         }
//!         // A live world sleeps until something arrives; here the time jumps to a deadline.
//!         now = subsystem.poll_timeout().unwrap_or(now);
//!     }
//!     assert!(status.is_some_and(|status| status.is_success()));
//! }
//! assert_eq!(read, written);
//! ```
//!
//! # Limits and trust
//!
//! No command of a host makes the core panic: every bit pattern of an entry is valid input. A
//! command that fails completes with a status, and the Error Information log records it. A command
//! completes at most once; a reset ends commands without completions. The core checks no identity:
//! it trusts the [`HostIdentity`](subsystem::HostIdentity) that the transport passes.
//!
//! The transport and the media are trusted. A token is less than
//! [`commands_max`](subsystem::Config::commands_max) and names one command at a time. Host data
//! have the requested length. A medium's data lie within the read that they answer. The core panics
//! if one of these rules is broken. A medium may fail any request. A failed request ends its
//! command with the status for that [`MediaError`](media::MediaError).
//!
//! Memory is bounded by limits with names. A subsystem has at most
//! [`CONTROLLERS_MAX`](subsystem::CONTROLLERS_MAX) controllers and
//! [`COMMANDS_MAX`](subsystem::COMMANDS_MAX) commands in flight. A command moves at most
//! [`TRANSFER_BYTES_MAX`](subsystem::TRANSFER_BYTES_MAX) bytes. Logs forget their oldest entries
//! ([`ERROR_LOG_ENTRIES`](subsystem::ERROR_LOG_ENTRIES),
//! [`EVENT_LOG_BYTES_MAX`](subsystem::EVENT_LOG_BYTES_MAX)). A RAM disk has at most
//! [`BYTES_MAX`](media::ram::BYTES_MAX) bytes and takes memory as it is written.
#![cfg_attr(doc, doc = include_str!("../README.md"))]
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

#[doc(hidden)]
pub mod fuzz;
pub mod host;
pub mod media;
pub mod pointer;
pub mod rate;
pub mod subsystem;
pub mod wire;
