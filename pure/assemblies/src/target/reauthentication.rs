//! The authentication of queues that lanes have.
//!
//! A lane repeats the answers that the home gave before the queue moved. When the host
//! authenticates again, each step goes to the home, which alone has the secrets. The lane executes
//! the queue's other commands meanwhile.

use alloc::vec::Vec;

use nvme::wire::{Status, StatusCode};
use nvme_fabrics::authentication::MESSAGE_BYTES_MAX;
use nvme_fabrics::target::{AssociationKey, Claim, Progress, Received, SubsystemKey};
use nvme_fabrics::transport::ControllerEnd;
use nvme_fabrics::wire::AuthenticationCommand;

use super::authentication::reason;
use super::lanes::{Away, TicketNumber, ToHome, ToLane};
use super::peer::{Role, Standing};
use super::trail::Answer;
use super::{ConnectionId, Output, Target};
use crate::fabric::controller::Slot;

/// A step of an authentication that a lane leaves to the home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The data of an Authentication Send.
    Send(Vec<u8>),
    /// An Authentication Receive.
    Receive(AuthenticationCommand),
}

/// The home's answer to a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepAnswer(Result<Answer, Status>);

impl Target {
    /// Executes an Authentication Send on a queue of a guest.
    pub(super) fn on_guest_authentication_send(
        &mut self,
        id: ConnectionId,
        slot: Slot,
        command: AuthenticationCommand,
    ) {
        let Some(peer) = self.peers[id.0 as usize].as_mut() else { return };
        let Standing::Queue(queue) = &mut peer.standing else { return };
        let Some(guest) = &queue.guest else { return };
        let length = command.length as usize;
        let refused = if !guest.authenticates {
            Some(StatusCode::InvalidCommandOpcode)
        } else if queue.authenticating.is_some() || guest.asked.is_some() {
            // A host waits for the end of each step before it takes the next one.
            Some(StatusCode::CommandSequenceError)
        } else if !command.is_in_band() || !(1..=MESSAGE_BYTES_MAX).contains(&length) {
            Some(StatusCode::InvalidField)
        } else {
            None
        };
        if let Some(status) = refused {
            return peer.complete(slot, status.into(), 0, 0);
        }
        match peer.connection.pull(slot, command.length) {
            Ok(Some(data)) => self.on_guest_step(id, slot, Step::Send(data.to_vec())),
            Ok(None) => queue.authenticating = Some(slot),
            Err(status) => peer.complete(slot, status, 0, 0),
        }
    }

    /// Takes a step of an authentication on a queue of a guest, which the home has answered before
    /// the queue moved, or else answers now.
    pub(super) fn on_guest_step(&mut self, id: ConnectionId, slot: Slot, step: Step) {
        let Some(peer) = self.peers[id.0 as usize].as_mut() else { return };
        let Standing::Queue(queue) = &mut peer.standing else { return };
        let (Role::Nvm(subsystem, _), Some(guest)) = (&queue.role, &mut queue.guest) else { return };
        let subsystem = *subsystem;
        let refused = match (guest.answers.pop_front(), &step) {
            (Some(Answer::Accepted), Step::Send(_)) => return peer.complete(slot, Status::SUCCESS, 0, 0),
            (Some(Answer::Message(message)), Step::Receive(_)) => return peer.give_message(slot, message),
            (Some(_), _) => Some(StatusCode::CommandSequenceError),
            (None, _) if !guest.authenticates => Some(StatusCode::InvalidCommandOpcode),
            (None, _) if guest.asked.is_some() => Some(StatusCode::CommandSequenceError),
            (None, _) => None,
        };
        if let Some(status) = refused {
            return peer.complete(slot, status.into(), 0, 0);
        }
        guest.asked = Some(slot);
        let message = ToHome::Step(guest.number, step);
        self.outputs.push_back(Output::ToHome { subsystem, message });
    }

    /// Gives a host the home's answer to a step.
    pub(super) fn on_step_answer(&mut self, id: ConnectionId, StepAnswer(answer): StepAnswer) {
        let Some(peer) = self.peer(id) else { return };
        let Standing::Queue(queue) = &mut peer.standing else { return };
        let Some(slot) = queue.guest.as_mut().and_then(|guest| guest.asked.take()) else { return };
        match answer {
            Ok(Answer::Accepted) => peer.complete(slot, Status::SUCCESS, 0, 0),
            Ok(Answer::Message(message)) => peer.give_message(slot, message),
            Err(status) => peer.complete(slot, status, 0, 0),
        }
        self.touch(id);
    }

    /// Takes a step of the authentication of a queue that a lane has.
    pub(super) fn on_away_step(&mut self, subsystem: SubsystemKey, number: TicketNumber, step: Step) {
        let now = self.now;
        let Some((key, away)) = self.away_of(number) else { return };
        let taken = match step {
            Step::Send(message) => self
                .fabrics
                .authentication_send(now, key, away.claim, &message)
                .map(|progress| (Answer::Accepted, progress)),
            Step::Receive(command) => {
                match self.fabrics.authentication_receive(now, key, away.claim, command) {
                    Ok(Received::Message(message, progress)) => Ok((Answer::Message(message), progress)),
                    Ok(Received::Waits) => {
                        self.lanes.receiving.insert(number, command);
                        return;
                    }
                    Err(status) => Err(status),
                }
            }
        };
        let (answer, progress) = match taken {
            Ok((answer, progress)) => (Ok(answer), Some(progress)),
            Err(status) => (Err(status), None),
        };
        let message = ToLane::Answer(number, StepAnswer(answer));
        self.outputs.push_back(Output::ToLane { subsystem, reactor: away.reactor, message });
        if let Some(progress) = progress {
            self.on_away_progress(subsystem, key, away, &progress);
        }
        self.offer_work();
    }

    fn on_away_progress(
        &mut self,
        subsystem: SubsystemKey,
        key: AssociationKey,
        away: Away,
        progress: &Progress,
    ) {
        self.report_progress(away.peer, key, away.claim.queue, progress);
        if progress.is_over {
            let why = reason(progress);
            let message = ToLane::Close(away.number, why.clone());
            self.outputs.push_back(Output::ToLane { subsystem, reactor: away.reactor, message });
            self.on_away_gone(away.number, &why);
        }
    }

    /// The work is done for which the authentication of a queue waited that a lane has.
    pub(super) fn on_away_worked(&mut self, key: AssociationKey, claim: Claim, progress: &Progress) {
        let Some(member) = self.members.get(key.0 as usize).and_then(Option::as_ref) else { return };
        let Some((subsystem, _)) = member.controller else { return };
        let Some(away) = member.away.iter().find(|one| one.claim == claim).copied() else { return };
        self.on_away_progress(subsystem, key, away, progress);
        if let Some(command) = self.lanes.receiving.remove(&away.number) {
            self.on_away_step(subsystem, away.number, Step::Receive(command));
        }
    }

    fn away_of(&self, number: TicketNumber) -> Option<(AssociationKey, Away)> {
        let key = *self.lanes.away.get(&number)?;
        let member = self.members.get(key.0 as usize)?.as_ref()?;
        Some((key, *member.away.iter().find(|one| one.number == number)?))
    }
}
