//! TLS 1.3 with pre-shared keys around a socket of NVMe/TCP: s2n-tls shakes hands, and goes with
//! all of its memory when both ends have proved their keys. [`Records`] protects what follows.

pub mod fuzz;
mod keys;
mod records;
mod secrets;
#[cfg(test)]
mod tests;

use std::ffi::{c_int, c_void};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::RawFd;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use nvme_fabrics::authentication::Hash;
use nvme_fabrics::target::Directory;
use nvme_fabrics::tls::{Identity, Psk, offered_identities};
use nvme_fabrics::wire::Nqn;
use nvme_tcp::Outbox;
use s2n_tls::config::Config;
use s2n_tls::connection::Connection;
use s2n_tls::enums::{Blinding, PskHmac};
use s2n_tls::error::{Error, ErrorType};
use s2n_tls::security::DEFAULT_TLS13;

use crate::carrier::tcp::Direct;
use keys::{Suite, TrafficKey};
use records::Records;
use secrets::Secrets;

/// The first byte of a TLS handshake (RFC 8446, ContentType handshake).
const HANDSHAKE: u8 = 22;

/// Alerts (RFC 8446, 6.2).
const HANDSHAKE_FAILURE: u8 = 40;
const ILLEGAL_PARAMETER: u8 = 47;
const ACCESS_DENIED: u8 = 49;
const DECRYPT_ERROR: u8 = 51;
const INSUFFICIENT_SECURITY: u8 = 71;
const UNKNOWN_PSK_IDENTITY: u8 = 115;
/// A record with the alert by which a target refuses every key alike, so that strangers do not
/// learn which hosts are known: it comes before any key is agreed on.
const REFUSAL: [u8; 7] = [21, 3, 3, 0, 2, 2, HANDSHAKE_FAILURE];

/// The TLS settings of the target's end for its hosts.
#[derive(Clone, Default)]
pub(super) struct Acceptor(Arc<[Psk]>);

impl Acceptor {
    /// Knows the hosts that `directory` gives a key, for their subsystems and for discovery. Of
    /// several keys with the same identity, the first counts.
    pub(super) fn new(directory: &Directory) -> Self {
        let discovery = Nqn::discovery();
        let mut known: Vec<Psk> = Vec::new();
        for subsystem in &directory.subsystems {
            for (host, terms) in &subsystem.terms {
                let Some(tls) = &terms.tls else { continue };
                for psk in [&subsystem.name, &discovery].iter().flat_map(|name| tls.psks(host, name)) {
                    if known.iter().all(|one| one.identity != psk.identity) {
                        known.push(psk);
                    }
                }
            }
        }
        Self(known.into())
    }

    /// Whether no host can prove anything.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Acceptor").field(&self.0.len()).finish()
    }
}

/// Which end of a connection this is.
#[derive(Debug)]
enum End {
    Host,
    Target(Acceptor),
}

/// One end of a TLS connection on a socket that never waits.
pub(super) struct Tls(State);

/// How far a connection is.
enum State {
    /// The ends are proving that they have the same key.
    Handshake(Box<Handshake>),
    /// Both ends have proved it.
    Open(Box<Records>),
}

/// A handshake that is not over.
struct Handshake {
    session: Connection,
    end: End,
    secrets: Secrets,
}

impl Tls {
    /// The host's end, which offers `psk`.
    ///
    /// # Errors
    /// When the library does not take the settings.
    pub(super) fn host(psk: &Psk, socket: RawFd) -> io::Result<Self> {
        Handshake::new(Connection::new_client(), End::Host, std::slice::from_ref(psk), socket)
            .map(|handshake| Self(State::Handshake(Box::new(handshake))))
            .map_err(io::Error::other)
    }

    /// The target's end.
    ///
    /// # Errors
    /// When the library does not take the settings.
    pub(super) fn target(acceptor: &Acceptor, socket: RawFd) -> io::Result<Self> {
        Handshake::new(Connection::new_server(), End::Target(acceptor.clone()), &acceptor.0, socket)
            .map(|handshake| Self(State::Handshake(Box::new(handshake))))
            .map_err(io::Error::other)
    }

    /// Whether both ends have proved that they have the key.
    pub(super) const fn is_proved(&self) -> bool {
        matches!(self.0, State::Open(_))
    }

    /// Advances the handshake. Returns the proved identity once it is over.
    ///
    /// # Errors
    /// When the handshake has failed; the message has the remedy.
    pub(super) fn shake_hands(&mut self) -> io::Result<Option<Identity>> {
        let State::Handshake(handshake) = &mut self.0 else { return Ok(None) };
        let Some((identity, records)) = handshake.advance()? else { return Ok(None) };
        self.0 = State::Open(Box::new(records));
        Ok(Some(identity))
    }

    /// Opens received records of `socket`, into `place`. Returns the number of bytes, and 0 when
    /// the other end has closed its side.
    ///
    /// # Errors
    /// When nothing has come (`WouldBlock`), or the connection has failed.
    pub(super) fn receive(&mut self, socket: &TcpStream, place: &mut [u8]) -> io::Result<usize> {
        let State::Open(records) = &mut self.0 else { return Err(ErrorKind::WouldBlock.into()) };
        records.receive(place, |room| Direct(socket).read(room))
    }

