//! The pre-shared keys that a TLS ClientHello offers, for messages to a person.

/// The extension `pre_shared_key` (RFC 8446, 4.2).
const PRE_SHARED_KEY: u16 = 41;

/// A cursor over untrusted bytes.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// A number of `width` bytes, at most 4, in network order.
    fn number(&mut self, width: usize) -> Option<usize> {
        let bytes = self.take(width)?;
        Some(bytes.iter().fold(0, |value, byte| value << 8 | usize::from(*byte)))
    }

    /// Bytes that follow their length, which has `width` bytes.
    fn vector(&mut self, width: usize) -> Option<&'a [u8]> {
        let length = self.number(width)?;
        self.take(length)
    }
}

/// The identities that `hello`, a ClientHello without its handshake header, offers, in its order.
/// None if the message is malformed.
pub fn offered_identities(hello: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut offered = Cursor(offered(hello).unwrap_or_default());
    core::iter::from_fn(move || {
        let identity = offered.vector(2)?;
        // The age of a ticket.
        offered.take(4)?;
        Some(identity)
    })
}

/// The list of identities in the extension.
fn offered(hello: &[u8]) -> Option<&[u8]> {
    let mut hello = Cursor(hello);
    // Version and random value; session; cipher suites; compression methods.
    hello.take(2 + 32)?;
    hello.vector(1)?;
    hello.vector(2)?;
    hello.vector(1)?;
    let mut extensions = Cursor(hello.vector(2)?);
    loop {
        let kind = extensions.number(2)?;
        let bytes = extensions.vector(2)?;
        if kind == usize::from(PRE_SHARED_KEY) {
            return Cursor(bytes).vector(2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::offered_identities as identities;
    use alloc::vec::Vec;

    fn hello(identities: &[&[u8]]) -> Vec<u8> {
        let mut list = Vec::new();
        for identity in identities {
            list.extend(u16::try_from(identity.len()).unwrap().to_be_bytes());
            list.extend(*identity);
            list.extend([0; 4]);
        }
        let mut extension = u16::try_from(list.len()).unwrap().to_be_bytes().to_vec();
        extension.extend(list);
        let mut extensions = vec![0, 43, 0, 3, 2, 3, 4, 0, 41];
        extensions.extend(u16::try_from(extension.len()).unwrap().to_be_bytes());
        extensions.extend(extension);
        let mut hello = vec![3, 3];
        hello.extend([7; 32]);
        hello.extend([0, 0, 2, 0x13, 1, 1, 0]);
        hello.extend(u16::try_from(extensions.len()).unwrap().to_be_bytes());
        hello.extend(extensions);
        hello
    }

    #[test]
    fn identities_are_found_and_cut_messages_have_none_more() {
        let whole = hello(&[b"one", b"two"]);
        assert_eq!(identities(&whole).collect::<Vec<_>>(), [b"one", b"two"]);
        for length in 0..whole.len() {
            assert!(identities(&whole[..length]).count() == 0, "{length}");
        }
        assert_eq!(identities(&hello(&[])).count(), 0);
    }
}
