//! The certificate: bytes in = bytes stored + gaps declared; in a ring, + bytes overwritten.

use alloc::vec;
use alloc::vec::Vec;

use super::{STREAMS_MAX, u32_at, u64_at};
use crate::digest::Algorithm;
use crate::sequence::{RULE_LENGTH, SequenceRule};

/// Length of the head that precedes the streams, in bytes.
const HEAD: usize = 96;
/// Length of a stream's account in bytes.
const LENGTH: usize = 64;

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Every source ended.
    SourceEnded,
    /// A user or a program asked for the end.
    Asked,
    /// The time or the size that was asked for is reached.
    Limit,
    /// The medium is full.
    Full,
    /// The medium failed.
    Failed,
    /// The recording was cut off, and recovered later.
    Recovered,
    /// Another reason, by its number in the format.
    Other(u8),
}

impl Reason {
    /// The words for reports.
    pub const fn words(self) -> &'static str {
        match self {
            Self::SourceEnded => "source ended",
            Self::Asked => "asked to end",
            Self::Limit => "limit reached",
            Self::Full => "medium full",
            Self::Failed => "medium failed",
            Self::Recovered => "recovered",
            Self::Other(_) => "other",
        }
    }

    const fn byte(self) -> u8 {
        match self {
            Self::SourceEnded => 0,
            Self::Asked => 1,
            Self::Limit => 2,
            Self::Full => 3,
            Self::Failed => 4,
            Self::Recovered => 5,
            Self::Other(byte) => byte,
        }
    }

    const fn of(byte: u8) -> Self {
        match byte {
            0 => Self::SourceEnded,
            1 => Self::Asked,
            2 => Self::Limit,
            3 => Self::Full,
            4 => Self::Failed,
            5 => Self::Recovered,
            other => Self::Other(other),
        }
    }
}

/// The account of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamTotals {
    /// Bytes that came, lost ones included.
    pub bytes_in: u64,
    /// Bytes that are on the medium.
    pub stored: u64,
    /// Bytes that gap records declare.
    pub lost: u64,
    /// Bytes that a ring no longer holds, lost ones among them. The bytes stored or lost above are
    /// those that it holds.
    pub overwritten: u64,
    /// The digest of the stored bytes, in the stream's order. In a ring: of the digest of each
    /// chunk's bytes, one behind the other.
    pub digest: [u8; 32],
}

/// The first bytes of the signed text of a certificate. They make its signature useless for any
/// other text.
const SIGNED_LABEL: &[u8] = b"farlane recording certificate\0";
/// Length of a public key and of a signature in bytes, together.
const SIGNATURE: usize = 96;
/// The rule of a stream whose superblock does not say by which rule losses were found.
const RULE_NOT_SAID: [u8; RULE_LENGTH] = [0xff; RULE_LENGTH];
/// The value of byte 3 of a certificate that names the rules of sequence.
const WITH_RULES: u8 = 1;

/// The signer of a certificate (Ed25519, RFC 8032).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The public key.
    pub key: [u8; 32],
    /// The signature of [`Certificate::signed_bytes`].
    pub signature: [u8; 64],
}

/// The payload of the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Why the recording ended.
    pub reason: Reason,
    /// The algorithm of the digests. With none, they are zero, and only CRC32C detects changes.
    pub algorithm: Algorithm,
    /// Every slot of the recording has a lower number.
    pub slots: u64,
    /// The number of gap records.
    pub gaps: u64,
    /// The number of bad slots that are known and accounted for.
    pub bad: u64,
    /// The most bytes that were in the recorder's buffer.
    pub high_water: u64,
    /// The slot of the last index chunk; 0 if there is none.
    pub index: u64,
    /// The digest of all streams: see [`Algorithm::digest_of_all`].
    pub digest: [u8; 32],
    /// The accounts of the streams, by number.
    pub streams: Vec<StreamTotals>,
    /// The bytes of the rule of sequence of each stream, `RULE_NOT_SAID` if the superblock does
    /// not say it. Empty in certificates without a signature and in those of older recorders.
    pub rules: Vec<[u8; RULE_LENGTH]>,
    /// The signature, if the certificate has one.
    pub signature: Option<Signature>,
}

impl Certificate {
    /// Bytes that came in all streams.
    pub fn bytes_in(&self) -> u64 {
        self.streams.iter().fold(0, |sum, stream| sum.saturating_add(stream.bytes_in))
    }

    /// Bytes of all streams on the medium.
    pub fn bytes_stored(&self) -> u64 {
        self.streams.iter().fold(0, |sum, stream| sum.saturating_add(stream.stored))
    }

