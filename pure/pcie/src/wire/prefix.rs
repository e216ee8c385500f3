//! TLP prefixes: double words in front of the header.

use alloc::boxed::Box;

use super::TlpError;
use super::layout::{CODE, CODE_FMT, CODE_PREFIX, CODE_PREFIX_END_TO_END};

/// TLP prefixes, one double word each: at most [`Prefixes::MAX`].
///
/// Away from the packet, which is moved at every hop and almost never has any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefixes(Option<Box<Words>>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Words {
    words: [u32; Prefixes::MAX],
    count: u8,
}

impl Prefixes {
    /// One local and four end-to-end prefixes.
    pub const MAX: usize = 5;
    /// The most end-to-end prefixes that a TLP may have (Max End-End TLP Prefixes).
    pub const END_TO_END_MAX: usize = 4;
    /// No prefix.
    pub const NONE: Self = Self(None);

    /// The prefixes, each as the big-endian double word on the wire.
    pub fn words(&self) -> &[u32] {
        match &self.0 {
            None => &[],
            Some(words) => &words.words[..usize::from(words.count)],
        }
    }

    /// Their length in bytes.
    #[inline]
    pub const fn encoded_len(&self) -> usize {
        match &self.0 {
            None => 0,
            Some(words) => words.count as usize * 4,
        }
    }

    /// Whether there is none, as almost always.
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The local prefixes: they end at the next port.
    pub fn local(&self) -> &[u32] {
        self.words().split_at(self.local_count()).0
    }

    /// The end-to-end prefixes: they are forwarded with the TLP and covered by its ECRC.
    pub fn end_to_end(&self) -> &[u32] {
        self.words().split_at(self.local_count()).1
    }

    /// Adds `word` behind the others.
    ///
    /// # Errors
    /// When `word` is not a prefix, is a local one behind an end-to-end one, or is one too many.
    pub fn push(&mut self, word: u32) -> Result<(), TlpError> {
        if !is_prefix(word) {
            return Err(TlpError::UnknownType { code: CODE.byte_of(word) });
        }
        let end_to_end = self.end_to_end().len();
        if !is_end_to_end(word) && end_to_end > 0 {
            return Err(TlpError::LocalPrefixBehindEndToEnd { prefix: word });
        }
        if self.words().len() == Self::MAX || (is_end_to_end(word) && end_to_end == Self::END_TO_END_MAX) {
            return Err(TlpError::TooManyPrefixes { prefix: word });
        }
        let words = self.0.get_or_insert_default();
        words.words[usize::from(words.count)] = word;
        words.count += 1;
        Ok(())
    }

    fn local_count(&self) -> usize {
        self.words().iter().take_while(|&&word| !is_end_to_end(word)).count()
    }
}

const fn is_prefix(word: u32) -> bool {
    CODE.byte_of(word) & CODE_FMT == CODE_PREFIX
}

const fn is_end_to_end(word: u32) -> bool {
    CODE.byte_of(word) & CODE_PREFIX_END_TO_END != 0
}