    /// Whether the last [`Tls::receive`] has reported all that has come; otherwise, another call
    /// has more to report.
    pub(super) const fn has_all(&self) -> bool {
        match &self.0 {
            State::Open(records) => records.has_all(),
            State::Handshake(_) => true,
        }
    }

    /// Seals and sends the bytes in `outbox`, as many as `socket` takes. Returns the number of
    /// bytes taken. When the socket takes no more, some of the bytes are sealed already, and stay
    /// at the front of the outbox until they are sent.
    ///
    /// # Errors
    /// When the connection has failed.
    pub(super) fn send(&mut self, socket: &TcpStream, outbox: &Outbox) -> io::Result<usize> {
        let State::Open(records) = &mut self.0 else { return Ok(0) };
        records.send(outbox.slices(), |bytes| Direct(socket).write(bytes))
    }

    /// Gives memory back while nothing passes.
    pub(super) fn rest(&mut self) {
        match &mut self.0 {
            // The library refuses while it holds bytes, which then stay.
            State::Handshake(handshake) => drop(handshake.session.release_buffers()),
            State::Open(records) => records.rest(),
        }
    }

    /// Sends `last`, as far as the system takes these bytes at once, and that nothing more comes.
    pub(super) fn send_last(&mut self, socket: &TcpStream, last: &[u8]) {
        if let State::Open(records) = &mut self.0 {
            // A connection that is gone already needs no last words.
            let _ = records.send(std::iter::once(last), |bytes| Direct(socket).write(bytes));
        }
        self.close(socket);
    }

    /// Informs a host whose handshake has failed that its key was refused, as far as the system
    /// takes these bytes at once.
    pub(super) fn refuse(&self, socket: &TcpStream) {
        if matches!(self.0, State::Handshake(_)) {
            // A connection that is gone already needs no reason.
            let _ = Direct(socket).write(&REFUSAL);
        }
    }

    /// Announces to the other end that nothing more comes.
    pub(super) fn close(&mut self, socket: &TcpStream) {
        match &mut self.0 {
            // A connection that is gone already needs no closing.
            State::Handshake(handshake) => drop(handshake.session.poll_shutdown_send()),
            State::Open(records) => records.close(|bytes| Direct(socket).write(bytes)),
        }
    }
}

impl Handshake {
    fn new(mut session: Connection, end: End, psks: &[Psk], socket: RawFd) -> Result<Self, Error> {
        session.set_config(config()?)?;
        // The library would sleep otherwise. The time of a wrong proof reveals nothing to its
        // sender.
        session.set_blinding(Blinding::SelfService)?;
        for psk in psks {
            let mut one = s2n_tls::psk::Builder::new()?;
            one.set_identity(psk.identity.as_bytes())?;
            one.set_secret(&psk.secret)?;
            one.set_hmac(if psk.hash == Hash::Sha256 { PskHmac::SHA256 } else { PskHmac::SHA384 })?;
            session.append_psk(&one.build()?)?;
        }
        session.set_receive_callback(Some(receive))?;
        session.set_send_callback(Some(send))?;
        let context = context_of(socket);
        // SAFETY: The callbacks take the context for a descriptor and never follow it as a pointer.
        unsafe {
            session.set_receive_context(context)?;
            session.set_send_context(context)?;
        }
        Ok(Self { session, end, secrets: Secrets::default() })
    }

    /// Advances the handshake. Returns the proved identity, and the way to protect what follows,
    /// once it is over.
    ///
    /// The library reads record by record, so it has no byte behind the handshake.
    fn advance(&mut self) -> io::Result<Option<(Identity, Records)>> {
        let polled = self.session.poll_negotiate();
        self.secrets.take_logged();
        match polled {
            Poll::Pending => return Ok(None),
            Poll::Ready(Err(error)) => return Err(self.explain(&error)),
            Poll::Ready(Ok(_)) => {}
        }
        let length = self.session.negotiated_psk_identity_length().map_err(io::Error::other)?;
        let mut identity = vec![0; length];
        self.session.negotiated_psk_identity(&mut identity).map_err(io::Error::other)?;
        let identity = Identity::parse(&identity)
            .map_err(|error| io::Error::new(ErrorKind::PermissionDenied, error.to_string()))?;
        Ok(Some((identity, self.records()?)))
    }

    /// The records behind the handshake, by the keys that it has agreed on.
    fn records(&mut self) -> io::Result<Records> {
        let name = self.session.cipher_suite().map_err(io::Error::other)?;
        let suite = Suite::of_name(name).ok_or_else(|| {
            io::Error::other(format!("TLS: {name} is no cipher suite of TLS 1.3 with AEAD"))
        })?;
        let Secrets { host, target } = core::mem::take(&mut self.secrets);
        let key = |secret: Option<_>| {
            secret.and_then(|secret| TrafficKey::new(suite, secret).ok()).ok_or_else(|| {
                io::Error::other("TLS: the library has not given the secrets of the handshake")
            })
        };
        let (host, target) = (key(host)?, key(target)?);
        Ok(match self.end {
            End::Host => Records::new(target, host),
            End::Target(_) => Records::new(host, target),
        })
    }

