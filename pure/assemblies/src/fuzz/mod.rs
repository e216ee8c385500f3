//! Fuzz entries: whole machines among hostile peers. Each entry is ordinary code that must never
//! panic, for any bytes.

mod external_device;
mod guest;
mod server;
mod target;
mod user;

pub use external_device::external_device;
pub use guest::guest;
pub use target::target;
pub use user::user;

use alloc::rc::Rc;

use engine::{Instant, Nanos};

/// A descriptor; its reference count shows whether one was lost.
type Descriptor = Rc<()>;

/// Maximum number of steps of one run.
const STEPS_MAX: usize = 512;
/// Maximum number of outputs of one step: an engine that has more to say spins.
const OUTPUTS_MAX: usize = 1 << 17;

/// How much time passes in a step that lets time pass: from almost none to minutes.
const fn length_of(byte: u8) -> Nanos {
    Nanos::new(1 << (byte % 38))
}

/// Counts the outputs of a step.
struct Patience(usize);

impl Patience {
    const fn new() -> Self {
        Self(OUTPUTS_MAX)
    }
    fn spend(&mut self) {
        self.0 = self.0.checked_sub(1).expect("an engine spins");
    }
}

/// Asserts that the deadline is in the future once everything due was done.
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
            // An initialised connection: ICReq, 128 bytes.
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
            // The device is set up and brought up first, or little of the rest is reached.
            bytes.extend([0, 255, 254]);
            bytes.extend(steps);
            external_device(&bytes);
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
