//! Integers and text at fixed offsets of a structure.

use alloc::string::String;

use super::WireError;

/// Copies `N` bytes from `at` on.
///
/// # Panics
/// When the structure is shorter: offsets are constants of this crate.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// The low 8 bits of `value`.
pub(crate) const fn low_u8(value: u32) -> u8 {
    value.to_le_bytes()[0]
}

/// The low 16 bits of `value`.
pub(crate) const fn low_u16(value: u32) -> u16 {
    let [first, second, ..] = value.to_le_bytes();
    u16::from_le_bytes([first, second])
}

/// Decodes printable ASCII, padded with spaces or NULs.
pub(crate) fn text(bytes: &[u8], field: &'static str) -> Result<String, WireError> {
    let until_nul = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = until_nul.trim_ascii_end();
    match text.iter().position(|byte| !(*byte == b' ' || byte.is_ascii_graphic())) {
        Some(at) => Err(WireError::Text { field, at, byte: text[at] }),
        None => Ok(text.iter().map(|byte| char::from(*byte)).collect()),
    }
}

/// Puts `text` at `at`, padded with spaces up to `length`; longer text is cut off.
pub(crate) fn put_text(bytes: &mut [u8], at: usize, length: usize, text: &str) {
    let place = &mut bytes[at..at + length];
    place.fill(b' ');
    for (byte, character) in place.iter_mut().zip(text.bytes()) {
        *byte = character;
    }
}
