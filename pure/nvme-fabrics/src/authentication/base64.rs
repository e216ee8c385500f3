//! Base64 (RFC 4648, section 4), with padding: each sequence of bytes has exactly one text.

use alloc::string::String;
use alloc::vec::Vec;

use zeroize::Zeroizing;

/// The character for six bits.
const fn character(bits: u8) -> u8 {
    match bits {
        0..=25 => b'A' + bits,
        26..=51 => b'a' + (bits - 26),
        52..=61 => b'0' + (bits - 52),
        62 => b'+',
        _ => b'/',
    }
}

/// The six bits of a character.
const fn value(character: u8) -> Option<u8> {
    Some(match character {
        b'A'..=b'Z' => character - b'A',
        b'a'..=b'z' => character - b'a' + 26,
        b'0'..=b'9' => character - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

/// Encodes `bytes`.
pub(super) fn encode(bytes: &[u8]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(bytes.len().div_ceil(3) * 4));
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| chunk.get(at).copied().unwrap_or(0);
        let (first, second, third) = (byte(0), byte(1), byte(2));
        let sextets =
            [first >> 2, (first & 3) << 4 | second >> 4, (second & 15) << 2 | third >> 6, third & 63];
        for (at, bits) in sextets.into_iter().enumerate() {
            text.push(if at <= chunk.len() { char::from(character(bits)) } else { '=' });
        }
    }
    text
}

/// Decodes `text`.
///
/// # Errors
/// The place of the first character that is wrong, or the end if characters are missing.
pub(super) fn decode(text: &str) -> Result<Zeroizing<Vec<u8>>, usize> {
    let padding = text.bytes().rev().take_while(|byte| *byte == b'=').take(2).count();
    let characters = &text.as_bytes()[..text.len() - padding];
    if !text.len().is_multiple_of(4) {
        return Err(text.len());
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len() / 4 * 3));
    for (chunk, start) in characters.chunks(4).zip((0..).step_by(4)) {
        let mut sextets = [0; 4];
        for (at, byte) in chunk.iter().enumerate() {
            sextets[at] = value(*byte).ok_or(start + at)?;
        }
        let [a, b, c, d] = sextets;
        let three = [a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d];
        let (kept, spare) = three.split_at(chunk.len() - 1);
        // Bits that belong to no byte must be zero, so that a key has one text.
        if spare.iter().any(|byte| *byte != 0) {
            return Err(start + chunk.len() - 1);
        }
        bytes.extend_from_slice(kept);
    }
    Ok(bytes)
}
