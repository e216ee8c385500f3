//! Gapless recording: a container that survives a power cut, its recorder, recovery and pacing.
//!
//! A [`Recorder`] is an engine. The world puts bytes where [`Recorder::room`] says, and calls
//! [`Recorder::filled`]. The engine asks for writes ([`Output::Write`]) and receives their results
//! ([`Input::Written`]). Its last output is the [`Certificate`](format::Certificate). A [`Scan`]
//! reads a medium slot by slot and reports its contents ([`Survey`]). [`Pace`] computes when each
//! chunk is due at replay. A [`packing::Packer`] puts received packets into a stream. `format.md`
//! describes the container.
//!
//! # A run loop
//! ```
//! use engine::{Engine, Instant};
//! use farlane_record::format::{Reason, Time};
//! use farlane_record::{Config, Input, Output, Recorder};
//!
//! let mut medium = vec![0; 16 << 20];
//! let mut recorder = Recorder::new(Config::new([7; 16], vec!["camera".into()]), Time::NONE);
//! let now = Instant::ZERO;
//! let room = recorder.room(now, 0).expect("the buffer is empty");
//! room[..5].copy_from_slice(b"bytes");
//! recorder.filled(now, 0, 5, Time::NONE);
//! recorder.finish(Reason::SourceEnded);
//! let certificate = loop {
//!     match recorder.poll_output().expect("nothing is under way") {
//!         Output::Write { name, offset, data } => {
//!             let at = usize::try_from(offset).unwrap();
//!             medium[at..at + data.len()].copy_from_slice(&data);
//!             drop(data);
//!             recorder.handle_input(now, Input::Written { name, result: Ok(()) });
//!         }
//!         // Only where the world was to compute digests.
//!         Output::Digest { .. } => {}
//!         Output::Sync => recorder.handle_input(now, Input::Synced(Ok(()))),
//!         Output::Ended(certificate) => break certificate,
//!     }
//! };
//! assert_eq!((certificate.bytes_in(), certificate.bytes_stored()), (5, 5));
//! ```
#![cfg_attr(doc, doc = include_str!("../README.md"))]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod digest;
pub mod format;
#[doc(hidden)]
pub mod fuzz;
mod pace;
pub mod packing;
mod proof;
mod raw;
mod recorder;
mod recovery;
pub mod registers;
mod scan;
pub mod sequence;
#[cfg(test)]
mod tests;

pub use digest::{Algorithm, Hasher, StreamDigest};
pub use pace::{CLOCKS_APART, Pace};
pub use proof::Doubt;
pub use raw::{RawConfig, RawRecorder};
pub use recorder::{
    BUFFER_DEFAULT, BUFFER_MAX, BUFFER_MIN, Config, Digests, FLUSH_DEFAULT, Fault, Input, Keep, Kept, Missed,
    Output, PinRange, PinRefusal, Progress, Recorder, RingConfig, pre_trigger_buffer, pre_trigger_chunks,
};
pub use recovery::{Patch, Recovery};
pub use scan::{Bad, Hole, RingSurvey, Scan, Survey};
