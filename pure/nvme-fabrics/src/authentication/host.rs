//! The host's end of a queue's authentication.

use alloc::vec::Vec;
use core::fmt;

use engine::Entropy;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::group::KeyPair;
use super::message::{Body, Challenge, Kind, Message, Negotiate, Reply, identifiers};
use super::response::{ChallengeValue, Prover, Transaction};
use super::{Authenticated, Credentials, Explanation, Failure, Group, Hash, Names, sequence};

/// The next action of the host.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this message (Authentication Send), then call [`Host::step`] again.
    Send(Vec<u8>),
    /// Receive a message (Authentication Receive) and give it to [`Host::on_message`].
    Receive,
    /// The authentication has ended.
    Done(Result<Authenticated, Failure>),
}

#[derive(Debug)]
enum State {
    Negotiate,
    AwaitChallenge,
    /// The reply to send, and the response to expect of the controller.
    Reply(Vec<u8>, Expected),
    AwaitSuccess1(Expected),
    Success2(Authenticated),
    /// The failure is reported to the controller.
    Failure2(Failure),
    Done(Result<Authenticated, Failure>),
}

/// The expected response of the controller.
struct Expected {
    result: Authenticated,
    /// The response, if the controller was challenged.
    response: Option<Zeroizing<Vec<u8>>>,
}

impl fmt::Debug for Expected {
    /// Hides the response, which is not sent yet.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expected").field("result", &self.result).finish_non_exhaustive()
    }
}

/// The host's end of one authentication transaction.
#[derive(Debug)]
pub struct Host {
    names: Names,
    credentials: Credentials,
    transaction: u16,
    entropy: Entropy,
    state: State,
}

impl Host {
    /// The host's end of a transaction with this identifier (T_ID), which no other transaction of
    /// the same queue has at the same time.
    pub const fn new(names: Names, credentials: Credentials, transaction: u16, entropy: Entropy) -> Self {
        Self { names, credentials, transaction, entropy, state: State::Negotiate }
    }

    fn emit(&self, kind: Kind, body: Body<'_>) -> Vec<u8> {
        Message { kind, transaction: self.transaction, body }.emit()
    }

    /// The next action. Each call counts the returned action as done.
    pub fn step(&mut self) -> Step {
        let state = core::mem::replace(&mut self.state, State::Done(Err(Failure::TimedOut)));
        let (step, next) = match state {
            State::Negotiate => {
                let (hashes, groups) = identifiers(&self.credentials.hashes, &self.credentials.groups);
                let negotiate = Negotiate { secure_channel: 0, offer: Some((&hashes, &groups)) };
                let message = self.emit(Kind::Negotiate, Body::Negotiate(negotiate));
                (Step::Send(message), State::AwaitChallenge)
            }
            State::Reply(message, expected) => (Step::Send(message), State::AwaitSuccess1(expected)),
            State::Success2(result) => {
                (Step::Send(self.emit(Kind::Success2, Body::Success2)), State::Done(Ok(result)))
            }
            State::Failure2(failure) => {
                let message = self.emit(Kind::Failure2, Body::Failure(failure.explanation()));
                (Step::Send(message), State::Done(Err(failure)))
            }
            State::Done(result) => (Step::Done(result), State::Done(result)),
            waiting @ (State::AwaitChallenge | State::AwaitSuccess1(_)) => (Step::Receive, waiting),
        };
        self.state = next;
        step
    }

    /// The controller has answered. Bytes after the message are ignored.
    pub fn on_message(&mut self, bytes: &[u8]) {
        let state = core::mem::replace(&mut self.state, State::Done(Err(Failure::TimedOut)));
        let next = match state {
            State::AwaitChallenge => self.on_challenge(bytes),
            State::AwaitSuccess1(expected) => self.on_success(bytes, &expected),
            // The host has no open challenge.
            other => Ok(other),
        };
        self.state = next.unwrap_or_else(|failure| match failure {
            // The controller knows the failure.
            Failure::Refused(_) => State::Done(Err(failure)),
            _ => State::Failure2(failure),
        });
    }

