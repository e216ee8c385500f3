//! Entry point for fuzzing the endpoint.

use engine::{Buffer, Engine as _, Instant};

use super::{Endpoint, EndpointConfig, MsixLayout, Output};
use crate::config::{Bar, BarIndex, Identity, Link};
use crate::device::Dma;
use crate::wire::Tlp;

/// Passes the TLPs in `bytes`, one after the other, to an endpoint whose device answers reads. A
/// byte that does not begin a TLP raises an interrupt.
pub fn packets(mut bytes: &[u8]) {
    let identity = Identity { vendor: 1, device: 1, ..Identity::default() };
    let msix = MsixLayout { bar: BarIndex::ZERO, vectors: 3, table_offset: 0x800, pending_offset: 0xc00 };
    let mut endpoint = Endpoint::new(&EndpointConfig {
        identity,
        link: Link::default(),
        serial_number: 0,
        bars: [Some(Bar::memory32(4096)), None, Some(Bar::memory64(16)), None, None, None],
        msix: Some(msix),
    });
    while !bytes.is_empty() {
        match Tlp::parse_first(bytes) {
            Ok((tlp, rest)) => {
                endpoint.handle_input(Instant::ZERO, tlp.to_packet());
                bytes = rest;
            }
            Err(_) => {
                endpoint.dma(Instant::ZERO, Dma::Interrupt { vector: u16::from(bytes[0]) });
                bytes = &bytes[1..];
            }
        }
        while let Some(output) = endpoint.poll_output() {
            if let Output::BarRead { token, length, .. } = output {
                endpoint.bar_read_done(token, Some(Buffer::zeroed(length as usize)));
            }
        }
    }
}
