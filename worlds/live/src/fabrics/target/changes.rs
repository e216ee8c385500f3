//! What changes of subsystems while hosts use them: their media, and how they are reached.

use engine::Instant;
use nvme::media::MediumId;
use nvme::subsystem::AnaState;
use nvme_fabrics::target::SubsystemKey;
use nvme_fabrics::wire::{ControllerId, PortId};

use super::{Event, TargetDriver};
use crate::media::{Media, Medium, ResizeError};

impl<F: FnMut(Event)> TargetDriver<F> {
    /// Adds a medium to a subsystem that is here, unless it has as many as there may be
    /// ([`crate::media::MEDIA_MAX`]).
    pub fn add_medium(&mut self, key: SubsystemKey, medium: impl Into<Medium>) -> Option<MediumId> {
        let media = self.media.get_mut(key.0 as usize)?.as_mut()?;
        if media.is_full() {
            return None;
        }
        self.unregistered.push(key);
        Some(media.add(medium))
    }

    /// Removes a medium of a subsystem, after the last namespace on it: it is closed when it has done what it was
    /// asked for.
    pub fn remove_medium(&mut self, key: SubsystemKey, medium: MediumId) {
        if let Some(media) = self.media_of(key) {
            media.remove(medium);
            self.forget_closed(key);
        }
    }

    /// Makes a medium of a subsystem that is here `bytes` long, or measures what it has by now: see [`Media::resize`].
    ///
    /// # Errors
    /// When it can't have that length.
    pub fn resize_medium(
        &mut self,
        key: SubsystemKey,
        medium: MediumId,
        bytes: Option<u64>,
    ) -> Result<u64, ResizeError> {
        self.media_of(key).ok_or(ResizeError::Fixed)?.resize(medium, bytes)
    }

    /// Sets how the controllers of a port reach a group of namespaces: see [`Target::set_port_access`].
    ///
    /// [`Target::set_port_access`]: machine::target::Target::set_port_access
    pub fn set_port_access(
        &mut self,
        now: Instant,
        key: SubsystemKey,
        port: PortId,
        group: u32,
        state: AnaState,
    ) {
        self.target.set_port_access(now, key, port, group, state);
        self.exchange(now);
    }

    /// Sets how one controller reaches a group of namespaces, if there is such a controller: see
    /// [`Target::set_controller_access`].
    ///
    /// [`Target::set_controller_access`]: machine::target::Target::set_controller_access
    pub fn set_controller_access(
        &mut self,
        now: Instant,
        key: SubsystemKey,
        controller: ControllerId,
        group: u32,
        state: AnaState,
    ) -> bool {
        let is_there = self.target.set_controller_access(now, key, controller, group, state);
        self.exchange(now);
        is_there
    }

    /// The media of a subsystem that is here.
    pub fn media_of(&mut self, key: SubsystemKey) -> Option<&mut Media> {
        self.media.get_mut(key.0 as usize)?.as_mut()
    }

    /// A descriptor that was closed ends no sleep any more; its number may be that of another one soon.
    fn forget_closed(&mut self, key: SubsystemKey) {
        let Self { media, registered, unregistered, .. } = self;
        let Some(media) = media.get(key.0 as usize).and_then(Option::as_ref) else { return };
        registered.retain(|(of, descriptor)| *of != key || media.poll_fds().any(|one| one == *descriptor));
        unregistered.push(key);
    }
}
