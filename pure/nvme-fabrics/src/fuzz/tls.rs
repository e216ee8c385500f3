//! Keys, identities and first messages of TLS.

use crate::tls::{Derivation, Identity, IdentityVersion, TlsKey, offered_identities};

/// Parses a key, an identity and a ClientHello. Identities lie within the message. A key must parse
/// to the same value after it is emitted, and an identity that parses must be emitted unchanged for
/// its host and subsystem.
pub fn tls(bytes: &[u8]) {
    assert!(offered_identities(bytes).map(<[u8]>::len).sum::<usize>() <= bytes.len());
    let text = core::str::from_utf8(bytes);
    if let Ok(key) = text.unwrap_or_default().parse::<TlsKey>() {
        assert_eq!(key.emit().parse(), Ok(key));
    }
    let Ok(identity) = Identity::parse(bytes) else { return };
    let key: TlsKey = "NVMeTLSkey-1:00:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:"
        .parse()
        .expect("the key is a published one");
    for version in IdentityVersion::ALL {
        let psk = key.psk(version, Derivation::Specified, &identity.host, &identity.subsystem);
        let again = Identity::parse(psk.identity.as_bytes());
        assert_eq!(again, Ok(Identity { version, hash: key.hash(), ..identity.clone() }));
    }
}
