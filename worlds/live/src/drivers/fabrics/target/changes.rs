//! Changes to subsystems while hosts use them: to their media, and to how namespaces are reached.

use engine::Instant;
use nvme::subsystem::Subsystem;
use nvme::wire::AnaState;
use nvme_fabrics::target::SubsystemKey;
use nvme_fabrics::wire::{ControllerId, PortId};

use super::{Event, TargetDriver};
use crate::media::Media;

impl<F: FnMut(Event)> TargetDriver<F> {
    /// Applies `change` to the namespaces of a subsystem, which are in its core, and to the media
    /// under them, while hosts may use them. `None` if the subsystem is not here.
    pub fn with_namespaces<T>(
        &mut self,
        now: Instant,
        key: SubsystemKey,
        change: impl FnOnce(&mut Subsystem, &mut Media) -> T,
    ) -> Option<T> {
        let media = self.shell.media_of(key)?;
        let result = self.target.engine_mut().with_subsystem(now, key, |core| change(core, media));
        self.target.exchange(now, &mut self.shell);
        self.pass_media_changes(key);
        self.forget_closed(key);
        result
    }

    /// Sets how the controllers of a port reach a group of namespaces, as
    /// [`Target::set_port_access`] does.
    ///
    /// [`Target::set_port_access`]: assemblies::target::Target::set_port_access
    pub fn set_port_access(
        &mut self,
        now: Instant,
        key: SubsystemKey,
        port: PortId,
        group: u32,
        state: AnaState,
    ) {
        self.target.engine_mut().set_port_access(now, key, port, group, state);
        self.target.exchange(now, &mut self.shell);
    }

    /// Sets how one controller reaches a group of namespaces, as [`Target::set_controller_access`]
    /// does. Returns whether there is such a controller.
    ///
    /// [`Target::set_controller_access`]: assemblies::target::Target::set_controller_access
    pub fn set_controller_access(
        &mut self,
        now: Instant,
        key: SubsystemKey,
        controller: ControllerId,
        group: u32,
        state: AnaState,
    ) -> bool {
        let is_there = self.target.engine_mut().set_controller_access(now, key, controller, group, state);
        self.target.exchange(now, &mut self.shell);
        is_there
    }

    /// Forgets descriptors of closed media: they end no sleep any more, and their numbers may soon
    /// be reused.
    pub(super) fn forget_closed(&mut self, key: SubsystemKey) {
        let Self { shell, registered, unregistered, .. } = self;
        let Some(media) = shell.media_of(key) else { return };
        registered.retain(|(of, descriptor)| *of != key || media.poll_fds().any(|one| one == *descriptor));
        unregistered.push(key);
    }
}
