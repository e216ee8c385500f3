//! Secrets that others have published, the primes from their published formula, and values computed
//! by Python's integers, hashlib and hmac.

use alloc::string::ToString;

use crypto_bigint::{BoxedUint, Limb, NonZero, Resize};

use super::super::group::{KeyPair, power};
use super::super::response::{ChallengeValue, Prover, Transaction};
use super::*;
use crate::interchange::KeyFault;

#[test]
fn published_secrets_are_known_and_emitted_again() {
    // NVM Express Base Specification; nvme-stas; nvme-cli's tests; a bug report.
    let published = [
        "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:",
        "DHHC-1:00:MWPqcx1Ug1debg8fPIGpkqbQhLcYUt39k7UWirkblaKEH1kE:",
        "DHHC-1:00:9wCYVQqDvADjGIZo6q/v2SfmXZqqkNa9TcvYu97Ly3Q/gajh:",
        "DHHC-1:01:vYcm5QemILkz5zSIeZidb4nPGcxongu2l/OaWMRgM9iIk/2A:",
        "DHHC-1:02:ULMaRuJ40ui58nK4Qk5b0J89G3unbGb8mBUbt/XSrf18PBPvyL3sivZOINNh2o/fPpXbGg==:",
        "DHHC-1:00:ojmm6ISA2DBpZEldEJqJvA1/cAl1wDmeolS0fCIn2qZpK0b7gpx3qu76yHpjlOOXNyjqf0oFYCWxUqkXGN2xEBOVxoA=:",
        "DHHC-1:03:6EKZcEL86u4vzTE8sCETvskE3pLKE+qOorl9QxrRfLvfOEQ5GvqCzM41U8fFVAz1cs+T14PjSpd1J641rfeCC1x2VNg=:",
        // A key need not be as long as the hash.
        "DHHC-1:03:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:",
    ];
    for text in published {
        let secret: Secret = text.parse().unwrap();
        assert_eq!(secret.emit().as_str(), text);
        assert_eq!(alloc::format!(" {text}\n").parse(), Ok(secret.clone()), "a file ends with a new line");
        let shown = alloc::format!("{secret:?}");
        assert!(!shown.contains(&text[10..20]) && shown.contains("transformation"), "{shown}");
    }
}

#[test]
fn an_invalid_secret_is_refused_with_a_reason() {
    let wrong = [
        // The key that the tests of blktests take as invalid.
        ("DHHC-1:00:Jc/My1o0qtLCWRp+sHhAVafdfaS7YQOMYhk9zSmlatobqB8C:", KeyFault::Check),
        ("DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2m:", KeyFault::Check),
        ("DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n", KeyFault::Shape),
        ("DHHC-1:0:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:", KeyFault::Shape),
        ("NVMeTLSkey-1:01:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:", KeyFault::Prefix),
        ("DHHC-1:04:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:", KeyFault::Hash(4)),
        ("DHHC-1:00:ia6z:", KeyFault::KeyLength(0)),
        ("DHHC-1:00::", KeyFault::KeyLength(0)),
        ("DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2:", KeyFault::Base64(47)),
        ("DHHC-1:00:ia6zGodOr4SEG0Zz_w398rpY0wqipUWj4jWjUh4HWUz6aQ2n:", KeyFault::Base64(16)),
        ("DHHC-1:00:====:", KeyFault::Base64(0)),
        ("", KeyFault::Prefix),
    ];
    for (text, why) in wrong {
        assert_eq!(text.parse::<Secret>().map_err(|error| error.fault), Err(why), "{text}");
    }
    let long = "DHHC-1:00:".to_string() + &"A".repeat(1000);
    assert_eq!(long.parse::<Secret>().map_err(|error| error.fault), Err(KeyFault::Long(1010)));
}

#[test]
fn generated_secrets_are_as_long_as_their_hash() {
    for (transformation, length) in
        [(None, 59), (Some(Hash::Sha256), 59), (Some(Hash::Sha384), 83), (Some(Hash::Sha512), 103)]
    {
        let secret = Secret::generate(transformation, &mut entropy(7));
        assert_eq!(secret.emit().len(), length);
        assert_eq!(secret.emit().parse(), Ok(secret));
    }
}

