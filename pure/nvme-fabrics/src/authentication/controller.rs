//! The controller's end of a queue's authentication.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::fmt;

use engine::{Entropy, Instant, Nanos};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::group::{KeyPair, Product, Work};
use super::message::{Body, Challenge, FAILURE_LENGTH, FIXED_LENGTH, Kind, Message, Reply, header};
use super::response::{ChallengeValue, Prover, Transaction};
use super::{Authenticated, Credentials, Failure, Group, Hash, Names, sequence};
use crate::wire::WireError;

/// How long a host may take for each step of an authentication, if its association has no Keep
/// Alive Timeout. Linux and SPDK wait as long.
pub const AUTHENTICATION_MAX: Nanos = Nanos::from_secs(120);

enum State {
    /// No transaction is in progress.
    Idle,
    /// The host must request the challenge.
    Challenge(Transaction),
    /// The host was challenged.
    AwaitReply(Asking),
    /// The shared key is derived elsewhere.
    Deriving(Asking, Answer, Option<Work>),
    /// The host has proved its identity, and must request the controller's proof.
    Success1(Authenticated, Option<Zeroizing<Vec<u8>>>),
    /// The host checks the controller's proof.
    AwaitSuccess2(Authenticated),
    /// The host must request the reason for its refusal.
    Failed,
    /// The host knows the reason for its refusal, or has given up.
    Over,
}

impl State {
    const fn name(&self) -> &'static str {
        match self {
            Self::Idle => "Idle",
            Self::Challenge(_) => "Challenge",
            Self::AwaitReply(_) => "AwaitReply",
            Self::Deriving(..) => "Deriving",
            Self::Success1(..) => "Success1",
            Self::AwaitSuccess2(_) => "AwaitSuccess2",
            Self::Failed => "Failed",
            Self::Over => "Over",
        }
    }

    /// The expected kind of message from the host. Where none is expected, a kind that the host may
    /// not send.
    const fn due(&self) -> Kind {
        match self {
            Self::Idle => Kind::Negotiate,
            Self::AwaitReply(_) => Kind::Reply,
            Self::AwaitSuccess2(_) => Kind::Success2,
            Self::Challenge(_) => Kind::Challenge,
            Self::Success1(..) => Kind::Success1,
            Self::Deriving(..) | Self::Failed | Self::Over => Kind::Failure1,
        }
    }
}

/// The challenge to the host.
struct Asking {
    transaction: Transaction,
    challenge: Vec<u8>,
    sequence: u32,
    keys: Option<Rc<KeyPair>>,
}

/// The answer of the host.
struct Answer {
    response: Vec<u8>,
    /// The host's own challenge.
    challenge: Option<Vec<u8>>,
    sequence: u32,
}

impl Answer {
    fn of(reply: &Reply<'_>) -> Self {
        let challenge = reply.challenge.map(<[u8]>::to_vec);
        Self { response: reply.response.to_vec(), challenge, sequence: reply.sequence }
    }
}

/// The controller's end of the authentication of one queue: the first transaction, and any later
/// one by which the host authenticates again.
///
/// The owner gives it the host's messages ([`Controller::on_message`]), and answers the host with
/// [`Controller::answer`]. It closes the queue when [`Controller::is_over`] or when
/// [`Controller::poll_timeout`] has passed.
pub struct Controller {
    names: Names,
    credentials: Credentials,
    entropy: Entropy,
    state: State,
    /// Transaction Identifier (T_ID) of the latest transaction.
    transaction: u16,
    /// The result of the queue's latest successful transaction.
    authenticated: Option<Authenticated>,
    /// The result that was not reported to the owner yet.
    news: Option<Result<Authenticated, Failure>>,
    failure: Option<Failure>,
    limit: Nanos,
    deadline: Option<Instant>,
    /// Whether exponentiations are done elsewhere.
    is_deferring: bool,
    /// The keys for the next challenge, if they exist already.
    keys: Option<Rc<KeyPair>>,
}