    /// Bytes of all streams that were lost, each in a declared gap.
    pub fn bytes_lost(&self) -> u64 {
        self.streams.iter().fold(0, |sum, stream| sum.saturating_add(stream.lost))
    }

    /// Bytes of all streams that a ring does not hold any more.
    pub fn bytes_overwritten(&self) -> u64 {
        self.streams.iter().fold(0, |sum, stream| sum.saturating_add(stream.overwritten))
    }

    /// Names the rules of sequence of the streams: those that `rule` gives.
    pub(crate) fn name_rules(&mut self, rule: impl Fn(usize) -> Option<SequenceRule>) {
        let bytes = |stream| rule(stream).map_or(RULE_NOT_SAID, SequenceRule::emit);
        self.rules = (0..self.streams.len()).map(bytes).collect();
    }

    /// The rule of sequence of a stream; `None` if the superblock did not say it when the
    /// certificate was signed.
    pub(crate) fn rule(&self, stream: usize) -> Option<SequenceRule> {
        self.rules.get(stream).filter(|bytes| **bytes != RULE_NOT_SAID).map(SequenceRule::parse)
    }

    /// Writes the certificate to the start of `payload`. Returns the length in bytes.
    ///
    /// # Panics
    /// When there are more than [`STREAMS_MAX`] streams, or another number of rules than streams.
    pub fn emit(&self, payload: &mut [u8]) -> usize {
        assert!(self.streams.len() <= STREAMS_MAX, "too many streams");
        assert!(self.rules.is_empty() || self.rules.len() == self.streams.len(), "a rule for each stream");
        let end = self.unsigned_length();
        let (head, records) = payload.split_at_mut(HEAD);
        head.fill(0);
        head[0] = self.reason.byte();
        head[1] = self.algorithm.byte();
        head[2] = u8::from(self.signature.is_some());
        head[3] = if self.rules.is_empty() { 0 } else { WITH_RULES };
        head[4..8].copy_from_slice(&u32::try_from(self.streams.len()).unwrap_or(u32::MAX).to_le_bytes());
        for (at, value) in [self.slots, self.gaps, self.bad, self.high_water, self.index].iter().enumerate() {
            head[8 + at * 8..16 + at * 8].copy_from_slice(&value.to_le_bytes());
        }
        head[64..96].copy_from_slice(&self.digest);
        for (stream, record) in self.streams.iter().zip(records.chunks_exact_mut(LENGTH)) {
            record.fill(0);
            record[0..8].copy_from_slice(&stream.bytes_in.to_le_bytes());
            record[8..16].copy_from_slice(&stream.stored.to_le_bytes());
            record[16..24].copy_from_slice(&stream.lost.to_le_bytes());
            record[24..32].copy_from_slice(&stream.overwritten.to_le_bytes());
            record[32..64].copy_from_slice(&stream.digest);
        }
        let rules = records[self.streams.len() * LENGTH..].chunks_exact_mut(RULE_LENGTH);
        self.rules.iter().zip(rules).for_each(|(rule, bytes)| bytes.copy_from_slice(rule));
        let Some(Signature { key, signature }) = &self.signature else { return end };
        payload[end..end + key.len()].copy_from_slice(key);
        payload[end + key.len()..end + SIGNATURE].copy_from_slice(signature);
        end + SIGNATURE
    }

    const fn unsigned_length(&self) -> usize {
        HEAD + self.streams.len() * LENGTH + self.rules.len() * RULE_LENGTH
    }

    /// The signed text: a label, the name of the recording, and the payload of the signed
    /// certificate up to the public key.
    ///
    /// # Panics
    /// When there are more than [`STREAMS_MAX`] streams.
    pub fn signed_bytes(&self, recording: [u8; 16]) -> Vec<u8> {
        let signature = Some(Signature { key: [0; 32], signature: [0; 64] });
        let mut payload = vec![0; self.unsigned_length() + SIGNATURE];
        Self { signature, ..self.clone() }.emit(&mut payload);
        [SIGNED_LABEL, &recording, &payload[..self.unsigned_length()]].concat()
    }

