//! The driver of the Container Storage Interface (CSI): volumes of a fleet for Kubernetes.
//!
//! The Controller service asks the fleet ([`Fleet`]). The Node service waits for the devices that
//! the fleet's agent of its machine connects, then formats and mounts them ([`Machine`]). Neither
//! keeps anything, so that either may be killed at any time. No data passes through the driver.

mod capability;
mod check;
mod controller;
mod fleet;
mod identity;
mod name;
mod node;
mod parameters;
mod rest;
mod server;

/// The messages and services of CSI, compiled from `proto/csi.proto`.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::restriction,
    reason = "generated from the protocol's own file"
)]
pub mod proto {
    tonic::include_proto!("csi.v1");
}

use tonic::{Code, Response, Status};
use tracing::{info, warn};

pub use self::fleet::{Fleet, FleetError, Item, Progress, Space};
pub use capability::Filesystem;
pub use controller::Controller;
pub use identity::{DRIVER, Identity};
pub use node::{Device, Linux, Machine, MachineError, Mount, Node, NodeSettings, Number, Used};
pub use server::{CsiError, Role, Settings, run, serve};

/// The key of the subsystem's NVMe Qualified Name in what ControllerPublishVolume answers.
const NQN: &str = "csi.farlane.io/nqn";
/// How much of a caller's text is logged.
const SHOWN_MAX: usize = 256;

/// Logs how a call has ended. Requests as a whole are not logged: they may have secrets.
fn logged<T>(call: &str, volume: &str, place: &str, done: Result<T, Status>) -> Result<Response<T>, Status> {
    let short = |text: &str| text.chars().take(SHOWN_MAX).collect::<String>();
    let (volume, place) = (short(volume), short(place));
    match &done {
        Ok(_) => info!(call, ?volume, ?place, "done"),
        Err(error) if matches!(error.code(), Code::Internal | Code::Unavailable | Code::DeadlineExceeded) => {
            warn!(call, ?volume, ?place, code = ?error.code(), reason = error.message(), "failed");
        }
        Err(error) => info!(call, ?volume, ?place, code = ?error.code(), reason = error.message(), "refused"),
    }
    done.map(Response::new)
}
