//! The keys of TLS 1.3 records, derived from traffic secrets (RFC 8446, 7.1 to 7.3).

use std::fmt;

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{self, KeyType, Prk};
use zeroize::Zeroizing;

/// The bytes by which a record grows: those of an authentication tag.
pub(super) const TAG_LENGTH: usize = 16;

/// A cipher suite of TLS 1.3.
#[derive(Clone, Copy)]
pub(super) struct Suite {
    cipher: &'static aead::Algorithm,
    hash: hkdf::Algorithm,
}

impl Suite {
    /// The suite of this name, if it is known.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "TLS_AES_128_GCM_SHA256" => Self { cipher: &aead::AES_128_GCM, hash: hkdf::HKDF_SHA256 },
            "TLS_AES_256_GCM_SHA384" => Self { cipher: &aead::AES_256_GCM, hash: hkdf::HKDF_SHA384 },
            "TLS_CHACHA20_POLY1305_SHA256" => {
                Self { cipher: &aead::CHACHA20_POLY1305, hash: hkdf::HKDF_SHA256 }
            }
            _ => return None,
        })
    }

    /// The length of a traffic secret: that of the hash.
    fn secret_length(self) -> usize {
        self.hash.hmac_algorithm().digest_algorithm().output_len()
    }
}

/// The key of one direction, and the number of the next record.
pub(super) struct TrafficKey {
    suite: Suite,
    secret: Zeroizing<Vec<u8>>,
    key: LessSafeKey,
    iv: [u8; aead::NONCE_LEN],
    sequence: u64,
}

impl TrafficKey {
    /// The key of `secret`, for record 0.
    ///
    /// # Errors
    /// When `secret` does not have the length of the suite's hash.
    pub(super) fn new(suite: Suite, secret: Zeroizing<Vec<u8>>) -> Result<Self, Unspecified> {
        if secret.len() != suite.secret_length() {
            return Err(Unspecified);
        }
        let prk = Prk::new_less_safe(suite.hash, &secret);
        let key = expand_label(&prk, "key", suite.cipher.key_len())?;
        let mut iv = [0; aead::NONCE_LEN];
        iv.copy_from_slice(&expand_label(&prk, "iv", aead::NONCE_LEN)?);
        let key = LessSafeKey::new(UnboundKey::new(suite.cipher, &key)?);
        Ok(Self { suite, secret, key, iv, sequence: 0 })
    }

    /// Goes on to the next secret, as a KeyUpdate message says.
    ///
    /// # Errors
    /// When the library cannot derive a key.
    pub(super) fn update(&mut self) -> Result<(), Unspecified> {
        let prk = Prk::new_less_safe(self.suite.hash, &self.secret);
        let next = expand_label(&prk, "traffic upd", self.suite.secret_length())?;
        *self = Self::new(self.suite, next)?;
        Ok(())
    }

    /// How many records the key has protected.
    pub(super) const fn used(&self) -> u64 {
        self.sequence
    }

    /// Goes on as if so many more records were protected, for tests.
    pub(super) const fn skip(&mut self, records: u64) {
        self.sequence += records;
    }

    /// Seals `plain` and its content type `kind` into `sealed`, which has room for both and the
    /// tag.
    ///
    /// # Errors
    /// When the library refuses.
    pub(super) fn seal(
        &mut self,
        header: &[u8],
        plain: &[u8],
        kind: u8,
        sealed: &mut [u8],
    ) -> Result<(), Unspecified> {
        let (text, end) = sealed.split_at_mut_checked(plain.len()).ok_or(Unspecified)?;
        let (nonce, aad) = (self.nonce(), Aad::from(header));
        self.key.seal_out_of_place_scatter(nonce, aad, plain, text, &[kind], end)?;
        self.sequence += 1;
        Ok(())
    }

    /// Seals `record` where it is: plain bytes with their content type, and room for the tag.
    ///
    /// # Errors
    /// When the library refuses.
    pub(super) fn seal_in_place(&mut self, header: &[u8], record: &mut [u8]) -> Result<(), Unspecified> {
        let length = record.len().checked_sub(TAG_LENGTH).ok_or(Unspecified)?;
        let (text, end) = record.split_at_mut(length);
        let (nonce, aad) = (self.nonce(), Aad::from(header));
        let tag = self.key.seal_in_place_separate_tag(nonce, aad, text)?;
        end.copy_from_slice(tag.as_ref());
        self.sequence += 1;
        Ok(())
    }

