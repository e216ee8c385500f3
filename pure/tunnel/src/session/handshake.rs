//! The handshake, Hello and Welcome, from the dial to the link.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;

use engine::{Buffer, Crc32c, Nanos};
use serde::{Deserialize, Serialize};

use super::link::NewLink;
use super::{
    Connection, DownReason, HandshakeError, Link, Output, PINGS_QUICK, Role, Session, Timer, VERSION_HIGH,
    VERSION_LOW,
};
use crate::frame::{
    Frame, FrameError, FrameHeader, FrameKind, Hello, Outcome, RefuseCode, Secret, SessionId, is_signed,
};

/// The shortest interval between Pings, however soon a peer takes silence for a loss.
const PING_INTERVAL_MIN: Nanos = Nanos::from_millis(1);

/// A first frame other than the expected one.
#[derive(Debug)]
pub(crate) enum Ungreeted {
    /// The peer is to be refused, for this reason.
    Refuse(RefuseCode, String),
    /// The peer refuses, for this reason.
    ByPeer(RefuseCode, String),
}

/// Names a server of another protocol by its first bytes: a wrong port may lead there.
fn recognise(error: FrameError) -> Option<&'static str> {
    match error {
        // A C2HTermReq PDU: type 3, no flags, a header of 24 bytes, no data.
        FrameError::Length { kind: FrameKind::Refuse, length: 0x1800 } => {
            Some("an NVMe/TCP target is there; nvme-tcp://HOST:PORT/NQN reaches it")
        }
        // An alert record of TLS 1.0 to 1.3.
        FrameError::UnknownFlags { kind: FrameKind::Tally, flags: 3 } => Some("a TLS server is there"),
        FrameError::UnknownKind(b'H') => Some("an HTTP server is there"),
        FrameError::UnknownKind(b'S') => Some("an SSH server is there"),
        _ => None,
    }
}

/// Checks a peer's first frame. It must be of the kind `awaited`, a Hello or a Welcome, and from an
/// end with `role`.
pub(crate) fn greeting<'a>(
    frame: &'a Result<(FrameHeader, Buffer), FrameError>,
    awaited: FrameKind,
    role: Role,
    crc32c: Crc32c,
) -> Result<(&'a FrameHeader, Hello<'a>), Ungreeted> {
    let stranger = |error: &dyn core::fmt::Display| {
        let text = format!("this is a Farlane tunnel, and that was no {awaited:?} of it: {error}");
        Ungreeted::Refuse(RefuseCode::NotFarlane, text)
    };
    let malformed = |error: FrameError| match error {
        FrameError::UnknownMandatoryOption(_) => {
            Ungreeted::Refuse(RefuseCode::UnknownOption, format!("{awaited:?}: {error}"))
        }
        _ => Ungreeted::Refuse(RefuseCode::Malformed, format!("malformed {awaited:?}: {error}")),
    };
    let (header, body) = match frame {
        Ok(frame) => frame,
        Err(error) => {
            return Err(match (recognise(*error), error) {
                (Some(who), _) => stranger(&who),
                (None, FrameError::UnknownKind(_)) => stranger(error),
                (None, _) => malformed(*error),
            });
        }
    };
    if header.kind != awaited && header.kind != FrameKind::Refuse {
        return Err(stranger(&format_args!("it was a {:?}", header.kind)));
    }
    if header.kind == awaited {
        let (low, high) = Hello::versions(body).map_err(|error| match error {
            FrameError::Magic(_) => stranger(&error),
            other => malformed(other),
        })?;
        if low.max(VERSION_LOW) > high.min(VERSION_HIGH) {
            let text = format!(
                "no version in common: versions {VERSION_LOW} to {VERSION_HIGH} are spoken here, {low} to {high} there"
            );
            return Err(Ungreeted::Refuse(RefuseCode::Version, text));
        }
    }
    if !is_signed(crc32c, header.kind, &header.emit(), body) {
        let text = format!("a {:?} was damaged on its way: its CRC32C is wrong", header.kind);
        return Err(Ungreeted::Refuse(RefuseCode::Damaged, text));
    }
    match Frame::parse(header, body).map_err(malformed)? {
        Frame::Hello(hello) | Frame::Welcome(hello) if hello.role == role => Ok((header, hello)),
        Frame::Hello(hello) | Frame::Welcome(hello) => {
            let text = format!("both ends are {:?}: join an upstream end to a downstream end", hello.role);
            Err(Ungreeted::Refuse(RefuseCode::Role, text))
        }
        Frame::Refuse(code, text) => Err(Ungreeted::ByPeer(code, text.to_owned())),
        other => Err(stranger(&format_args!("it was a {:?}", other.kind()))),
    }
}

