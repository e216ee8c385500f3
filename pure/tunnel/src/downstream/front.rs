//! The entrance of a device's end with several sessions, one for each host.
//!
//! A connection waits here for its Hello, as at the gate of a [`Downstream`]. The Hello decides
//! which session the connection is for.

use alloc::borrow::ToOwned;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use engine::{Buffer, Crc32c, Instant, Nanos, Origin};
use serde::{Deserialize, Serialize};

use super::gate::{Caller, Gate, Verdict};
use super::{Callers, ConnectionId, Downstream, HELD, Output, forbidden};
use crate::access::{Access, Fingerprint};
use crate::event::Event;
use crate::frame::RefuseCode;
use crate::session::{Config, HandshakeError, Ungreeted};

/// A connection whose host has said Hello, and what it said.
#[derive(Debug)]
pub struct Greeted {
    pub(super) connection: ConnectionId,
    pub(super) caller: Caller,
    /// The bytes of the Hello, and those that came behind it.
    pub(super) bytes: [Buffer; 2],
}

/// What a session is to a host that has said Hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// It is the host's own, as the host has proved.
    Own,
    /// It has no host.
    Free,
    /// Its host never heard that it was welcome, and has gone: another may have it.
    Unheard,
    /// It is held for a host whose connection was lost.
    Held,
    /// It is held for a host with the same key, which may have restarted.
    HeldForKey,
    /// It is another host's.
    Taken,
}

/// The entrance of a device's end with several sessions.
#[derive(Serialize, Deserialize)]
pub struct Front {
    gate: Gate,
    handshake: Nanos,
    outputs: VecDeque<Output>,
}

impl Front {
    /// Takes the function for digests of a new world, after the state was handed over.
    pub const fn adopt(&mut self, crc32c: Crc32c) {
        self.gate.adopt(crc32c);
    }

    /// The entrance of sessions with this configuration.
    pub fn new(config: &Config) -> Self {
        let crc32c: Crc32c = config.crc32c;
        Self { gate: Gate::new(crc32c), handshake: config.handshake, outputs: VecDeque::new() }
    }

    /// Handles a connection that was accepted from `address`.
    pub fn accept(&mut self, now: Instant, connection: ConnectionId, address: IpAddr) {
        let deadline = now + self.handshake;
        if let Some(victim) = self.gate.accept(connection, Origin::of(address), deadline) {
            let text = "many connections say nothing, and this one has waited longest".to_owned();
            self.refuse(victim, RefuseCode::Busy, text);
        }
    }

    /// Notes that the host of a connection has proved `key`.
    pub fn identify(&mut self, connection: ConnectionId, key: Fingerprint) {
        self.gate.identify(connection, key);
    }

    /// Handles a piece of a connection's stream. Returns what the host said once its Hello is
    /// complete; the connection is then no longer here.
    pub fn receive(&mut self, connection: ConnectionId, piece: &Buffer) -> Option<Greeted> {
        match self.gate.receive(connection, piece)? {
            Verdict::Waits => None,
            Verdict::Host(caller, bytes) => Some(Greeted { connection, caller, bytes }),
            Verdict::No(Ungreeted::Refuse(code, text)) => {
                self.gate.callers.refused += 1;
                self.refuse(connection, code, text);
                None
            }
            Verdict::No(Ungreeted::ByPeer(code, text)) => {
                self.gate.callers.refused += 1;
                self.outputs.push_back(Output::Close { connection });
                self.report(connection, HandshakeError::RefusedByPeer { code, text });
                None
            }
        }
    }

    /// Handles the end of a connection.
    pub fn disconnect(&mut self, connection: ConnectionId) {
        self.gate.forget(connection);
    }

