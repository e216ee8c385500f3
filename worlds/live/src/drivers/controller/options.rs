//! How a host uses a controller.

use std::fmt::Write;
use std::path::PathBuf;

use assemblies::near;
use engine::Nanos;
use tunnel::session;

use super::slots::SLOT_BYTES;
use crate::carrier::route::Transport;

/// Bytes of host memory for the queues, PRP lists and admin data of one I/O queue, beside the data
/// of commands under way.
const QUEUE_BYTES: u64 = 8 << 20;
/// The longest time between two attempts to reach a far end: a person may be waiting.
const REDIAL: Nanos = Nanos::from_millis(250);

/// What becomes of commands while the controller is away.
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

/// How a host uses a controller. Each transport takes what concerns it; the URL of a subsystem has
/// settings of its own, which come first.
#[derive(Clone, Debug)]
pub struct Options {
    /// The most bytes of commands' data in the controller's memory.
    pub data_bytes: u64,
    /// The most commands under way whose data are in buffers, where buffers must be copied into
    /// memory that the controller reaches. Each of these commands moves at most 128 KiB.
    pub slots: u32,
    /// The most commands under way.
    pub depth: u32,
    /// The number of I/O queues on PCI Express, 1..=64.
    pub queues: u16,
    /// What becomes of commands while the controller is away.
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
            data_bytes: 1 << 20,
            slots: 32,
            depth: 32,
            queues: 1,
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
        near.driver.hold = match self.absence {
            Absence::GiveUp(hold) => hold,
            Absence::Fail(hold) => half(hold),
        };
        near
    }

    /// The configuration of a tunnel's end.
    pub(super) fn session(&self) -> session::Config {
        let mut session = self.session.clone();
        // A connection is held for the first half, and the place of a lost device for the second
        // half.
        if let Absence::Fail(hold) = self.absence {
            session.hold = half(hold);
        }
        session
    }
}

const fn half(time: Nanos) -> Nanos {
    Nanos::new(time.get() / 2)
}
