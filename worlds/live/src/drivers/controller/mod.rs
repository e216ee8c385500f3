//! The NVMe controller that a host uses, wherever it is.

mod subsystem;
mod url;

pub use subsystem::{Fabric, Settings, SubsystemUrl, host_id};
pub use url::{FarUrl, Url};
