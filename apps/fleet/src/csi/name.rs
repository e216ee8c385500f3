//! The names of a fleet's objects that CSI calls are about.

use std::fmt::Write as _;

use fleet::Name;
use sha2::{Digest, Sha256};

/// How derived names begin.
const DERIVED: &str = "csi-";
/// How many bytes of a digest a derived name has.
const DIGEST_BYTES: usize = 20;

/// The name of the volume that a CSI volume name of any form stands for: that name if it is one of
/// a fleet, or else one that is derived from it.
pub(super) fn of_volume(csi: &str) -> String {
    let is_kept = Name::new(csi).is_ok() && !is_derived(csi);
    if is_kept { csi.to_owned() } else { derived(&[csi]) }
}

/// The name of the attachment of a volume to a node.
pub(super) fn of_attachment(volume: &str, node: &str) -> String {
    derived(&[volume, node])
}

/// A name from a digest of texts, none of which has a zero byte unless it is the only one.
fn derived(texts: &[&str]) -> String {
    let digest = Sha256::digest(texts.join("\0").as_bytes());
    let mut name = DERIVED.to_owned();
    for byte in &digest[..DIGEST_BYTES] {
        let _ = write!(name, "{byte:02x}");
    }
    name
}

/// Whether a name may have been derived. Such CSI names are not kept, lest two names meet.
fn is_derived(name: &str) -> bool {
    let digits = name.strip_prefix(DERIVED);
    digits.is_some_and(|digits| {
        digits.len() == 2 * DIGEST_BYTES && digits.bytes().all(|b| b.is_ascii_hexdigit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_has_a_name_of_its_own() {
        assert_eq!(of_volume("pvc-8a1b"), "pvc-8a1b");
        let long = "x".repeat(128);
        for text in ["Data 1", "ü", "", "a/../b", &long, "a.b"] {
            let name = of_volume(text);
            assert!(Name::new(&name).is_ok(), "{name}");
            assert_eq!(name, of_volume(text));
            assert_ne!(name, text);
        }
        let derived = of_volume("Data 1");
        assert_ne!(of_volume(&derived), derived);
        assert_ne!(of_attachment("a", "b"), of_attachment("b", "a"));
        assert!(Name::new(&of_attachment("a", "b")).is_ok());
    }
}
