//! What the two ends agree on.

use crate::limits::{DATA_MAX, DESCRIPTORS_MAX, MAPS_MAX};
use crate::wire::{Capabilities, ParseError, Version, VersionError};

/// The major version spoken here.
pub(crate) const MAJOR: u16 = 0;
/// The latest minor version spoken here.
pub(crate) const MINOR: u16 = 1;
/// What a sender that doesn't say takes in one message.
const DESCRIPTORS_UNSAID: u64 = 1;
const PAGE: u64 = 4096;

/// What the other end and we have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Major version.
    pub major: u16,
    /// Minor version.
    pub minor: u16,
    /// Bytes of data that may be in one message to the other end, more than 0.
    pub data_max: u32,
    /// Descriptors that the other end takes in one message.
    pub descriptors_max: usize,
    /// Pieces of memory that the other end takes at a time; for a client only.
    pub maps_max: usize,
    /// Whether several writes may be sent in one message.
    pub write_multiple: bool,
}

impl Negotiated {
    /// What `theirs` says of the other end, as far as we go along with it.
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

/// What this end says of itself.
pub(crate) const fn ours() -> Capabilities {
    Capabilities {
        descriptors: Some(DESCRIPTORS_MAX as u64),
        data: Some(DATA_MAX as u64),
        maps: Some(MAPS_MAX as u64),
        page_sizes: Some(PAGE),
        write_multiple: Some(true),
    }
}
