//! What a guest's slot is built as.

use engine::Nanos;
use pcie::requester::CompletionTimeout;
use pcie::root_complex::{self, Plan};

/// What a guest's slot is built as.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The root complex above the function. Its Completion Timeout is how long it waits for anything: what has had no
    /// answer by then is all ones, and a function that cannot be enumerated so is not there for the guest.
    pub root: root_complex::Config,
    /// What enumeration gives out and sets.
    pub plan: Plan,
    /// Which of the endpoints that are found is offered: the first is 0. Without it, the first NVMe controller.
    pub function: Option<usize>,
    /// Whether an NVMe controller's doorbells are memory that the client may map: it rings by a store, and the world
    /// has to look, again and again.
    pub doorbells: bool,
    /// How long an access of the guest may wait for the function; then a read is answered with all ones, as a root
    /// complex does after a Completion Timeout. Monitors give up after 5 s by themselves.
    pub patience: Nanos,
}

impl Default for Config {
    /// Completion timeouts that no lost connection runs into.
    fn default() -> Self {
        let timeout = CompletionTimeout::D2;
        Self {
            root: root_complex::Config { timeout, ..root_complex::Config::default() },
            plan: Plan { timeout, ..Plan::default() },
            function: None,
            doorbells: false,
            patience: Nanos::from_secs(4),
        }
    }
}
