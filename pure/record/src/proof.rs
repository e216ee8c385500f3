//! Proof: whether a medium has the bytes that its certificate names. The only checker, for reading
//! a recording and for recovering one.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;

use crate::digest::Algorithm;
use crate::format::{Certificate, Gap, StreamTotals};
use crate::scan::Survey;
use crate::sequence::SequenceRule;

/// Why a recording does not prove itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// There is no certificate.
    NoCertificate,
    /// Bytes are neither stored nor declared as lost.
    Missing {
        /// How many places there are.
        holes: usize,
    },
    /// Bytes are stored and declared as lost, too.
    Overlap,
    /// More slots are bad than the certificate says.
    Bad {
        /// How many are.
        found: u64,
        /// How many the certificate knows.
        certified: u64,
    },
    /// The certificate has another number of streams.
    Streams {
        /// How many there are.
        found: usize,
        /// How many the certificate has.
        certified: usize,
    },
    /// The account of a stream is another.
    Account {
        /// The number of the stream.
        stream: usize,
    },
    /// The superblock has another rule of sequence for a stream than the certificate.
    Rule {
        /// The number of the stream.
        stream: usize,
        /// The rule in the superblock; `None` if it does not say one.
        found: Option<SequenceRule>,
        /// The rule in the certificate.
        certified: Option<SequenceRule>,
    },
    /// The digest of a stream is another.
    Digest {
        /// The number of the stream.
        stream: usize,
    },
    /// The digest of all streams is another.
    DigestOfAll,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCertificate => write!(f, "it has no certificate"),
            Self::Missing { holes } => {
                write!(f, "at {holes} places, bytes are neither stored nor declared as lost")
            }
            Self::Overlap => write!(f, "bytes are stored and declared as lost, too"),
            Self::Bad { found, certified } => {
                write!(f, "{found} slots are bad, and the certificate knows {certified}")
            }
            Self::Streams { found, certified } => {
                write!(f, "it has {found} streams, and the certificate {certified}")
            }
            Self::Account { stream } => write!(f, "the certificate's account of stream {stream} is wrong"),
            Self::Rule { stream, found, certified } => {
                let words = |rule: &Option<SequenceRule>| {
                    rule.map_or_else(|| "not known".to_string(), |rule| format!("'{rule}'"))
                };
                write!(f, "the rule of sequence of stream {stream} was changed after the recording: ")?;
                write!(
                    f,
                    "it is {} in the superblock and {} in the certificate",
                    words(found),
                    words(certified)
                )
            }
            Self::Digest { stream } => write!(f, "the certificate's digest of stream {stream} is wrong"),
            Self::DigestOfAll => write!(f, "the certificate's digest of all streams is wrong"),
        }
    }
}

impl Survey {
    /// Why the certificate and these digests of the streams' stored bytes, by
    /// [`Survey::algorithm`], don't prove that every byte is stored or declared as lost;
    /// `None` if they do.
    pub fn doubt(&self, digests: &[[u8; 32]]) -> Option<Doubt> {
        let doubt = self.doubt_of_account();
        doubt.or_else(|| self.doubt_of_digests(digests))
    }

    /// The same without the digests.
    pub fn doubt_of_account(&self) -> Option<Doubt> {
        let Some(certificate) = &self.certificate else { return Some(Doubt::NoCertificate) };
        if !self.holes.is_empty() {
            return Some(Doubt::Missing { holes: self.holes.len() });
        }
        if self.overlap {
            return Some(Doubt::Overlap);
        }
        let (found, certified) = (self.bad.len() as u64, certificate.bad);
        if found > certified {
            return Some(Doubt::Bad { found, certified });
        }
        let accounts = self.accounts(&[]);
        let (found, certified) = (accounts.len(), certificate.streams.len());
        if found != certified {
            return Some(Doubt::Streams { found, certified });
        }
        let account = |of: &StreamTotals| (of.bytes_in, of.stored, of.lost, of.overwritten);
        let mut pairs = accounts.iter().zip(&certificate.streams);
        let wrong = pairs.position(|(found, certified)| account(found) != account(certified));
        wrong.map(|stream| Doubt::Account { stream }).or_else(|| self.doubt_of_rules(certificate))
    }

    /// Whether the superblock has the rules that the certificate names.
    fn doubt_of_rules(&self, certificate: &Certificate) -> Option<Doubt> {
        (0..certificate.rules.len()).find_map(|stream| {
            let (found, certified) = (self.rule(stream), certificate.rule(stream));
            (found != certified).then_some(Doubt::Rule { stream, found, certified })
        })
    }

    /// The rule of sequence of a stream in the superblock.
    fn rule(&self, stream: usize) -> Option<SequenceRule> {
        self.superblock.as_ref()?.rule(stream)
    }

    /// The certificate as it is to be signed: it names the superblock's rules of sequence, so that
    /// the signature covers them. `None` if there is no certificate.
    pub fn certificate_to_sign(&self) -> Option<Certificate> {
        let mut certificate = self.certificate.clone()?;
        certificate.name_rules(|stream| self.rule(stream));
        Some(certificate)
    }

    fn doubt_of_digests(&self, digests: &[[u8; 32]]) -> Option<Doubt> {
        let Some(certificate) = &self.certificate else { return Some(Doubt::NoCertificate) };
        if certificate.algorithm == Algorithm::None {
            return None;
        }
        let certified = &certificate.streams;
        if digests.len() != certified.len() {
            return Some(Doubt::Streams { found: digests.len(), certified: certified.len() });
        }
        let wrong = digests.iter().zip(certified).position(|(digest, certified)| *digest != certified.digest);
        let wrong = wrong.map(|stream| Doubt::Digest { stream });
        let is_all = certificate.digest == certificate.algorithm.digest_of_all(digests);
        wrong.or_else(|| (!is_all).then_some(Doubt::DigestOfAll))
    }

    /// The accounts of the streams, as the medium has them, with the digest of each
    /// from `digests`.
    pub(crate) fn accounts(&self, digests: &[[u8; 32]]) -> Vec<StreamTotals> {
        let mut accounts = Vec::new();
        for stream in 0..u32::try_from(self.streams()).unwrap_or(0) {
            let stored = self.entries.iter().filter(|entry| entry.stream == stream);
            let lost = self.gaps.iter().filter(|gap| gap.stream == stream);
            let bytes_in = self.end_of(stream);
            let holding = self.ring.as_ref().map(|ring| &ring.holding);
            accounts.push(StreamTotals {
                bytes_in,
                overwritten: holding.map_or(0, |holding| holding.overwritten(stream, bytes_in)),
                stored: stored.map(|entry| u64::from(entry.length)).sum(),
                lost: lost.fold(0, |sum: u64, gap: &Gap| sum.saturating_add(gap.bytes)),
                digest: digests.get(stream as usize).copied().unwrap_or_else(|| self.algorithm().digest(&[])),
            });
        }
        accounts
    }
}