/// The meaning of a peer's refusal to a host.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Refusal {
    /// Dialling again cannot help until the configuration of an end changes.
    Final,
    /// Another host has the device.
    Lost,
    /// The refusal may pass in a while, and a held session can still be resumed. This includes
    /// Hellos that were not understood: hosts send proper Hellos, so the network damaged such
    /// a Hello.
    Passing,
}

impl Refusal {
    const fn of(code: RefuseCode) -> Self {
        match code {
            RefuseCode::Busy
            | RefuseCode::Deadline
            | RefuseCode::Damaged
            | RefuseCode::NotFarlane
            | RefuseCode::Malformed => Self::Passing,
            RefuseCode::InUse => Self::Lost,
            RefuseCode::Version
            | RefuseCode::Role
            | RefuseCode::UnknownOption
            | RefuseCode::Forbidden
            | RefuseCode::Other(_) => Self::Final,
        }
    }
}

impl Session {
    pub(super) fn on_connected(&mut self) {
        if self.connection == Connection::Stopped {
            self.emit(Output::CloseConnection);
            return;
        }
        // The world replaces connections only at the downstream end, where the newest one counts.
        if matches!(self.connection, Connection::Greeting | Connection::Open) {
            self.on_connection_lost(super::LossReason::Disconnected);
        }
        self.reader.clear();
        self.connection = Connection::Greeting;
        self.timers.disarm(Timer::Dial);
        self.timers.arm(Timer::Handshake, self.now + self.config.handshake);
        if self.role == Role::Upstream {
            let session = self.link.as_ref().map_or(SessionId::NONE, |link| link.id);
            self.greet(session, Outcome::Asked);
        }
    }

    /// Sends a Hello or a Welcome.
    fn greet(&mut self, session: SessionId, outcome: Outcome) {
        let config = self.config.clone();
        let (version_low, version_high) = match outcome {
            Outcome::Asked => (VERSION_LOW, VERSION_HIGH),
            Outcome::New | Outcome::Resumed => (VERSION_HIGH, VERSION_HIGH),
        };
        let hello = Hello {
            version_low,
            version_high,
            role: self.role,
            outcome,
            session,
            instance: config.identity.instance,
            oldest: self.link.as_ref().map(Link::oldest).unwrap_or_default(),
            limits: config.limits(),
            credits: config.window,
            name: &config.identity.name,
            vendor: &config.identity.vendor,
            device: &config.identity.device,
            wants_stamps: config.stamps,
            secret: if outcome == Outcome::Resumed { None } else { self.secret },
            ahead: if self.role == Role::Downstream { config.ahead } else { 0 },
            wants_tally: self.role == Role::Upstream && config.tally,
            wants_registers: self.role == Role::Upstream && config.config_cache,
            strands: self.strands_announced(),
            member: self.member,
            digests: if self.role == Role::Upstream { config.digests } else { self.peer_digests },
            time: config.time,
        };
        match outcome {
            Outcome::Asked => self.transmit(&Frame::Hello(hello)),
            Outcome::New | Outcome::Resumed => self.transmit(&Frame::Welcome(hello)),
        }
    }

