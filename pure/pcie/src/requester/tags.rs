//! The pool of tags.

use alloc::collections::VecDeque;
use core::ops::Range;

use serde::{Deserialize, Serialize};

use crate::wire::Tag;

/// How many bits of the tag a requester may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TagWidth {
    /// 5 bits: 32 tags, as after reset.
    Bits5,
    /// 8 bits: 256 tags (Extended Tag Field Enable).
    #[default]
    Bits8,
    /// 10 bits: 768 tags (10-Bit Tag Requester Enable).
    Bits10,
}

impl TagWidth {
    /// How many transactions may be outstanding: 32, 256 or 768.
    pub const fn count(self) -> usize {
        match self {
            Self::Bits5 => 32,
            Self::Bits8 => 256,
            Self::Bits10 => 768,
        }
    }
    /// The tags of this width. In a 10-bit tag the two upper bits are never both 0, so that a
    /// completer that drops these bits is noticed (section 2.2.6.2).
    const fn tags(self) -> Range<u16> {
        match self {
            Self::Bits5 => 0..32,
            Self::Bits8 => 0..256,
            Self::Bits10 => 256..1024,
        }
    }
}

/// Free tags, with the longest unused tag first, so that a tag whose completion is missing rests
/// before it is used again.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Tags {
    width: TagWidth,
    free: VecDeque<u16>,
}

impl Tags {
    /// A pool in which every tag of `width` is free.
    pub(super) fn new(width: TagWidth) -> Self {
        let mut free = VecDeque::with_capacity(TagWidth::Bits10.count());
        free.extend(width.tags());
        Self { width, free }
    }
    /// Takes the free tag that has been unused the longest.
    pub(super) fn issue(&mut self) -> Option<Tag> {
        self.free.pop_front().map(Tag::new)
    }
    /// Gives `tag` back. A tag outside the present width is forgotten.
    pub(super) fn retire(&mut self, tag: Tag) {
        if self.width.tags().contains(&tag.get()) {
            self.free.push_back(tag.get());
        }
    }
    /// Uses the tags of `width` from now on, except those that are `outstanding`.
    pub(super) fn resize(&mut self, width: TagWidth, outstanding: impl Fn(Tag) -> bool) {
        if self.width != width {
            self.width = width;
            self.free.clear();
            self.free.extend(width.tags().filter(|tag| !outstanding(Tag::new(*tag))));
        }
    }
}
