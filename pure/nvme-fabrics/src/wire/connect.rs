//! Connect: the command, its data, and its response.

use super::bytes::{array, low_u16, put, u16_at};
use super::{HostId, NQN_FIELD_LENGTH, Nqn, QueueId, WireError};

/// Controller ID (CNTLID).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControllerId(pub u16);

impl ControllerId {
    /// The highest identifier that a controller may have; higher values in a Connect request a kind
    /// of controller.
    pub const MAX: Self = Self(0xffef);
}

impl core::fmt::Display for ControllerId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

/// The controller that a host requests in the Connect command of an Admin Queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerChoice {
    /// A new controller (FFFFh): the dynamic controller model.
    Dynamic,
    /// Any free controller (FFFEh): the static controller model.
    AnyStatic,
    /// The controller with this identifier.
    This(ControllerId),
}

impl From<u16> for ControllerChoice {
    fn from(value: u16) -> Self {
        match value {
            0xffff => Self::Dynamic,
            0xfffe => Self::AnyStatic,
            other => Self::This(ControllerId(other)),
        }
    }
}

impl From<ControllerChoice> for u16 {
    fn from(value: ControllerChoice) -> Self {
        match value {
            ControllerChoice::Dynamic => 0xffff,
            ControllerChoice::AnyStatic => 0xfffe,
            ControllerChoice::This(id) => id.0,
        }
    }
}

/// Connect Attributes (CATTR).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectAttributes(pub u8);

impl ConnectAttributes {
    /// Disable SQ Flow Control: the host never overfills a queue, and needs no SQHD.
    pub const DISABLE_FLOW_CONTROL: u8 = 1 << 2;

    /// Whether the host requests queues without flow control (DISABLE_FLOW_CONTROL).
    pub const fn disables_flow_control(self) -> bool {
        self.0 & Self::DISABLE_FLOW_CONTROL != 0
    }
}

/// The Connect command (01h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectCommand {
    /// Record Format (RECFMT) of the data; only 0 is defined.
    pub record_format: u16,
    /// Queue ID (QID).
    pub queue: QueueId,
    /// Submission Queue Size (SQSIZE), 0's based as on the wire: a controller must see 0 in order
    /// to refuse it.
    pub submission_queue_size: u16,
    /// Connect Attributes (CATTR).
    pub attributes: ConnectAttributes,
    /// Keep Alive Timeout (KATO) in milliseconds; 0 for none.
    pub keep_alive_timeout: u32,
}

/// The data of a Connect command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectData {
    /// Host Identifier (HOSTID).
    pub host_id: HostId,
    /// Controller ID (CNTLID).
    pub controller: u16,
    /// NVM Subsystem NVMe Qualified Name (SUBNQN).
    pub subsystem: Nqn,
    /// Host NVMe Qualified Name (HOSTNQN).
    pub host: Nqn,
}

impl ConnectData {
    /// Length of the data in bytes.
    pub const LENGTH: usize = 1024;
    /// Offset of HOSTID in the data.
    pub const HOST_ID: u16 = 0;
    /// Offset of CNTLID in the data.
    pub const CONTROLLER: u16 = 16;
    /// Offset of SUBNQN in the data.
    pub const SUBSYSTEM: u16 = 256;
    /// Offset of HOSTNQN in the data.
    pub const HOST: u16 = 512;

    /// Decodes the data. A host with an empty HOSTNQN is named after its Host Identifier
    /// ([`Nqn::of_host`]). SPDK's tools leave HOSTNQN empty unless they are given a name, and
    /// targets that treat HOSTNQN as mere text accept that.
    ///
    /// # Errors
    /// When the data have another length, or a name is invalid. The error includes the parameter
    /// for Connect Invalid Parameters.
    pub fn parse(bytes: &[u8]) -> Result<Self, (WireError, Parameter)> {
        let Ok(bytes) = <&[u8; Self::LENGTH]>::try_from(bytes) else {
            let (expected, found) = (Self::LENGTH, bytes.len());
            let error = WireError::Length { structure: "the data of Connect", expected, found };
            return Err((error, Parameter::of_data(0)));
        };
        let name = |at: u16, field| {
            let raw = array::<NQN_FIELD_LENGTH>(bytes, usize::from(at));
            Nqn::parse(&raw, field).map_err(|error| (error, Parameter::of_data(at)))
        };
        let host_id = HostId(array(bytes, usize::from(Self::HOST_ID)));
        Ok(Self {
            host_id,
            controller: u16_at(bytes, usize::from(Self::CONTROLLER)),
            subsystem: name(Self::SUBSYSTEM, "SUBNQN")?,
            host: match bytes[usize::from(Self::HOST)] {
                0 => Nqn::of_host(host_id),
                _ => name(Self::HOST, "HOSTNQN")?,
            },
        })
    }

