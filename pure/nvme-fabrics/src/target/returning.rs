//! The latest controllers of hosts, so that a returning host gets the same number again:
//! administrators and scripts identify a controller by it.

use alloc::collections::VecDeque;

use super::{Association, SubsystemKey};
use crate::wire::{ControllerId, HostId, Nqn};

/// How many controllers are remembered, of all subsystems.
const REMEMBERED_MAX: usize = 256;

/// One controller that a host had.
#[derive(Debug, PartialEq, Eq)]
struct Had {
    subsystem: SubsystemKey,
    host: Nqn,
    host_id: HostId,
    controller: ControllerId,
}

/// The latest controllers of hosts, the latest first.
#[derive(Debug)]
pub(super) struct Returning(VecDeque<Had>);

impl Returning {
    pub(super) const fn new() -> Self {
        Self(VecDeque::new())
    }

    /// An association with a controller of `subsystem` has ended.
    pub(super) fn remember(&mut self, subsystem: SubsystemKey, ended: &Association) {
        let Association { host, host_id, controller, .. } = ended;
        let (host, host_id, controller) = (host.clone(), *host_id, *controller);
        self.0.retain(|one| (one.subsystem, one.controller) != (subsystem, controller));
        self.0.push_front(Had { subsystem, host, host_id, controller });
        self.0.truncate(REMEMBERED_MAX);
    }

    /// The controllers that the host had in the subsystem, the latest first.
    pub(super) fn of(
        &self,
        subsystem: SubsystemKey,
        host: &Nqn,
        host_id: HostId,
    ) -> impl Iterator<Item = ControllerId> {
        let is_meant =
            move |one: &&Had| (one.subsystem, one.host_id) == (subsystem, host_id) && one.host == *host;
        self.0.iter().filter(is_meant).map(|one| one.controller)
    }
}
