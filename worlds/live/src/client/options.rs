//! How a host uses a controller.

use std::fmt::Write;
use std::path::PathBuf;

use assemblies::near;
use engine::Nanos;
use tunnel::session;

use super::slots::SLOT_BYTES;
use crate::carrier::route::Transport;
use crate::sys::clock::Clock;

/// Bytes of host memory for the queues, PRP lists and admin data of one I/O queue, beside the data
/// of commands under way.
const QUEUE_BYTES: u64 = 8 << 20;
/// The longest time between two attempts to reach a far end: a user may be waiting.
const REDIAL: Nanos = Nanos::from_millis(250);

/// The treatment of commands while the controller is away.
#[derive(Clone, Copy, Debug)]
pub enum Absence {
    /// The controller is given up, with all its commands, after this time.
    GiveUp(Nanos),
    /// Commands fail after this time, and the controller is looked for without end.
    Fail(Nanos),
}

/// The files with the secrets by which a host and its controller authenticate and encrypt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretFiles {
    /// The host's secret.
    pub host: Option<PathBuf>,
    /// The controller's secret, which is of use only together with the host's.
    pub controller: Option<PathBuf>,
    /// The key by which both encrypt (TLS).
    pub tls: Option<PathBuf>,
}

impl SecretFiles {
    /// The files that are named.
    pub fn paths(&self) -> impl Iterator<Item = PathBuf> {
        [&self.host, &self.controller, &self.tls].into_iter().flatten().cloned()
    }
}

/// How the root port of a host on PCI Express behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootPort {
    /// Max_Payload_Size and Max_Read_Request_Size in bytes.
    pub payload_size: u32,
    /// The longest completion in bytes that answers a device's read.
    pub completion_size: u32,
    /// Whether each completion raises an interrupt and is rung for. Otherwise the host polls.
    pub interrupts: bool,
}

impl Default for RootPort {
    fn default() -> Self {
        Self { payload_size: 4096, completion_size: 4096, interrupts: false }
    }
}

/// How a host uses a controller. Each transport takes the options that concern it; the URL of a
/// subsystem has settings of its own, which come first.
#[derive(Clone, Debug)]
pub struct Options {
    /// The clock of the host's loop. Hosts with one clock have instants that can be compared.
    pub clock: Clock,
    /// The most bytes of commands' data in the controller's memory.
    pub data_bytes: u64,
    /// The most commands under way whose data are in buffers, where buffers must be copied into
    /// memory that the controller reaches. Each of these commands moves at most 128 KiB.
    pub slots: u32,
    /// The most commands under way.
    pub depth: u32,
    /// The number of I/O queues on PCI Express, 1..=64.
    pub queues: u16,
    /// The root port of a host on PCI Express.
    pub root: RootPort,
    /// The treatment of commands while the controller is away.
    pub absence: Absence,
    /// How long to spin for the next event before sleeping.
    pub spin: Nanos,
    /// The configuration of a tunnel's end. Its instance is replaced by a random one.
    pub session: session::Config,
    /// How far ends are reached.
    pub transport: Transport,
    /// How this host authenticates to subsystems.
    pub secrets: SecretFiles,
}

impl Options {
    /// The usual options of a host that calls itself `role` to far ends.
    pub fn new(role: &str) -> Self {
        let mut identity = tunnel::frame::Identity {
            vendor: "Farlane".to_owned(),
            device: role.to_owned(),
            ..tunnel::frame::Identity::default()
        };
        let _ = write!(identity.name, "farlane process {}", std::process::id());
        let mut session = session::Config { identity, ..session::Config::default() };
        session.redial.1 = REDIAL;
        Self {
            clock: Clock::start(),
            data_bytes: 1 << 20,
            slots: 32,
            depth: 32,
            queues: 1,
            root: RootPort::default(),
            absence: Absence::GiveUp(Nanos::from_secs(15)),
            spin: Nanos::ZERO,
            session,
            transport: Transport::default(),
            secrets: SecretFiles::default(),
        }
    }

    /// The configuration of a host on PCI Express.
    pub(super) fn near(&self) -> near::Config {
        let bytes = u64::from(self.queues) * QUEUE_BYTES
            + self.data_bytes
            + u64::from(self.slots) * u64::from(SLOT_BYTES);
        let mut near = near::Config { arena_bytes: bytes, ..near::Config::default() };
        // One entry of a queue stays free.
        near.driver.queue_entries = (self.depth + 1).next_power_of_two().max(64);
        near.driver.queue_pairs = self.queues;
        let RootPort { payload_size, completion_size, interrupts } = self.root;
        (near.root.payload_size, near.root.completion_size) = (payload_size, completion_size);
        near.plan.read_request_size = near.plan.read_request_size.min(payload_size);
        (near.driver.interrupts, near.driver.rings_for_each) = (interrupts, interrupts);
        near.waits_for_interrupts = interrupts;
        near.driver.hold = self.holds().1;
        near
    }

    /// The configuration of a tunnel's end.
    pub(super) fn session(&self) -> session::Config {
        session::Config { hold: self.holds().0, ..self.session.clone() }
    }

    /// How long a lost connection is held, and after that the place of a lost device: together the
    /// time for which the controller may be away.
    fn holds(&self) -> (Nanos, Nanos) {
        let (time, held) = match self.absence {
            // A far end that comes back as a new one has to be set up within the rest.
            Absence::GiveUp(time) => (time, self.session.hold.min(Nanos::new(time.get() / 3 * 2))),
            Absence::Fail(time) => (time, Nanos::new(time.get() / 2)),
        };
        (held, Nanos::new(time.get() - held.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_is_away_for_no_longer_than_was_said() {
        for (seconds, held) in [(2, 1_333), (15, 10_000), (60, 10_000)] {
            let absence = Absence::GiveUp(Nanos::from_secs(seconds));
            let options = Options { absence, ..Options::new("test") };
            let (link, device) = options.holds();
            assert_eq!((link.get() / 1_000_000, link + device), (held, Nanos::from_secs(seconds)));
        }
        let options = Options { absence: Absence::Fail(Nanos::from_secs(8)), ..Options::new("test") };
        assert_eq!(options.holds(), (Nanos::from_secs(4), Nanos::from_secs(4)));
    }
}
