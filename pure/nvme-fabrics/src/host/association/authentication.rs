//! Authentication of the host's queues, as a script of commands.

use alloc::boxed::Box;

use engine::Buffer;
use nvme::host::Data;

use super::script::{Answer, Ask, Outcome, Question};
use super::types::{Authentication, Config, Failure};
use crate::authentication::{self, Authenticated, Host, MESSAGE_BYTES_MAX, Names, Step};
use crate::host::Identity;
use crate::wire::{AuthenticationCommand, ConnectResponse, FabricsCommand, QueueId};

/// Authenticates a queue that was just connected, if its controller demands it.
pub(super) async fn authenticate_if_needed(
    ask: &Ask,
    config: &mut Config,
    queue: QueueId,
    connected: ConnectResponse,
) -> Result<Option<Authenticated>, Failure> {
    let failed = |why| Failure::Authentication { queue, why };
    let demands = |bit| connected.authentication & bit != 0;
    if demands(ConnectResponse::SECURE_CHANNEL) {
        return Err(failed(authentication::Failure::SecureChannel));
    }
    let demanded = demands(ConnectResponse::AUTHENTICATE);
    let names = Names { host: config.host.clone(), subsystem: config.subsystem.clone() };
    match &mut config.authentication {
        None if demanded => Err(failed(authentication::Failure::NoHostSecret)),
        Some(with) if demanded => Ok(Some(authenticate(ask, names, with, queue).await?)),
        // A discovery service only returns addresses. The subsystems there must authenticate
        // themselves.
        Some(with) if with.credentials.controller.is_some() && !names.subsystem.is_discovery() => {
            Err(failed(authentication::Failure::NotDemanded))
        }
        _ => Ok(None),
    }
}

/// Authenticates the queues of a live association again.
pub(super) async fn authenticate_again(
    ask: Ask,
    config: Config,
    mut identity: Box<Identity>,
) -> Result<Outcome, Failure> {
    let names = Names { host: config.host.clone(), subsystem: config.subsystem.clone() };
    let Some(mut with) = config.authentication else { return Ok(Outcome::Refreshed(identity)) };
    for queue in (0..=identity.reported.io_queues).map(QueueId) {
        match authenticate(&ask, names.clone(), &mut with, queue).await {
            Ok(agreed) => identity.authenticated = Some(agreed),
            Err(failure) => return Ok(Outcome::Untrusted(failure)),
        }
    }
    Ok(Outcome::Refreshed(identity))
}

async fn authenticate(
    ask: &Ask,
    names: Names,
    with: &mut Authentication,
    queue: QueueId,
) -> Result<Authenticated, Failure> {
    let mut transaction = [0; 2];
    with.entropy.fill(&mut transaction);
    let transaction = u16::from_le_bytes(transaction);
    let mut host = Host::new(names, with.credentials.clone(), transaction, with.entropy.split());
    loop {
        match host.step() {
            Step::Send(message) => {
                let length = u32::try_from(message.len()).expect("a message is short");
                let command = AuthenticationCommand::in_band(length);
                let entry = FabricsCommand::AuthenticationSend(command).emit();
                let data = Data::Write(Buffer::from(message));
                carry(ask, "Authentication Send", Question::Command { queue, entry, data }).await?;
            }
            Step::Receive => {
                let length = u32::try_from(MESSAGE_BYTES_MAX).expect("4 KiB");
                let command = AuthenticationCommand::in_band(length);
                let entry = FabricsCommand::AuthenticationReceive(command).emit();
                let data = Data::Read(length);
                let question = Question::Command { queue, entry, data };
                host.on_message(&carry(ask, "Authentication Receive", question).await?);
            }
            Step::Done(Ok(agreed)) => return Ok(agreed),
            Step::Done(Err(why)) => return Err(Failure::Authentication { queue, why }),
        }
    }
}

/// Executes a command that must succeed. Returns its data, which may be shorter than requested.
async fn carry(ask: &Ask, what: &'static str, question: Question) -> Result<Buffer, Failure> {
    match ask.ask(question).await {
        Answer::Completed(entry, data) if entry.status().is_success() => Ok(data),
        Answer::Completed(entry, _) => Err(Failure::Command { what, status: entry.status() }),
        Answer::Open | Answer::Woke => Err(Failure::Short { what }),
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use engine::{Engine, Entropy, Instant, Rng};
    use nvme::wire::identify::IdentifyController;
    use nvme::wire::{CompletionQueueEntry, StatusCode};

    use super::*;
    use crate::authentication::{Credentials, Group, Hash, Secret};
    use crate::host::association::{Association, Output, State};
    use crate::wire::{ControllerId, HostId, Nqn, property};

    /// An association that is live and has authenticated.
    fn live() -> Association {
        let mut entropy = Entropy::from(Rng::from_seed(1));
        let credentials = Credentials::new(Secret::generate(None, &mut entropy));
        let name = |text: &str| text.parse::<Nqn>().unwrap();
        let (subsystem, host) = (name("nqn.2014-08.org.example:disk"), name("nqn.2014-08.org.example:host"));
        let mut association = Association::new(Config {
            authentication: Some(Authentication { credentials, entropy }),
            ..Config::new(subsystem, host, HostId([7; 16]))
        });
        let reported = nvme::host::Identity {
            version: 0,
            capabilities: 0,
            controller: Box::new(IdentifyController::default()),
            namespaces: Vec::new(),
            io_queues: 1,
            transfer_bytes_max: 4096,
        };
        association.state = State::Live;
        association.identity = Some(Box::new(Identity {
            reported,
            controller_id: ControllerId(1),
            ana: Vec::new(),
            authenticated: Some(Authenticated { hash: Hash::Sha256, group: Group::Ffdhe2048, both: false }),
            queue_size: 8,
        }));
        association
    }

    #[test]
    fn a_controller_that_refuses_to_authenticate_again_is_left_for_good() {
        let (mut association, now) = (live(), Instant::from_nanos(1));
        assert!(association.authenticate_again(now));
        let Some(Output::Submit { token, .. }) = association.poll_output() else { panic!("a command") };
        let refused = CompletionQueueEntry::default();
        let refused = refused.with_status(StatusCode::InvalidCommandOpcode.into(), false);
        association.on_completed(now, token, refused, Buffer::EMPTY);
        let last = core::iter::from_fn(|| association.poll_output()).last();
        assert!(matches!(last, Some(Output::Ended(Some(Failure::Command { .. })))), "{last:?}");
        assert!(association.is_over());
    }

    #[test]
    fn a_late_answer_to_authentication_is_none_to_the_shutdown() {
        let (mut association, now) = (live(), Instant::from_nanos(1));
        let good = CompletionQueueEntry::default();
        assert!(association.authenticate_again(now));
        let Some(Output::Submit { token: late, .. }) = association.poll_output() else { panic!("a command") };
        association.shut_down(now);
        let Some(Output::Submit { token, .. }) = association.poll_output() else { panic!("a command") };
        association.on_completed(now, late, good, Buffer::EMPTY);
        assert!(association.poll_output().is_none(), "CC is not known yet");
        let before = CompletionQueueEntry { dw0: 0x0046_0001, ..good };
        association.on_completed(now, token, before, Buffer::EMPTY);
        let Some(Output::Submit { entry, .. }) = association.poll_output() else { panic!("a command") };
        let Ok(FabricsCommand::PropertySet(set)) = FabricsCommand::parse(&entry) else { panic!("{entry:?}") };
        assert_eq!((set.offset, set.value), (property::CONFIGURATION, 0x0046_4001));
    }
}
