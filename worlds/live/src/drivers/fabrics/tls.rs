//! TLS 1.3 with pre-shared keys around a socket of NVMe/TCP, by s2n-tls.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::io::{self, ErrorKind};
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

/// Most bytes that are sealed in one go.
const GATHER_BYTES: usize = 64 << 10;
/// The first byte of a TLS handshake (RFC 8446, ContentType handshake).
const HANDSHAKE: u8 = 22;

thread_local! {
    /// Where the pieces of an outbox are put together, so that small ones share a record.
    static GATHERED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

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
pub(super) struct Tls {
    session: Connection,
    end: End,
    is_proved: bool,
}

impl Tls {
    /// The host's end, which offers `psk`.
    ///
    /// # Errors
    /// When the library does not take the settings.
    pub(super) fn host(psk: &Psk, socket: RawFd) -> io::Result<Self> {
        Self::new(Connection::new_client(), End::Host, std::slice::from_ref(psk), socket)
            .map_err(io::Error::other)
    }

    /// The target's end.
    ///
    /// # Errors
    /// When the library does not take the settings.
    pub(super) fn target(acceptor: &Acceptor, socket: RawFd) -> io::Result<Self> {
        Self::new(Connection::new_server(), End::Target(acceptor.clone()), &acceptor.0, socket)
            .map_err(io::Error::other)
    }

    fn new(mut session: Connection, end: End, psks: &[Psk], socket: RawFd) -> Result<Self, Error> {
        session.set_config(config()?)?;
        // The library would sleep otherwise. The time of a wrong proof reveals nothing to its
        // sender.
        session.set_blinding(Blinding::SelfService)?;
        session.prefer_throughput()?;
        session.set_receive_buffering(true)?;
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
        Ok(Self { session, end, is_proved: false })
    }

    /// Whether both ends have proved that they have the key.
    pub(super) const fn is_proved(&self) -> bool {
        self.is_proved
    }

    /// Advances the handshake. Returns the proved identity once it is over.
    ///
    /// # Errors
    /// When the handshake has failed; the message has the remedy.
    pub(super) fn shake_hands(&mut self) -> io::Result<Option<Identity>> {
        match self.session.poll_negotiate() {
            Poll::Pending => return Ok(None),
            Poll::Ready(Err(error)) => return Err(self.explain(&error)),
            Poll::Ready(Ok(_)) => {}
        }
        let length = self.session.negotiated_psk_identity_length().map_err(io::Error::other)?;
        let mut identity = vec![0; length];
        self.session.negotiated_psk_identity(&mut identity).map_err(io::Error::other)?;
        let identity = Identity::parse(&identity)
            .map_err(|error| io::Error::new(ErrorKind::PermissionDenied, error.to_string()))?;
        self.is_proved = true;
        Ok(Some(identity))
    }

    /// Opens received records, into `place`. Returns the number of bytes, and 0 when the other end
    /// has closed its side.
    ///
    /// # Errors
    /// When nothing has come (`WouldBlock`), or the connection has failed.
    pub(super) fn receive(&mut self, place: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < place.len() {
            match self.session.poll_recv(&mut place[filled..]) {
                Poll::Ready(Ok(0)) if filled == 0 => return Ok(0),
                Poll::Ready(Ok(0)) | Poll::Pending if filled > 0 => break,
                Poll::Pending => return Err(ErrorKind::WouldBlock.into()),
                Poll::Ready(Ok(count)) => filled += count,
                // The bytes opened before count first; the error comes again.
                Poll::Ready(Err(_)) if filled > 0 => break,
                Poll::Ready(Err(error)) => return Err(self.explain(&error)),
            }
        }
        Ok(filled)
    }

    /// Seals and sends the bytes in `outbox`, as many as the system takes. Returns the number of
    /// bytes taken. When the system takes no more, the library has sealed some of the bytes
    /// already. It requires the same bytes again, which stay at the front of the outbox.
    ///
    /// # Errors
    /// When the connection has failed.
    pub(super) fn send(&mut self, outbox: &Outbox) -> io::Result<usize> {
        GATHERED.with_borrow_mut(|gathered| {
            gathered.clear();
            for piece in outbox.slices() {
                let room = GATHER_BYTES - gathered.len();
                gathered.extend_from_slice(&piece[..piece.len().min(room)]);
                if gathered.len() == GATHER_BYTES {
                    break;
                }
            }
            match self.session.poll_send(gathered) {
                Poll::Ready(Ok(count)) => Ok(count),
                Poll::Pending => Ok(0),
                Poll::Ready(Err(error)) => Err(io::Error::other(error)),
            }
        })
    }

    /// Gives memory back while nothing passes.
    pub(super) fn rest(&mut self) {
        // The library refuses while it holds bytes, which then stay.
        let _ = self.session.release_buffers();
    }

    /// Sends `last`, as far as the system takes these bytes at once, and that nothing more comes.
    pub(super) fn send_last(&mut self, last: &[u8]) {
        if self.is_proved && !last.is_empty() {
            // A connection that is gone already needs no last words.
            let _ = self.session.poll_send(last);
        }
        self.close();
    }

    /// Announces to the other end that nothing more comes.
    pub(super) fn close(&mut self) {
        // A connection that is gone already needs no closing.
        let _ = self.session.poll_shutdown_send();
    }

    /// Explains in words why a handshake or a connection has failed, with the remedy.
    fn explain(&self, error: &Error) -> io::Error {
        match error.kind() {
            ErrorType::IOError => return io::Error::last_os_error(),
            ErrorType::ConnectionClosed if self.is_proved => return ErrorKind::ConnectionReset.into(),
            _ if self.is_proved => return io::Error::other(format!("TLS: {}", error.message())),
            _ => {}
        }
        let text = match &self.end {
            End::Host => host_words(self.session.alert(), error),
            End::Target(acceptor) => self.target_words(acceptor, error),
        };
        io::Error::new(ErrorKind::PermissionDenied, format!("TLS: {text}"))
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
    config.set_send_buffer_size(u32::try_from(GATHER_BYTES).unwrap_or(u32::MAX))?;
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
        f.debug_struct("Tls").field("is_proved", &self.is_proved).finish_non_exhaustive()
    }
}
