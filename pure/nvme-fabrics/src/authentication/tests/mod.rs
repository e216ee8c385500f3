//! Vectors of other implementations, every choice between both engines, and attacks of impostors.

mod engines;
mod impostors;
mod vectors;

use alloc::string::String;
use alloc::vec::Vec;

use engine::{Entropy, Instant, Nanos, Rng};

use super::*;

/// The example of the NVM Express Base Specification, with its four transformations.
const EXAMPLE: &str = "ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:";

fn example(transformation: u8) -> Secret {
    alloc::format!("DHHC-1:{transformation:02}:{EXAMPLE}").parse().unwrap()
}

fn names() -> Names {
    Names {
        host: "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6".parse().unwrap(),
        subsystem: "nqn.2014-08.com.example:nvme.host.sys.xyz".parse().unwrap(),
    }
}

fn entropy(seed: u64) -> Entropy {
    Entropy::from(Rng::from_seed(seed))
}

/// Credentials with random secrets and one choice each.
fn credentials(seed: u64, hash: Hash, group: Group, both: bool) -> Credentials {
    let mut entropy = entropy(seed);
    Credentials {
        host: Secret::generate(Some(hash), &mut entropy),
        controller: both.then(|| Secret::generate(None, &mut entropy)),
        hashes: [hash].into(),
        groups: [group].into(),
        origin: String::new(),
    }
}

const NOW: Instant = Instant::ZERO;
const KEEP_ALIVE: Nanos = Nanos::from_secs(5);

fn host(credentials: &Credentials, seed: u64) -> Host {
    Host::new(names(), credentials.clone(), 0x0506, entropy(seed).fork("host"))
}

fn controller(credentials: &Credentials, seed: u64) -> Controller {
    let entropy = entropy(seed).fork("controller");
    Controller::new(NOW, names(), credentials.clone(), Some(KEEP_ALIVE), entropy)
}

/// Runs a transaction. `change` sees each message, its number and its direction, and may change it.
fn run(
    host: &mut Host,
    controller: &mut Controller,
    mut change: impl FnMut(usize, &mut Vec<u8>),
) -> Result<Authenticated, Failure> {
    for number in 0.. {
        match host.step() {
            Step::Send(mut message) => {
                change(number, &mut message);
                controller.on_message(NOW, &message);
            }
            Step::Receive => {
                let mut message = controller.answer(NOW);
                change(number, &mut message);
                host.on_message(&message);
            }
            Step::Done(result) => return result,
        }
    }
    unreachable!("a transaction has few steps")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| alloc::format!("{byte:02x}")).collect()
}
