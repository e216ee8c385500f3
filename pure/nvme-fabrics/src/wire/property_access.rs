//! Property Get and Property Set.

/// Attributes (ATTRIB): the length of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropertySize {
    /// The property has 4 bytes.
    Dword,
    /// The property has 8 bytes.
    Quad,
}

/// Property Get (04h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropertyGet {
    /// Attributes (ATTRIB): the property's length.
    pub size: PropertySize,
    /// Offset (OFST) of the property in bytes.
    pub offset: u32,
}

/// Property Set (00h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropertySet {
    /// Attributes (ATTRIB): the property's length.
    pub size: PropertySize,
    /// Offset (OFST) of the property in bytes.
    pub offset: u32,
    /// Value (VALUE); a property of 4 bytes uses only the low half.
    pub value: u64,
}
