//! The settings of a guest's slot.

use engine::Nanos;
use pcie::requester::CompletionTimeout;
use pcie::root_complex::{self, Plan};

/// The settings of a guest's slot.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The root complex above the function. Its Completion Timeout bounds every wait: a request
    /// without an answer by then reads as all ones. A function that cannot be enumerated within it
    /// does not exist for the guest.
    pub root: root_complex::Config,
    /// The resources that enumeration may assign, and the settings that it makes.
    pub plan: Plan,
    /// Index of the endpoint to offer among those that were found, from 0. `None`: the first NVMe
    /// controller.
    pub function: Option<usize>,
    /// Whether the client may map an NVMe controller's doorbells as memory. The client then rings
    /// by a plain store, and the world has to poll the doorbells.
    pub doorbells: bool,
    /// Whether the client is a QEMU that unplugs the function; see
    /// [`attach.md`](https://github.com/farlane/farlane/blob/main/docs/attach.md#hot-plug).
    pub hot_plug: bool,
    /// How long an access of the guest may wait for the function. After that a read is answered
    /// with all ones, as a root complex does after a Completion Timeout. Monitors themselves give
    /// up after 5 s.
    pub patience: Nanos,
}

impl Default for Config {
    /// Settings with Completion Timeouts long enough that no lost connection runs into them.
    fn default() -> Self {
        let timeout = CompletionTimeout::D2;
        Self {
            root: root_complex::Config { timeout, ..root_complex::Config::default() },
            plan: Plan { timeout, ..Plan::default() },
            function: None,
            doorbells: false,
            hot_plug: false,
            patience: Nanos::from_secs(4),
        }
    }
}
