//! Splits the input of a fuzz target into values.

/// The bytes of an input, taken from its front; zeros follow after the last byte.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    /// Creates a source of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
    /// Whether all bytes were taken, so that only zeros follow.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// The next byte.
    pub const fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }
    /// The next 2 bytes, little-endian.
    pub const fn half(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }
    /// The next 4 bytes, little-endian.
    pub const fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }
    /// The next 8 bytes, little-endian.
    pub const fn long(&mut self) -> u64 {
        (self.word() as u64) | (self.word() as u64) << 32
    }
    /// The next `length` bytes, or all that are left if there are fewer.
    pub fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        bytes
    }
    /// Fills `bytes` with at most 64 of the next bytes, and the rest with zeros, because answers
    /// may be longer than the input.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        let ours = self.bytes(bytes.len().min(64));
        bytes.fill(0);
        bytes[..ours.len()].copy_from_slice(ours);
    }
}