impl fmt::Debug for Controller {
    /// Hides keys and expected proofs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("names", &self.names)
            .field("state", &self.state.name())
            .field("authenticated", &self.authenticated)
            .finish_non_exhaustive()
    }
}

impl Controller {
    /// The controller's end of a newly connected queue. Each step may take the Keep Alive Timeout,
    /// or [`AUTHENTICATION_MAX`] if there is none.
    pub fn new(
        now: Instant,
        names: Names,
        credentials: Credentials,
        keep_alive: Option<Nanos>,
        entropy: Entropy,
    ) -> Self {
        let limit = keep_alive.unwrap_or(AUTHENTICATION_MAX);
        Self {
            names,
            credentials,
            entropy,
            state: State::Idle,
            transaction: 0,
            authenticated: None,
            news: None,
            failure: None,
            limit,
            deadline: Some(now + limit),
            is_deferring: false,
            keys: None,
        }
    }

    /// Has exponentiations done elsewhere from now on: see [`Controller::wants_keys`] and
    /// [`Controller::take_work`].
    pub(crate) const fn defer(&mut self) {
        self.is_deferring = true;
    }

    /// The group in which the next challenge needs keys, if they are computed elsewhere.
    pub(crate) fn wants_keys(&self) -> Option<Group> {
        let State::Challenge(transaction) = &self.state else { return None };
        let group = transaction.group;
        let has_keys = self.keys.as_ref().is_some_and(|keys| keys.group() == group);
        (self.is_deferring && !has_keys && group != Group::Null).then_some(group)
    }

    /// The keys for the challenge that is due.
    pub(crate) fn set_keys(&mut self, keys: Rc<KeyPair>) {
        self.keys = Some(keys);
    }

    /// The work that must be done before the authentication continues. Returns each piece once.
    pub(crate) const fn take_work(&mut self) -> Option<Work> {
        match &mut self.state {
            State::Deriving(_, _, work) => work.take(),
            _ => None,
        }
    }

    /// The work of [`Controller::take_work`] is done.
    pub(crate) fn on_product(&mut self, now: Instant, product: Product) {
        let state = core::mem::replace(&mut self.state, State::Over);
        let State::Deriving(asking, answer, _) = state else {
            self.state = state;
            return;
        };
        self.deadline = Some(now + self.limit);
        let shared = product.into_bytes();
        self.state = match self.on_answer(&asking, &answer, shared.as_ref().map(|one| one.as_slice())) {
            Ok(next) => next,
            Err(failure) => {
                self.fail(failure);
                State::Failed
            }
        };
    }

