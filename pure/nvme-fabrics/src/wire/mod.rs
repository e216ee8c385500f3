//! The bytes of NVMe over Fabrics: commands, their data, and the discovery log.

mod address;
mod authentication;
pub(crate) mod bytes;
mod command;
mod connect;
mod discovery;
mod error;
mod event;
mod host_id;
mod nqn;
pub mod property;
mod property_access;
mod status;
#[cfg(test)]
mod tests;

pub use address::{
    AddressFamily, RdmaProvider, SERVICE_LENGTH, TRANSPORT_ADDRESS_LENGTH, TransportAddress, TransportType,
};
pub use authentication::AuthenticationCommand;
pub use command::{FABRICS_OPCODE, FabricsCommand, FabricsCommandType};
pub use connect::{
    ConnectAttributes, ConnectCommand, ConnectData, ConnectResponse, ControllerChoice, ControllerId,
    Parameter,
};
pub use discovery::{
    DISCOVERY_LOG_PAGE, DiscoveryEntry, DiscoveryHeader, EntryFlags, PortId, SecureChannel, SecurityType,
    SubsystemType, TransportRequirements,
};
pub use error::WireError;
pub use event::{DISCOVERY_LOG_CHANGED, DISCOVERY_LOG_CHANGED_ENABLE};
pub use host_id::HostId;
pub use nqn::{NQN_FIELD_LENGTH, NQN_LENGTH_MAX, Nqn, NqnError};
pub use nvme::wire::QueueId;
pub use property_access::{PropertyGet, PropertySet, PropertySize};
pub use status::FabricsStatus;
