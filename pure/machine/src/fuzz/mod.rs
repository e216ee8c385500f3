//! Fuzz entries: whole machines among others who mean no good. Ordinary code over any bytes, which must never panic.

mod foreign;
mod guest;
mod server;
mod target;
mod user;

pub use foreign::foreign;
pub use guest::guest;
pub use target::target;
pub use user::user;

use alloc::rc::Rc;

use engine::{Instant, Nanos};

/// A descriptor: how many there are is known.
type Descriptor = Rc<()>;

/// Steps of one run at most.
const STEPS_MAX: usize = 512;
/// What may come of one step at most: an engine that has more to say spins.
const OUTPUTS_MAX: usize = 1 << 17;

/// Time that passes in a step that says so: from no time at all to minutes.
const fn length_of(byte: u8) -> Nanos {
    Nanos::new(1 << (byte % 38))
}

/// Counts what comes of a step.
struct Patience(usize);

impl Patience {
    const fn new() -> Self {
        Self(OUTPUTS_MAX)
    }
    fn spend(&mut self) {
        self.0 = self.0.checked_sub(1).expect("an engine spins");
    }
}

/// That a deadline is in the future, once what was due is done.
fn check_deadline(now: Instant, deadline: Option<Instant>) {
    assert!(deadline.is_none_or(|at| at > now), "a deadline outlived its timeout");
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_host_makes_a_target_panic(steps in prop::collection::vec(any::<u8>(), 0..1024)) {
            let mut bytes: Vec<u8> = Vec::new();
            // A connection that is initialised: ICReq, 128 bytes.
            let mut request = [0_u8; 128];
            request[2] = 128;
            request[4] = 128;
            bytes.extend([0x80, 128]);
            bytes.extend(request);
            bytes.extend(steps);
            target(&bytes);
        }

        #[test]
        fn no_server_and_no_host_make_a_foreign_device_panic(
            head: [u8; 8], steps in prop::collection::vec(any::<u8>(), 0..1024),
        ) {
            let mut bytes: Vec<u8> = head.into();
            // Set up and brought up first, or little of the rest is reached.
            bytes.extend([0, 255, 254]);
            bytes.extend(steps);
            foreign(&bytes);
        }

        #[test]
        fn no_device_makes_a_user_panic(
            head: [u8; 9], steps in prop::collection::vec(any::<u8>(), 0..1024),
        ) {
            let mut bytes: Vec<u8> = head.into();
            bytes.extend([0, 255, 255]);
            bytes.extend(steps);
            user(&bytes);
        }

        #[test]
        fn neither_client_nor_function_make_a_slot_panic(steps in prop::collection::vec(any::<u8>(), 0..1024)) {
            guest(&[&[0][..], &steps].concat());
            guest(&steps);
        }
    }
}