    /// Whether the next message for the host needs work that is not done.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.state, State::Deriving(..)) || self.wants_keys().is_some()
    }

    /// Whether the host has proved its identity, and no later proof has failed.
    pub const fn is_authenticated(&self) -> bool {
        self.authenticated.is_some() && self.failure.is_none()
    }

    /// Whether the authentication has failed and the host knows it: the queue must be closed.
    pub const fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// When the queue must be closed if the host does not continue.
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }

    /// Handles the deadline of [`Controller::poll_timeout`].
    pub fn on_timeout(&mut self) {
        self.deadline = None;
        self.fail(Failure::TimedOut);
        self.state = State::Over;
    }

    /// The result since the last call: a transaction that has succeeded or failed.
    pub const fn take_news(&mut self) -> Option<Result<Authenticated, Failure>> {
        self.news.take()
    }

    fn fail(&mut self, failure: Failure) {
        self.failure = Some(failure);
        self.news = Some(Err(failure));
    }

    /// Handles a message of the host (Authentication Send). The host gets the fault in it from
    /// [`Controller::answer`].
    pub fn on_message(&mut self, now: Instant, bytes: &[u8]) {
        let state = core::mem::replace(&mut self.state, State::Over);
        if matches!(state, State::Failed | State::Over) {
            // A failed transaction cannot continue.
            self.state = state;
            return;
        }
        self.deadline = Some(now + self.limit);
        self.state = match self.on_due(state, bytes) {
            Ok(State::Idle) => {
                self.deadline = None;
                State::Idle
            }
            Ok(next @ State::Deriving(..)) => {
                // The host is not responsible for the time that this takes.
                self.deadline = None;
                next
            }
            Ok(next) => next,
            Err(failure) => {
                self.fail(failure);
                // A host that gives up sends no further request.
                if matches!(failure, Failure::Refused(_)) { State::Over } else { State::Failed }
            }
        };
    }

    fn on_due(&mut self, state: State, bytes: &[u8]) -> Result<State, Failure> {
        let expected = state.due();
        if let Some((found, id)) = header(bytes) {
            if found == Kind::Negotiate && matches!(state, State::Idle) {
                self.transaction = id;
            }
            // A host may give up at any time.
            if found != expected && found != Kind::Failure2 {
                return Err(Failure::OutOfOrder { found, expected });
            }
        }
        let (message, length) = Message::parse(bytes)?;
        let (found, id) = (message.kind, message.transaction);
        if length != bytes.len() {
            let (structure, expected) = (found.name(), length);
            return Err(WireError::Length { structure, expected, found: bytes.len() }.into());
        }
        if id != self.transaction {
            return Err(Failure::Contradiction("T_ID"));
        }
        match (state, message.body) {
            (_, Body::Failure(explanation)) => Err(Failure::Refused(explanation)),
            (State::Idle, Body::Negotiate(negotiate)) => {
                if negotiate.secure_channel != 0 {
                    return Err(Failure::SecureChannel);
                }
                let (hashes, groups) = negotiate.offer.ok_or(Failure::Protocol)?;
                self.choose(hashes, groups).map(State::Challenge)
            }
            (State::AwaitReply(asking), Body::Reply(reply)) => self.on_reply(asking, &reply),
            (State::AwaitSuccess2(result), Body::Success2) => Ok(self.succeed(result)),
            _ => Err(Failure::OutOfOrder { found, expected }),
        }
    }

    fn choose(&self, hashes: &[u8], groups: &[u8]) -> Result<Transaction, Failure> {
        let mut own = self.credentials.hashes.iter();
        let hash = *own.find(|one| hashes.contains(&one.id())).ok_or(Failure::Hash)?;
        let mut own = self.credentials.groups.iter();
        let group = *own.find(|one| groups.contains(&one.id())).ok_or(Failure::Group)?;
        Ok(Transaction { id: self.transaction, hash, group })
    }

    fn succeed(&mut self, result: Authenticated) -> State {
        self.authenticated = Some(result);
        self.news = Some(Ok(result));
        State::Idle
    }

    fn on_reply(&self, asking: Asking, reply: &Reply<'_>) -> Result<State, Failure> {
        let Transaction { hash, group, .. } = asking.transaction;
        if reply.response.len() != hash.length() {
            return Err(Failure::Contradiction("HL"));
        }
        let answer = Answer::of(reply);
        // The host's response depends on the shared key, so the check must wait for it.
        match &asking.keys {
            None if !reply.public.is_empty() => Err(Failure::Contradiction("DHVLEN")),
            None => self.on_answer(&asking, &answer, None),
            Some(_) if reply.public.is_empty() || reply.public.len() > group.length() => {
                Err(Failure::Contradiction("DHVLEN"))
            }
            Some(keys) => {
                let work = keys.shared_work(reply.public).ok_or(Failure::Reflected)?;
                if self.is_deferring {
                    return Ok(State::Deriving(asking, answer, Some(work)));
                }
                let shared = work.compute().into_bytes();
                self.on_answer(&asking, &answer, shared.as_ref().map(|one| one.as_slice()))
            }
        }
    }

    /// Checks the host's answer by means of the shared key.
    fn on_answer(&self, asking: &Asking, answer: &Answer, shared: Option<&[u8]>) -> Result<State, Failure> {
        let Asking { transaction, challenge, sequence, keys } = asking;
        let (hash, group): (Hash, Group) = (transaction.hash, transaction.group);
        if keys.is_some() && shared.is_none() {
            return Err(Failure::Reflected);
        }
        let asked = ChallengeValue { value: challenge, sequence: *sequence };
        let wanted = transaction.response(Prover::Host, &self.names, &self.credentials.host, asked, shared);
        let proved: bool = wanted.as_slice().ct_eq(&answer.response).into();
        if !proved {
            return Err(Failure::HostSecret);
        }
        let Some(own) = &answer.challenge else {
            return Ok(State::Success1(Authenticated { hash, group, both: false }, None));
        };
        if own == challenge {
            return Err(Failure::Reflected);
        }
        if answer.sequence == 0 {
            return Err(Failure::Contradiction("SEQNUM"));
        }
        let secret = self.credentials.controller.as_ref().ok_or(Failure::NoControllerSecret)?;
        let asked = ChallengeValue { value: own, sequence: answer.sequence };
        let response = transaction.response(Prover::Controller, &self.names, secret, asked, shared);
        Ok(State::Success1(Authenticated { hash, group, both: true }, Some(response)))
    }

    /// Length of the result of [`Controller::answer`] in bytes.
    pub fn answer_length(&self) -> usize {
        match &self.state {
            State::Challenge(transaction) => {
                FIXED_LENGTH + transaction.hash.length() + transaction.group.length()
            }
            State::Success1(result, response) => {
                FIXED_LENGTH + response.as_ref().map_or(0, |_| result.hash.length())
            }
            _ => FAILURE_LENGTH,
        }
    }

    /// The message for the host's Authentication Receive.
    pub fn answer(&mut self, now: Instant) -> Vec<u8> {
        let state = core::mem::replace(&mut self.state, State::Over);
        let (kind, body, next) = match &state {
            State::Challenge(transaction) => return self.challenge(now, transaction.clone()),
            State::Success1(result, response) => {
                let hash_length = u8::try_from(result.hash.length()).expect("64 bytes at most");
                let response = response.as_ref().map(|one| one.as_slice());
                let body = Body::Success1 { hash_length, response };
                let next = match result.both {
                    true => {
                        self.deadline = Some(now + self.limit);
                        State::AwaitSuccess2(*result)
                    }
                    false => {
                        self.deadline = None;
                        self.succeed(*result)
                    }
                };
                (Kind::Success1, body, next)
            }
            other => {
                if !matches!(other, State::Failed | State::Over) {
                    self.fail(Failure::Unasked);
                }
                let failure = self.failure.unwrap_or(Failure::Unasked);
                (Kind::Failure1, Body::Failure(failure.explanation()), State::Over)
            }
        };
        let message = Message { kind, transaction: self.transaction, body }.emit();
        self.state = next;
        message
    }

    fn challenge(&mut self, now: Instant, transaction: Transaction) -> Vec<u8> {
        let sequence = sequence(&mut self.entropy);
        let mut value = alloc::vec![0; transaction.hash.length()];
        self.entropy.fill(&mut value);
        let own = self.keys.take().filter(|keys| keys.group() == transaction.group);
        let keys = own.or_else(|| KeyPair::generate(transaction.group, &mut self.entropy).map(Rc::new));
        let challenge = Challenge {
            hash: transaction.hash.id(),
            group: transaction.group.id(),
            sequence,
            challenge: &value,
            public: keys.as_deref().map_or(&[], KeyPair::public),
        };
        let (kind, body) = (Kind::Challenge, Body::Challenge(challenge));
        let message = Message { kind, transaction: transaction.id, body }.emit();
        self.deadline = Some(now + self.limit);
        self.state = State::AwaitReply(Asking { transaction, challenge: value, sequence, keys });
        message
    }
}
