//! Changes to subsystems while hosts use them: to their media, and to how namespaces are reached.

use engine::Instant;
use nvme::media::MediumId;
use nvme::wire::AnaState;
use nvme_fabrics::target::SubsystemKey;
use nvme_fabrics::wire::{ControllerId, PortId};

use super::{Event, TargetDriver};
use crate::media::{Media, Medium, ResizeError};

impl<F: FnMut(Event)> TargetDriver<F> {
    /// Adds a medium to a subsystem that is here. `None` if there is no such subsystem, or it has
    /// [`crate::media::MEDIA_MAX`] media.
    pub fn add_medium(&mut self, key: SubsystemKey, medium: impl Into<Medium>) -> Option<MediumId> {
        let media = self.world.media_of(key)?;
        if media.is_full() {
            return None;
        }
        self.unregistered.push(key);
        Some(media.add(medium))
    }

    /// Removes a medium of a subsystem, after the last namespace on it. The medium is closed when
    /// the requests under way have ended.
    pub fn remove_medium(&mut self, key: SubsystemKey, medium: MediumId) {
        if let Some(media) = self.media_of(key) {
            media.remove(medium);
            self.forget_closed(key);
        }
    }

    /// Makes a medium of a subsystem that is here `bytes` long, or without `bytes` measures it, as
    /// [`Media::resize`] does. Returns the length in bytes.
    ///
    /// # Errors
    /// When the medium can't have that length, or the subsystem is not here.
    pub fn resize_medium(
        &mut self,
        key: SubsystemKey,
        medium: MediumId,
        bytes: Option<u64>,
    ) -> Result<u64, ResizeError> {
        self.media_of(key).ok_or(ResizeError::Fixed)?.resize(medium, bytes)
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
        self.target.exchange(now, &mut self.world);
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
        self.target.exchange(now, &mut self.world);
        is_there
    }

    /// The media of a subsystem that is here.
    pub fn media_of(&mut self, key: SubsystemKey) -> Option<&mut Media> {
        self.world.media_of(key)
    }

    /// Forgets descriptors of closed media: they end no sleep any more, and their numbers may soon
    /// be reused.
    fn forget_closed(&mut self, key: SubsystemKey) {
        let Self { world, registered, unregistered, .. } = self;
        let Some(media) = world.media_of(key) else { return };
        registered.retain(|(of, descriptor)| *of != key || media.poll_fds().any(|one| one == *descriptor));
        unregistered.push(key);
    }
}
