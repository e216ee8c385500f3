//! Text in fields of fixed length.

use core::fmt;

use serde::{Deserialize, Serialize};

use super::layout::Field;

/// ASCII text in `N` bytes, padded at the end with spaces or NULs.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Text<const N: usize>(#[serde(with = "engine::state::array")] [u8; N]);

impl<const N: usize> Text<N> {
    /// `text` padded with spaces. Any character that is not printable ASCII becomes `?`, and excess
    /// text is cut off.
    pub fn padded_with_spaces(text: &str) -> Self {
        Self::padded(text, b' ')
    }

    /// `text` padded with NULs. Any character that is not printable ASCII becomes `?`, and excess
    /// text is cut off.
    pub fn padded_with_nuls(text: &str) -> Self {
        Self::padded(text, 0)
    }

    fn padded(text: &str, padding: u8) -> Self {
        let mut bytes = [padding; N];
        for (place, character) in bytes.iter_mut().zip(text.chars()) {
            *place = u8::try_from(character).ok().filter(|byte| printable(*byte)).unwrap_or(b'?');
        }
        Self(bytes)
    }

    /// The bytes of the field, including the padding.
    pub const fn bytes(&self) -> &[u8; N] {
        &self.0
    }
}

fn printable(byte: u8) -> bool {
    byte == b' ' || byte.is_ascii_graphic()
}

impl<const N: usize> fmt::Display for Text<N> {
    /// Shows the text without the padding. Bytes that are not printable ASCII show as `?`, since
    /// they come from the peer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let until_nul = self.0.split(|byte| *byte == 0).next().unwrap_or_default();
        for byte in until_nul.trim_ascii_end() {
            fmt::Write::write_char(f, if printable(*byte) { char::from(*byte) } else { '?' })?;
        }
        Ok(())
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl<const N: usize> Field for Text<N> {
    const LENGTH: usize = N;
    fn parse(bytes: &[u8]) -> Self {
        Self(Field::parse(bytes))
    }
    fn emit(&self, bytes: &mut [u8]) {
        self.0.emit(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn text_is_padded_shown_without_padding_and_never_foul() {
        let text = Text::<8>::padded_with_spaces("0.1");
        assert_eq!(text.bytes(), b"0.1     ");
        assert_eq!(text.to_string(), "0.1");
        assert_eq!(Text::<4>::padded_with_nuls("ab\u{e9}de").bytes(), b"ab?d");
        assert_eq!(Text::<6>(*b"a\x1b[\0zz").to_string(), "a?[");
    }
}
