//! TLP prefixes: double words in front of the header.

use alloc::boxed::Box;

use serde::{Deserialize, Serialize};

use super::TlpError;
use super::layout::{CODE, CODE_FMT, CODE_PREFIX, CODE_PREFIX_END_TO_END};

/// TLP prefixes, one double word each: at most [`Prefixes::MAX`].
///
/// They are kept outside the packet, which moves at every hop and almost never has any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prefixes(Option<Box<Words>>);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Words {
    words: [u32; Prefixes::MAX],
    count: u8,
}

impl Prefixes {
    /// Maximum number of prefixes of a TLP: one local and four end-to-end prefixes.
    pub const MAX: usize = 5;
    /// Maximum number of end-to-end prefixes of a TLP (Max End-End TLP Prefixes).
    pub const END_TO_END_MAX: usize = 4;
    /// An empty list of prefixes.
    pub const NONE: Self = Self(None);

    /// The prefixes, each as the big-endian double word on the wire.
    pub fn words(&self) -> &[u32] {
        match &self.0 {
            None => &[],
            Some(words) => &words.words[..usize::from(words.count)],
        }
    }

    /// Length of the prefixes in bytes.
    #[inline]
    pub const fn encoded_len(&self) -> usize {
        match &self.0 {
            None => 0,
            Some(words) => words.count as usize * 4,
        }
    }

    /// Whether there is no prefix, as in almost every TLP.
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The local prefixes, which end at the next port.
    pub fn local(&self) -> &[u32] {
        self.words().split_at(self.local_count()).0
    }

    /// The end-to-end prefixes, which are forwarded with the TLP and covered by its ECRC.
    pub fn end_to_end(&self) -> &[u32] {
        self.words().split_at(self.local_count()).1
    }

    /// Appends `word`.
    ///
    /// # Errors
    /// When `word` is not a prefix, is a local prefix behind an end-to-end one, or exceeds a limit
    /// on the number of prefixes.
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
