//! The messages between a recorder and the world.

use alloc::string::String;
use alloc::vec::Vec;

use engine::{Buffer, Crc32c, Nanos};

use super::ring::RingConfig;
use crate::digest::Algorithm;
use crate::format::{CHUNK_DEFAULT, Certificate, Content};
use crate::sequence::SequenceRule;

/// The default of [`Config::flush`]: a chunk that is not full is written after this time.
pub const FLUSH_DEFAULT: Nanos = Nanos::from_millis(500);

/// The component that computes the digests of streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Digests {
    /// The recorder, when a chunk is stored.
    #[default]
    Here,
    /// The world, which [`Output::Digest`] asks.
    World,
}

/// How to record.
#[derive(Clone, Debug)]
pub struct Config {
    /// The length of a chunk in bytes, between [`crate::format::CHUNK_MIN`] and
    /// [`crate::format::CHUNK_MAX`], a multiple of [`crate::format::ALIGNMENT`].
    pub chunk: u32,
    /// The number of chunks in the buffer: [`crate::BUFFER_MIN`] to [`crate::BUFFER_MAX`].
    pub buffer: usize,
    /// The name of the recording, which no other has.
    pub recording: [u8; 16],
    /// The names of the streams: 1 to [`crate::format::STREAMS_MAX`].
    pub streams: Vec<String>,
    /// The content of each stream's bytes. Streams that are not named here are bytes.
    pub contents: Vec<Content>,
    /// The rule by which the losses of each stream are found, as far as that is said.
    pub rules: Vec<SequenceRule>,
    /// The number of slots of the medium, where it cannot grow.
    pub slots: Option<u64>,
    /// Whether, and how, the oldest is overwritten when the medium is full. It needs `slots`, at
    /// least [`RingConfig::slots_min`] of them.
    pub ring: Option<RingConfig>,
    /// For how long bytes are kept in the buffer until [`crate::Recorder::trigger`] is called;
    /// nothing of the streams is written before that. `None` writes from the start. A ring waits
    /// for no trigger.
    pub pre_trigger: Option<Nanos>,
    /// A chunk that is not full is written after this time, and written bytes are made durable.
    pub flush: Nanos,
    /// Computes digests of chunks.
    pub crc32c: Crc32c,
    /// Which digest of each stream the certificate has.
    pub algorithm: Algorithm,
    /// The component that computes the digests of streams.
    pub digests: Digests,
}

impl Config {
    /// The usual configuration of a recording with these streams.
    pub const fn new(recording: [u8; 16], streams: Vec<String>) -> Self {
        let flush = FLUSH_DEFAULT;
        let chunk = CHUNK_DEFAULT;
        Self {
            chunk,
            buffer: super::BUFFER_DEFAULT,
            recording,
            streams,
            contents: Vec::new(),
            rules: Vec::new(),
            slots: None,
            ring: None,
            pre_trigger: None,
            flush,
            crc32c: engine::crc32c,
            algorithm: Algorithm::Sha256,
            digests: Digests::Here,
        }
    }
}

/// Why a medium did not carry out a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It has no room.
    Full,
    /// It failed.
    Failed,
}

/// A message from the world to a recorder.
#[derive(Clone, Copy, Debug)]
pub enum Input {
    /// A write has ended, and the world has dropped its data. A write of fewer bytes than were
    /// given is a fault.
    Written {
        /// The name from [`Output::Write`].
        name: u64,
        /// Whether every byte was written.
        result: Result<(), Fault>,
    },
    /// The bytes written before the last [`Output::Sync`] are durable, or a medium failed to make
    /// them so.
    Synced(Result<(), Fault>),
    /// The oldest [`Output::Digest`] is done, and the world has dropped its data.
    Digested {
        /// The digest of everything that the stream was given so far.
        digest: [u8; 32],
    },
}

/// A request of a recorder to the world.
#[derive(Debug)]
pub enum Output {
    /// Write `data` at byte `offset` of the medium. Writes may be under way at once and end in
    /// any order.
    Write {
        /// Names this write.
        name: u64,
        /// The place on the medium in bytes.
        offset: u64,
        /// The bytes to write. Their length and place are multiples of
        /// [`crate::format::ALIGNMENT`].
        data: Buffer,
    },
    /// Make the written bytes durable. There is at most one at a time.
    Sync,
    /// Append `data` to the digested bytes of a stream. Each is answered with [`Input::Digested`],
    /// in the order in which they were asked.
    Digest {
        /// The number of the stream, below 64 ([`crate::format::STREAMS_MAX`]).
        stream: u32,
        /// Bytes of the stream, in its order.
        data: Buffer,
    },
    /// The recording has ended. [`crate::Recorder::is_certified`] says whether the certificate is
    /// on the medium.
    Ended(Certificate),
}

/// How far a recording is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that came, lost ones included.
    pub bytes_in: u64,
    /// Bytes that the medium has taken.
    pub stored: u64,
    /// Bytes that survive a power cut from now on.
    pub acknowledged: u64,
    /// Bytes lost in declared gaps.
    pub lost: u64,
    /// Bytes that were lost on the wire, those that a trigger let go included. A sender may claim
    /// any number of them, so a limit of bytes does not count them.
    pub never_came: u64,
    /// Bytes that came before a trigger, lost ones included, and were let go. No other number
    /// counts them.
    pub passed: u64,
    /// Bytes that a ring does not hold any more, lost ones among them.
    pub overwritten: u64,
    /// Bytes in the buffer now.
    pub fill: u64,
    /// The most bytes that were in the buffer.
    pub high_water: u64,
    /// How often a sender has started over, among the gaps that are reported.
    pub restarts: u64,
    /// The byte of the medium behind the data that it took last; 0 if it has taken none.
    pub last_address: u64,
}
