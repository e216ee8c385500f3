//! The state of an SSD, as a section of a file of state.

mod restore;
mod values;

use std::collections::VecDeque;

use nvme::subsystem::{
    BlockSize, Counters, EVENT_LOG_BYTES_MAX, NamespaceConfig, Notification, SanitizeStatus, UnreadableBlocks,
};
use nvme::wire::NamespaceId;
use serde::{Deserialize, Serialize};

use super::hex::Hex;
pub use restore::{Origin, Restored, load, restore};
use values::{CountersState, Feature, Firmware, Namespace, Reservation, Sanitize, SelfTests, Unreadable};

/// The name of an SSD's section in a file of state.
pub const SECTION: &str = "ssd";
/// The origin of a namespace that a host created.
const POOL: &str = "pool";
/// The most results of self-tests that are kept.
const SELF_TEST_RESULTS: usize = 20;

/// The state that an SSD remembers when its process ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SsdState {
    /// The controller's serial number.
    serial: String,
    /// Nothing was used since the SSD was last shut down.
    shut_down: bool,
    /// The pool's origin, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    /// The number of namespaces that hosts ever created.
    #[serde(default)]
    created: u64,
    counters: CountersState,
    #[serde(default)]
    firmware: Firmware,
    #[serde(default)]
    sanitize: Sanitize,
    #[serde(default)]
    self_test: SelfTests,
    #[serde(default, rename = "namespace")]
    namespaces: Vec<Namespace>,
    #[serde(default, rename = "feature")]
    features: Vec<Feature>,
    #[serde(default)]
    unreadable: Vec<Unreadable>,
    /// One record for each namespace whose registrants outlive a power loss.
    #[serde(default, rename = "reservation")]
    reservations: Vec<Reservation>,
    /// The Persistent Event log, oldest event first.
    #[serde(default)]
    events: VecDeque<Hex>,
}

impl SsdState {
    /// Creates the state of a new SSD.
    fn new(serial: &str) -> Self {
        Self {
            serial: serial.to_owned(),
            shut_down: true,
            pool: None,
            created: 0,
            counters: CountersState::default(),
            firmware: Firmware::default(),
            sanitize: Sanitize::default(),
            self_test: SelfTests::default(),
            namespaces: Vec::new(),
            features: Vec::new(),
            unreadable: Vec::new(),
            reservations: Vec::new(),
            events: VecDeque::new(),
        }
    }

    /// The serial number of the SSD.
    pub fn serial(&self) -> &str {
        &self.serial
    }

    /// Takes note of a notification by the controller; returns whether there is something to save.
    pub fn apply(&mut self, notification: &Notification) -> bool {
        match notification {
            Notification::NamespaceCreated { namespace, created } => {
                self.created = *created;
                self.on_created(namespace);
            }
            Notification::NamespaceDeleted(id) => self.forget(*id),
            Notification::NamespaceAttached { namespace, attached } => {
                if let Some(found) = self.find(*namespace) {
                    found.attached = *attached;
                }
            }
            Notification::NamespaceFormatted { namespace, block } => self.on_formatted(*namespace, *block),
            Notification::NamespaceProtected { namespace, protection } => {
                if let Some(found) = self.find(*namespace) {
                    found.write_protection = (*protection).into();
                }
            }
            Notification::ReservationsChanged(record) => {
                self.reservations.retain(|one| one.namespace != record.namespace.0);
                if record.persistent {
                    self.reservations.push(Reservation::from(&**record));
                }
            }
            Notification::BlocksUnreadable(blocks) => self.mark(blocks, true),
            Notification::BlocksReadable(blocks) => self.mark(blocks, false),
            Notification::SanitizeChanged(record) => {
                self.sanitize = (*record).into();
                if record.status == SanitizeStatus::Completed && record.data_erased {
                    self.unreadable.clear();
                }
            }
            Notification::SelfTestStarted { extended, namespace } => {
                self.self_test.extended = extended.then_some(namespace.0);
            }
            Notification::SelfTestEnded(result) => {
                self.self_test.extended = None;
                self.self_test.results.insert(0, values::self_test(result));
                self.self_test.results.truncate(SELF_TEST_RESULTS);
            }
            Notification::EventRecorded(event) => {
                self.events.push_back(Hex(event.bytes().to_vec()));
                self.trim_events();
            }
            Notification::FirmwareStored { slot, image } => self.firmware.store(*slot, image),
            Notification::FirmwareSelected { slot } => self.firmware.active = *slot,
            Notification::FeatureSaved(feature) => {
                let feature = Feature::from(*feature);
                self.features.retain(|other| !other.is_same_as(&feature));
                self.features.push(feature);
            }
            Notification::ReadyForPowerLoss(counters) => {
                self.shut_down = true;
                self.set_counters(counters);
            }
            Notification::NumberOfQueues { .. }
            | Notification::CrossControllerReset { .. }
            | Notification::Arbitration { .. }
            | Notification::InterruptCoalescing { .. }
            | Notification::InterruptVector { .. }
            | Notification::KeepAliveTimeout { .. }
            | Notification::FirmwareActivated { .. }
            | Notification::ShutDown { .. } => return false,
        }
        true
    }

