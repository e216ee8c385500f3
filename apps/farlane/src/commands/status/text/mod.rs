//! The status of a daemon as text for a person.

mod connect;
mod network;
mod recorder;
mod target;
mod tunnel;

use ::status::{Namespace, Status};

pub(crate) use connect::{row as connect_row, text as connect};
pub(crate) use network::{emulate, nic, rdma};

/// The status of a daemon as text for a person.
pub(crate) fn text(status: &Status) -> String {
    match status {
        Status::Export(export) => export.far_ends.iter().map(tunnel::far_end).collect(),
        Status::Target(target) => target::text(target),
        Status::Attach(slot) | Status::Device(slot) => tunnel::slot(slot),
        Status::Connect(device) => connect::text(device),
        Status::Record(recorder) | Status::Replay(recorder) => recorder::text(recorder),
        Status::Nic(card) => {
            let [place, state] = nic(card);
            format!("{place}: {state}\n")
        }
        Status::Rdma(server) => {
            let [place, state] = rdma(server);
            format!("listening at {place}: {state}\n")
        }
        Status::Emulate(network) => {
            let [place, state] = emulate(network);
            format!("{place}\n  {state}\n")
        }
    }
}

/// Writes that found no space, if there were any: `count` of all `namespaces`.
fn space(namespaces: &[Namespace], count: Option<u64>) -> String {
    let full = namespaces.iter().filter(|one| one.space_errors > 0);
    let one = |of: &Namespace| format!("namespace {}: {} writes failed", of.nsid, of.space_errors);
    let named: Vec<_> = full.map(one).collect();
    match count.filter(|count| *count > 0) {
        None => String::new(),
        Some(count) if named.is_empty() => {
            format!("  no space: {count} writes failed, because the medium is full\n")
        }
        Some(_) => format!("  no space: {}, because the medium is full\n", named.join("; ")),
    }
}
