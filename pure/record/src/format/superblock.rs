//! The superblock: the description of the recording.

use alloc::string::String;
use alloc::vec::Vec;

use super::{Content, STREAMS_MAX, u32_at};
use crate::sequence::{RULE_LENGTH, SequenceRule};

/// The longest name of a stream in bytes. Longer names are cut.
const NAME_MAX: usize = 200;

/// The flag of a ring.
const RING: u32 = 1;

/// The payload of the superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The names of the streams, by number: at most [`STREAMS_MAX`].
    pub streams: Vec<String>,
    /// The content of each stream's bytes. Streams that are not named here are [`Content::Bytes`].
    pub contents: Vec<Content>,
    /// Whether the oldest is overwritten when the medium is full.
    pub is_ring: bool,
    /// The rule by which the losses of each stream are found. Of streams that are not named here it
    /// is not known: their recorder did not say.
    pub rules: Vec<SequenceRule>,
}

impl Superblock {
    /// Writes the superblock to the start of `payload`. Returns the length in bytes.
    ///
    /// # Panics
    /// When there are more than [`STREAMS_MAX`] streams.
    pub fn emit(&self, payload: &mut [u8]) -> usize {
        assert!(self.streams.len() <= STREAMS_MAX, "too many streams");
        let mut bytes = Vec::new();
        bytes.extend(u32::try_from(self.streams.len()).unwrap_or(u32::MAX).to_le_bytes());
        for name in &self.streams {
            let mut end = name.len().min(NAME_MAX);
            while !name.is_char_boundary(end) {
                end -= 1;
            }
            bytes.extend(u16::try_from(end).unwrap_or(0).to_le_bytes());
            bytes.extend(&name.as_bytes()[..end]);
        }
        let contents = (0..self.streams.len()).map(|stream| self.content(stream));
        contents.for_each(|content| bytes.extend(content.emit()));
        let flags = if self.is_ring { RING } else { 0 };
        bytes.extend(flags.to_le_bytes());
        self.rules.iter().take(self.streams.len()).for_each(|rule| bytes.extend(rule.emit()));
        payload[..bytes.len()].copy_from_slice(&bytes);
        bytes.len()
    }

    /// Parses a payload; `None` if it is no superblock.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let count = u32_at(payload.get(..4)?, 0) as usize;
        if count > STREAMS_MAX {
            return None;
        }
        let mut rest = &payload[4..];
        let mut streams = Vec::with_capacity(count);
        for _ in 0..count {
            let (length, behind) = rest.split_first_chunk()?;
            let (name, behind) = behind.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
            streams.push(String::from_utf8_lossy(name).into_owned());
            rest = behind;
        }
        let (words, _) = rest.as_chunks();
        let contents = words.iter().take(count).map(|bytes| Content::parse(*bytes)).collect();
        let flags = words.get(count).map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let rules = rest.get((count + 1) * 4..).unwrap_or_default();
        let (rules, _) = rules.as_chunks::<RULE_LENGTH>();
        let rules = rules.iter().take(count).map(SequenceRule::parse).collect();
        Some(Self { streams, contents, is_ring: flags & RING > 0, rules })
    }

    /// The rule by which the losses of a stream are found; `None` if the recorder did not say.
    pub fn rule(&self, stream: usize) -> Option<SequenceRule> {
        self.rules.get(stream).copied()
    }

    /// The content of a stream's bytes.
    pub fn content(&self, stream: usize) -> Content {
        self.contents.get(stream).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::super::LinkType;
    use super::*;
    use crate::sequence::Protocol;

    #[test]
    fn names_contents_and_rules_come_back_and_an_older_superblock_lacks_some() {
        let streams = vec!["a".into(), "udp://127.0.0.1:5000".into()];
        let contents = vec![Content::Bytes, Content::Packets(LinkType::PAYLOAD)];
        let by = SequenceRule::Numbers { protocol: Protocol::Rtp, window: 7 };
        let superblock = Superblock { streams, contents, is_ring: true, rules: vec![SequenceRule::None, by] };
        let mut payload = [0; 100];
        let length = superblock.emit(&mut payload);
        assert_eq!(length, 4 + 2 + 1 + 2 + 20 + 8 + 4 + 32);
        assert_eq!(Superblock::parse(&payload[..length]), Some(superblock.clone()));
        let without = Superblock::parse(&payload[..length - 32]).expect("rules may be absent");
        assert_eq!((without.is_ring, without.rule(1), superblock.rule(1)), (true, None, Some(by)));
        let without = Superblock::parse(&payload[..length - 44]).expect("contents may be absent");
        assert_eq!((without.content(1), superblock.content(1)), (Content::Bytes, superblock.contents[1]));
    }
}
