//! The connections between controllers and their peers: agents and users.
//!
//! TLS 1.3 proves the keys of both ends as raw public keys. The application protocol (ALPN)
//! distinguishes agents, which exchange lines of JSON, from users of the REST interface.

mod agents;
mod dial;
mod lines;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use live::carrier::identity::{self, Fingerprint, Identity, Pin};
use rustls::ServerConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, server};

pub use agents::{AgentLink, serve as serve_agent};
pub use dial::{Link, dial};
pub use lines::{LINE_MAX, Lines, LinesError, Message};

/// The application protocol of agents.
const AGENT: &[u8] = b"farlane-agent/1";
/// The application protocol of users.
const REST: &[u8] = b"http/1.1";
/// How long a peer may take to connect and to prove its key.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// The server name that TLS asks for. No peer is trusted because of it.
const NAME: &str = "farlane";

/// What a peer of a controller speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Lines of JSON, as agents do.
    Agent,
    /// HTTP, as users do.
    Rest,
}

/// Where the controllers of a fleet are, and the key that they all prove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controllers {
    /// Their addresses, as `HOST:PORT`.
    pub addresses: Vec<String>,
    /// The key that all controllers of a fleet have in common.
    pub key: Fingerprint,
}

impl fmt::Display for Controllers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.key, self.addresses.join(","))
    }
}

/// A text that names no controllers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" names no controllers: expected SHA256:FINGERPRINT@HOST:PORT[,HOST:PORT...]")]
pub struct ControllersError(String);

impl FromStr for Controllers {
    type Err = ControllersError;

    fn from_str(text: &str) -> Result<Self, ControllersError> {
        let wrong = || ControllersError(text.escape_debug().to_string());
        let (key, addresses) = text.split_once('@').ok_or_else(wrong)?;
        let addresses: Vec<_> = addresses.split(',').map(str::to_owned).collect();
        let has_port = |address: &String| {
            address.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
            })
        };
        if !addresses.iter().all(has_port) {
            return Err(wrong());
        }
        Ok(Self { addresses, key: key.parse().map_err(|_| wrong())? })
    }
}

/// Accepts TLS connections as a controller.
#[derive(Clone)]
pub struct Acceptor(TlsAcceptor);

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Acceptor")
    }
}

impl Acceptor {
    /// Speaks as `identity`.
    ///
    /// # Errors
    /// When the library does not take the key.
    pub fn new(identity: &Identity) -> io::Result<Self> {
        let mut settings: ServerConfig = identity::server(identity, AGENT)?;
        settings.alpn_protocols = vec![AGENT.to_vec(), REST.to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(settings))))
    }

    /// The stream of a peer, its key, and what it speaks.
    ///
    /// # Errors
    /// When the peer proves no key within `HANDSHAKE_MAX`.
    pub async fn accept(
        &self,
        socket: TcpStream,
    ) -> io::Result<(server::TlsStream<TcpStream>, Fingerprint, Protocol)> {
        set_options(&socket)?;
        let stream = tokio::time::timeout(HANDSHAKE_MAX, self.0.accept(socket)).await??;
        let session = stream.get_ref().1;
        let key = session.peer_certificates().and_then(identity::proved);
        let key = key.ok_or_else(|| io::Error::other("the peer has proved no key"))?;
        let protocol = match session.alpn_protocol() {
            Some(AGENT) => Protocol::Agent,
            _ => Protocol::Rest,
        };
        Ok((stream, key, protocol))
    }
}

/// Connects to one controller, which must prove `key`.
///
/// # Errors
/// When it cannot be reached, or proves another key.
pub async fn connect(
    identity: &Identity,
    address: &str,
    key: Fingerprint,
    protocol: Protocol,
) -> io::Result<TlsStream<TcpStream>> {
    let name = match protocol {
        Protocol::Agent => AGENT,
        Protocol::Rest => REST,
    };
    let (settings, verifier) = identity::client(identity, Pin::Key(key), name)?;
    let connector = TlsConnector::from(Arc::new(settings));
    let server = ServerName::try_from(NAME).map_err(io::Error::other)?;
    let attempt = async {
        let socket = TcpStream::connect(address).await?;
        set_options(&socket)?;
        connector.connect(server, socket).await
    };
    match tokio::time::timeout(HANDSHAKE_MAX, attempt).await {
        Ok(result) => result.map_err(|error| verifier.mismatch().map_or(error, io::Error::other)),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

fn set_options(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)
}

/// The address to listen at, when none is given.
pub const DEFAULT_LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 4410);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_a_key_and_addresses() {
        let key = Fingerprint([7; 32]);
        let text = format!("{key}@a.example:4410,192.0.2.1:4411");
        let controllers: Controllers = text.parse().unwrap();
        assert_eq!(controllers.addresses, ["a.example:4410", "192.0.2.1:4411"]);
        assert_eq!(controllers.to_string(), text);
        for wrong in
            ["", "a:1", "SHA256:x@a:1", &format!("{key}@a"), &format!("{key}@:1"), &format!("{key}@a:0")]
        {
            let error = wrong.parse::<Controllers>().unwrap_err().to_string();
            assert!(error.contains("expected SHA256:FINGERPRINT@HOST:PORT"), "{error}");
        }
    }
}
