//! Recorders and replayers.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A recorder or a replayer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Recorder {
    /// How far it is.
    pub state: RecorderState,
    /// The medium that is written or read.
    pub medium: Medium,
    /// The first byte of the medium that is written or read.
    pub start_address: u64,
    /// No byte of the medium at or behind this address is written or read.
    pub maximum_address: u64,
    /// The most chunks from the first address on; 0 is no limit.
    pub chunks_max: u64,
    /// The byte of the medium behind the data that was written or sent last; 0 if there are none.
    pub last_address: u64,
    /// Length of a chunk.
    pub chunk_bytes: u32,
    /// Bytes that came from sources, or that a replay has sent.
    pub bytes_in: u64,
    /// Bytes that came before a trigger and were not kept. No other number counts them.
    #[serde(default)]
    pub bytes_passed: u64,
    /// Bytes that were written.
    pub bytes_stored: u64,
    /// Bytes of these that are durable.
    pub bytes_acknowledged: u64,
    /// Bytes that were lost, or that a replay could not send.
    pub bytes_lost: u64,
    /// Bytes of a ring that newer ones have overwritten.
    pub bytes_overwritten: u64,
    /// Gaps that are declared.
    #[serde(default)]
    pub gaps: u64,
    /// Times that a sender started over.
    #[serde(default)]
    pub restarts: u64,
    /// Whether the oldest bytes are overwritten when the medium is full.
    pub ring: bool,
    /// Time that is kept until a trigger; null if the recorder waits for none.
    pub pre_trigger_ns: Option<u64>,
    /// Bytes that are kept for a trigger now.
    pub kept_bytes: Option<u64>,
    /// Time of these.
    pub kept_ns: Option<u64>,
    /// The trigger, once it came.
    pub triggered: Option<Trigger>,
    /// Bytes in the buffer.
    pub fill_bytes: u64,
    /// The most bytes that were in the buffer.
    pub high_water_bytes: u64,
    /// Size of the buffer.
    pub buffer_bytes: u64,
    /// The medium's writes of a recording.
    #[serde(default)]
    pub writes: Writes,
}

/// Writes to the medium of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Writes {
    /// Writes that have ended.
    pub ended: u64,
    /// Their time, all added.
    pub time_ns: u64,
    /// Time of the slowest.
    pub slowest_ns: u64,
    /// Pauses of the medium, 20 ms or longer.
    pub pauses: u64,
    /// Time of these pauses, all added.
    pub paused_ns: u64,
    /// Time of the longest pause.
    pub longest_pause_ns: u64,
}

/// How far a recorder or a replayer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RecorderState {
    /// It has not begun.
    Idle,
    /// It keeps bytes until a trigger.
    Armed,
    /// It records or replays.
    Running,
    /// It writes or sends the rest.
    Ending,
    /// It is done.
    Ended,
    /// It failed.
    Failed,
}

impl fmt::Display for RecorderState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "idle",
            Self::Armed => "armed",
            Self::Running => "running",
            Self::Ending => "ending",
            Self::Ended => "ended",
            Self::Failed => "failed",
        })
    }
}

/// A medium.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Medium {
    /// Size in bytes.
    pub bytes: u64,
    /// Model; empty if it is unknown.
    pub model: String,
}

/// A trigger of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Trigger {
    /// Time of the trigger, in nanoseconds since 1970 (UTC).
    pub when: u64,
    /// Time before it that was kept.
    pub before_ns: u64,
    /// Bytes of that time.
    pub bytes_before: u64,
}