    /// Over how many connections this end would spread a link.
    fn strands_ours(&self) -> u16 {
        match (self.role, self.member) {
            (_, Some(_)) => 1,
            (Role::Upstream, None) => u16::from(self.config.strands),
            (Role::Downstream, None) => u16::from(self.config.strands_max),
        }
    }
    /// The number of strands in a Hello or Welcome, or 0 if none were asked for.
    fn strands_announced(&self) -> u16 {
        let asked = matches!(self.role, Role::Upstream) || self.peer_strands > 1;
        if asked && self.strands_ours() > 1 { self.strands_ours() } else { 0 }
    }

    /// Handles the frames of the reader while a Hello or Welcome is awaited.
    pub(super) fn on_greeting(&mut self, frame: Result<Option<(FrameHeader, Buffer)>, FrameError>) {
        let Some(frame) = frame.transpose() else { return };
        let (awaited, role) = match self.role {
            Role::Upstream => (FrameKind::Welcome, Role::Downstream),
            Role::Downstream => (FrameKind::Hello, Role::Upstream),
        };
        match greeting(&frame, awaited, role, self.config.crc32c) {
            Ok((header, hello)) if self.role == Role::Upstream => self.on_welcome(header, &hello),
            Ok((header, hello)) => self.on_hello(header, &hello),
            Err(Ungreeted::Refuse(code, text)) => self.refuse(code, text),
            Err(Ungreeted::ByPeer(code, text)) => self.on_refused(code, text),
        }
    }

    fn on_hello(&mut self, header: &FrameHeader, hello: &Hello<'_>) {
        self.peer_strands = hello.strands;
        self.peer_digests = hello.digests;
        // The secret of a further strand's link was checked when the strand was admitted.
        let is_known = hello.member.is_some() || self.knows(hello.secret);
        let resumable = self.link.as_ref().is_some_and(|link| {
            is_known
                && link.id == hello.session
                && link.peer.instance == hello.instance
                && link.can_resume(header.acknowledge, hello.oldest, header.sequence)
        });
        if resumable {
            let id = hello.session;
            // The Welcome acknowledges what has arrived. The connection then continues from there.
            self.greet(id, Outcome::Resumed);
            self.resume(header);
        } else {
            self.replace_link(hello);
            let id = self.new_session_id();
            self.secret = hello.member.is_none().then(|| self.new_secret());
            self.greet(id, Outcome::New);
            self.open_link(id, hello);
        }
    }

    fn on_welcome(&mut self, header: &FrameHeader, hello: &Hello<'_>) {
        let fits = match (&self.link, hello.outcome) {
            (Some(link), Outcome::Resumed) => {
                link.id == hello.session
                    && link.peer.instance == hello.instance
                    && link.can_resume(header.acknowledge, hello.oldest, header.sequence)
            }
            (None, Outcome::Resumed) => false,
            (_, _) => {
                let first = header.sequence.bits() == 0 && header.acknowledge.bits() == 0;
                let has_secret = self.member.is_some() || hello.secret.is_some();
                first && has_secret && hello.session != SessionId::NONE
            }
        };
        let digests = hello.digests == self.config.digests;
        if !fits || !digests || hello.version_low != hello.version_high {
            let error = super::ProtocolError::Welcome;
            self.refuse(RefuseCode::Malformed, format!("{error}"));
            return;
        }
        if hello.outcome == Outcome::Resumed {
            self.resume(header);
        } else {
            self.replace_link(hello);
            if self.member.is_none() {
                self.secret = hello.secret;
            }
            self.open_link(hello.session, hello);
        }
    }

    /// Whether `shown` is the secret of the present session.
    pub(crate) fn knows(&self, shown: Option<Secret>) -> bool {
        self.secret.is_some() && self.secret == shown
    }

    /// The function for digests, if the frames after this handshake have digests.
    fn agreed_digest(&self) -> Option<Crc32c> {
        let wanted = if self.role == Role::Upstream { self.config.digests } else { self.peer_digests };
        wanted.then_some(self.config.crc32c)
    }