    /// Explains in words why a handshake has failed, with the remedy.
    fn explain(&self, error: &Error) -> io::Error {
        if error.kind() == ErrorType::IOError {
            return io::Error::last_os_error();
        }
        let alert = self.session.alert();
        let (kind, text) = match &self.end {
            // A target that ends, or has no room for strangers, closes connections without a word.
            End::Host if !alert.is_some_and(is_about_key) => {
                (ErrorKind::ConnectionAborted, host_words(alert, error))
            }
            End::Host => (ErrorKind::PermissionDenied, host_words(alert, error)),
            End::Target(acceptor) => (ErrorKind::PermissionDenied, self.target_words(acceptor, error)),
        };
        io::Error::new(kind, format!("TLS: {text}"))
    }

    /// Why a host was not let in, by its offer.
    fn target_words(&self, acceptor: &Acceptor, error: &Error) -> String {
        let hello = self.session.client_hello().ok().and_then(|hello| hello.raw_message().ok());
        let hello = hello.unwrap_or_default();
        let Some(offered) = offered_identities(&hello).next() else {
            return format!("the host has offered no pre-shared key ({})", error.name());
        };
        let identity = match Identity::parse(offered) {
            Ok(identity) => identity,
            Err(error) => return error.to_string(),
        };
        let is_known = |offered: &[u8]| acceptor.0.iter().any(|psk| psk.identity.as_bytes() == offered);
        let Identity { host, subsystem, hash, .. } = identity;
        match offered_identities(&hello).any(is_known) {
            true => format!(
                "{host} has another key for {subsystem} than the target; give both ends the same key file"
            ),
            false => format!(
                "the target has no key of {host} for {subsystem} with {hash}, or another one; give both \
                 ends the same key file (tls-key-file in [[subsystem.host]])"
            ),
        }
    }
}

/// The settings of every session: TLS 1.3, and no certificates.
fn config() -> Result<Config, Error> {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(config.clone());
    }
    let mut config = Config::builder();
    config.with_system_certs(false)?;
    config.set_security_policy(&DEFAULT_TLS13)?;
    secrets::log(&mut config)?;
    let config = config.build()?;
    Ok(CONFIG.get_or_init(|| config).clone())
}

/// The error of a host when the target has ended the handshake. Most targets give no reason, so
/// that strangers do not learn which hosts are known.
fn host_words(alert: Option<u8>, error: &Error) -> String {
    let ended = match alert {
        Some(alert) => format!("the target has ended the handshake (alert {alert})"),
        None if error.kind() == ErrorType::ConnectionClosed => {
            "the target has ended the handshake".to_owned()
        }
        None => format!("the handshake failed ({})", error.name()),
    };
    format!(
        "{ended}: it has no key of this host for this subsystem, or another key, or it speaks NVMe/TCP \
         without TLS there; its log says more"
    )
}

/// Whether an alert (RFC 8446, 6) says that the other end does not take this end's key.
const fn is_about_key(alert: u8) -> bool {
    matches!(
        alert,
        HANDSHAKE_FAILURE
            | ILLEGAL_PARAMETER
            | ACCESS_DENIED
            | DECRYPT_ERROR
            | INSUFFICIENT_SECURITY
            | UNKNOWN_PSK_IDENTITY
    )
}

/// Whether a host's handshake has failed because the target has refused its key.
pub(super) fn is_denial(error: &io::Error) -> bool {
    error.kind() == ErrorKind::PermissionDenied
}

/// Whether the first byte that a connection brings begins a TLS handshake.
pub(super) const fn is_handshake(first: u8) -> bool {
    first == HANDSHAKE
}

/// The context by which the callbacks know their descriptor.
fn context_of(socket: RawFd) -> *mut c_void {
    std::ptr::without_provenance_mut(usize::try_from(socket).expect("descriptors are not negative"))
}

fn socket_of(context: *mut c_void) -> c_int {
    c_int::try_from(context.addr()).expect("the context is a descriptor")
}

/// Receives for the library, as `recv` does.
unsafe extern "C" fn receive(context: *mut c_void, place: *mut u8, length: u32) -> c_int {
    // SAFETY: The library gives a place of this length. The socket never waits.
    let count = unsafe { libc::recv(socket_of(context), place.cast(), length as usize, 0) };
    c_int::try_from(count).expect("the length has 31 bits")
}

/// Sends for the library, as `send` does.
unsafe extern "C" fn send(context: *mut c_void, bytes: *const u8, length: u32) -> c_int {
    // SAFETY: The library gives bytes of this length. The socket never waits.
    let count = unsafe { libc::send(socket_of(context), bytes.cast(), length as usize, libc::MSG_NOSIGNAL) };
    c_int::try_from(count).expect("the length has 31 bits")
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("is_proved", &self.is_proved()).finish_non_exhaustive()
    }
}