/// floor(2^`bits` · e), from e = 1 + 1/1! + 1/2! + …
fn e_times_power_of_two(bits: u32) -> BoxedUint {
    const SPARE: u32 = 64;
    let precision = bits + 2 * SPARE;
    let mut term = BoxedUint::one_with_precision(precision).shl_vartime(bits + SPARE).unwrap();
    let mut sum = BoxedUint::zero_with_precision(precision);
    for divisor in 1_u32.. {
        sum = sum.wrapping_add(&term);
        let divisor = NonZero::new(Limb::from(divisor)).unwrap();
        term = term.div_rem_limb(divisor).0;
        if term.is_zero().into() {
            break;
        }
    }
    sum.shr_vartime(SPARE).unwrap()
}

/// RFC 7919, appendix A: p = 2^b - 2^(b-64) + (floor(2^(b-130) · e) + X) · 2^64 - 1.
#[test]
fn the_primes_follow_their_published_formula() {
    let published = [
        (Group::Ffdhe2048, 2048, 560_316_u32),
        (Group::Ffdhe3072, 3072, 2_625_351),
        (Group::Ffdhe4096, 4096, 5_736_041),
        (Group::Ffdhe6144, 6144, 15_705_020),
        (Group::Ffdhe8192, 8192, 10_965_728),
    ];
    for (group, bits, x) in published {
        let wide = bits + 64;
        let power = |exponent| BoxedUint::one_with_precision(wide).shl_vartime(exponent).unwrap();
        let middle =
            e_times_power_of_two(bits - 130).resize(wide).wrapping_add(BoxedUint::from(x).resize(wide));
        let middle = middle.shl_vartime(64).unwrap();
        let prime = power(bits).wrapping_sub(power(bits - 64)).wrapping_add(middle).wrapping_sub(power(0));
        let bytes = prime.to_be_bytes();
        assert_eq!(bytes[..8], [0; 8]);
        assert_eq!(hex(&bytes[8..]), hex(&group.modulus()), "{group}");
    }
}

/// Exponent bytes as in the reference computation: `first`, and each byte one more than the last.
fn exponent(first: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| first.wrapping_add(u8::try_from(at).unwrap())).collect()
}

const EXPONENTS: [(Group, usize); 5] = [
    (Group::Ffdhe2048, 32),
    (Group::Ffdhe3072, 40),
    (Group::Ffdhe4096, 48),
    (Group::Ffdhe6144, 48),
    (Group::Ffdhe8192, 56),
];

#[test]
fn public_values_are_as_computed_elsewhere() {
    let hashes = [
        "0c72878ad325a1d42af5eef7880b40b666db0d688cd8f3704acadf3156afbdfb",
        "de80b2d2a2b046555a0250261ee75a56923ee2a863ed8bc9b6fbbcf9bed93612",
        "8b25678654a5916dfaaa5fab262a1153dc0c32fcfe5bb32652e4ada5ebcf8d87",
        "4ba1ccce0d19db7476b9515b588848e0230092d06600730e8e3bd542c0703e6d",
        "a2feeabbd712762a619a93c3e77531f94355ffbbed98bd420d6567381ea9e76d",
    ];
    for ((group, length), expected) in EXPONENTS.into_iter().zip(hashes) {
        let public = power(group, &[2], &exponent(0x81, length)).unwrap();
        assert_eq!(public.len(), group.length());
        assert_eq!(hex(&Hash::Sha256.hash(&public)), expected, "{group}");
    }
}

