//! Keys and identities of libnvme's tests, and derivations computed by Python's hashlib and hmac.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use engine::{Entropy, Rng};
use proptest::prelude::*;

use super::*;
use crate::authentication::Hash;
use crate::interchange::KeyFault;
use crate::wire::{NQN_FIELD_LENGTH, Nqn};

/// The configured PSKs of libnvme's tests (test/psk.c).
const PUBLISHED: [(&str, Option<Hash>, Hash); 3] = [
    ("NVMeTLSkey-1:00:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:", None, Hash::Sha256),
    ("NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:", Some(Hash::Sha256), Hash::Sha256),
    (
        "NVMeTLSkey-1:02:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwP/w0S89ELi3W2LxIcLXVsDn8kXZQ==:",
        Some(Hash::Sha384),
        Hash::Sha384,
    ),
];

fn nqn(text: &str) -> Nqn {
    let mut field = [0; NQN_FIELD_LENGTH];
    field[..text.len()].copy_from_slice(text.as_bytes());
    Nqn::parse(&field, "NQN").unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn published_keys_are_known_and_emitted_again() {
    for (text, retained_by, hash) in PUBLISHED {
        let key: TlsKey = text.parse().unwrap();
        assert_eq!((key.retained_by(), key.hash()), (retained_by, hash));
        assert_eq!(key.emit().as_str(), text);
        let shown = format!("{key:?}");
        assert!(!shown.contains("VRLb") && !shown.contains("85"), "{shown}");
    }
}

#[test]
fn identities_are_those_of_libnvme() {
    let (host, subsystem) = (nqn("nqn.psk-test-host"), nqn("nqn.psk-test-subsys"));
    let published = [
        (1, Derivation::Specified, "R01", "iSbjiStwJ/1TrTvDlt2fjFmzvsytOJelidNnA+X5lEU="),
        (2, Derivation::Specified, "R02", "QhW2+Rp6RzHlNtCslyRxMnwJ11tKKhz8JCAQpQ+XUD8f9td1VeH5h53yz2wKJG1a"),
        (1, Derivation::Libnvme, "R01", "66GuqV08TsAGII39teWUfwQwizjv06Jy8jOcX3NAAzM="),
        (2, Derivation::Libnvme, "R02", "RsKmYJ3nAn1ApjjMloJFbAkLPivONDAX/xW327YBUsn2eGShXSjCZvBaOxscLqmz"),
    ];
    for (key, derivation, head, digest) in published {
        let key: TlsKey = PUBLISHED[key].0.parse().unwrap();
        let psk = key.psk(IdentityVersion::One, derivation, &host, &subsystem);
        let expected = format!("NVMe1{head} nqn.psk-test-host nqn.psk-test-subsys {digest}");
        assert_eq!(psk.identity, expected);
        let parsed = Identity::parse(expected.as_bytes()).unwrap();
        let (hash, version) = (key.hash(), IdentityVersion::One);
        assert_eq!(parsed, Identity { version, hash, host: host.clone(), subsystem: subsystem.clone() });
    }
}

#[test]
fn handshake_secrets_match_those_computed_by_python() {
    let host = nqn("nqn.2014-08.org.nvmexpress:uuid:a0e8a8a2-1234-4321-9abc-0123456789ab");
    let subsystem = nqn("nqn.2026-01.io.farlane:disk");
    let short = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAl7OaH";
    let long = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAhIiMkJSYnKCkqKywtLi8wyg3Bcw==";
    // For each key: version 0 and 1 as specified, then version 0 and 1 as libnvme did it.
    let computed = [
        (
            format!("NVMeTLSkey-1:01:{short}:"),
            [
                "d0346bf6614ae920cfc2f0d2b6a91a530893adca6dc0b5605a5ecf01e13fa762",
                "1a2d93308c36fd90d7342279f03ab7124727fb1ff7d7f8b6ea828ae575cfde68",
                "f635a3491702140c105200f7c41732a7adc4de527fa037a8167c4314e3150960",
                "8d5bbcd2013b2532445bcd029fd8b97133ab92e148a8769680ee38b64c5f4f1a",
            ],
        ),
        (
            format!("NVMeTLSkey-1:02:{long}:"),
            [
                "a46d9e5b96774a0cd24c0c57541ca9472abef6b5152a7ba50463181c8468dc7b765d3ccb59a277b1ea47a8a444d8c11c",
                "9585bd6e4e26672e124dc65a26190bc1418236077ff03bc2ab76731d5ff6469fac51a4763633cb0b9f438ae2389acfff",
                "bfeb746dc3642db1d2e2a207eb91ac08a48da7ec74d0cb53be0ed4af1f12403d71e2de6f42abace891b2868f9eb7a469",
                "c5ccad0d6c763be9e5b76edca719d1032b089a3ffdec6ef2b6a07ce3157bf1e773a1f25d3f83100d3f158881a47ea48a",
            ],
        ),
        (
            format!("NVMeTLSkey-1:00:{short}:"),
            [
                "c500b348543bc3dafe3734e0c9f9a53931e715e882af06427d4dce4b8bc36ad2",
                "bf5ab2724b0093723f4ae7301d71e07d51fcdfb863bf68bd0a8c3ef4390f11c5",
                "c7524b01cbc46d72e1873f1233bf84dd39fb5c369b168b6d24a620ff157c266b",
                "d9ac1e7beb5ddbb4b34e5b48eb148856c57ec9df314acae83e74842f572feca4",
            ],
        ),
        (
            format!("NVMeTLSkey-1:00:{long}:"),
            [
                "aa8069289c11da3899dc4929670a9de79d9f7b8734bf68ff00825dc1ea6a8786a4da4b28aa74cbbf684e948255376232",
                "9d506dcb2ea14f4c1c9f18c3180bfa22a5a50097618f9211a076e4cf660f04c69fe31c5b7a773d234342c526a8e82200",
                "d00db68f30d8f91193341ec41426534c8dade75e13d9284a9bacee74c66a947b0d7632eddab45267164952d228cdfd1d",
                "ab98c1a4e97358aeb97e0dcf3719fb5d37eff47ea874f804e1ab6d60438f29aa6910f7bb34ed77b470edef962087a16e",
            ],
        ),
    ];
    for (text, secrets) in computed {
        let key: TlsKey = text.parse().unwrap();
        let mut found = secrets.iter();
        for derivation in [Derivation::Specified, Derivation::Libnvme] {
            for version in [IdentityVersion::Zero, IdentityVersion::One] {
                let psk = key.psk(version, derivation, &host, &subsystem);
                assert_eq!(hex(&psk.secret), *found.next().unwrap(), "{text} {derivation:?} {version:?}");
                assert_eq!(psk.hash, key.hash());
            }
        }
    }
}

#[test]
fn a_key_has_an_identity_for_each_way_of_the_other_end() {
    let (host, subsystem) = (nqn("nqn.psk-test-host"), nqn("nqn.psk-test-subsys"));
    let identities = |text: &str| {
        let tls = TlsCredentials { key: text.parse().unwrap(), origin: String::new() };
        tls.psks(&host, &subsystem).into_iter().map(|psk| psk.identity).collect::<Vec<_>>()
    };
    let found = identities(PUBLISHED[1].0);
    let heads: Vec<&str> = found.iter().map(|identity| &identity[..8]).collect();
    assert_eq!(heads, ["NVMe1R01", "NVMe1R01", "NVMe0R01"]);
    assert_ne!(found[0], found[1]);
    // The digest of a key that is used as it is does not depend on the derivation.
    assert_eq!(identities(PUBLISHED[0].0).len(), 2);
}

#[test]
fn an_invalid_key_is_refused_with_a_reason() {
    let wrong = [
        ("NVMeTLSkey-1:03:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:", KeyFault::Hash(3)),
        ("NVMeTLSkey-1:02:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:", KeyFault::KeyLength(32)),
        ("NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrY:", KeyFault::Check),
        ("DHHC-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:", KeyFault::Prefix),
        ("NVMeTLSkey-1:01:VRLb:", KeyFault::KeyLength(0)),
        ("", KeyFault::Prefix),
    ];
    for (text, fault) in wrong {
        let error = text.parse::<TlsKey>().unwrap_err();
        assert_eq!(error.fault, fault, "{text}");
        assert!(text.len() < 20 || !error.to_string().contains("VRLbtnN9"), "the text stays secret");
    }
}

#[test]
fn an_invalid_identity_is_refused_with_a_reason() {
    let (host, disk) = ("nqn.2014-08.org.example:host", "nqn.2014-08.org.example:disk");
    let wrong = [
        (format!("NVMe2R01 {host} {disk} AAAA"), IdentityError::Version('2')),
        (format!("NVMe1G01 {host} {disk} AAAA"), IdentityError::Generated),
        (format!("NVMe1R03 {host} {disk} AAAA"), IdentityError::Hash),
        (format!("NVMe1R01 {host} {disk}"), IdentityError::Form),
        (format!("NVMe1R01 {host} {disk} "), IdentityError::Form),
        (format!("NVMe0R01 {host} {disk} AAAA"), IdentityError::Form),
        (format!("NVMe0R01 {host}"), IdentityError::Form),
        (format!("NVMe0R01 {host}  {disk}"), IdentityError::Form),
        (format!("NVMe0R01  {disk}"), IdentityError::Name),
        ("Client_identity".into(), IdentityError::Form),
        ("NVMe\u{e9}01 a b".into(), IdentityError::Form),
        ("".into(), IdentityError::Form),
        ("N".repeat(IDENTITY_MAX + 1), IdentityError::Long(IDENTITY_MAX + 1)),
    ];
    for (text, why) in wrong {
        assert_eq!(Identity::parse(text.as_bytes()).unwrap_err(), why, "{text}");
    }
    assert_eq!(Identity::parse(&[0xff; 40]), Err(IdentityError::Form));
}

#[test]
fn the_longest_identity_fits_its_limit() {
    let longest = nqn(&format!("nqn.{}", "x".repeat(219)));
    let key = TlsKey::generate(Hash::Sha384, &mut Entropy::from(Rng::from_seed(7)));
    let psk = key.psk(IdentityVersion::One, Derivation::Specified, &longest, &longest);
    assert_eq!(psk.identity.len(), IDENTITY_MAX);
    assert_eq!(Identity::parse(psk.identity.as_bytes()).unwrap().host, longest);
}

proptest! {
    #[test]
    fn generated_keys_survive_their_text(seed: u64, long: bool) {
        let hash = if long { Hash::Sha384 } else { Hash::Sha256 };
        let key = TlsKey::generate(hash, &mut Entropy::from(Rng::from_seed(seed)));
        prop_assert_eq!(key.emit().parse::<TlsKey>().unwrap(), key);
    }
}
