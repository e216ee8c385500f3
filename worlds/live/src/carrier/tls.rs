//! TLS 1.3 around a stream of bytes: sent bytes are sealed, received bytes are opened.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use engine::{Buffer, BufferMut, Pool};
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, ClientConnection, Connection, Error, ServerConfig, ServerConnection};

use crate::carrier::Outbox;
use crate::carrier::identity::{self, Fingerprint, Identity, Verifier};
use crate::carrier::route::Trust;

/// The protocol that both ends must speak (ALPN): the tunnel's frames as the only data.
const PROTOCOL: &[u8] = b"farlane/2";
/// The server name that TLS asks for. No peer is trusted because of it.
const NAME: &str = "farlane";
/// The first byte of a TLS handshake (RFC 8446, ContentType handshake).
const HANDSHAKE: u8 = 22;
/// The most bytes that are sealed and that the socket has not taken. The rest waits unsealed.
const SEALED_MAX: usize = 256 << 10;
/// The largest block that a connection keeps while nothing comes.
const IDLE_BYTES_MAX: usize = 16 << 10;
/// The bytes that a record adds to its contents: header, content type and tag.
const RECORD_BYTES: usize = 5 + 1 + 16;
/// The most plain bytes that one step of opening can bring: a record that was nearly complete, and
/// the whole records behind it.
const STEP_MAX: usize = 2 * PLAIN_MAX;
/// The most bytes of a record.
const PLAIN_MAX: usize = 16 << 10;

/// The TLS settings of a far end for the connections that it accepts.
#[derive(Clone)]
pub struct Acceptor(Arc<ServerConfig>);

impl Acceptor {
    /// Speaks as `identity`.
    ///
    /// # Errors
    /// When the library does not take the key.
    pub fn new(identity: &Identity) -> io::Result<Self> {
        Ok(Self(Arc::new(identity::server(identity, PROTOCOL)?)))
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Acceptor")
    }
}

/// One end of a TLS connection, between plain bytes and records.
pub(crate) struct Tls {
    session: Connection,
    /// Bytes from the socket: a block, and where the bytes that are not opened yet begin and end in
    /// it.
    raw: Option<(BufferMut, usize, usize)>,
    /// About how many sealed bytes the socket has not taken.
    sealed: usize,
    /// At a near end: the verifier of the far end's key.
    verifier: Option<Arc<Verifier>>,
    /// At a far end: nothing has come yet, so the peer may speak without TLS.
    is_fresh: bool,
}

/// The result of opening.
pub(crate) enum Opened {
    /// Plain bytes.
    Data(Buffer),
    /// Nothing has come, or nothing but TLS's own messages.
    Nothing,
    /// The peer has closed its side.
    Closed,
    /// The peer speaks without TLS; these are its first bytes.
    Plain(Buffer),
}

impl Tls {
    /// The near end of a connection to a far end that must prove the key of `trust`.
    pub(crate) fn client(trust: &Trust) -> io::Result<Self> {
        let (settings, verifier) = identity::client(&trust.identity, trust.pin, PROTOCOL)?;
        let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
        let session = ClientConnection::new(Arc::new(settings), name).map_err(io::Error::other)?;
        Ok(Self::around(session.into(), Some(verifier)))
    }

    /// The far end of an accepted connection.
    pub(crate) fn server(acceptor: &Acceptor) -> io::Result<Self> {
        let session = ServerConnection::new(Arc::clone(&acceptor.0)).map_err(io::Error::other)?;
        Ok(Self { is_fresh: true, ..Self::around(session.into(), None) })
    }

    fn around(mut session: Connection, verifier: Option<Arc<Verifier>>) -> Self {
        // The outbox and `SEALED_MAX` limit the waiting bytes.
        session.set_buffer_limit(None);
        Self { session, raw: None, sealed: 0, verifier, is_fresh: false }
    }

    #[cfg(test)]
    pub(crate) fn into_session(self) -> Connection {
        self.session
    }

    /// Whether the peer has proved its key.
    pub(crate) fn is_proved(&self) -> bool {
        !self.session.is_handshaking()
    }

    /// The key that the peer has proved.
    pub(crate) fn key(&self) -> Option<Fingerprint> {
        if self.is_proved() { identity::proved(self.session.peer_certificates()?) } else { None }
    }

    /// About how many sealed bytes the socket has not taken.
    pub(crate) const fn unsent(&self) -> usize {
        self.sealed
    }

