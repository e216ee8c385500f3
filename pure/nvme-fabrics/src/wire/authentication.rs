//! The commands that carry the messages of an authentication.

/// The fields of Authentication Send (05h) and Authentication Receive (06h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthenticationCommand {
    /// Security Protocol (SECP).
    pub security_protocol: u8,
    /// SP Specific 0 and 1 (SPSP0, SPSP1).
    pub specific: [u8; 2],
    /// Transfer Length (TL) of Authentication Send, Allocation Length (AL) of Authentication
    /// Receive, in bytes.
    pub length: u32,
}

impl AuthenticationCommand {
    /// The Security Protocol (SECP) that SPC-5 assigns to NVM Express.
    pub const NVM_EXPRESS: u8 = 0xe9;

    /// The fields of a command that moves `length` bytes of an NVMe in-band authentication.
    pub const fn in_band(length: u32) -> Self {
        Self { security_protocol: Self::NVM_EXPRESS, specific: [1, 1], length }
    }

    /// Whether the command belongs to an NVMe in-band authentication.
    pub const fn is_in_band(self) -> bool {
        let [low, high] = self.specific;
        self.security_protocol == Self::NVM_EXPRESS && low == 1 && high == 1
    }
}
