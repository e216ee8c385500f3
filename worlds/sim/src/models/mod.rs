//! Models of everything but networks, as measured: the PCIe link, the host, the SSD, a network card
//! and a card for RDMA.
//!
//! Each model is arithmetic on physical quantities, in whole nanoseconds and bytes, so that debug
//! and release builds of one scenario give equal results. Each parameter has its source in its doc
//! comment; `docs/link-models.md` lists the formulas. No model knows an engine: nodes ask a model
//! how long something takes.

pub mod hca;
pub mod host;
pub mod nic;
pub mod pcie;
pub mod ssd;
