//! The agreement between the two ends.

use crate::limits::{DATA_MAX, DESCRIPTORS_MAX, MAPS_MAX};
use crate::wire::{Capabilities, ParseError, Version, VersionError};

/// The major version that this end speaks.
pub(crate) const MAJOR: u16 = 0;
/// The latest minor version that this end speaks.
pub(crate) const MINOR: u16 = 1;
/// Descriptors that a sender accepts in one message if it names no number.
const DESCRIPTORS_UNSAID: u64 = 1;
const PAGE: u64 = 4096;

/// The agreement with the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The agreed major version.
    pub major: u16,
    /// The agreed minor version.
    pub minor: u16,
    /// The most bytes of data in one message to the other end, more than 0.
    pub data_max: u32,
    /// The most descriptors that the other end accepts in one message.
    pub descriptors_max: usize,
    /// The most pieces of memory that the other end accepts at a time. Meaningful for a client
    /// only.
    pub maps_max: usize,
    /// Whether several writes may be sent in one message.
    pub write_multiple: bool,
}

impl Negotiated {
    /// Adopts the capabilities of the other end in `theirs`, as far as this end supports them.
    pub(crate) fn with(theirs: &Version) -> Result<Self, VersionError> {
        let capabilities = theirs.capabilities.unwrap_or_default();
        let data = capabilities.data.unwrap_or(DATA_MAX.into());
        if data == 0 {
            return Err(VersionError::Payload(ParseError::value("max_data_xfer_size", 0)));
        }
        Ok(Self {
            major: theirs.major,
            minor: theirs.minor.min(MINOR),
            data_max: u32::try_from(data).unwrap_or(DATA_MAX).min(DATA_MAX),
            descriptors_max: at_most(capabilities.descriptors.unwrap_or(DESCRIPTORS_UNSAID), DESCRIPTORS_MAX),
            maps_max: at_most(capabilities.maps.unwrap_or(MAPS_MAX as u64), MAPS_MAX),
            write_multiple: capabilities.write_multiple == Some(true),
        })
    }
}

fn at_most(said: u64, limit: usize) -> usize {
    usize::try_from(said).unwrap_or(limit).min(limit)
}

/// The capabilities that this end announces.
pub(crate) const fn ours() -> Capabilities {
    Capabilities {
        descriptors: Some(DESCRIPTORS_MAX as u64),
        data: Some(DATA_MAX as u64),
        maps: Some(MAPS_MAX as u64),
        page_sizes: Some(PAGE),
        write_multiple: Some(true),
    }
}
