//! NVMe Qualified Names.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use super::{HostId, WireError};

/// Maximum number of bytes of a name.
pub const NQN_LENGTH_MAX: usize = 223;
/// Length in bytes of a field that holds a name and its terminating NUL.
pub const NQN_FIELD_LENGTH: usize = 256;

/// NVMe Qualified Name (NQN): names a host or a subsystem, in 1 to 223 bytes of UTF-8.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nqn(String);

/// Why something is not a valid name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NqnError {
    /// The name is empty.
    Empty,
    /// The name is longer than [`NQN_LENGTH_MAX`] bytes, or is not terminated.
    TooLong,
    /// The name is not UTF-8, or has control characters.
    NotText {
        /// Offset of the first byte that is not text.
        at: usize,
    },
    /// The name does not have the form `nqn.yyyy-mm.reverse.domain:what-you-like`.
    Form,
}

impl fmt::Display for NqnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("an NQN has at least one character"),
            Self::TooLong => write!(f, "an NQN has at most {NQN_LENGTH_MAX} bytes, ended by a NUL"),
            Self::NotText { at } => write!(f, "an NQN is printable UTF-8, and its byte {at} is not"),
            Self::Form => f.write_str("an NQN looks like nqn.2014-08.org.example:name"),
        }
    }
}

impl core::error::Error for NqnError {}

impl Nqn {
    /// The well-known name of every discovery subsystem, as text.
    pub const DISCOVERY: &'static str = "nqn.2014-08.org.nvmexpress.discovery";

    /// The well-known name of every discovery subsystem.
    pub fn discovery() -> Self {
        Self(Self::DISCOVERY.to_string())
    }

    /// The name of a host that has only a Host Identifier: the UUID-based form.
    pub fn of_host(id: HostId) -> Self {
        Self(format!("nqn.2014-08.org.nvmexpress:uuid:{id}"))
    }

    /// Whether this is the well-known name of discovery subsystems.
    pub fn is_discovery(&self) -> bool {
        self.0 == Self::DISCOVERY
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Decodes a field of 256 bytes. Any text is accepted: some hosts and subsystems have names of
    /// other forms than the specification's, and these names identify them nevertheless.
    ///
    /// # Errors
    /// [`WireError::Nqn`] with `field` as the name of the field.
    pub fn parse(bytes: &[u8; NQN_FIELD_LENGTH], field: &'static str) -> Result<Self, WireError> {
        let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(NQN_FIELD_LENGTH);
        Self::check(&bytes[..length]).map_err(|why| WireError::Nqn { field, why })
    }

    fn check(bytes: &[u8]) -> Result<Self, NqnError> {
        match bytes.len() {
            0 => return Err(NqnError::Empty),
            1..=NQN_LENGTH_MAX => {}
            _ => return Err(NqnError::TooLong),
        }
        let text = core::str::from_utf8(bytes);
        let text = text.map_err(|error| NqnError::NotText { at: error.valid_up_to() })?;
        match text.find(char::is_control) {
            Some(at) => Err(NqnError::NotText { at }),
            None => Ok(Self(text.to_string())),
        }
    }

    /// Encodes the name, padded with NULs.
    pub fn emit(&self) -> [u8; NQN_FIELD_LENGTH] {
        let mut bytes = [0; NQN_FIELD_LENGTH];
        bytes[..self.0.len()].copy_from_slice(self.0.as_bytes());
        bytes
    }

    /// Whether the name has the form that the specification requires.
    fn is_formed(&self) -> bool {
        let Some(rest) = self.0.strip_prefix("nqn.") else { return false };
        let Some((date, name)) = rest.split_once('.') else { return false };
        let digits =
            |text: &str, count| text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
        let dated = date.split_once('-').is_some_and(|(year, month)| digits(year, 4) && digits(month, 2));
        dated && !name.is_empty() && !name.contains(char::is_whitespace)
    }
}

impl FromStr for Nqn {
    type Err = NqnError;

    /// Parses a name that a person has given to this software. The name must have the
    /// specification's form.
    fn from_str(text: &str) -> Result<Self, NqnError> {
        let name = Self::check(text.as_bytes())?;
        if name.is_formed() { Ok(name) } else { Err(NqnError::Form) }
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nqn({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_is_of_its_form() {
        for right in
            [Nqn::DISCOVERY, "nqn.2014-08.org.nvmexpress:uuid:2cd2c43b", "nqn.2026-01.io.farlane:disk"]
        {
            assert_eq!(right.parse::<Nqn>().unwrap().as_str(), right);
        }
        for (wrong, why) in [
            ("", NqnError::Empty),
            ("disk", NqnError::Form),
            ("nqn.2014.org:x", NqnError::Form),
            ("nqn.2014-08.", NqnError::Form),
            ("nqn.2014-08.a b", NqnError::Form),
            ("nqn.2014-08.a\nb", NqnError::NotText { at: 13 }),
        ] {
            assert_eq!(wrong.parse::<Nqn>(), Err(why), "{wrong}");
        }
        let longest = alloc::format!("nqn.2014-08.{}", "x".repeat(211));
        assert!(longest.parse::<Nqn>().is_ok());
        assert_eq!(alloc::format!("{longest}x").parse::<Nqn>(), Err(NqnError::TooLong));
    }

    #[test]
    fn a_field_ends_with_a_nul_and_holds_text() {
        let field = |why| Err(WireError::Nqn { field: "SUBNQN", why });
        assert_eq!(Nqn::parse(&[0; 256], "SUBNQN"), field(NqnError::Empty));
        assert_eq!(Nqn::parse(&[b'n'; 256], "SUBNQN"), field(NqnError::TooLong));
        let mut bytes = [0; 256];
        bytes[..3].copy_from_slice(&[b'n', 0xff, b'n']);
        assert_eq!(Nqn::parse(&bytes, "SUBNQN"), field(NqnError::NotText { at: 1 }));
    }

    proptest! {
        #[test]
        fn names_round_trip(name in "[!-~é]{1,100}") {
            let name = Nqn::check(name.as_bytes()).unwrap();
            prop_assert_eq!(Nqn::parse(&name.emit(), "SUBNQN"), Ok(name));
        }
    }
}
