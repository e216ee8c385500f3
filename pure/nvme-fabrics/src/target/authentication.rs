//! Authentication of the queues of an association.

use alloc::boxed::Box;
use alloc::vec::Vec;

use engine::{Instant, Nanos};
use nvme::wire::{Status, StatusCode};

use super::work::{Applicant, Part, WorkId, WorkStatus};
use super::{Association, AssociationKey, Claim, Target};
use crate::authentication::{Authenticated, Controller, Failure, MESSAGE_BYTES_MAX, Names, Product, Work};
use crate::wire::{AuthenticationCommand, ConnectResponse, FabricsStatus, Nqn, QueueId};

/// How far a queue's authentication is after a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// A transaction that has succeeded or failed since the last command.
    pub news: Option<Result<Authenticated, Failure>>,
    /// Whether the queue is the connection's now and may be used.
    pub is_admitted: bool,
    /// Whether that is new. The owner then brings the controller, if the queue is an Admin Queue,
    /// or ends the connection that had the queue before.
    pub is_new: bool,
    /// Whether the owner must close the connection once the pending answer is sent. With the Admin
    /// Queue, the association ends.
    pub is_over: bool,
    /// Whether it ends for lack of room: the host may try again.
    pub is_crowded: bool,
    /// Whether the next Authentication Receive waits for [`Target::on_worked`].
    pub is_waiting: bool,
}

/// The answer to an Authentication Receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// The message for the host, and how far the authentication is with it.
    Message(Vec<u8>, Progress),
    /// The message needs work that is not done. The command must be executed again when
    /// [`Target::on_worked`] names the claim.
    Waits,
}

impl Association {
    /// When the authentication of the Admin Queue is overdue.
    pub(super) fn authentication_deadline(&self) -> Option<Instant> {
        let admin = self.claimants.iter().find(|one| one.claim.queue.is_admin())?;
        admin.authentication.as_ref()?.poll_timeout()
    }

    /// Whether the host has not authenticated its Admin Queue in time.
    pub fn authentication_is_overdue(&self, now: Instant) -> bool {
        self.authentication_deadline().is_some_and(|at| at <= now)
    }

    fn controller_of(&mut self, claim: Claim) -> Result<&mut Controller, Status> {
        let found = self.claimant(claim).and_then(|one| one.authentication.as_deref_mut());
        found.ok_or(StatusCode::InvalidCommandOpcode.into())
    }
}

impl Target {
    /// Has a connection that has claimed a queue authenticate, if its host must; otherwise the
    /// queue is the connection's at once. Returns AUTHREQ.
    pub(super) fn demand_authentication(&mut self, now: Instant, key: AssociationKey, claim: Claim) -> u16 {
        let entropy = self.entropy.split();
        let association = self.of(key);
        let Some(credentials) = association.terms.credentials.clone() else {
            association.admit(claim);
            return 0;
        };
        let subsystem = association.subsystem();
        let (host, keep_alive) = (association.host.clone(), association.keep_alive);
        let subsystem = match subsystem {
            Some(key) => self.directory.by_key(key).map(|one| one.name.clone()),
            None => None,
        };
        let names = Names { host, subsystem: subsystem.unwrap_or_else(Nqn::discovery) };
        let mut controller = Controller::new(now, names, credentials, keep_alive, entropy);
        if self.works.is_outside() {
            controller.defer();
        }
        if let Some(claimant) = self.of(key).claimant(claim) {
            claimant.authentication = Some(Box::new(controller));
        }
        ConnectResponse::AUTHENTICATE
    }

    /// Whether commands of the Admin Queue other than Authentication Send and Authentication
    /// Receive may be executed.
    ///
    /// # Errors
    /// Authentication Required.
    pub(super) fn admit(&self, key: AssociationKey) -> Result<(), Status> {
        let admits = self.association(key).is_some_and(|one| one.has_queue(QueueId::ADMIN));
        if admits { Ok(()) } else { Err(FabricsStatus::AuthenticationRequired.into()) }
    }

    /// Executes an Authentication Send with its data, whose length
    /// [`Target::authentication_length`] has approved.
    ///
    /// # Errors
    /// Invalid Command Opcode if the host has no secret here.
    ///
    /// # Panics
    /// When there is no such association.
    pub fn authentication_send(
        &mut self,
        now: Instant,
        key: AssociationKey,
        claim: Claim,
        message: &[u8],
    ) -> Result<Progress, Status> {
        self.of(key).controller_of(claim)?.on_message(now, message);
        let has_room = self.order_work(now, key, claim);
        let progress = self.progress(key, claim);
        let is_over = progress.is_over || !has_room;
        Ok(Progress { is_over, is_crowded: progress.is_crowded || !has_room, ..progress })
    }