    /// Records that the SSD is used: until it is shut down, it is not ready to lose power. Returns
    /// whether this changes the state.
    pub(super) fn set_in_use(&mut self) -> bool {
        std::mem::replace(&mut self.shut_down, false)
    }

    /// Records that the SSD may lose power now. Returns whether this changes the state.
    pub(super) fn set_shut_down(&mut self) -> bool {
        !std::mem::replace(&mut self.shut_down, true)
    }

    /// Records the counters of the health log. Returns whether this changes the state.
    pub(super) fn set_counters(&mut self, counters: &Counters) -> bool {
        let counters = CountersState::from(counters);
        std::mem::replace(&mut self.counters, counters.clone()) != counters
    }

    fn find(&mut self, id: NamespaceId) -> Option<&mut Namespace> {
        self.namespaces.iter_mut().find(|one| one.id == id.0)
    }

    fn on_created(&mut self, created: &NamespaceConfig) {
        // The identifier may be that of a namespace that was not given this time.
        self.forget(created.id);
        let namespace = Namespace::new(created, POOL, Some((created.offset, created.bytes)));
        let at = self.namespaces.partition_point(|other| other.id < namespace.id);
        self.namespaces.insert(at, namespace);
    }

    fn on_formatted(&mut self, id: NamespaceId, block: BlockSize) {
        self.unreadable.retain(|run| run.namespace != id.0);
        if let Some(found) = self.find(id) {
            found.set_format(block);
        }
    }

    /// Remembers a namespace of this origin, which was added while hosts use others.
    pub fn add_namespace(&mut self, namespace: &NamespaceConfig, origin: &str) {
        self.forget(namespace.id);
        self.namespaces.push(Namespace::new(namespace, origin, None));
        self.namespaces.sort_by_key(|one| one.id);
    }

    /// Forgets a namespace that was removed.
    pub fn remove_namespace(&mut self, id: NamespaceId) {
        self.forget(id);
    }

    fn forget(&mut self, id: NamespaceId) {
        self.namespaces.retain(|one| one.id != id.0);
        self.features.retain(|one| one.namespace != id.0);
        self.unreadable.retain(|run| run.namespace != id.0);
        self.reservations.retain(|one| one.namespace != id.0);
    }

    /// Makes blocks unreadable, or readable again.
    fn mark(&mut self, blocks: &UnreadableBlocks, unreadable: bool) {
        let (namespace, start) = (blocks.namespace.0, blocks.lba);
        let end = start.saturating_add(blocks.blocks);
        let mut rest = Vec::with_capacity(self.unreadable.len() + 2);
        for run in self.unreadable.drain(..) {
            let run_end = run.first.saturating_add(run.count);
            if run.namespace != namespace || run_end <= start || end <= run.first {
                rest.push(run);
                continue;
            }
            if run.first < start {
                rest.push(Unreadable { namespace, first: run.first, count: start - run.first });
            }
            if end < run_end {
                rest.push(Unreadable { namespace, first: end, count: run_end - end });
            }
        }
        if unreadable && start < end {
            rest.push(Unreadable { namespace, first: start, count: end - start });
        }
        self.unreadable = rest;
    }

    /// Forgets the oldest events, as the log does.
    fn trim_events(&mut self) {
        let mut bytes: usize = self.events.iter().map(|event| event.0.len()).sum();
        while bytes > EVENT_LOG_BYTES_MAX
            && let Some(oldest) = self.events.pop_front()
        {
            bytes -= oldest.0.len();
        }
    }
}
