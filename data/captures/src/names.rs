//! Names of kinds of commands, for people and machines.

use std::collections::BTreeMap;

use nvme::wire::{AdminOpcode, IoOpcode};
use trace::Kind;

/// Maximum number of distinguished kinds of commands. Further ones count as one.
pub const KINDS_MAX: usize = 64;
/// The name of these.
pub const OTHERS: &str = "other kinds";

/// The entry of this kind of command in `kinds`, by its name. A capture may have many kinds of
/// commands: without room for another entry, the kind shares that of [`OTHERS`].
pub fn of_kind<T: Default>(kinds: &mut BTreeMap<String, T>, kind: Kind) -> &mut T {
    let name = name(kind);
    let has_room = kinds.contains_key(&name) || kinds.len() + 1 < KINDS_MAX;
    kinds.entry(if has_room { name } else { OTHERS.to_owned() }).or_default()
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_kinds_share_an_entry() {
        let mut kinds = BTreeMap::<String, u32>::new();
        for _ in 0..2 {
            for opcode in 0..=u8::MAX {
                for kind in [Kind::Admin(opcode), Kind::Io(opcode), Kind::Fabrics(opcode)] {
                    *of_kind(&mut kinds, kind) += 1;
                }
            }
        }
        assert_eq!(kinds.len(), KINDS_MAX);
        assert_eq!(kinds.values().sum::<u32>(), 2 * 3 * 256);
        assert!(kinds.iter().all(|(name, count)| (name == OTHERS) == (*count > 2)), "{kinds:?}");
    }
}
