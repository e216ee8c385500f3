//! How the controllers of a port reach groups of namespaces (ANA), including controllers that hosts
//! are yet to create.

use engine::Instant;
use nvme::subsystem::ControllerKey;
use nvme::wire::AnaState;
use nvme_fabrics::target::{AssociationKey, SubsystemKey};
use nvme_fabrics::wire::{ControllerId, PortId};

use super::Target;

/// How every controller of a port reaches a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PortAccess {
    pub(super) port: PortId,
    pub(super) group: u32,
    pub(super) state: AnaState,
}

impl Target {
    /// Sets how the controllers of a port reach a group of a subsystem's namespaces. Hosts of
    /// existing controllers are notified; later controllers start with this state.
    ///
    /// # Panics
    /// When the subsystem has no such group.
    pub fn set_port_access(
        &mut self,
        now: Instant,
        key: SubsystemKey,
        port: PortId,
        group: u32,
        state: AnaState,
    ) {
        self.now = now;
        let there = self.controllers_of(key, |_, through| through == Some(port));
        let Some(served) = self.subsystems.get_mut(key.0 as usize).and_then(Option::as_mut) else { return };
        served.access.retain(|one| (one.port, one.group) != (port, group));
        if state != AnaState::default() {
            served.access.push(PortAccess { port, group, state });
        }
        for controller in there {
            if let Some(home) = served.core.home_mut() {
                home.set_ana_state(now, controller, group, state);
            }
        }
        self.drain_core(key);
        self.work();
    }

    /// Sets how one controller reaches a group of a subsystem's namespaces, until the controller
    /// ends. Returns whether there is such a controller.
    ///
    /// # Panics
    /// When the subsystem has no such group.
    pub fn set_controller_access(
        &mut self,
        now: Instant,
        key: SubsystemKey,
        controller: ControllerId,
        group: u32,
        state: AnaState,
    ) -> bool {
        self.now = now;
        let there = self.controllers_of(key, |id, _| id == controller);
        if let Some(home) = self.home_mut(key) {
            for controller in &there {
                home.set_ana_state(now, *controller, group, state);
            }
        }
        self.drain_core(key);
        self.work();
        !there.is_empty()
    }

    /// The controllers of a subsystem that `wanted` chooses by their identifiers and by the ports
    /// of their Admin Queues.
    fn controllers_of(
        &self,
        key: SubsystemKey,
        wanted: impl Fn(ControllerId, Option<PortId>) -> bool,
    ) -> alloc::vec::Vec<ControllerKey> {
        let of = |(association, one): (
            nvme_fabrics::target::AssociationKey,
            &nvme_fabrics::target::Association,
        )| {
            let member = self.members.get(association.0 as usize)?.as_ref()?;
            let (subsystem, controller) = member.controller?;
            let port = self.peers.get(member.admin.0 as usize)?.as_ref().map(|peer| peer.port);
            (subsystem == key && wanted(one.controller(), port)).then_some(controller)
        };
        self.fabrics.associations_from(AssociationKey(0)).filter_map(of).collect()
    }
}
