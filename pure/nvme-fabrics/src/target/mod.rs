//! The controller's side of fabrics: the access of hosts to subsystems, the queues of an
//! association, the properties of its controller, the liveness of its host, and the discovery
//! service.
//!
//! A transport passes the fabrics commands to [`Target`]. Other commands go to the command core of
//! `nvme`, or to [`Target::discover`] if the controller is a discovery controller.

mod association;
mod associations;
mod authentication;
mod connect;
mod directory;
mod discovery;
mod keep_alive;
mod offer;
mod properties;
mod returning;
#[cfg(test)]
mod tests;
mod work;

pub use association::{Association, AssociationKey, Claim, Served};
pub use authentication::{Progress, Received};
pub use connect::{Arrival, Connected, Outcome, Refusal, Why};
pub use directory::{
    ControllerModel, Directory, DiscoveryAccess, HostTerms, Hosts, PORTS_MAX, Port, REFERRALS_MAX, Referral,
    SUBSYSTEMS_MAX, Subsystem, SubsystemKey, TLS_KEYS_MAX, is_closed,
};
pub use discovery::Reply;
pub use properties::Change;
pub use work::{WorkId, WorkStatus};

use alloc::vec::Vec;

use engine::{Entropy, Instant, Nanos, Origin};
use nvme::wire::{Status, StatusCode};

use associations::Associations;
use offer::Offer;
use returning::Returning;
use work::Works;

use crate::wire::{FabricsStatus, Nqn, PropertyGet, PropertySet, QueueId};

/// Maximum number of entries of a queue; Maximum Queue Entries Supported (MQES) is one less.
pub const QUEUE_ENTRIES_MAX: u16 = 1024;
/// Maximum number of I/O queues of a controller.
pub const IO_QUEUES_MAX: u16 = 64;
/// Maximum number of associations. Further hosts are refused because controllers are busy.
pub const ASSOCIATIONS_MAX: usize = 16_384;
/// Maximum number of further associations whose hosts have not proved their identity.
pub const UNPROVEN_ASSOCIATIONS_MAX: usize = ASSOCIATIONS_MAX / 8;
/// How long an association lasts while its controller is not enabled, or was shut down.
pub const DISABLED_MAX: Nanos = Nanos::from_secs(120);
/// How long an association with a discovery controller lasts without commands, if it has no Keep
/// Alive Timeout.
pub const DISCOVERY_IDLE_MAX: Nanos = Nanos::from_secs(120);

/// The controller's side of fabrics: the directory, and the associations with hosts.
#[derive(Debug)]
pub struct Target {
    directory: Offer,
    associations: Associations,
    /// Where the search for a free controller identifier continues.
    next_controller: u16,
    /// The controllers of associations that have ended.
    returning: Returning,
    /// The source of challenges and keys.
    entropy: Entropy,
    works: Works,
}

impl Target {
    /// A target with the offer of `directory`, which draws challenges and keys from `entropy`.
    pub fn new(directory: Directory, entropy: Entropy) -> Self {
        Self {
            directory: Offer::new(directory),
            associations: Associations::new(),
            next_controller: 0,
            returning: Returning::new(),
            entropy,
            works: Works::new(),
        }
    }

    /// The directory: the offer of the target.
    pub const fn directory(&self) -> &Directory {
        self.directory.directory()
    }

    /// The subsystem with that key, if it is offered.
    pub fn offered(&self, key: SubsystemKey) -> Option<&Subsystem> {
        self.directory.by_key(key)
    }

    /// Replaces the directory. Connections stay. The first list has the keys of discovery
    /// associations that now have an event to send (see [`Target::take_event`]). The second list
    /// has the keys of associations that the owner must end: their host is no longer allowed or has
    /// other secrets than before, or their subsystem was removed.
    pub fn set_directory(&mut self, mut directory: Directory) -> (Vec<AssociationKey>, Vec<AssociationKey>) {
        let changed = !directory.says_the_same(&self.directory);
        directory.generation = self.directory.generation.wrapping_add(u64::from(changed));
        self.directory = Offer::new(directory);
        self.apply_offer(changed, |_| true)
    }

