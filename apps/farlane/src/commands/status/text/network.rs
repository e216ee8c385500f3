//! Emulated networks, network cards, and servers of RDMA measurements: the place of each, and its
//! state.

use ::status::{Emulate, Ends, Nic, Rdma};

/// A network card.
pub(crate) fn nic(of: &Nic) -> [String; 2] {
    let place = format!("vfio-user:{} on {}", of.vfio_user, of.wire);
    [place, format!("{} packets sent, {} received", of.sent, of.received)]
}

/// A server of RDMA measurements.
pub(crate) fn rdma(of: &Rdma) -> [String; 2] {
    let address = of.listening.first().map(String::as_str).unwrap_or_default();
    [format!("{address} ({})", of.provider), format!("{} connections", of.connections)]
}

/// An emulated network.
pub(crate) fn emulate(of: &Emulate) -> [String; 2] {
    let ends = match &of.ends {
        Ends::Relay { listening, connect } => format!("{} to {connect}", listening.join(", ")),
        Ends::Packets { between: [near, far], .. } => format!("{near} and {far}"),
    };
    let passed = format!("{} B there, {} B back", of.there.bytes, of.back.bytes);
    [format!("{ends} through {}", of.network), passed]
}
