//! The trigger: the time from which a recording wrote the bytes kept in memory and all later ones.

use super::u64_at;

/// Length of the payload in bytes.
const LENGTH: usize = 16;

/// When a recording that waited for it was triggered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// When, in nanoseconds since 1970-01-01 00:00 UTC.
    pub time: u64,
    /// How long before that the first byte came that is recorded, in nanoseconds; 0 if nothing
    /// was kept.
    pub before: u64,
}

impl Trigger {
    /// Writes it to the start of `payload`. Returns the length in bytes.
    ///
    /// # Panics
    /// When `payload` has less than 16 bytes.
    pub fn emit(&self, payload: &mut [u8]) -> usize {
        payload[..8].copy_from_slice(&self.time.to_le_bytes());
        payload[8..LENGTH].copy_from_slice(&self.before.to_le_bytes());
        LENGTH
    }

    /// Parses a payload; `None` if it is no trigger.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let payload = payload.get(..LENGTH)?;
        Some(Self { time: u64_at(payload, 0), before: u64_at(payload, 8) })
    }
}
