//! Gapless recording: a container that survives a power cut, its recorder, recovery and pacing.
//!
//! A [`Recorder`] is an engine. The world puts bytes where [`Recorder::room`] says, and calls
//! [`Recorder::filled`]. The engine asks for writes ([`Output::Write`]) and hears how they ended
//! ([`Input::Written`]). Its last output is the [`Certificate`](format::Certificate). A [`Scan`] is
//! shown a medium slot by slot and tells what is there ([`Survey`]). [`Pace`] says when each chunk
//! is due at replay. docs/recording-format.md of the project describes the container.
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

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod format;
#[doc(hidden)]
pub mod fuzz;
mod pace;
mod raw;
mod recorder;
pub mod registers;
mod scan;
pub mod sequence;
#[cfg(test)]
mod tests;

pub use pace::Pace;
pub use raw::{RawConfig, RawRecorder};
pub use recorder::{
    BUFFER_DEFAULT, BUFFER_MAX, BUFFER_MIN, Config, Digests, FLUSH_DEFAULT, Fault, Input, Keep, Kept, Missed,
    Output, PinRange, PinRefusal, Progress, Recorder, RingConfig, pre_trigger_buffer, pre_trigger_chunks,
};
pub use scan::{Bad, Hole, RingSurvey, Scan, Survey};

use sha2::{Digest as _, Sha256};

/// Makes the SHA-256 of a stream's account from its chunks, in the stream's order.
#[derive(Clone, Debug)]
pub struct StreamDigest {
    all: Sha256,
    is_ring: bool,
}

impl StreamDigest {
    /// Nothing yet. In a ring, chunks are digested by themselves: those that are overwritten can't
    /// be taken out of a digest of bytes.
    pub fn new(is_ring: bool) -> Self {
        Self { all: Sha256::new(), is_ring }
    }

    /// Takes in the bytes of the next chunk.
    pub fn update(&mut self, chunk: &[u8]) {
        match self.is_ring {
            true => self.all.update(Sha256::digest(chunk)),
            false => self.all.update(chunk),
        }
    }

    /// The digest.
    pub fn finalize(self) -> [u8; 32] {
        self.all.finalize().into()
    }
}

/// The SHA-256 of several streams: of their own digests one behind the other, in the order of their
/// numbers. A single stream's is its own.
pub fn digest_of_all(streams: &[[u8; 32]]) -> [u8; 32] {
    match streams {
        [only] => *only,
        several => {
            let mut all = Sha256::new();
            several.iter().for_each(|digest| all.update(digest));
            all.finalize().into()
        }
    }
}
