//! The version message: numbers, and capabilities as JSON.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write as _};

use super::fields::{Fields, ParseError};
use super::json::{JsonError, Reader};

/// The longest payload of a version message, in bytes.
pub(crate) const VERSION_MAX: usize = 4096;

/// The payload of `VFIO_USER_VERSION`, in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// Major version, which is the same at both ends.
    pub major: u16,
    /// Minor version. That of the reply is at most that of the request.
    pub minor: u16,
    /// The capabilities. `None` is a message without any text, which differs from an empty list.
    pub capabilities: Option<Capabilities>,
}

/// The capabilities of a sender. Each capability that is `None` has a default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// `max_msg_fds`: how many descriptors the sender accepts in one message. The default is 1.
    pub descriptors: Option<u64>,
    /// `max_data_xfer_size`: how many bytes of data the sender accepts in one message. The default
    /// is 1 MiB.
    pub data: Option<u64>,
    /// `max_dma_maps`: how many pieces of memory the sender accepts at a time. The default is
    /// 65535.
    pub maps: Option<u64>,
    /// `pgsizes`: page sizes of mapped memory, one bit for each. The default is 4096.
    pub page_sizes: Option<u64>,
    /// `write_multiple`: whether the sender accepts several writes in one message. The default is
    /// no.
    pub write_multiple: Option<bool>,
}

/// Why a version cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionError {
    /// The payload is too short or too long.
    Payload(ParseError),
    /// The text does not end with a zero byte.
    Unterminated,
    /// The text is not JSON, or a value in it has the wrong type.
    Json(JsonError),
}

impl fmt::Display for VersionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Payload(error) => error.fmt(f),
            Self::Unterminated => f.write_str("the capabilities' text does not end with a zero byte"),
            Self::Json(error) => error.fmt(f),
        }
    }
}

impl Version {
    /// Decodes a payload. Unknown capabilities are skipped.
    ///
    /// # Errors
    /// When the length is wrong, or the text is not JSON with a final zero byte.
    pub fn parse(bytes: &[u8]) -> Result<Self, VersionError> {
        let mut fields = Fields::new(bytes, 4).map_err(VersionError::Payload)?;
        if bytes.len() > VERSION_MAX {
            let error = ParseError::Excess { need: VERSION_MAX as u64, have: bytes.len() as u64 };
            return Err(VersionError::Payload(error));
        }
        let (major, minor) = (fields.u16(), fields.u16());
        let capabilities = match fields.rest() {
            [] => None,
            [text @ .., 0] => Some(Capabilities::parse(text).map_err(VersionError::Json)?),
            _ => return Err(VersionError::Unterminated),
        };
        Ok(Self { major, minor, capabilities })
    }

    /// Encodes the payload.
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&self.major.to_le_bytes());
        bytes.extend_from_slice(&self.minor.to_le_bytes());
        if let Some(capabilities) = &self.capabilities {
            bytes.extend_from_slice(capabilities.emit().as_bytes());
            bytes.push(0);
        }
        bytes
    }
}

impl Capabilities {
    /// Decodes the text.
    fn parse(text: &[u8]) -> Result<Self, JsonError> {
        let mut capabilities = Self::default();
        let mut reader = Reader::new(text);
        reader.object(|reader, name| match name {
            b"capabilities" => reader.object(|reader, name| capabilities.take(reader, name)),
            _ => reader.skip(),
        })?;
        reader.end()?;
        Ok(capabilities)
    }

    fn take(&mut self, reader: &mut Reader<'_>, name: &[u8]) -> Result<(), JsonError> {
        match name {
            b"max_msg_fds" => self.descriptors = Some(reader.unsigned()?),
            b"max_data_xfer_size" => self.data = Some(reader.unsigned()?),
            b"max_dma_maps" => self.maps = Some(reader.unsigned()?),
            b"pgsizes" => self.page_sizes = Some(reader.unsigned()?),
            b"write_multiple" => self.write_multiple = Some(reader.boolean()?),
            _ => reader.skip()?,
        }
        Ok(())
    }

    /// Encodes the text.
    fn emit(&self) -> String {
        let mut text = String::from("{\"capabilities\":{");
        let numbers = [
            ("max_msg_fds", self.descriptors),
            ("max_data_xfer_size", self.data),
            ("max_dma_maps", self.maps),
            ("pgsizes", self.page_sizes),
        ];
        let mut comma = "";
        for (name, value) in numbers {
            if let Some(value) = value {
                write!(text, "{comma}\"{name}\":{value}").expect("a string grows");
                comma = ",";
            }
        }
        if let Some(value) = self.write_multiple {
            write!(text, "{comma}\"write_multiple\":{value}").expect("a string grows");
        }
        text.push_str("}}");
        text
    }

    /// The capabilities that `other` also names, with any values. `write_multiple` remains only if
    /// it is true in `other`.
    #[must_use]
    pub fn in_common_with(self, other: &Self) -> Self {
        Self {
            descriptors: self.descriptors.filter(|_| other.descriptors.is_some()),
            data: self.data.filter(|_| other.data.is_some()),
            maps: self.maps.filter(|_| other.maps.is_some()),
            page_sizes: self.page_sizes.filter(|_| other.page_sizes.is_some()),
            write_multiple: self.write_multiple.filter(|_| other.write_multiple == Some(true)),
        }
    }
}