    /// Refuses the connections whose Hello is late.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(connection) = self.gate.expire(now) {
            let text = format!("no Hello came within {}", self.handshake);
            self.refuse(connection, RefuseCode::Deadline, text);
        }
    }

    /// When the next Hello is late.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.gate.earliest()
    }

    /// The next output: only transmissions, closes and events.
    pub fn poll_output(&mut self) -> Option<Output> {
        engine::pop(&mut self.outputs)
    }

    /// Has `places` connections wait at most; see [`Downstream::set_waiting_max`].
    pub fn set_waiting_max(&mut self, places: usize) {
        self.gate.set_places(places);
    }

    /// Sets the longest segment of a connection; see [`Downstream::set_segment_max`].
    pub fn set_segment_max(&mut self, connection: ConnectionId, bytes: usize) {
        self.gate.set_segment_max(connection, bytes);
    }

    /// Counts of the connections that have come.
    pub fn callers(&self) -> Callers {
        self.gate.callers()
    }

    /// Chooses the session for a host among `sessions`, all of which admit the same hosts. Refuses
    /// the host and returns `None` if it gets none: [`Downstream::admit`] takes it otherwise.
    ///
    /// A host that has a session gets a further one only while every key that is admitted by name
    /// and has none can still have one: no host can keep another out.
    pub fn choose<'a>(
        &mut self,
        greeted: &Greeted,
        sessions: impl Iterator<Item = &'a Downstream>,
    ) -> Option<usize> {
        let sessions: Vec<_> = sessions.collect();
        match choose(&greeted.caller, &sessions) {
            Ok(index) => {
                self.gate.remember(greeted.caller.origin);
                Some(index)
            }
            Err((code, text)) => {
                self.gate.callers.refused += 1;
                self.refuse(greeted.connection, code, text);
                None
            }
        }
    }

    fn refuse(&mut self, connection: ConnectionId, code: RefuseCode, text: String) {
        self.outputs.push_back(Output::Transmit { connection, bytes: self.gate.refusal(code, &text) });
        self.outputs.push_back(Output::Close { connection });
        self.report(connection, HandshakeError::Refused { code, text });
    }

    fn report(&mut self, connection: ConnectionId, error: HandshakeError) {
        let event = Event::HandshakeFailed(error);
        self.outputs.push_back(Output::Event { connection: Some(connection), event });
    }
}

impl core::fmt::Debug for Front {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Front").field("callers", &self.callers()).finish_non_exhaustive()
    }
}

fn choose(caller: &Caller, sessions: &[&Downstream]) -> Result<usize, (RefuseCode, String)> {
    if let Some(text) = sessions.iter().find_map(|one| one.away.clone()) {
        return Err((RefuseCode::Busy, text));
    }
    if !sessions.iter().all(|one| one.access.admits(caller.key)) {
        return Err((RefuseCode::Forbidden, forbidden(caller.key)));
    }
    let claims: Vec<_> = sessions.iter().map(|one| one.claim(caller)).collect();
    let first = |wanted| claims.iter().position(|claim| *claim == wanted);
    if let Some(own) = first(Claim::Own) {
        return Ok(own);
    }
    if first(Claim::HeldForKey).is_some() {
        // The rest of the earlier session must not change what the host does from now on.
        return Err((RefuseCode::Busy, HELD.to_owned()));
    }
    if caller.member.is_some() {
        return Err((RefuseCode::Busy, "there is no such link to be a strand of".to_owned()));
    }
    if let Some(place) = first(Claim::Free).or_else(|| first(Claim::Unheard)) {
        return match is_reserved(caller, sessions, &claims) {
            false => Ok(place),
            true => Err((
                RefuseCode::Busy,
                "this host has a place here already, and the free ones are for other keys that are \
                 admitted by name"
                    .to_owned(),
            )),
        };
    }
    let count = sessions.len();
    Err(if claims.contains(&Claim::Held) {
        let text = format!(
            "all {count} places are taken, and one is held for a host whose connection was lost: try again \
             soon, or have the far end's owner export with --hosts {}",
            count + 1
        );
        (RefuseCode::Busy, text)
    } else {
        let text = format!(
            "{count} hosts use this far end, as many as it serves; detach one, or have its owner export with \
             --hosts {}; the far end's status names the users",
            count + 1
        );
        (RefuseCode::InUse, text)
    })
}

/// Whether the free sessions are for others: the caller has one already, and not more are free than
/// there are admitted keys without one.
fn is_reserved(caller: &Caller, sessions: &[&Downstream], claims: &[Claim]) -> bool {
    let Some(Access::Keys(keys)) = sessions.first().map(|one| &one.access) else { return false };
    let has_one = |key: &Fingerprint| sessions.iter().any(|one| one.owner() == Some(*key));
    let free = claims.iter().filter(|claim| matches!(claim, Claim::Free | Claim::Unheard)).count();
    let without = keys.iter().filter(|key| !has_one(key)).count();
    caller.key.is_some_and(|key| has_one(&key)) && free <= without
}
