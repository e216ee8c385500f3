//! What a near host is built as.

use engine::Nanos;
use nvme_pcie::host;
use pcie::config::{Identity, Link, ids};
use pcie::root_complex::{self, Plan};
use pcie::switch::SwitchConfig;

/// Where host memory begins.
pub const MEMORY_BASE: u64 = 0x10_0000;
/// How many far ends one host may have: the ports of its switch.
pub const PORTS_MAX: usize = 32;

/// What a near host is built as.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The root complex.
    pub root: root_complex::Config,
    /// What enumeration gives out and sets.
    pub plan: Plan,
    /// Bytes of host memory for the queues and data of each driver.
    pub arena_bytes: u64,
    /// The drivers; their arenas are laid out here.
    pub driver: host::Config,
    /// How long to wait for the links of the other ports once one is up, before enumerating without them.
    pub gather: Nanos,
}

impl Default for Config {
    /// Times that fit each other: a network that falls silent is given up after 5 s and its session is held for 10 s
    /// more. No completion timeout strikes before that, so a connection that is back by then is noticed by nobody
    /// above the tunnel.
    fn default() -> Self {
        let timeout = pcie::requester::CompletionTimeout::D2;
        let driver = host::Config {
            command_timeout: Nanos::from_secs(30),
            register_timeout: Nanos::from_secs(20),
            hold: Nanos::from_secs(10),
            ..host::Config::new(0, 0)
        };
        Self {
            root: root_complex::Config { timeout, ..root_complex::Config::default() },
            plan: Plan { timeout, ..Plan::default() },
            arena_bytes: 16 << 20,
            driver,
            gather: Nanos::from_secs(1),
        }
    }
}

/// The distributed switch: 4 KiB payloads on links of our own, and slots whose devices may vanish.
pub(crate) const fn switch(ports: u8) -> SwitchConfig {
    let upstream = Identity {
        vendor: ids::VENDOR,
        device: ids::SWITCH_UPSTREAM_PORT,
        revision: 0,
        class: 0x06_0400,
        subsystem_vendor: 0,
        subsystem: 0,
    };
    let downstream = Identity { device: ids::SWITCH_DOWNSTREAM_PORT, ..upstream };
    let link = Link { speed: 4, width: 4, port: 0, payload_max: 4096 };
    SwitchConfig { upstream, downstream, ports, link, surprise: true, serial_number: 0 }
}
