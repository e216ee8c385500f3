//! Names of NVMe over Fabrics that follow from those of a fleet.
//!
//! Owner and host compute them alike, so that neither needs a message for them.

use fleet::object::Mode;
use fleet::{Epoch, Name};
use sha2::{Digest, Sha256};

/// What the names of the fleet's subsystems begin with.
const SUBSYSTEM: &str = "nqn.2026-01.io.farlane:fleet:";
/// What the names of the fleet's hosts begin with.
const HOST: &str = "nqn.2026-01.io.farlane:fleet-host:";
/// The last part of the name of a subsystem that several hosts may have.
const SHARED: &str = "shared";
/// What precedes the digits of a serial number. A serial number has 20 characters at most.
const SERIAL: &str = "FF";

/// The subsystem of a volume, in which a host was let in that has this mode in this epoch.
///
/// Each exclusive host has a subsystem with a name of its own: a path of an earlier host that comes
/// back finds nothing under the name that it knows.
pub fn subsystem_nqn(volume: &Name, mode: Mode, epoch: Epoch) -> String {
    match mode {
        Mode::Exclusive => format!("{SUBSYSTEM}{volume}:E{}-{}", epoch.incarnation, epoch.number),
        Mode::Shared | Mode::Read => format!("{SUBSYSTEM}{volume}:{SHARED}"),
    }
}

/// The volume of a subsystem of the fleet, and the epoch in its name if it has one. `None` for the
/// names of others.
pub fn parse_subsystem(nqn: &str) -> Option<(Name, Option<Epoch>)> {
    let (volume, rest) = nqn.strip_prefix(SUBSYSTEM)?.split_once(':')?;
    let volume = Name::new(volume).ok()?;
    if rest == SHARED {
        return Some((volume, None));
    }
    Some((volume, Some(parse_epoch(rest)?)))
}

/// The text of an epoch in names: no character of it is special in an NQN or a file's name.
pub(crate) fn epoch_text(epoch: Epoch) -> String {
    format!("E{}-{}", epoch.incarnation, epoch.number)
}

/// The epoch whose text in names this is.
pub(crate) fn parse_epoch(text: &str) -> Option<Epoch> {
    let (incarnation, number) = text.strip_prefix('E')?.split_once('-')?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
    Some(Epoch { incarnation: digits(incarnation)?, number: digits(number)? })
}

/// The NVMe Qualified Name of a machine as a host of the fleet's volumes.
pub fn host_nqn(node: &Name) -> String {
    format!("{HOST}{node}")
}

/// The machine whose name as a host this is; `None` for the names of others.
pub fn parse_host(nqn: &str) -> Option<Name> {
    Name::new(nqn.strip_prefix(HOST)?).ok()
}

/// The Host Identifier of a machine: the same as long as the machine has its name, since the
/// kernel's initiator allows one name for each identifier. It has the form of a UUID (RFC 9562,
/// version 8).
pub fn host_identifier(node: &Name) -> [u8; 16] {
    let digest = Sha256::digest(host_nqn(node));
    let mut identifier = [0; 16];
    identifier.copy_from_slice(&digest[..16]);
    identifier[6] = identifier[6] & 0x0f | 0x80;
    identifier[8] = identifier[8] & 0x3f | 0x80;
    identifier
}

/// The serial number of a volume, which stays when the name of its subsystem changes.
pub(crate) fn serial(volume: &Name) -> String {
    let digest = Sha256::digest(volume.as_str().as_bytes());
    digest[..8].iter().fold(SERIAL.to_owned(), |text, byte| format!("{text}{byte:02X}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvme_fabrics::wire::Nqn;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn names_are_read_back() {
        let (volume, epoch) = (name("data-1"), Epoch { incarnation: 3, number: 77 });
        let nqn = subsystem_nqn(&volume, Mode::Exclusive, epoch);
        assert_eq!(nqn, "nqn.2026-01.io.farlane:fleet:data-1:E3-77");
        assert_eq!(parse_subsystem(&nqn), Some((volume.clone(), Some(epoch))));
        let shared = subsystem_nqn(&volume, Mode::Read, epoch);
        assert_eq!(shared, subsystem_nqn(&volume, Mode::Shared, Epoch::default()));
        assert_eq!(parse_subsystem(&shared), Some((volume, None)));
        assert_eq!(parse_host(&host_nqn(&name("h"))), Some(name("h")));
        for other in [
            "nqn.2026-01.io.farlane:disk",
            "nqn.2026-01.io.farlane:fleet:data",
            "nqn.2026-01.io.farlane:fleet:D:E1-1",
            "nqn.2026-01.io.farlane:fleet:d:E1-+1",
            "nqn.2026-01.io.farlane:fleet:d:E1",
        ] {
            assert_eq!(parse_subsystem(other), None, "{other}");
        }
    }

    #[test]
    fn the_longest_names_are_valid() {
        let longest = name(&"x".repeat(63));
        let epoch = Epoch { incarnation: u64::MAX, number: u64::MAX };
        subsystem_nqn(&longest, Mode::Exclusive, epoch).parse::<Nqn>().unwrap();
        host_nqn(&longest).parse::<Nqn>().unwrap();
        assert!(serial(&longest).len() <= 20);
    }

    #[test]
    fn each_machine_has_an_identifier_of_its_own() {
        let [a, b] = ["a", "b"].map(|node| host_identifier(&name(node)));
        assert_ne!(a, b);
        assert_eq!(a, host_identifier(&name("a")));
        assert_eq!((a[6] >> 4, a[8] >> 6), (8, 2));
    }
}
