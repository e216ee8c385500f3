//! How QEMU runs a guest's processors: by the machine's own where a guest really starts so,
//! otherwise interpreted.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::{Guest, Kit};

/// Time limit for a guest to boot on the machine's own processor; a boot takes a second.
const BOOT_MAX: Duration = Duration::from_secs(20);
/// The name of this start of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The device of KVM.
const KVM: &str = "/dev/kvm";

/// How QEMU runs the processors of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acceleration {
    /// By the machine's own processors.
    Kvm,
    /// By an interpreter.
    Interpreter,
}

impl Acceleration {
    /// The argument for QEMU's `-accel`.
    pub(crate) fn argument(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Interpreter => "tcg,thread=multi,tb-size=512",
        }
    }

    /// Finds a working acceleration. On some machines `/dev/kvm` can be opened and a guest still
    /// cannot start, so a small guest is booted, once for each start of the machine; a file beside
    /// the kit keeps the result.
    pub(crate) fn of(kit: &Kit) -> Self {
        let may_open = fs::OpenOptions::new().read(true).write(true).open(KVM).is_ok();
        let Some(boot) = fs::read_to_string(BOOT_ID).ok().filter(|_| may_open) else {
            return Self::Interpreter;
        };
        let kept = kit.place().join("acceleration");
        Self::parse(&fs::read_to_string(&kept).unwrap_or_default(), boot.trim()).unwrap_or_else(|| {
            let found = Self::tried(kit);
            keep(&kept, &format!("{} {}\n", boot.trim(), found.name()));
            found
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Interpreter => "tcg",
        }
    }

    /// The kept result, if it was found since the machine's start `boot`.
    fn parse(kept: &str, boot: &str) -> Option<Self> {
        let (then, name) = kept.trim().split_once(' ')?;
        let all = [Self::Kvm, Self::Interpreter];
        all.into_iter().find(|one| then == boot && one.name() == name)
    }

    /// Boots a guest by KVM to see whether one starts.
    fn tried(kit: &Kit) -> Self {
        let outcome = Guest::builder(kit)
            .map(|builder| builder.boot_limit(BOOT_MAX).limit(BOOT_MAX).accelerated(Self::Kvm).script("true"))
            .and_then(crate::Builder::run);
        match outcome {
            Ok(outcome) if outcome.status == 0 => Self::Kvm,
            Ok(_) | Err(_) => Self::Interpreter,
        }
    }
}

/// Writes `text` to the file at `path` for later starts, whole or not at all: several processes
/// may do so at once. Without the file, each process tries for itself.
fn keep(path: &Path, text: &str) {
    let beside = path.with_extension(std::process::id().to_string());
    if fs::write(&beside, text).and_then(|()| fs::rename(&beside, path)).is_err() {
        let _ = fs::remove_file(&beside);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_holds_until_the_machine_starts_again() {
        assert_eq!(Acceleration::parse("one kvm\n", "one"), Some(Acceleration::Kvm));
        assert_eq!(Acceleration::parse("one tcg\n", "one"), Some(Acceleration::Interpreter));
        for other in ["one kvm\n", "two hvf\n", "two", ""] {
            assert_eq!(Acceleration::parse(other, "two"), None, "{other}");
        }
    }
}
