//! Authentication of the queues of an association.

use alloc::vec::Vec;

use engine::Instant;
use nvme::wire::{Status, StatusCode};

use super::{Association, AssociationKey, Target};
use crate::authentication::{Authenticated, Controller, Failure, MESSAGE_BYTES_MAX, Names};
use crate::wire::{AuthenticationCommand, ConnectResponse, FabricsStatus, QueueId};

/// How far a queue's authentication is after a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// A transaction that has succeeded or failed since the last command.
    pub news: Option<Result<Authenticated, Failure>>,
    /// Whether the owner must close the queue once the pending answer is sent. With the Admin
    /// Queue, the association ends.
    pub is_over: bool,
}

impl Association {
    fn authentication(&mut self, queue: QueueId) -> Option<&mut Controller> {
        self.authentications.iter_mut().find(|(one, _)| *one == queue).map(|(_, one)| one)
    }

    /// When the queue's authentication is overdue.
    pub(super) fn authentication_deadline(&self, queue: QueueId) -> Option<Instant> {
        let (_, found) = self.authentications.iter().find(|(one, _)| *one == queue)?;
        found.poll_timeout()
    }

    /// Whether the host has not authenticated its Admin Queue in time.
    pub fn authentication_is_overdue(&self, now: Instant) -> bool {
        self.authentication_deadline(QueueId::ADMIN).is_some_and(|at| at <= now)
    }
}

impl Target {
    /// Has a queue that was just connected authenticate, if its host must. Returns AUTHREQ.
    pub(super) fn demand_authentication(&mut self, now: Instant, key: AssociationKey, queue: QueueId) -> u16 {
        let offered = self.association(key).and_then(Association::subsystem);
        let name = offered.and_then(|key| self.directory.by_key(key)).map(|one| one.name.clone());
        let entropy = self.entropy.split();
        let association = self.of(key);
        let (Some(credentials), Some(subsystem)) = (association.terms.credentials.clone(), name) else {
            association.admitted.insert(queue);
            return 0;
        };
        let names = Names { host: association.host.clone(), subsystem };
        let controller = Controller::new(now, names, credentials, association.keep_alive, entropy);
        association.authentications.push((queue, controller));
        ConnectResponse::AUTHENTICATE
    }

    /// Whether commands of a queue other than Authentication Send and Authentication Receive may be
    /// carried out.
    ///
    /// # Errors
    /// Authentication Required.
    pub fn admit(&self, key: AssociationKey, queue: QueueId) -> Result<(), Status> {
        let admits = self.association(key).is_some_and(|one| one.admits(queue));
        if admits { Ok(()) } else { Err(FabricsStatus::AuthenticationRequired.into()) }
    }

    /// Carries out an Authentication Send with its data, whose length
    /// [`Target::authentication_length`] has approved.
    ///
    /// # Errors
    /// Invalid Command Opcode where the host has no secret here.
    ///
    /// # Panics
    /// When there is no such association.
    pub fn authentication_send(
        &mut self,
        now: Instant,
        key: AssociationKey,
        queue: QueueId,
        message: &[u8],
    ) -> Result<Progress, Status> {
        let association = self.of(key);
        let controller = association.authentication(queue).ok_or(StatusCode::InvalidCommandOpcode)?;
        controller.on_message(now, message);
        Ok(self.progress(key, queue))
    }

    /// The length of the data of an Authentication Send.
    ///
    /// # Errors
    /// Invalid Command Opcode where the host has no secret here. Invalid Field where the command is
    /// not of an NVMe in-band authentication, or has no data or more than [`MESSAGE_BYTES_MAX`]
    /// bytes of them.
    pub fn authentication_length(
        &self,
        key: AssociationKey,
        command: AuthenticationCommand,
    ) -> Result<u32, Status> {
        let demanded = self.association(key).is_some_and(|one| one.terms.credentials.is_some());
        let is_sound = command.is_in_band() && (1..=MESSAGE_BYTES_MAX).contains(&(command.length as usize));
        match (demanded, is_sound) {
            (false, _) => Err(StatusCode::InvalidCommandOpcode.into()),
            (true, false) => Err(StatusCode::InvalidField.into()),
            (true, true) => Ok(command.length),
        }
    }

    /// Carries out an Authentication Receive. Returns the data, padded with zeros to the Allocation
    /// Length but to no more than [`MESSAGE_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// Invalid Field where the command is not of an NVMe in-band authentication, or the Allocation
    /// Length is too short. Invalid Command Opcode where the host has no secret here.
    ///
    /// # Panics
    /// When there is no such association.
    pub fn authentication_receive(
        &mut self,
        now: Instant,
        key: AssociationKey,
        queue: QueueId,
        command: AuthenticationCommand,
    ) -> Result<(Vec<u8>, Progress), Status> {
        let association = self.of(key);
        let controller = association.authentication(queue).ok_or(StatusCode::InvalidCommandOpcode)?;
        let room = command.length as usize;
        if !command.is_in_band() || room < controller.answer_length() {
            return Err(StatusCode::InvalidField.into());
        }
        let mut answer = controller.answer(now);
        if answer.len() < room {
            answer.resize(room.min(MESSAGE_BYTES_MAX), 0);
        }
        Ok((answer, self.progress(key, queue)))
    }

    fn progress(&mut self, key: AssociationKey, queue: QueueId) -> Progress {
        let association = self.of(key);
        let Some(controller) = association.authentication(queue) else { return Progress::default() };
        let progress = Progress { news: controller.take_news(), is_over: controller.is_over() };
        match controller.is_authenticated() {
            true => association.admitted.insert(queue),
            false => association.admitted.remove(queue),
        }
        self.look_again(key);
        progress
    }

    /// The I/O queues whose hosts have not authenticated them in time, for the owner to close.
    /// Associations whose Admin Queue is overdue are among [`Target::expired`].
    pub fn overdue_queues(&mut self, now: Instant) -> Vec<(AssociationKey, QueueId)> {
        let mut overdue = Vec::new();
        for key in self.associations.due(now) {
            let Some(association) = self.associations.get_mut(key) else { continue };
            for (queue, controller) in &mut association.authentications {
                if !queue.is_admin() && controller.poll_timeout().is_some_and(|at| at <= now) {
                    controller.on_timeout();
                    association.admitted.remove(*queue);
                    overdue.push((key, *queue));
                }
            }
        }
        overdue
    }
}