    /// Offers a subsystem, in the place of the one with its key if there is one. The lists are
    /// those of [`Target::set_directory`].
    pub fn put_subsystem(&mut self, subsystem: Subsystem) -> (Vec<AssociationKey>, Vec<AssociationKey>) {
        let key = subsystem.key;
        let changed = self.directory.put(subsystem);
        self.apply_offer(changed, |of| of == key)
    }

    /// Offers a subsystem no longer. The lists are those of [`Target::set_directory`].
    pub fn remove_subsystem(&mut self, key: SubsystemKey) -> (Vec<AssociationKey>, Vec<AssociationKey>) {
        let changed = self.directory.remove(key).is_some();
        self.apply_offer(changed, |of| of == key)
    }

    /// Sets whether more is meant to be offered, as [`Directory::is_partial`] says.
    pub const fn set_partial(&mut self, is_partial: bool) {
        self.directory.set_partial(is_partial);
    }

    /// Finds the associations with events to send and those to end, of the discovery service and of
    /// the subsystems that `is_meant` names.
    fn apply_offer(
        &mut self,
        changed: bool,
        is_meant: impl Fn(SubsystemKey) -> bool,
    ) -> (Vec<AssociationKey>, Vec<AssociationKey>) {
        let Self { directory, associations, .. } = self;
        let (mut notified, mut ended) = (Vec::new(), Vec::new());
        for (key, association) in associations.iter_mut() {
            match &mut association.served {
                Served::Discovery(discovery) => {
                    if !may_discover(directory, association.is_proven, &association.host, &association.terms)
                    {
                        ended.push(key);
                    } else if changed && discovery.on_log_changed() {
                        notified.push(key);
                    }
                }
                Served::Nvm(subsystem) if is_meant(*subsystem) => {
                    let offered = directory.by_key(*subsystem);
                    let is_allowed = |offered: &Subsystem| {
                        let terms = offered.terms_of(&association.host).cloned().unwrap_or_default();
                        offered.hosts.allow(&association.host) && terms.demand_the_same(&association.terms)
                    };
                    if !offered.is_some_and(is_allowed) {
                        ended.push(key);
                    }
                }
                Served::Nvm(_) => {}
            }
        }
        (notified, ended)
    }

    /// The association of that key, if it exists.
    pub fn association(&self, key: AssociationKey) -> Option<&Association> {
        self.associations.get(key)
    }

    /// Every association whose key is not below `from`, in the order of keys.
    pub fn associations_from(
        &self,
        from: AssociationKey,
    ) -> impl Iterator<Item = (AssociationKey, &Association)> {
        self.associations.iter_from(from)
    }

    fn of(&mut self, key: AssociationKey) -> &mut Association {
        let found = self.associations.get_mut(key);
        found.expect("a key names an association until it is ended")
    }

    /// Notes a command of the association's host, which is therefore alive.
    ///
    /// # Panics
    /// When there is no such association.
    #[inline]
    pub fn touch(&mut self, now: Instant, key: AssociationKey) {
        let association = self.of(key);
        // A lane reports commands ahead of time.
        association.heard = association.heard.max(now);
    }

    /// Sets the Keep Alive Timer feature, in milliseconds; 0 switches the timer off.
    ///
    /// # Panics
    /// When there is no such association.
    pub fn set_keep_alive(&mut self, now: Instant, key: AssociationKey, milliseconds: u32) {
        let association = self.of(key);
        association.heard = now;
        association.keep_alive = keep_alive::timeout(milliseconds);
        self.look_again(key);
    }

    /// Sets the Number of Queues feature to `count` I/O queues, at most [`IO_QUEUES_MAX`].
    ///
    /// # Panics
    /// When there is no such association.
    pub fn set_io_queues(&mut self, key: AssociationKey, count: u16) {
        self.of(key).io_queues = count.min(IO_QUEUES_MAX);
    }

