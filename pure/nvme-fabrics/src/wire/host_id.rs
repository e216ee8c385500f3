//! Host Identifiers.

use core::fmt;

/// Host Identifier (HOSTID): 128 bits that identify a host to every controller that it uses.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub [u8; 16]);

impl fmt::Display for HostId {
    /// Formats the identifier as a UUID.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn it_shows_as_a_uuid() {
        let mut id = HostId::default();
        id.0[0] = 0x12;
        id.0[15] = 0xef;
        assert_eq!(id.to_string(), "12000000-0000-0000-0000-0000000000ef");
    }
}