    /// Takes a held link down, since a new session begins in its place.
    fn replace_link(&mut self, hello: &Hello<'_>) {
        if let Some(link) = &self.link {
            let (was, is) = (link.peer.instance, hello.instance);
            let reason = if was == is { DownReason::NotResumed } else { DownReason::PeerChanged { was, is } };
            self.link_down(reason);
        }
    }

    fn open_link(&mut self, id: SessionId, hello: &Hello<'_>) {
        let new = NewLink {
            id,
            peer: hello.identity(),
            max_payload: hello.limits.max_payload,
            hold: hello.limits.hold.min(self.config.hold),
            ping_interval: self.config.ping_interval.min((hello.limits.silence / 3).max(PING_INTERVAL_MIN)),
            stamped: self.config.stamps || hello.wants_stamps,
            digest: self.agreed_digest(),
            window: self.config.window,
            ahead: hello.ahead,
            tallied: hello.wants_tally,
            wants_registers: hello.wants_registers && self.role == Role::Downstream,
            strands: usize::from(hello.strands.min(self.strands_ours()).max(1)),
        };
        let mut link = Link::new(self.now, new);
        let allowed = link.allow(hello.credits);
        self.link_number = self.link_number.wrapping_add(1);
        self.clock = super::Clock::by(self.config.time, hello.time);
        self.emit(Output::LinkUp { peer: link.peer.clone() });
        self.link = Some(link);
        self.on_open();
        if let Err(error) = allowed {
            self.end_link(crate::frame::CloseCode::Protocol, DownReason::Protocol(error));
        }
    }

    fn resume(&mut self, header: &FrameHeader) {
        let digest = self.agreed_digest();
        if let Some(link) = &mut self.link {
            link.resume(header.acknowledge, digest);
        }
        self.timers.disarm(Timer::Hold);
        self.statistics.resumptions += 1;
        self.emit(Output::Resumed);
        self.on_open();
        // Credits granted on the lost connection may not have arrived.
        self.acknowledge_due = true;
    }

    fn on_open(&mut self) {
        self.connection = Connection::Open;
        self.digest = self.agreed_digest();
        self.reader.set_digest(self.digest);
        self.redial_delay = self.config.redial.0;
        self.pings_quick = PINGS_QUICK;
        self.timers.disarm(Timer::Handshake);
        self.timers.arm(Timer::Ping, self.now);
        self.timers.arm(Timer::Silence, self.now + self.config.silence);
    }

    /// Refuses a handshake and sends the peer the reason.
    fn refuse(&mut self, code: RefuseCode, text: String) {
        self.transmit_last(&Frame::Refuse(code, &text));
        self.drop_connection();
        self.emit(Output::HandshakeFailed(HandshakeError::Refused { code, text }));
        self.redial_after(code);
    }

    fn on_refused(&mut self, code: RefuseCode, text: String) {
        self.emit(Output::CloseConnection);
        self.drop_connection();
        let error = HandshakeError::RefusedByPeer { code, text: text.clone() };
        self.emit(Output::HandshakeFailed(error));
        if self.role == Role::Upstream {
            let refusal = Refusal::of(code);
            if refusal != Refusal::Passing {
                self.link_down(DownReason::Refused { code, text });
            }
            if refusal == Refusal::Final {
                self.connection = Connection::Stopped;
                return;
            }
        }
        self.redial_after(code);
    }

    /// Dials again after a refusal: soon if the handshake was only damaged.
    fn redial_after(&mut self, code: RefuseCode) {
        if code != RefuseCode::Damaged {
            self.redial_delay = self.config.redial.1;
        }
        self.redial();
    }

    pub(super) fn on_handshake_late(&mut self) {
        let text = format!("the handshake was not done within {}", self.config.handshake);
        self.refuse(RefuseCode::Deadline, text);
    }
}