    /// The body of a message of this transaction.
    fn open<'a>(&self, bytes: &'a [u8], expected: Kind) -> Result<Body<'a>, Failure> {
        let (message, _) = Message::parse(bytes)?;
        if message.kind == Kind::Failure1
            && let Body::Failure(explanation) = message.body
        {
            return Err(Failure::Refused(explanation));
        }
        if message.kind != expected {
            return Err(Failure::OutOfOrder { found: message.kind, expected });
        }
        if message.transaction != self.transaction {
            return Err(Failure::Contradiction("T_ID"));
        }
        Ok(message.body)
    }

    fn on_challenge(&mut self, bytes: &[u8]) -> Result<State, Failure> {
        let Body::Challenge(challenge) = self.open(bytes, Kind::Challenge)? else {
            return Err(Failure::Refused(Explanation::IncorrectMessage));
        };
        let hash = Hash::from_id(challenge.hash).filter(|one| self.credentials.hashes.contains(one));
        let group = Group::from_id(challenge.group).filter(|one| self.credentials.groups.contains(one));
        let (hash, group) = (hash.ok_or(Failure::Hash)?, group.ok_or(Failure::Group)?);
        if challenge.challenge.len() != hash.length() {
            return Err(Failure::Contradiction("HL"));
        }
        let shared = self.exchange(group, &challenge)?;
        let (keys, shared) = shared.map_or((None, None), |(keys, shared)| (Some(keys), Some(shared)));
        let shared = shared.as_ref().map(|one| one.as_slice());
        let transaction = Transaction { id: self.transaction, hash, group };
        let asked = ChallengeValue { value: challenge.challenge, sequence: challenge.sequence };
        let response = transaction.response(Prover::Host, &self.names, &self.credentials.host, asked, shared);
        let mut own = alloc::vec![0; hash.length()];
        let mut own_sequence = 0;
        let expected = self.credentials.controller.as_ref().map(|secret| {
            own_sequence = sequence(&mut self.entropy);
            self.entropy.fill(&mut own);
            let asked = ChallengeValue { value: &own, sequence: own_sequence };
            transaction.response(Prover::Controller, &self.names, secret, asked, shared)
        });
        let reply = Reply {
            sequence: own_sequence,
            response: &response,
            challenge: expected.is_some().then_some(own.as_slice()),
            public: keys.as_ref().map_or(&[], KeyPair::public),
        };
        let message = self.emit(Kind::Reply, Body::Reply(reply));
        let result = Authenticated { hash, group, both: expected.is_some() };
        Ok(State::Reply(message, Expected { result, response: expected }))
    }

    /// This host's keys and the shared key; `None` for [`Group::Null`].
    #[allow(clippy::type_complexity, reason = "two values that belong together for one line")]
    fn exchange(
        &mut self,
        group: Group,
        challenge: &Challenge<'_>,
    ) -> Result<Option<(KeyPair, Zeroizing<Vec<u8>>)>, Failure> {
        let Some(keys) = KeyPair::generate(group, &mut self.entropy) else {
            let none = challenge.public.is_empty();
            return if none { Ok(None) } else { Err(Failure::Contradiction("DHVLEN")) };
        };
        if challenge.public.is_empty() || challenge.public.len() > group.length() {
            return Err(Failure::Contradiction("DHVLEN"));
        }
        let shared = keys.shared(challenge.public).ok_or(Failure::Reflected)?;
        Ok(Some((keys, shared)))
    }

    fn on_success(&self, bytes: &[u8], expected: &Expected) -> Result<State, Failure> {
        let Body::Success1 { hash_length, response } = self.open(bytes, Kind::Success1)? else {
            return Err(Failure::Refused(Explanation::IncorrectMessage));
        };
        if usize::from(hash_length) != expected.result.hash.length() {
            return Err(Failure::Contradiction("HL"));
        }
        let Some(wanted) = &expected.response else {
            // An unrequested response proves nothing.
            return Ok(State::Done(Ok(expected.result)));
        };
        let response = response.ok_or(Failure::Unproved)?;
        if wanted.as_slice().ct_eq(response).into() {
            Ok(State::Success2(expected.result))
        } else {
            Err(Failure::ControllerSecret)
        }
    }
}
