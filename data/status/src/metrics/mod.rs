//! The metrics of a daemon, derived from its status.
//!
//! Every family has its name, help and labels in this folder. A daemon that has a [`Report`] has
//! metrics, and differs from others only in its status. The format OpenMetrics, in which Prometheus
//! reads a [`Page`], is the matter of the crate `daemon`.

mod connect;
mod network;
mod page;
mod process;
mod recorder;
mod storage;
mod target;
mod tunnel;

pub use page::{Distribution, Family, Kind, Labels, Page, Value};
pub use process::Process;

use page::{count, flag, seconds};

use crate::{Report, Status};

/// A status that has metrics.
pub trait Metrics {
    /// Adds the metrics of this status to `page`.
    fn add_to(&self, page: &mut Page);
}

impl Metrics for Report {
    fn add_to(&self, page: &mut Page) {
        match &self.status {
            Status::Export(export) => {
                export.far_ends.iter().for_each(|far_end| tunnel::far_end(page, far_end))
            }
            Status::Target(target) => target::target(page, target),
            Status::Attach(slot) | Status::Device(slot) => tunnel::slot(page, slot),
            Status::Connect(device) => connect::block_device(page, device),
            Status::Record(recorder) | Status::Replay(recorder) => recorder::recorder(page, recorder),
            Status::Emulate(network) => network::emulated(page, network),
            Status::Nic(card) => network::card(page, card),
            Status::Rdma(server) => network::measurements(page, server),
        }
    }
}

/// These labels and another one.
fn with(labels: &Labels, key: &'static str, value: impl Into<String>) -> Labels {
    let mut labels = labels.clone();
    labels.push((key, value.into()));
    labels
}

#[cfg(test)]
mod tests;
