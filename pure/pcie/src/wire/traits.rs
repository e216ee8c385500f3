//! The fields of a header besides type, length and the fields of its type. Almost all are 0.

use serde::{Deserialize, Serialize};

use super::layout as at;
use super::{AddressType, Attributes};

/// Traffic class, attributes, address type, poison and hints of a TLP.
///
/// They are kept in one word, as on the wire. Every packet is decoded, moved and encoded at every
/// hop, and the one word makes this cost a single mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traits(u32);

impl Traits {
    /// Traffic class 0 and default values for everything else.
    pub const NONE: Self = Self(0);

    /// The traits of a TLP whose first double word is `first`. The Processing Hint is in another
    /// double word.
    #[inline]
    pub(super) const fn of(first: u32) -> Self {
        Self(first & at::TRAITS)
    }
    /// The first double word with these traits and no other fields.
    #[inline]
    pub(super) const fn word(self) -> u32 {
        self.0 & at::TRAITS
    }
    const fn with(self, field: at::Bits, value: u32) -> Self {
        Self(self.0 & !field.all() | field.put(value))
    }

    /// The traits of the completions of a request with these traits: its traffic class and
    /// attributes.
    #[must_use]
    pub const fn of_answer(self) -> Self {
        Self(self.0 & at::TRAITS_OF_ANSWER)
    }

    /// Traffic Class (TC), 0..8.
    pub const fn traffic_class(self) -> u8 {
        at::TRAFFIC_CLASS.byte_of(self.0)
    }
    /// These traits with Traffic Class `class`, 0..8.
    #[must_use]
    pub const fn with_traffic_class(self, class: u8) -> Self {
        self.with(at::TRAFFIC_CLASS, class as u32)
    }
    /// Ordering and coherence attributes (Attr).
    pub const fn attributes(self) -> Attributes {
        Attributes {
            relaxed_ordering: at::RELAXED_ORDERING.is_set(self.0),
            no_snoop: at::NO_SNOOP.is_set(self.0),
            id_ordering: at::ID_ORDERING.is_set(self.0),
        }
    }
    /// These traits with other ordering and coherence attributes.
    #[must_use]
    pub const fn with_attributes(self, attributes: Attributes) -> Self {
        self.with(at::RELAXED_ORDERING, attributes.relaxed_ordering as u32)
            .with(at::NO_SNOOP, attributes.no_snoop as u32)
            .with(at::ID_ORDERING, attributes.id_ordering as u32)
    }
    /// Address Type (AT).
    pub fn address_type(self) -> AddressType {
        AddressType::from(at::ADDRESS_TYPE.byte_of(self.0))
    }
    /// These traits with Address Type `kind`.
    #[must_use]
    pub fn with_address_type(self, kind: AddressType) -> Self {
        self.with(at::ADDRESS_TYPE, u32::from(u8::from(kind)))
    }
    /// Whether Error Poisoned (EP) is set: the payload is known to be corrupt.
    pub const fn is_poisoned(self) -> bool {
        at::POISONED.is_set(self.0)
    }
    /// These traits with Error Poisoned set or cleared.
    #[must_use]
    pub const fn with_poison(self, poisoned: bool) -> Self {
        self.with(at::POISONED, poisoned as u32)
    }
    /// Whether TLP Hints (TH) is set, so that [`Traits::hint`] has a meaning.
    pub const fn is_hinted(self) -> bool {
        at::PROCESSING_HINT.is_set(self.0)
    }
    /// These traits with TH set or cleared.
    #[must_use]
    pub const fn with_hinted(self, hinted: bool) -> Self {
        self.with(at::PROCESSING_HINT, hinted as u32)
    }
    /// Processing Hint (PH) of a memory request, 0..4: the two low bits of its address on the wire.
    pub const fn hint(self) -> u8 {
        at::HINT.byte_of(self.0)
    }
    /// These traits with Processing Hint `hint`, 0..4.
    #[must_use]
    pub const fn with_hint(self, hint: u8) -> Self {
        self.with(at::HINT, hint as u32)
    }
    /// Whether Lightweight Notification (LN) is set, in memory requests and completions.
    pub const fn is_lightweight(self) -> bool {
        at::LIGHTWEIGHT_NOTIFICATION.is_set(self.0)
    }
    /// These traits with LN set or cleared.
    #[must_use]
    pub const fn with_lightweight(self, lightweight: bool) -> Self {
        self.with(at::LIGHTWEIGHT_NOTIFICATION, lightweight as u32)
    }
}
