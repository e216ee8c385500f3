//! Diffie-Hellman groups, and the exchange of keys in them.

use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use engine::Entropy;
use zeroize::Zeroizing;

use super::primes::prime;

/// A Diffie-Hellman group (DHgID). Its generator is 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// No exchange of keys: the challenges alone protect the secret (NULL, 00h).
    Null,
    /// ffdhe2048 of RFC 7919 (01h).
    Ffdhe2048,
    /// ffdhe3072 of RFC 7919 (02h).
    Ffdhe3072,
    /// ffdhe4096 of RFC 7919 (03h).
    Ffdhe4096,
    /// ffdhe6144 of RFC 7919 (04h).
    Ffdhe6144,
    /// ffdhe8192 of RFC 7919 (05h).
    Ffdhe8192,
}

impl Group {
    /// Every group, in the order in which this project's ends prefer them: the cheapest exchange
    /// of keys first, and no exchange last.
    pub const ALL: [Self; 6] =
        [Self::Ffdhe2048, Self::Ffdhe3072, Self::Ffdhe4096, Self::Ffdhe6144, Self::Ffdhe8192, Self::Null];

    /// The identifier (DHgID).
    pub const fn id(self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Ffdhe2048 => 1,
            Self::Ffdhe3072 => 2,
            Self::Ffdhe4096 => 3,
            Self::Ffdhe6144 => 4,
            Self::Ffdhe8192 => 5,
        }
    }

    /// The group with that identifier (DHgID), if it is one of [`Group::ALL`].
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.id() == id)
    }

    /// The group's name in nvme-cli, Linux and SPDK.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Ffdhe2048 => "ffdhe2048",
            Self::Ffdhe3072 => "ffdhe3072",
            Self::Ffdhe4096 => "ffdhe4096",
            Self::Ffdhe6144 => "ffdhe6144",
            Self::Ffdhe8192 => "ffdhe8192",
        }
    }

    /// Length of a public value in bytes; 0 for [`Group::Null`].
    pub const fn length(self) -> usize {
        self.words() * 8
    }

    /// Length of the prime in words of 64 bits.
    const fn words(self) -> usize {
        match self {
            Self::Null => 0,
            Self::Ffdhe2048 => 32,
            Self::Ffdhe3072 => 48,
            Self::Ffdhe4096 => 64,
            Self::Ffdhe6144 => 96,
            Self::Ffdhe8192 => 128,
        }
    }

    /// Length of a private exponent in bytes. RFC 7919 (section 5.2) allows short exponents of 225,
    /// 275, 325, 375 and 400 bits at least, which cost a fraction of long ones.
    const fn exponent_length(self) -> usize {
        match self {
            Self::Null => 0,
            Self::Ffdhe2048 => 32,
            Self::Ffdhe3072 => 40,
            Self::Ffdhe4096 | Self::Ffdhe6144 => 48,
            Self::Ffdhe8192 => 56,
        }
    }

    /// The prime, the most significant byte first.
    pub(super) fn modulus(self) -> Vec<u8> {
        let last_but_one = match self {
            Self::Null => return Vec::new(),
            Self::Ffdhe2048 => 0x886b_4238_6128_5c97,
            Self::Ffdhe3072 => 0x25e4_1d2b_66c6_2e37,
            Self::Ffdhe4096 => 0xc68a_007e_5e65_5f6a,
            Self::Ffdhe6144 => 0xa40e_329c_d0e4_0e65,
            Self::Ffdhe8192 => 0xd68c_8bb7_c5c6_424c,
        };
        prime(self.words(), last_but_one)
    }

    fn bits(self) -> u32 {
        u32::try_from(self.length() * 8).expect("8,192 bits at most")
    }

    /// The number that `bytes` are, with the precision of the group.
    fn number(self, bytes: &[u8]) -> Option<BoxedUint> {
        BoxedUint::from_be_slice(bytes, self.bits()).ok()
    }

    /// `base` to the power of `exponent`, modulo the prime.
    fn power(self, base: &[u8], exponent: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let modulus: Option<Odd<BoxedUint>> = self.number(&self.modulus())?.into_odd().into();
        let parameters = BoxedMontyParams::new_vartime(modulus?);
        let bits = u32::try_from(exponent.len() * 8).ok()?;
        let exponent = Zeroizing::new(BoxedUint::from_be_slice(exponent, bits).ok()?);
        let base = BoxedMontyForm::new(self.number(base)?, &parameters);
        let result = Zeroizing::new(base.pow_bounded_exp(&exponent, bits));
        let result = Zeroizing::new(result.retrieve());
        Some(Zeroizing::new(result.to_be_bytes().into_vec()))
    }

    /// Whether `value` may be a public value: greater than 1 and less than the prime less 1. Any
    /// other value would make the shared key public.
    fn may_be_public(self, value: &[u8]) -> bool {
        let mut last = self.modulus();
        // The prime is odd.
        if let Some(byte) = last.last_mut() {
            *byte -= 1;
        }
        let (Some(value), Some(last)) = (self.number(value), self.number(&last)) else { return false };
        value > BoxedUint::one_with_precision(self.bits()) && value < last
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Group {
    type Err = super::UnknownName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|one| one.name() == text).ok_or(super::UnknownName)
    }
}

