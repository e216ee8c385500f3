//! Names of kinds of commands, as people and machines read them.

use nvme::wire::{AdminOpcode, IoOpcode};
use trace::Kind;

/// The name of a kind of command.
pub fn name(kind: Kind) -> String {
    match kind {
        Kind::Admin(opcode) => format!("admin: {}", AdminOpcode::from(opcode)),
        Kind::Io(opcode) => IoOpcode::from(opcode).to_string(),
        Kind::Fabrics(kind) => format!("fabrics: {}", fabrics_name(kind)),
        Kind::InferredRead => "Read".to_owned(),
        Kind::InferredWrite => "Write".to_owned(),
    }
}

/// The name of a Fabrics Command Type (FCTYPE).
fn fabrics_name(kind: u8) -> String {
    match kind {
        0x00 => "Property Set".to_owned(),
        0x01 => "Connect".to_owned(),
        0x04 => "Property Get".to_owned(),
        0x05 => "Authentication Send".to_owned(),
        0x06 => "Authentication Receive".to_owned(),
        0x08 => "Disconnect".to_owned(),
        other => format!("type {other:#04x}"),
    }
}