    /// Encodes the data.
    pub fn emit(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        put(&mut bytes, usize::from(Self::HOST_ID), &self.host_id.0);
        put(&mut bytes, usize::from(Self::CONTROLLER), &self.controller.to_le_bytes());
        put(&mut bytes, usize::from(Self::SUBSYSTEM), &self.subsystem.emit());
        put(&mut bytes, usize::from(Self::HOST), &self.host.emit());
        bytes
    }
}

/// A parameter that Connect Invalid Parameters names: Invalid Parameter Offset (IPO) and Invalid
/// Attributes (IATTR).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Whether the offset is in the data rather than in the command.
    pub in_data: bool,
    /// Offset of the parameter in bytes.
    pub offset: u16,
}

impl Parameter {
    /// QID in the command.
    pub const QUEUE: Self = Self::of_command(42);
    /// SQSIZE in the command.
    pub const SUBMISSION_QUEUE_SIZE: Self = Self::of_command(44);
    /// KATO in the command.
    pub const KEEP_ALIVE: Self = Self::of_command(48);
    /// CNTLID in the data.
    pub const CONTROLLER: Self = Self::of_data(ConnectData::CONTROLLER);
    /// HOSTID in the data.
    pub const HOST_ID: Self = Self::of_data(ConnectData::HOST_ID);
    /// SUBNQN in the data.
    pub const SUBSYSTEM: Self = Self::of_data(ConnectData::SUBSYSTEM);
    /// HOSTNQN in the data.
    pub const HOST: Self = Self::of_data(ConnectData::HOST);

    /// A parameter at `offset` in the command.
    pub const fn of_command(offset: u16) -> Self {
        Self { in_data: false, offset }
    }
    /// A parameter at `offset` in the data.
    pub const fn of_data(offset: u16) -> Self {
        Self { in_data: true, offset }
    }

    /// DW0 of a response that names this parameter.
    pub const fn dw0(self) -> u32 {
        self.offset as u32 | (self.in_data as u32) << 16
    }

    /// The parameter that DW0 of a response names.
    pub const fn from_dw0(dw0: u32) -> Self {
        Self { in_data: dw0 >> 16 & 1 != 0, offset: low_u16(dw0) }
    }

    /// Name of the field that begins at this offset, if one does.
    pub const fn name(self) -> Option<&'static str> {
        Some(match (self.in_data, self.offset) {
            (false, 40) => "RECFMT",
            (false, 42) => "QID",
            (false, 44) => "SQSIZE",
            (false, 46) => "CATTR",
            (false, 48) => "KATO",
            (true, Self::HOST_ID_OFFSET) => "HOSTID",
            (true, ConnectData::CONTROLLER) => "CNTLID",
            (true, ConnectData::SUBSYSTEM) => "SUBNQN",
            (true, ConnectData::HOST) => "HOSTNQN",
            _ => return None,
        })
    }

    const HOST_ID_OFFSET: u16 = ConnectData::HOST_ID;
}

impl core::fmt::Display for Parameter {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let place = if self.in_data { "data" } else { "command" };
        match self.name() {
            Some(name) => write!(f, "{name} in the {place}"),
            None => write!(f, "byte {} of the {place}", self.offset),
        }
    }
}

/// The response to a Connect that succeeded, which is in DW0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectResponse {
    /// Controller ID (CNTLID) of the queue's controller.
    pub controller: ControllerId,
    /// Authentication and Security Requirements (AUTHREQ); 0 for none.
    pub authentication: u16,
}

impl ConnectResponse {
    /// AUTHREQ: Authentication Transaction Required (ATR). The host must authenticate next.
    pub const AUTHENTICATE: u16 = 1 << 1;
    /// AUTHREQ: Authentication and Secure Channel Required (ASCR). The host must authenticate next,
    /// and continue over a channel that the authentication keys.
    pub const SECURE_CHANNEL: u16 = 1 << 2;

    /// SQ Head Pointer (SQHD) of a response that agrees to disable flow control.
    pub const WITHOUT_FLOW_CONTROL: u16 = 0xffff;

    /// Encodes the response as DW0.
    pub const fn dw0(self) -> u32 {
        self.controller.0 as u32 | (self.authentication as u32) << 16
    }

    /// Decodes the response from DW0.
    pub const fn from_dw0(dw0: u32) -> Self {
        Self { controller: ControllerId(low_u16(dw0)), authentication: low_u16(dw0 >> 16) }
    }
}
