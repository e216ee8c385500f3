//! TLS 1.3 with raw public keys at both ends, for all carriers.

use std::any::Any;
use std::io;
use std::sync::Arc;

use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::aws_lc_rs::{self, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::CertificateDer;
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};
use tunnel::Fingerprint;

use super::key::{Identity, fingerprint_of};
use super::proof::{AnyKey, Pin, Verifier};

/// The cryptography of TLS. The groups are named here, so that hosts and far ends of any version
/// offer the same.
fn provider() -> Arc<CryptoProvider> {
    let kx_groups: Vec<&dyn SupportedKxGroup> =
        vec![kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1];
    Arc::new(CryptoProvider { kx_groups, ..aws_lc_rs::default_provider() })
}

/// The settings of a far end that is `identity` and speaks `protocol` (ALPN). The near end must
/// prove a key. There are no tickets and no 0-RTT: an attacker could replay early data, and a
/// doorbell that is rung twice is another doorbell.
///
/// # Errors
/// When the library does not take the settings.
pub fn server(identity: &Identity, protocol: &[u8]) -> io::Result<ServerConfig> {
    let provider = provider();
    let mut tls = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .with_client_cert_verifier(Arc::new(AnyKey(provider)))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(identity.proof())));
    tls.alpn_protocols = vec![protocol.to_vec()];
    tls.send_tls13_tickets = 0;
    tls.max_early_data_size = 0;
    Ok(tls)
}

/// The settings of a near end that is `identity`, speaks `protocol`, and connects to the far end
/// that `pin` names. The verifier returns the key that the far end showed.
///
/// # Errors
/// When the library does not take the settings.
pub fn client(identity: &Identity, pin: Pin, protocol: &[u8]) -> io::Result<(ClientConfig, Arc<Verifier>)> {
    let provider = provider();
    let verifier = Arc::new(Verifier::new(pin, Arc::clone(&provider)));
    let mut tls = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&verifier) as Arc<_>)
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(identity.proof())));
    tls.alpn_protocols = vec![protocol.to_vec()];
    tls.resumption = Resumption::disabled();
    tls.enable_early_data = false;
    Ok((tls, verifier))
}

/// The key that the peer of a connection has proved.
pub fn proved(keys: &[CertificateDer<'_>]) -> Option<Fingerprint> {
    keys.first().map(|public| fingerprint_of(public))
}

/// The same, from QUIC's record of the peer's identity.
pub(crate) fn proved_over_quic(identity: Option<Box<dyn Any>>) -> Option<Fingerprint> {
    let keys = identity?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    proved(&keys)
}
