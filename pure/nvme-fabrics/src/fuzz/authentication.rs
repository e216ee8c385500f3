//! Secrets and messages of DH-HMAC-CHAP that follow the input.

use engine::{Entropy, Instant, Rng};

use crate::authentication::message::Message;
use crate::authentication::{Controller, Credentials, Group, Hash, Host, Names, Secret, Step};
use crate::wire::Nqn;

/// Parses a secret and a message, and passes messages cut from `bytes` to both ends. Every parsed
/// value must parse to the same value after it is emitted. The input must not authenticate.
pub fn authentication(bytes: &[u8]) {
    if let Ok(text) = core::str::from_utf8(bytes)
        && let Ok(secret) = text.parse::<Secret>()
    {
        assert_eq!(secret.emit().parse(), Ok(secret));
    }
    if let Ok((message, length)) = Message::parse(bytes) {
        assert!(length <= bytes.len());
        let emitted = message.emit();
        assert_eq!(Message::parse(&emitted), Ok((message, emitted.len())));
    }
    let Some((first, mut rest)) = bytes.split_first() else { return };
    let names = Names { host: Nqn::discovery(), subsystem: Nqn::discovery() };
    let mut entropy = Entropy::from(Rng::from_seed(u64::from(*first)));
    let secret = Secret::generate(None, &mut entropy);
    let controller = (first & 1 != 0).then(|| Secret::generate(None, &mut entropy));
    let (hashes, groups) = (Hash::ALL.to_vec(), [Group::Null].to_vec());
    let credentials = Credentials { controller, hashes, groups, ..Credentials::new(secret) };
    let now = Instant::ZERO;
    let mut host = Host::new(names.clone(), credentials.clone(), 0, entropy.split());
    let mut controller = Controller::new(now, names, credentials, None, entropy.split());
    while let Some((length, later)) = rest.split_first() {
        let (message, later) = later.split_at(later.len().min(usize::from(*length)));
        rest = later;
        controller.on_message(now, message);
        if length & 1 != 0 {
            let _ = Message::parse(&controller.answer(now)).expect("an answer is a message");
        }
        let _ = host.step();
        host.on_message(message);
        assert!(!controller.is_authenticated(), "authentication fails without the secret");
        if let Step::Done(Ok(agreed)) = host.step() {
            assert!(!agreed.both, "without its secret, no controller is authenticated");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn noise_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            super::authentication(&bytes);
        }
    }
}
