//! How QUIC is spoken here: limits, times and windows, chosen for requests that wait for answers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use quinn_proto::congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{
    AckFrequencyConfig, ClientConfig, EndpointConfig, HashedConnectionIdGenerator, IdleTimeout, ServerConfig,
    TransportConfig, ValidationTokenConfig, VarInt,
};
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::version::TLS13;

use super::PROTOCOL;
use super::identity::Identity;
use super::pin::{Pin, Verifier};

/// Bytes that the peer may send before they are taken. Gigabits a second over tens of milliseconds are in flight at once.
pub(super) const RECEIVE_WINDOW: u32 = 16 << 20;
/// The same until so much has been taken that the peer is no stranger: strangers cost little memory.
const RECEIVE_WINDOW_FIRST: u32 = 256 << 10;
/// Bytes that are kept until the peer has acknowledged them.
const SEND_WINDOW: u64 = 16 << 20;
/// What a round trip is taken to last before the first was measured: a handshake packet that is lost is sent again after three
/// of these.
const INITIAL_ROUND_TRIP: Duration = Duration::from_millis(50);
/// For so long an acknowledgement waits for something to travel with. The peer adds it to the time after which it takes
/// the last packet of a burst for lost: 25 ms, as usual elsewhere, would be what a lost answer costs on a local network.
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_millis(1);
/// So many packets more than one are acknowledged together when they come close to each other.
const ACKNOWLEDGE_AFTER: u32 = 4;
/// Packets that came out of order before that is told at once; a peer takes a packet for lost when three later ones have come.
const REORDERING: u32 = 2;
/// Silence after which a connection is no more. The tunnel's sessions lose patience before (5 s), and ping each second.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(10);
/// A connection without a session, which does not ping, stays up.
const KEEP_ALIVE: Duration = Duration::from_secs(3);
/// Datagrams of connections that are being accepted: they are accepted at once, so there are hardly any.
const INCOMING_MAX: usize = 64;
const INCOMING_BYTES_MAX: u64 = 1 << 20;

/// How much is sent when the network does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// What Linux's TCP does (RFC 9438).
    #[default]
    Cubic,
    /// By the bottleneck's bandwidth and round trip rather than by losses; quinn-proto calls its own experimental.
    Bbr,
    /// The simplest (RFC 9002).
    NewReno,
}

impl Congestion {
    fn factory(self) -> Arc<dyn ControllerFactory + Send + Sync> {
        match self {
            Self::Cubic => Arc::new(CubicConfig::default()),
            Self::Bbr => Arc::new(BbrConfig::default()),
            Self::NewReno => Arc::new(NewRenoConfig::default()),
        }
    }
}

/// What can be chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The congestion controller.
    pub congestion: Congestion,
}

fn transport(options: Options) -> TransportConfig {
    let mut acknowledge = AckFrequencyConfig::default();
    acknowledge
        .ack_eliciting_threshold(VarInt::from_u32(ACKNOWLEDGE_AFTER))
        .max_ack_delay(Some(ACKNOWLEDGE_WITHIN))
        .reordering_threshold(VarInt::from_u32(REORDERING));
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .max_idle_timeout(Some(IdleTimeout::try_from(IDLE_MAX).expect("seconds are few")))
        .keep_alive_interval(Some(KEEP_ALIVE))
        .stream_receive_window(VarInt::from_u32(RECEIVE_WINDOW))
        .receive_window(VarInt::from_u32(RECEIVE_WINDOW_FIRST))
        .send_window(SEND_WINDOW)
        .initial_rtt(INITIAL_ROUND_TRIP)
        .ack_frequency_config(Some(acknowledge))
        .congestion_controller_factory(options.congestion.factory());
    transport
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// What a far end speaks, as `identity`.
///
/// # Errors
/// When the key is not the certificate's, or of a kind that nobody signs with.
pub(super) fn server(identity: &Identity, options: Options) -> io::Result<(EndpointConfig, ServerConfig)> {
    let invalid = |error: rustls::Error| io::Error::new(io::ErrorKind::InvalidData, error);
    let mut tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(invalid)?
        .with_no_client_auth()
        .with_single_cert(identity.certificates(), identity.key())
        .map_err(invalid)?;
    tls.alpn_protocols = vec![PROTOCOL.to_vec()];
    tls.send_tls13_tickets = 0;
    tls.max_early_data_size = 0;
    let tls = QuicServerConfig::try_from(tls).map_err(io::Error::other)?;

    let mut tokens = ValidationTokenConfig::default();
    tokens.sent(0);
    let mut server = ServerConfig::with_crypto(Arc::new(tls));
    server
        .transport_config(Arc::new(transport(options)))
        .validation_token_config(tokens)
        .max_incoming(INCOMING_MAX)
        .incoming_buffer_size(INCOMING_BYTES_MAX)
        .incoming_buffer_size_total(INCOMING_BYTES_MAX);

    let mut endpoint = EndpointConfig::new(Arc::new(identity.reset_key()));
    let key = identity.connection_id_key();
    endpoint.cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(key)));
    Ok((endpoint, server))
}

/// What a near end speaks, with the far end that `pin` names; the verifier tells who answered.
pub(super) fn client(pin: Pin, options: Options) -> io::Result<(ClientConfig, Arc<Verifier>)> {
    let provider = provider();
    let verifier = Arc::new(Verifier::new(pin, Arc::clone(&provider)));
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&verifier) as Arc<_>)
        .with_no_client_auth();
    tls.alpn_protocols = vec![PROTOCOL.to_vec()];
    tls.resumption = Resumption::disabled();
    tls.enable_early_data = false;
    let tls = QuicClientConfig::try_from(tls).map_err(io::Error::other)?;
    let mut client = ClientConfig::new(Arc::new(tls));
    client.transport_config(Arc::new(transport(options)));
    Ok((client, verifier))
}