    /// The value for a Property Get.
    ///
    /// # Errors
    /// Invalid Queue Type on an I/O queue; Authentication Required before the host authenticates;
    /// Invalid Field where there is no such property of that size.
    ///
    /// # Panics
    /// When there is no such association.
    pub fn property_get(&self, key: AssociationKey, queue: QueueId, get: PropertyGet) -> Result<u64, Status> {
        if !queue.is_admin() {
            return Err(FabricsStatus::InvalidQueueType.into());
        }
        self.admit(key)?;
        let association = self.association(key).expect("a key names an association until it is ended");
        association.property(get).ok_or(StatusCode::InvalidField.into())
    }

    /// Executes a Property Set. Returns the action for the owner.
    ///
    /// # Errors
    /// Invalid Queue Type on an I/O queue; Authentication Required before the host authenticates;
    /// Invalid Field where there is no such writable property of that size.
    ///
    /// # Panics
    /// When there is no such association.
    pub fn property_set(
        &mut self,
        now: Instant,
        key: AssociationKey,
        queue: QueueId,
        set: PropertySet,
    ) -> Result<Change, Status> {
        if !queue.is_admin() {
            return Err(FabricsStatus::InvalidQueueType.into());
        }
        self.admit(key)?;
        let change = self.of(key).set_property(now, set).ok_or(Status::from(StatusCode::InvalidField))?;
        self.look_again(key);
        Ok(change)
    }

    /// Reports that the controller of [`Change::Enable`] is ready.
    ///
    /// # Panics
    /// When there is no such association.
    pub fn set_ready(&mut self, key: AssociationKey) {
        self.of(key).set_ready();
    }

    /// Reports that the shutdown of [`Change::ShutDown`] is complete.
    ///
    /// # Panics
    /// When there is no such association.
    pub fn set_shut_down(&mut self, now: Instant, key: AssociationKey) {
        self.of(key).set_shut_down(now);
        self.look_again(key);
    }

    /// Notes a reset of the subsystem (NSSR). Each of its controllers reports it (CSTS.NSSRO) until
    /// the host clears it.
    pub fn set_subsystem_reset(&mut self, now: Instant, subsystem: SubsystemKey) {
        let mut reset = Vec::new();
        for (key, association) in self.associations.iter_mut() {
            if matches!(association.served, Served::Nvm(of) if of == subsystem) {
                association.on_subsystem_reset(now);
                reset.push(key);
            }
        }
        for key in reset {
            self.look_again(key);
        }
    }

    /// Handles the loss of a connection that claimed an I/O queue of an association. Calling this
    /// again for the same claim has no effect.
    pub fn close_queue(&mut self, key: AssociationKey, claim: Claim) {
        if let Some(association) = self.associations.get_mut(key) {
            association.dismiss(claim);
            association.claimants.retain(|one| one.claim != claim);
        }
        self.works.forget(key, claim);
    }

    /// Number of associations whose hosts have not proved their identity.
    pub const fn unproven(&self) -> usize {
        self.associations.unproven()
    }

    /// Ends an association, and with it its controller. Returns the association if it existed.
    pub fn end(&mut self, key: AssociationKey) -> Option<Association> {
        self.works.forget_all(key);
        let ended = self.associations.remove(key)?;
        // An unproven host does not own its reserved controller.
        if let Some(subsystem) = ended.subsystem().filter(|_| ended.is_proven) {
            self.returning.remember(subsystem, &ended);
        }
        Some(ended)
    }
}

/// Whether a host may continue with the discovery service of `directory`.
fn may_discover(directory: &Directory, is_proven: bool, host: &Nqn, terms: &HostTerms) -> bool {
    match directory.discovery {
        DiscoveryAccess::Open => true,
        DiscoveryAccess::Keyed => {
            let has_same = || terms.credentials.as_ref() == directory.credentials_of(host);
            is_proven && (terms.credentials.is_none() || has_same())
        }
        DiscoveryAccess::Closed => false,
    }
}
