//! The bytes of the protocol: headers, payloads and the capabilities of a version. All numbers are
//! little-endian, as on every system that speaks this protocol so far.

mod access;
mod device;
mod fields;
mod header;
mod interrupt;
mod json;
mod memory;
mod region;
#[cfg(test)]
mod tests;
mod version;

pub use access::{DmaAccess, RegionAccess, SingleWrite, WriteMultiple};
pub use device::DeviceInfo;
pub use fields::ParseError;
pub use header::{Command, HEADER_LENGTH, Header, HeaderError, Kind};
pub use interrupt::{InterruptInfo, SetInterrupts};
pub use json::JsonError;
pub use memory::{DmaMap, DmaUnmap};
pub use region::{RegionInfo, RegionIoDescriptors};
pub use version::{Capabilities, Version, VersionError};