#[test]
fn responses_are_as_computed_elsewhere() {
    let expected = [
        (
            (0, Hash::Sha256, Group::Null),
            "531d165583c87e337ab8db7dfcdcebf07dd78af7e4c574ad18ae2549f95540b2",
            "b3553ecfe3565675c3195b053ab70f326f5a046a6c8ae9193aef6a99c0af00eb",
        ),
        (
            (1, Hash::Sha256, Group::Ffdhe2048),
            "61dfa0a3dc61cc2d71b989740aa2e903cae3fce9f5423c0cc8373255139260e6",
            "f285fcf867f883ec721e2e4b14f03c359207734e4830233979bed431b6f700f9",
        ),
        (
            (2, Hash::Sha384, Group::Ffdhe3072),
            "bc3ada532a8eae7232a61fe0be9164860e1e2912880d500827d6258f5ef374bb\
             fb44555f6988bc0b02a997d2cdf7677b",
            "7abb727aa5aa32940137c37038a1cd5044cce5052d7d77adfb1b65e8b167e1a7\
             0d1e05e77109ae30305fd9fcb3958a73",
        ),
        (
            (3, Hash::Sha512, Group::Null),
            "2aafa18d37e6d85d8c8f60c6bc88056a1b1adb9c7389cb3269f963fa2a75372d\
             deffcf7187a0d6062bc0482ebeeb738ac98d184915c01450d07052765f125fc7",
            "ca6d5a0112e5c2e955b4af350c5e47e8a0e98dae70e0641735a1e9866504b18f\
             6e0217796443526a33dfcadc6ff24609ec9eaa3624fdcd8b418b6edad20750df",
        ),
        (
            (3, Hash::Sha512, Group::Ffdhe8192),
            "84683069e5e12195d3204416d2f4917e8939c9a553f47ba0803b47807d6ee60e\
             80c534c21d3b99cb76250338e1b64209f6902cbe54bb62332895ea2648f88287",
            "db00de129f35e9539ff58ce90636d579424081d3f9d00c555a1e79394ec9b7c1\
             9dd9c0bc0c2567d462717eb8eae74dc1f810cc43cd219aab843a09fd80296f67",
        ),
    ];
    for ((transformation, hash, group), by_host, by_controller) in expected {
        let shared = EXPONENTS.into_iter().find(|(one, _)| *one == group).map(|(_, length)| {
            let public = power(group, &[2], &exponent(0x91, length)).unwrap();
            power(group, &public, &exponent(0x81, length)).unwrap()
        });
        let shared = shared.as_ref().map(|one| one.as_slice());
        let challenge = exponent(0, hash.length());
        let asked = ChallengeValue { value: &challenge, sequence: 0x0102_0304 };
        let transaction = Transaction { id: 0x0506, hash, group };
        let secret = example(transformation);
        let response = transaction.response(Prover::Host, &names(), &secret, asked, shared);
        assert_eq!(hex(&response), by_host, "{hash} {group}");
        let response = transaction.response(Prover::Controller, &names(), &secret, asked, shared);
        assert_eq!(hex(&response), by_controller, "{hash} {group}");
    }
}

/// A shared key keeps its leading zeros, or one exchange in 256 fails.
#[test]
fn both_ends_share_a_key_of_full_length() {
    let mut entropy = entropy(3);
    for group in [Group::Ffdhe2048, Group::Ffdhe3072] {
        for _ in 0..3 {
            let one = KeyPair::generate(group, &mut entropy).unwrap();
            let other = KeyPair::generate(group, &mut entropy).unwrap();
            let shared = one.shared(other.public()).unwrap();
            assert_eq!(*shared, *other.shared(one.public()).unwrap());
            assert_eq!(shared.len(), group.length());
        }
    }
    let one = KeyPair::generate(Group::Ffdhe2048, &mut entropy).unwrap();
    assert!(one.shared(&[4]).is_some(), "leading zeros may be missing");
    assert!(one.shared(one.public()).is_none(), "its own value is a reflection");
    let mut last = Group::Ffdhe2048.modulus();
    assert!(one.shared(&last).is_none(), "the prime");
    *last.last_mut().unwrap() -= 1;
    assert!(one.shared(&last).is_none(), "the prime less 1");
    *last.last_mut().unwrap() -= 1;
    assert!(one.shared(&last).is_some(), "the prime less 2");
    for degenerate in [&[0_u8][..], &[1], &[0, 1], &[0xff; 256], &[1; 257]] {
        assert!(one.shared(degenerate).is_none(), "{degenerate:?}");
    }
    assert!(!alloc::format!("{one:?}").contains("private"));
}
