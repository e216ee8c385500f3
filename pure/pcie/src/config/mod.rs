//! Configuration spaces of type 0 (endpoints) and type 1 (bridges): registers with their access
//! rules, capabilities, BARs, resets and error reporting.
//!
//! A [`Builder`] makes a [`ConfigSpace`]. Software accesses it through [`ConfigSpace::read`] and
//! [`ConfigSpace::write`], which keep read-only bits and clear the bits that are cleared by writing
//! ones. The function itself uses [`ConfigSpace::get`] and [`ConfigSpace::set`], which have no
//! access rules.

mod bar;
mod builder;
mod class_code;
mod error;
mod field;
pub mod ids;
mod link_registers;
mod registers;
mod space;
#[cfg(test)]
mod tests;

pub use bar::{Bar, BarIndex, BarKind, Window};

pub(crate) use builder::halves;
pub use builder::{Builder, Identity, Link, PortType, Slot, offset};
pub use class_code::ClassCode;
pub use error::{ErrorMessage, FunctionError, report_error};
pub use field::Field;
pub use link_registers::{aer, express};
pub use registers::{
    CONFIG_SPACE_SIZE, EXTENDED_START, bridge, capability, header, msi, msix, power, serial_number,
};
pub use space::{Access, ConfigSpace, Reset, payload_bytes};
