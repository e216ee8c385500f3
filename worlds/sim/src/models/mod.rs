//! Models of everything but networks, from measurements: the PCIe link, the host, the SSD, a
//! network card and a card for RDMA.
//!
//! Each model is arithmetic on physical quantities, in whole nanoseconds and bytes, so that debug
//! and release builds of one scenario give equal results. Each parameter has its source in its doc
//! comment; the README lists the formulas. No model uses an engine: nodes ask a model
//! how long an action takes.

pub mod hca;
pub mod host;
pub mod nic;
pub mod pcie;
pub mod ssd;