    /// Opens received records. `read` brings bytes of the socket into a block of `length` bytes.
    ///
    /// # Errors
    /// When the connection has failed, or the peer has broken the protocol or has another key.
    pub(crate) fn receive(
        &mut self,
        socket: &mut impl Write,
        pool: &mut Pool,
        length: usize,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<Opened> {
        if self.raw.as_ref().is_none_or(|(_, from, to)| from == to) {
            let mut block = match self.raw.take() {
                Some((block, ..)) if block.len() == length => block,
                _ => pool.take(length),
            };
            let count = read(&mut block);
            let come = *count.as_ref().unwrap_or(&0);
            self.raw = Some((block, 0, come));
            match count {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // An idle connection keeps no memory.
                    self.raw.take_if(|(block, ..)| block.len() > IDLE_BYTES_MAX);
                    return Ok(Opened::Nothing);
                }
                Err(error) => return Err(error),
                Ok(0) => return Ok(Opened::Closed),
                Ok(_) => {}
            }
        }
        if core::mem::take(&mut self.is_fresh)
            && let Some((block, from, to)) = &mut self.raw
            && block[*from] != HANDSHAKE
        {
            let plain = pool.copy(&block[*from..*to]);
            *from = *to;
            return Ok(Opened::Plain(plain));
        }
        let opened = self.open(pool);
        if self.session.wants_write() {
            // The peer waits for these, or should know why it is refused.
            let sent = self.transmit(socket);
            if opened.is_ok() {
                sent?;
            }
        }
        opened
    }

    /// Opens the bytes that the socket has brought, as many as fit one piece.
    fn open(&mut self, pool: &mut Pool) -> io::Result<Opened> {
        let mut plain: Option<BufferMut> = None;
        let mut filled = 0;
        let mut is_closed = false;
        let Self { session, raw, verifier, .. } = self;
        while let Some((block, from, to)) = raw
            && from < to
            && !is_closed
        {
            if plain.as_ref().is_some_and(|plain| plain.len() - filled < STEP_MAX) {
                break;
            }
            *from += session.read_tls(&mut &block[*from..*to])?;
            let state = session.process_new_packets().map_err(|error| explain(error, verifier.as_deref()))?;
            is_closed = state.peer_has_closed();
            let come = state.plaintext_bytes_to_read();
            if come > 0 {
                // A block for all that can come of the bytes that are left.
                let room = if from < to { *to - *from + come + STEP_MAX } else { come };
                let plain = plain.get_or_insert_with(|| pool.take(room));
                session.reader().read_exact(&mut plain[filled..filled + come])?;
                filled += come;
            }
        }
        Ok(match plain {
            Some(mut plain) => {
                plain.truncate(filled);
                Opened::Data(pool.seal(plain))
            }
            None if is_closed => Opened::Closed,
            None => Opened::Nothing,
        })
    }

    /// Seals the bytes in `outbox` and sends them, as many as the socket takes. Returns the number
    /// of bytes taken from the outbox.
    ///
    /// # Errors
    /// When the connection has failed.
    pub(crate) fn send(&mut self, outbox: &mut Outbox, socket: &mut impl Write) -> io::Result<usize> {
        let mut total = 0;
        loop {
            if self.session.wants_write() && !self.transmit(socket)? {
                return Ok(total);
            }
            if outbox.bytes() == 0 || !self.is_proved() {
                return Ok(total);
            }
            total += outbox.write_to(&mut Sealer(self))?;
        }
    }

    /// Sends sealed bytes. Returns whether the socket has taken them all.
    fn transmit(&mut self, socket: &mut impl Write) -> io::Result<bool> {
        while self.session.wants_write() {
            match self.session.write_tls(socket) {
                Ok(count) => self.sealed = self.sealed.saturating_sub(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.sealed = 0;
        Ok(true)
    }

    /// Announces to the peer that nothing more comes.
    pub(crate) fn close(&mut self, socket: &mut impl Write) {
        self.session.send_close_notify();
        // A connection that is already gone needs no closing.
        let _ = self.transmit(socket);
    }
}

/// The error that the application gets. At a near end `verifier` has the key that the far end
/// showed.
fn explain(error: Error, verifier: Option<&Verifier>) -> io::Error {
    if let Some(text) = verifier.and_then(Verifier::mismatch) {
        return io::Error::new(ErrorKind::PermissionDenied, text);
    }
    let (kind, text) = match error {
        Error::InvalidMessage(_) if verifier.is_some() => (
            ErrorKind::Unsupported,
            "it answers without TLS: its far end was started without keys (farlane export --allow FINGERPRINT), or this \
             is no far end"
                .to_owned(),
        ),
        Error::NoApplicationProtocol | Error::AlertReceived(AlertDescription::NoApplicationProtocol) => (
            ErrorKind::Unsupported,
            "it speaks TLS, but not farlane/2 over it: this is no far end, or one of another version".to_owned(),
        ),
        error => (ErrorKind::InvalidData, format!("TLS: {error}")),
    };
    io::Error::new(kind, text)
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("key", &self.key()).finish_non_exhaustive()
    }
}

/// Seals written bytes, as long as the socket keeps up.
struct Sealer<'a>(&'a mut Tls);

impl Sealer<'_> {
    fn took(&mut self, count: usize) -> usize {
        self.0.sealed += count + RECORD_BYTES * count.div_ceil(PLAIN_MAX);
        count
    }

    fn is_full(&self) -> bool {
        self.0.sealed >= SEALED_MAX
    }
}

impl Write for Sealer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_full() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = self.0.session.writer().write(bytes)?;
        Ok(self.took(count))
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        if self.is_full() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = self.0.session.writer().write_vectored(slices)?;
        Ok(self.took(count))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