#[cfg(test)]
pub(super) fn power(group: Group, base: &[u8], exponent: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    group.power(base, exponent)
}

/// An exponentiation in a group, which may run on another thread: it takes up to tens of
/// milliseconds.
#[derive(Clone)]
pub struct Work {
    group: Group,
    /// The base; `None` for the group's generator.
    base: Option<Vec<u8>>,
    exponent: Zeroizing<Vec<u8>>,
}

/// The result of a [`Work`].
#[derive(Clone)]
pub struct Product(Option<Zeroizing<Vec<u8>>>);

impl Work {
    /// The group of the exponentiation.
    pub const fn group(&self) -> Group {
        self.group
    }

    /// Does the work.
    pub fn compute(&self) -> Product {
        let base = self.base.as_deref().unwrap_or(&[2]);
        Product(self.group.power(base, &self.exponent))
    }
}

impl fmt::Debug for Work {
    /// Hides the exponent.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").field("group", &self.group).finish_non_exhaustive()
    }
}

impl Product {
    /// An empty product, which proves nothing.
    #[cfg(test)]
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    pub(super) fn into_bytes(self) -> Option<Zeroizing<Vec<u8>>> {
        self.0
    }
}

impl fmt::Debug for Product {
    /// Hides the product, which may be a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Product")
    }
}

/// One end's keys for one authentication, or for all of a short time.
pub(crate) struct KeyPair {
    group: Group,
    private: Zeroizing<Vec<u8>>,
    public: Vec<u8>,
}

impl KeyPair {
    /// New keys; `None` for [`Group::Null`].
    pub(super) fn generate(group: Group, entropy: &mut Entropy) -> Option<Self> {
        let work = Self::work(group, entropy)?;
        let product = work.compute();
        Self::of(work, product)
    }

    /// The work for new keys; `None` for [`Group::Null`].
    pub(crate) fn work(group: Group, entropy: &mut Entropy) -> Option<Work> {
        let mut private = Zeroizing::new(alloc::vec![0; group.exponent_length()]);
        entropy.fill(&mut private);
        // The exponent is never 0 or 1, for any output of the source.
        *private.first_mut()? |= 0x80;
        Some(Work { group, base: None, exponent: private })
    }

    /// The keys from the result of [`KeyPair::work`].
    pub(crate) fn of(work: Work, product: Product) -> Option<Self> {
        let public = product.into_bytes()?.to_vec();
        Some(Self { group: work.group, private: work.exponent, public })
    }

    /// The group of the keys.
    pub(super) const fn group(&self) -> Group {
        self.group
    }

    /// The public value, which is as long as the group's prime.
    pub(super) fn public(&self) -> &[u8] {
        &self.public
    }

    /// The key that both ends share, as long as the group's prime; `None` if `peer` is not a public
    /// value of the group, or is this end's own.
    pub(super) fn shared(&self, peer: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        self.shared_work(peer)?.compute().into_bytes()
    }

    /// The work for [`KeyPair::shared`]; `None` in the same cases.
    pub(super) fn shared_work(&self, peer: &[u8]) -> Option<Work> {
        let own = self.group.number(&self.public);
        if !self.group.may_be_public(peer) || self.group.number(peer) == own {
            return None;
        }
        Some(Work { group: self.group, base: Some(peer.to_vec()), exponent: self.private.clone() })
    }
}

impl fmt::Debug for KeyPair {
    /// Hides the private key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPair").field("group", &self.group).finish_non_exhaustive()
    }
}
