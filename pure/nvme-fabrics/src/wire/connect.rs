//! Connect: the command, its data, its response.

use super::bytes::{array, low_u16, put, u16_at};
use super::{HostId, NQN_FIELD_LENGTH, Nqn, WireError};

/// Queue ID (QID); 0 is the Admin Queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u16);

impl QueueId {
    /// The Admin Queue.
    pub const ADMIN: Self = Self(0);

    /// Whether this is the Admin Queue.
    pub const fn is_admin(self) -> bool {
        self.0 == 0
    }
}

impl core::fmt::Display for QueueId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

/// Controller ID (CNTLID).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControllerId(pub u16);

impl ControllerId {
    /// The highest identifier that a controller may have; those above ask for one.
    pub const MAX: Self = Self(0xffef);
}

impl core::fmt::Display for ControllerId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

/// Which controller a host asks for with the Connect command of an Admin Queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerChoice {
    /// A new one (FFFFh): the dynamic controller model.
    Dynamic,
    /// Any that is free (FFFEh): the static controller model.
    AnyStatic,
    /// This one.
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
    /// Disable SQ Flow Control: the host never fills a queue without it, and wants no SQHD.
    pub const DISABLE_FLOW_CONTROL: u8 = 1 << 2;

    /// Whether the host asks for queues without flow control (DISABLE_FLOW_CONTROL).
    pub const fn disables_flow_control(self) -> bool {
        self.0 & Self::DISABLE_FLOW_CONTROL != 0
    }
}

/// Connect (01h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectCommand {
    /// Record Format (RECFMT) of the data; 0 is the one that there is.
    pub record_format: u16,
    /// Queue ID (QID).
    pub queue: QueueId,
    /// Submission Queue Size (SQSIZE), 0's based as on the wire, since 0 is what a controller must refuse.
    pub submission_queue_size: u16,
    /// Connect Attributes (CATTR).
    pub attributes: ConnectAttributes,
    /// Keep Alive Timeout (KATO) in milliseconds; 0 for none.
    pub keep_alive_timeout: u32,
}

/// The data of Connect.
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
    /// Bytes of the data.
    pub const LENGTH: usize = 1024;
    /// Where HOSTID is.
    pub const HOST_ID: u16 = 0;
    /// Where CNTLID is.
    pub const CONTROLLER: u16 = 16;
    /// Where SUBNQN is.
    pub const SUBSYSTEM: u16 = 256;
    /// Where HOSTNQN is.
    pub const HOST: u16 = 512;

    /// Decodes the data. A host that leaves HOSTNQN empty, as SPDK's tools do unless they are given one, goes by its Host
    /// Identifier ([`Nqn::of_host`]); targets that look at HOSTNQN as mere text have taught hosts that this will do.
    ///
    /// # Errors
    /// When it has another length, or a name is none; with the parameter that Connect Invalid Parameters points at.
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

/// What Connect Invalid Parameters points at: Invalid Parameter Offset (IPO) and Invalid Attributes (IATTR).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Whether the offset is in the data rather than in the command.
    pub in_data: bool,
    /// Bytes from the start.
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

    /// A parameter in the command.
    pub const fn of_command(offset: u16) -> Self {
        Self { in_data: false, offset }
    }
    /// A parameter in the data.
    pub const fn of_data(offset: u16) -> Self {
        Self { in_data: true, offset }
    }

    /// DW0 of the response.
    pub const fn dw0(self) -> u32 {
        self.offset as u32 | (self.in_data as u32) << 16
    }

    /// What DW0 of the response points at.
    pub const fn from_dw0(dw0: u32) -> Self {
        Self { in_data: dw0 >> 16 & 1 != 0, offset: low_u16(dw0) }
    }

    /// The field's name, if one begins there.
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

/// DW0 of the response of a Connect that succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectResponse {
    /// Controller ID (CNTLID): the controller that the queue is of.
    pub controller: ControllerId,
    /// Authentication and Security Requirements (AUTHREQ); 0 when none is asked for.
    pub authentication: u16,
}

impl ConnectResponse {
    /// SQ Head Pointer (SQHD) of the response that agrees to do without flow control.
    pub const WITHOUT_FLOW_CONTROL: u16 = 0xffff;

    /// DW0.
    pub const fn dw0(self) -> u32 {
        self.controller.0 as u32 | (self.authentication as u32) << 16
    }

    /// What DW0 says.
    pub const fn from_dw0(dw0: u32) -> Self {
        Self { controller: ControllerId(low_u16(dw0)), authentication: low_u16(dw0 >> 16) }
    }
}