    /// Queues the work that an authentication needs next, if the world is to do it. Returns false
    /// if there is no room for it.
    fn order_work(&mut self, now: Instant, key: AssociationKey, claim: Claim) -> bool {
        let Self { associations, works, entropy, .. } = self;
        let Some(association) = associations.get_mut(key) else { return true };
        let Some(claimant) = association.claimant(claim) else { return true };
        let (origin, is_admitted) = (claimant.origin, claimant.is_admitted);
        let is_known = claimant.is_known || is_admitted;
        let Some(controller) = claimant.authentication.as_deref_mut() else { return true };
        let applicant = Applicant { key, claim, origin, is_known };
        if let Some(group) = controller.wants_keys() {
            match works.keys(now, group) {
                Some(keys) => controller.set_keys(keys),
                None => works.generate(group, applicant, entropy),
            }
        }
        controller.take_work().is_none_or(|work| works.derive(applicant, work))
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

    /// Executes an Authentication Receive. Returns the data, padded with zeros to the Allocation
    /// Length but to no more than [`MESSAGE_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// Invalid Field if the command is not of an NVMe in-band authentication, or the Allocation
    /// Length is too short. Invalid Command Opcode if the host has no secret here.
    ///
    /// # Panics
    /// When there is no such association.
    pub fn authentication_receive(
        &mut self,
        now: Instant,
        key: AssociationKey,
        claim: Claim,
        command: AuthenticationCommand,
    ) -> Result<Received, Status> {
        let controller = self.of(key).controller_of(claim)?;
        let room = command.length as usize;
        if command.is_in_band() && controller.is_waiting() {
            return Ok(Received::Waits);
        }
        if !command.is_in_band() || room < controller.answer_length() {
            return Err(StatusCode::InvalidField.into());
        }
        let mut answer = controller.answer(now);
        if answer.len() < room {
            answer.resize(room.min(MESSAGE_BYTES_MAX), 0);
        }
        Ok(Received::Message(answer, self.progress(key, claim)))
    }

    fn progress(&mut self, key: AssociationKey, claim: Claim) -> Progress {
        let association = self.of(key);
        let Some(claimant) = association.claimant(claim) else { return Progress::default() };
        let was_admitted = claimant.is_admitted;
        let Some(controller) = claimant.authentication.as_deref_mut() else { return Progress::default() };
        let (news, is_over, is_waiting) =
            (controller.take_news(), controller.is_over(), controller.is_waiting());
        let is_authenticated = controller.is_authenticated();
        let mut progress = Progress { news, is_over, is_waiting, ..Progress::default() };
        if !is_authenticated {
            association.dismiss(claim);
        } else if was_admitted {
            progress.is_admitted = true;
        } else if matches!(news, Some(Ok(_))) {
            let is_bound = !claim.queue.is_admin() || self.associations.prove(key);
            if is_bound {
                self.of(key).admit(claim);
            }
            progress = Progress {
                is_admitted: is_bound,
                is_new: is_bound,
                is_over: is_over || !is_bound,
                is_crowded: !is_bound,
                ..progress
            };
        }
        self.look_again(key);
        progress
    }

    /// The claims to I/O queues whose hosts have not authenticated in time, for the owner to close.
    /// Associations whose Admin Queue is overdue are among [`Target::expired`].
    pub fn overdue_queues(&mut self, now: Instant) -> Vec<(AssociationKey, Claim)> {
        let mut overdue = Vec::new();
        for key in self.associations.due(now) {
            let Some(association) = self.associations.get_mut(key) else { continue };
            let mut late = Vec::new();
            for claimant in association.claimants.iter_mut().filter(|one| !one.claim.queue.is_admin()) {
                let Some(controller) = claimant.authentication.as_deref_mut() else { continue };
                if controller.poll_timeout().is_some_and(|at| at <= now) {
                    controller.on_timeout();
                    late.push(claimant.claim);
                }
            }
            for claim in late {
                association.dismiss(claim);
                overdue.push((key, claim));
            }
        }
        overdue
    }

    /// Leaves the exponentiations of authentications to the world: [`Target::poll_work`] returns
    /// them, and [`Target::on_worked`] accepts their results. Those for unproven hosts take at most
    /// `share` of a processor's time, in thousandths. Without this call, the target does them at
    /// once.
    pub const fn work_outside(&mut self, share: u32) {
        self.works.go_outside(share);
    }

    /// The next piece of work for the world, if one may begin now. At most one is in progress.
    pub fn poll_work(&mut self, now: Instant) -> Option<(WorkId, Work)> {
        self.works.poll(now)
    }

    /// When the next piece of work may begin, if one waits and none is in progress.
    pub fn next_work(&self) -> Option<Instant> {
        self.works.poll_timeout()
    }

    /// Accepts the result of a piece of work, which took `spent` of a processor's time. Returns the
    /// claims whose authentication continues.
    pub fn on_worked(
        &mut self,
        now: Instant,
        id: WorkId,
        product: Product,
        spent: Nanos,
    ) -> Vec<(AssociationKey, Claim, Progress)> {
        let mut going_on = Vec::new();
        for (applicant, part) in self.works.on_done(now, id, product, spent) {
            let Applicant { key, claim, .. } = applicant;
            let found = self.associations.get_mut(key);
            let Some(Ok(controller)) = found.map(|one| one.controller_of(claim)) else { continue };
            match part {
                Part::Keys(keys) => controller.set_keys(keys),
                Part::Shared(product) => controller.on_product(now, product),
            }
            let progress = self.progress(key, claim);
            going_on.push((key, claim, progress));
        }
        going_on
    }

    /// How much work outside waits, and how much was refused.
    pub fn work_status(&self) -> WorkStatus {
        self.works.status()
    }
}
