//! The package on a Debian that systemd starts, in a guest: installed, started, reloaded, upgraded
//! under load, removed.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::FARLANE;
use guest::{Guest, skip};

/// The script of the guest.
const SCRIPT: &str = include_str!("scripts/systemd.sh");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A script of ours, which must succeed. Its standard output.
fn script(name: &str, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(root().join("scripts").join(name));
    // Packages are made for one boot, so they need not be small.
    command.args(arguments).env("DPKG_DEB_COMPRESSOR_TYPE", "gzip").env("DPKG_DEB_COMPRESSOR_LEVEL", "1");
    let output = command.output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(String::from_utf8(output.stdout).unwrap()) } else { Err(said) }
}

/// Makes a package of this version; its path.
fn package(version: &str, folder: &Path) -> Result<PathBuf, String> {
    let made = script("deb", &[&FARLANE, version])?;
    let to = folder.join(format!("{version}.deb"));
    std::fs::rename(made.trim(), &to).or_else(|_| std::fs::copy(made.trim(), &to).map(drop)).unwrap();
    Ok(to)
}

#[test]
fn a_package_is_installed_reloaded_and_upgraded_under_load_with_no_failed_command() {
    let name = "the package under systemd";
    let Some(kit) = skip::kit_or_skip(name) else { return };
    let image = kit.place().with_file_name("debian-root-3.ext4");
    let folder = tempfile::tempdir().unwrap();
    let made = script("debian-root", &[image.to_str().unwrap()])
        .and_then(|_| Ok([package("0.1.0", folder.path())?, package("0.1.1", folder.path())?]));
    let packages = match made {
        Ok(packages) => packages,
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {why}");
            return;
        }
    };
    let drive = format!("id=root,if=none,format=raw,snapshot=on,file={}", image.display());
    let mut guest = Guest::builder(kit)
        .unwrap()
        .memory_mib(1536)
        .limit(Duration::from_secs(900))
        .boot_limit(Duration::from_secs(180))
        .modules(["ublk_drv", "nvme-tcp"])
        .unwrap()
        .qemu_arguments(["-drive", &drive, "-device", "nvme,drive=root,serial=root"])
        .script(SCRIPT);
    for (package, name) in packages.iter().zip(["one", "two"]) {
        guest.initramfs().file(&format!("debs/{name}.deb"), 0o644, package);
    }
    let outcome = guest.run().unwrap().expect_success();
    for words in [
        "1 subsystem at 1 port",
        "1 far end",
        "connect says: tcp://127.0.0.1:4430 is /dev/ublkb0",
        "stafd and stacd have found the disk, and a namespace that came later",
        "reloaded and saved",
        "upgraded with no failed command",
    ] {
        assert!(outcome.output.contains(words), "{words}: {}", outcome.output);
    }
}