    /// Parses a payload; `None` if it is no certificate.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let (head, records) = payload.split_at_checked(HEAD)?;
        let count = u32_at(head, 4) as usize;
        let (records, behind) = records.split_at_checked(count.min(STREAMS_MAX + 1) * LENGTH)?;
        if count > STREAMS_MAX {
            return None;
        }
        let named = match head[3] {
            0 => 0,
            WITH_RULES => count,
            _ => return None,
        };
        let (rules, behind) = behind.split_at_checked(named * RULE_LENGTH)?;
        let algorithm = Algorithm::of(head[1])?;
        let digest = |bytes: &[u8]| core::array::from_fn(|at| bytes[at]);
        let signature = match head[2] & 1 == 1 {
            true => {
                let (key, signature) = behind.get(..SIGNATURE)?.split_at(32);
                let signature = core::array::from_fn(|at| signature[at]);
                Some(Signature { key: digest(key), signature })
            }
            false => None,
        };
        let streams = records.chunks_exact(LENGTH).map(|record| StreamTotals {
            bytes_in: u64_at(record, 0),
            stored: u64_at(record, 8),
            lost: u64_at(record, 16),
            overwritten: u64_at(record, 24),
            digest: digest(&record[32..]),
        });
        Some(Self {
            reason: Reason::of(head[0]),
            algorithm,
            slots: u64_at(head, 8),
            gaps: u64_at(head, 16),
            bad: u64_at(head, 24),
            high_water: u64_at(head, 32),
            index: u64_at(head, 40),
            digest: digest(&head[64..]),
            streams: streams.collect(),
            rules: rules.as_chunks().0.to_vec(),
            signature,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_comes_back_with_and_without_signature() {
        let stream = StreamTotals { bytes_in: 5, stored: 4, lost: 1, overwritten: 0, digest: [7; 32] };
        let mut certificate = Certificate {
            reason: Reason::Asked,
            algorithm: Algorithm::Blake3,
            slots: 9,
            gaps: 1,
            bad: 0,
            high_water: 77,
            index: 8,
            digest: [6; 32],
            streams: vec![stream; 3],
            rules: Vec::new(),
            signature: None,
        };
        let mut payload = [0xa5; 1_000];
        let length = certificate.emit(&mut payload);
        assert_eq!(Certificate::parse(&payload[..length]).as_ref(), Some(&certificate));
        let signed = certificate.signed_bytes([3; 16]);
        certificate.signature = Some(Signature { key: [1; 32], signature: [2; 64] });
        let length = certificate.emit(&mut payload);
        assert_eq!(Certificate::parse(&payload[..length]).as_ref(), Some(&certificate));
        assert_eq!(Certificate::parse(&payload[..length - 1]), None);
        // The signature covers everything but itself, and whether there is one.
        assert_eq!(signed, certificate.signed_bytes([3; 16]));
        assert!(signed.ends_with(&payload[..length - SIGNATURE]));
        certificate.high_water += 1;
        assert_ne!(signed, certificate.signed_bytes([3; 16]));
    }

    #[test]
    fn a_signature_covers_the_rules_that_the_certificate_names() {
        let stream = StreamTotals { bytes_in: 5, stored: 5, lost: 0, overwritten: 0, digest: [7; 32] };
        let mut certificate = Certificate {
            reason: Reason::Asked,
            algorithm: Algorithm::Blake3,
            slots: 9,
            gaps: 0,
            bad: 0,
            high_water: 77,
            index: 8,
            digest: [6; 32],
            streams: vec![stream; 2],
            rules: Vec::new(),
            signature: None,
        };
        // The message of older recorders stays as it was.
        let old = certificate.signed_bytes([3; 16]);
        assert_eq!(old.len(), SIGNED_LABEL.len() + 16 + HEAD + 2 * LENGTH);
        assert_eq!(old[SIGNED_LABEL.len() + 16..][..4], [1, 2, 1, 0]);
        let rtp = SequenceRule::Numbers { protocol: crate::sequence::Protocol::Rtp, window: 7 };
        certificate.name_rules(|stream| (stream == 1).then_some(rtp));
        certificate.signature = Some(Signature { key: [1; 32], signature: [2; 64] });
        assert_eq!((certificate.rule(0), certificate.rule(1)), (None, Some(rtp)));
        let mut payload = [0xa5; 1_000];
        let length = certificate.emit(&mut payload);
        let parsed = Certificate::parse(&payload[..length]).unwrap();
        assert_eq!(parsed, certificate);
        let signed = parsed.signed_bytes([3; 16]);
        assert_eq!(signed.len(), old.len() + 2 * RULE_LENGTH);
        for byte in length - SIGNATURE - 2 * RULE_LENGTH..length - SIGNATURE {
            let mut changed = payload;
            changed[byte] ^= 1;
            let changed = Certificate::parse(&changed[..length]).unwrap();
            assert_ne!(changed.signed_bytes([3; 16]), signed, "{byte}");
        }
        // A later version is no certificate to this one.
        payload[3] = 2;
        assert_eq!(Certificate::parse(&payload[..length]), None);
    }
}
