//! The configuration of QUIC: limits, times and windows, chosen for requests that wait for answers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use quinn_proto::congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{
    AckFrequencyConfig, ClientConfig, EndpointConfig, HashedConnectionIdGenerator, IdleTimeout, ServerConfig,
    TransportConfig, ValidationTokenConfig, VarInt,
};

use super::PROTOCOL;
use crate::carrier::identity::{self, Identity, Pin, Verifier};
use crate::sys::precedence::Precedence;

/// The most bytes that a peer may send before they are taken. At gigabits a second and tens of
/// milliseconds, this much is in flight at once.
pub(super) const RECEIVE_WINDOW: u32 = 16 << 20;
/// The most bytes that a new peer may send before they are taken, until the peer has proved itself:
/// strangers cost little memory.
const RECEIVE_WINDOW_FIRST: u32 = 256 << 10;
/// The most bytes kept until the peer has acknowledged them.
const SEND_WINDOW: u64 = 16 << 20;
/// The assumed round trip until the first was measured. A lost handshake packet is sent again after
/// three of these.
const INITIAL_ROUND_TRIP: Duration = Duration::from_millis(50);
/// The longest time that an acknowledgement waits for data to travel with. The peer adds this time
/// to its timeout for the last packet of a burst. With the usual 25 ms, a lost answer would cost
/// that much on a local network.
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_millis(1);
/// How many packets may come close together without an immediate acknowledgement; the next one is
/// then acknowledged with them.
const ACKNOWLEDGE_AFTER: u32 = 4;
/// How many packets may come out of order before that is reported at once. A peer takes a packet
/// for lost when three later ones have come.
const REORDERING: u32 = 2;
/// The silence after which a connection has ended. The tunnel's sessions give up earlier (5 s), and
/// ping each second.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(10);
/// The interval that keeps a connection up while it has no session, which would ping.
const KEEP_ALIVE: Duration = Duration::from_secs(3);
/// The most datagrams buffered for connections being accepted. Connections are accepted at once, so
/// there are hardly any.
const INCOMING_MAX: usize = 64;
const INCOMING_BYTES_MAX: u64 = 1 << 20;

/// The congestion controller: how much is sent when the network does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// Cubic, as in Linux's TCP (RFC 9438).
    #[default]
    Cubic,
    /// BBR, which follows the bottleneck's bandwidth and round trip instead of losses. quinn-proto
    /// calls its implementation experimental.
    Bbr,
    /// NewReno, the simplest (RFC 9002).
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

/// The settings of QUIC that can be chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The congestion controller.
    pub congestion: Congestion,
    /// How much sooner than others its packets are carried.
    pub precedence: Precedence,
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

/// The configuration of a far end that is `identity`.
///
/// # Errors
/// When the library does not take the settings.
pub(super) fn server(identity: &Identity, options: Options) -> io::Result<(EndpointConfig, ServerConfig)> {
    let tls = identity::server(identity, PROTOCOL)?;
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

/// The configuration of a near end that is `identity` and connects to the far end named by `pin`.
/// The verifier returns the key that the far end showed.
pub(super) fn client(
    identity: &Identity,
    pin: Pin,
    options: Options,
) -> io::Result<(ClientConfig, Arc<Verifier>)> {
    let (tls, verifier) = identity::client(identity, pin, PROTOCOL)?;
    let tls = QuicClientConfig::try_from(tls).map_err(io::Error::other)?;
    let mut client = ClientConfig::new(Arc::new(tls));
    client.transport_config(Arc::new(transport(options)));
    Ok((client, verifier))
}
