//! Positions of the fields of a header in its big-endian double words.

/// A named range of bits of a double word.
#[derive(Clone, Copy)]
pub(super) struct Bits {
    shift: u8,
    mask: u32,
}

impl Bits {
    /// Bits `high` down to `low`; bit 31 is the leftmost in the specification's figures.
    const fn new(high: u8, low: u8) -> Self {
        assert!(high < 32 && low <= high, "a field lies within its double word");
        Self { shift: low, mask: u32::MAX >> (31 - (high - low)) }
    }
    const fn bit(at: u8) -> Self {
        Self::new(at, at)
    }
    /// The field's value in `word`.
    pub(super) const fn of(self, word: u32) -> u32 {
        (word >> self.shift) & self.mask
    }
    /// The field's value, for a field of at most 8 bits.
    pub(super) const fn byte_of(self, word: u32) -> u8 {
        self.of(word).to_be_bytes()[3]
    }
    /// The field's value, for a field of at most 16 bits.
    pub(super) const fn half_of(self, word: u32) -> u16 {
        let [_, _, high, low] = self.of(word).to_be_bytes();
        u16::from_be_bytes([high, low])
    }
    /// Whether any bit of the field is set in `word`.
    pub(super) const fn is_set(self, word: u32) -> bool {
        self.of(word) != 0
    }
    /// A word with only this field, holding the low bits of `value`.
    pub(super) const fn put(self, value: u32) -> u32 {
        (value & self.mask) << self.shift
    }
    /// A word with only this one-bit field.
    pub(super) const fn flag(self, set: bool) -> u32 {
        self.put(set as u32)
    }
    /// A word with every bit of the field set and no other.
    pub(super) const fn all(self) -> u32 {
        self.mask << self.shift
    }
}

// The first double word of every TLP.
pub(super) const CODE: Bits = Bits::new(31, 24);
pub(super) const TYPE_BIT_0: Bits = Bits::bit(24);
pub(super) const TAG_9: Bits = Bits::bit(23);
pub(super) const TRAFFIC_CLASS: Bits = Bits::new(22, 20);
pub(super) const TAG_8: Bits = Bits::bit(19);
pub(super) const ID_ORDERING: Bits = Bits::bit(18);
pub(super) const LIGHTWEIGHT_NOTIFICATION: Bits = Bits::bit(17);
pub(super) const PROCESSING_HINT: Bits = Bits::bit(16);
pub(super) const DIGEST: Bits = Bits::bit(15);
pub(super) const POISONED: Bits = Bits::bit(14);
pub(super) const RELAXED_ORDERING: Bits = Bits::bit(13);
pub(super) const NO_SNOOP: Bits = Bits::bit(12);
pub(super) const ADDRESS_TYPE: Bits = Bits::new(11, 10);
pub(super) const LENGTH: Bits = Bits::new(9, 0);
/// The fields that a completion takes over from its request.
pub(super) const TRAITS_OF_ANSWER: u32 =
    TRAFFIC_CLASS.all() | ID_ORDERING.all() | RELAXED_ORDERING.all() | NO_SNOOP.all();
/// The fields of the first double word that `Traits` holds.
pub(super) const TRAITS: u32 = TRAITS_OF_ANSWER
    | LIGHTWEIGHT_NOTIFICATION.all()
    | PROCESSING_HINT.all()
    | POISONED.all()
    | ADDRESS_TYPE.all();

// The second double word of a request.
pub(super) const REQUESTER: Bits = Bits::new(31, 16);
pub(super) const TAG: Bits = Bits::new(15, 8);
pub(super) const LAST_ENABLES: Bits = Bits::new(7, 4);
pub(super) const FIRST_ENABLES: Bits = Bits::new(3, 0);
pub(super) const MESSAGE_CODE: Bits = Bits::new(7, 0);

// The last double word of a request routed by address.
pub(super) const ADDRESS: Bits = Bits::new(31, 2);
pub(super) const HINT: Bits = Bits::new(1, 0);

// The third double word of a configuration request.
pub(super) const TARGET: Bits = Bits::new(31, 16);
pub(super) const CONFIG_RESERVED_HIGH: Bits = Bits::new(15, 12);
pub(super) const REGISTER: Bits = Bits::new(11, 2);
pub(super) const CONFIG_RESERVED_LOW: Bits = Bits::new(1, 0);

// The second and third double words of a completion. Requester ID and Tag in the third one are at
// their places in a request's second one.
pub(super) const COMPLETER: Bits = Bits::new(31, 16);
pub(super) const STATUS: Bits = Bits::new(15, 13);
pub(super) const BYTE_COUNT_MODIFIED: Bits = Bits::bit(12);
pub(super) const BYTE_COUNT: Bits = Bits::new(11, 0);
pub(super) const COMPLETION_RESERVED: Bits = Bits::bit(7);
pub(super) const LOWER_ADDRESS: Bits = Bits::new(6, 0);

// Parts of the code, which is Fmt and Type in the first byte.
/// Fmt of a TLP prefix.
pub(super) const CODE_PREFIX: u8 = 0b100_00000;
/// The bits of Fmt, which equal `CODE_PREFIX` in a prefix.
pub(super) const CODE_FMT: u8 = 0b111_00000;
/// Fmt bit for a 4 DW header.
pub(super) const CODE_4DW: u8 = 0b001_00000;
/// Fmt bit for a TLP with data.
pub(super) const CODE_DATA: u8 = 0b010_00000;
/// Type bit of a prefix: end-to-end if set, otherwise local.
pub(super) const CODE_PREFIX_END_TO_END: u8 = 0b000_10000;
/// Type of a message, without its routing bits.
pub(super) const CODE_MESSAGE: u8 = 0b000_10000;
/// Routing bits in the Type of a message.
pub(super) const CODE_ROUTING: u8 = 0b000_00111;

// Values of Type, without Fmt.
pub(super) const TYPE_MEMORY: u8 = 0b00000;
pub(super) const TYPE_MEMORY_LOCKED: u8 = 0b00001;
pub(super) const TYPE_IO: u8 = 0b00010;
pub(super) const TYPE_CONFIG_0: u8 = 0b00100;
pub(super) const TYPE_CONFIG_1: u8 = 0b00101;
pub(super) const TYPE_COMPLETION: u8 = 0b01010;
pub(super) const TYPE_COMPLETION_LOCKED: u8 = 0b01011;
pub(super) const TYPE_FETCH_ADD: u8 = 0b01100;
pub(super) const TYPE_SWAP: u8 = 0b01101;
pub(super) const TYPE_COMPARE_AND_SWAP: u8 = 0b01110;
