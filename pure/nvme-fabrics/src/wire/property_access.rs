//! Property Get and Property Set.

/// Attributes (ATTRIB): how long a property is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropertySize {
    /// 4 bytes.
    Dword,
    /// 8 bytes.
    Quad,
}

/// Property Get (04h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropertyGet {
    /// Attributes (ATTRIB): the property's length.
    pub size: PropertySize,
    /// Offset (OFST): which property.
    pub offset: u32,
}

/// Property Set (00h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropertySet {
    /// Attributes (ATTRIB): the property's length.
    pub size: PropertySize,
    /// Offset (OFST): which property.
    pub offset: u32,
    /// Value (VALUE); of 4 bytes, only the low half is used.
    pub value: u64,
}
