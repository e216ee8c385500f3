//! Models of what is no network: the PCIe link, the host, the SSD and a network card, as measured.
//!
//! Each is arithmetic on physical quantities, in whole nanoseconds and bytes, so that a debug build and a release
//! build of the same scenario count the same. A parameter carries its source in its doc comment; `docs/link-models.md`
//! has the formulas beside each other. Nothing here knows an engine: nodes ask a model how long something takes.

pub mod host;
pub mod nic;
pub mod pcie;
pub mod ssd;
