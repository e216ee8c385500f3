//! The settings of a near host.

use engine::Nanos;
use nvme_pcie::host;
use pcie::config::{ClassCode, Identity, Link, ids};
use pcie::root_complex::{self, Plan};
use pcie::switch::SwitchConfig;

/// First address of host memory.
pub const MEMORY_BASE: u64 = 0x10_0000;
/// Maximum number of far ends that one host may have: the ports of its switch.
pub const PORTS_MAX: usize = 32;

/// The settings of a near host.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The root complex above the switch.
    pub root: root_complex::Config,
    /// The resources that enumeration may assign, and the settings that it makes.
    pub plan: Plan,
    /// Bytes of host memory for the queues and data of each driver.
    pub arena_bytes: u64,
    /// Settings of every driver. The host itself sets the place and the length of each arena.
    pub driver: host::Config,
    /// Whether drivers look at their queues when an interrupt has come, and not after each write of
    /// memory. Their queues must raise interrupts.
    pub waits_for_interrupts: bool,
    /// Once one port's link is up, how long to wait for the links of the other ports before
    /// enumerating without them.
    pub gather: Nanos,
}

impl Default for Config {
    /// Times that fit each other: a silent network is given up after 5 s, and its session is held
    /// for 10 s more. No Completion Timeout strikes before that, so software above the tunnel does
    /// not notice a connection that is back by then.
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
            waits_for_interrupts: false,
            gather: Nanos::from_secs(1),
        }
    }
}

/// The distributed switch: 4 KiB payloads on the tunnel's links, and slots whose devices
/// may vanish.
pub const fn switch(ports: u8) -> SwitchConfig {
    let upstream = Identity {
        vendor: ids::VENDOR,
        device: ids::SWITCH_UPSTREAM_PORT,
        revision: 0,
        class: ClassCode::PCI_BRIDGE,
        subsystem_vendor: 0,
        subsystem: 0,
    };
    let downstream = Identity { device: ids::SWITCH_DOWNSTREAM_PORT, ..upstream };
    let link = Link { speed: 4, width: 4, port: 0, payload_max: 4096 };
    SwitchConfig { upstream, downstream, ports, link, surprise: true, serial_number: 0 }
}