    /// Opens `sealed` into `plain`, which is shorter by a tag.
    ///
    /// # Errors
    /// When the record was not sealed by the other end as its next one.
    pub(super) fn open(&mut self, header: &[u8], sealed: &[u8], plain: &mut [u8]) -> Result<(), Unspecified> {
        let (text, tag) = sealed.split_at_checked(plain.len()).ok_or(Unspecified)?;
        self.key.open_separate_gather(self.nonce(), Aad::from(header), text, tag, plain)?;
        self.sequence += 1;
        Ok(())
    }

    /// Opens `sealed` where it is. The plain bytes are in front of the place of the tag.
    ///
    /// # Errors
    /// When the record was not sealed by the other end as its next one.
    pub(super) fn open_in_place(&mut self, header: &[u8], sealed: &mut [u8]) -> Result<(), Unspecified> {
        self.key.open_in_place(self.nonce(), Aad::from(header), sealed)?;
        self.sequence += 1;
        Ok(())
    }

    /// The nonce of the next record (RFC 8446, 5.3).
    fn nonce(&self) -> Nonce {
        let mut nonce = self.iv;
        for (byte, part) in nonce[aead::NONCE_LEN - 8..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= part;
        }
        Nonce::assume_unique_for_key(nonce)
    }
}

impl fmt::Debug for TrafficKey {
    /// Hides the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrafficKey").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

/// The number of bytes that a derivation gives.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand-Label without a context.
fn expand_label(prk: &Prk, label: &str, length: usize) -> Result<Zeroizing<Vec<u8>>, Unspecified> {
    const PREFIX: &str = "tls13 ";
    let label_length = u8::try_from(PREFIX.len() + label.len()).map_err(|_| Unspecified)?;
    let length_bytes = u16::try_from(length).map_err(|_| Unspecified)?.to_be_bytes();
    let info = [&length_bytes[..], &[label_length], PREFIX.as_bytes(), label.as_bytes(), &[0]];
    let mut bytes = Zeroizing::new(vec![0; length]);
    prk.expand(&info, Length(length))?.fill(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(pair).collect()
    }

    /// The server's application data of RFC 8448, section 3.
    #[test]
    fn a_secret_gives_the_key_and_the_records_of_the_specification() {
        let secret = "a1 1a f9 f0 55 31 f8 56 ad 47 11 6b 45 a9 50 32 82 04 b4 f4 4b fb 6b 3a 4b 4f 1f 3f \
                      cb 63 16 43";
        let suite = Suite::of_name("TLS_AES_128_GCM_SHA256").unwrap();
        let prk = Prk::new_less_safe(suite.hash, &bytes(secret));
        assert_eq!(
            *expand_label(&prk, "key", 16).unwrap(),
            bytes("9f 02 28 3b 6c 9c 07 ef c2 6b b9 f2 ac 92 e3 56")
        );
        assert_eq!(*expand_label(&prk, "iv", 12).unwrap(), bytes("cf 78 2b 88 dd 83 54 9a ad f1 e9 84"));
        assert!(TrafficKey::new(suite, Zeroizing::new(vec![1; 48])).is_err());
        assert!(Suite::of_name("TLS_AES_128_CCM_SHA256").is_none());
    }

    #[test]
    fn both_ways_of_sealing_and_opening_agree_and_a_number_is_used_once() {
        for name in ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"] {
            let suite = Suite::of_name(name).unwrap();
            let key = || TrafficKey::new(suite, Zeroizing::new(vec![7; suite.secret_length()])).unwrap();
            let (mut one, mut other, mut end) = (key(), key(), key());
            let header = [23, 3, 3, 0, 22];
            for round in 0..3 {
                let mut apart = vec![0; 5 + 1 + TAG_LENGTH];
                one.seal(&header, b"plain", 23, &mut apart).unwrap();
                let mut within = [b"plain\x17".as_slice(), &[0; TAG_LENGTH]].concat();
                other.seal_in_place(&header, &mut within).unwrap();
                assert_eq!(apart, within, "{name}, record {round}");
                let mut plain = [0; 6];
                if round == 1 {
                    end.open_in_place(&header, &mut within).unwrap();
                    plain.copy_from_slice(&within[..6]);
                } else {
                    end.open(&header, &apart, &mut plain).unwrap();
                }
                assert_eq!(&plain, b"plain\x17");
                // The same record is not the next one.
                assert!(end.open(&header, &apart, &mut plain).is_err());
                for key in [&mut one, &mut other, &mut end] {
                    assert_eq!(key.used(), 1);
                    key.update().unwrap();
                    assert_eq!(key.used(), 0);
                }
            }
        }
    }
}
