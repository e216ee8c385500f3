//! `farlane --version` names the commit, wherever the build script can know it.

use std::path::Path;
use std::process::Command;

use crate::support::{FARLANE, succeed};

const PLAIN: &str = env!("CARGO_PKG_VERSION");

#[test]
fn the_version_names_a_commit_of_this_clone() {
    let shown = succeed(&["--version"]);
    let shown = shown.trim().strip_prefix("farlane ").unwrap_or_else(|| panic!("{}: {shown}", &*FARLANE));
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let git = |arguments: &[&str]| Command::new("git").arg("-C").arg(&top).args(arguments).output();
    if !top.join(".git").exists() || !git(&["rev-parse", "HEAD"]).is_ok_and(|it| it.status.success()) {
        assert_eq!(shown, PLAIN, "an archive has no commit");
        return;
    }
    let commit = shown.strip_prefix(PLAIN).and_then(|rest| rest.strip_prefix(" (")?.strip_suffix(')'));
    let commit = commit.unwrap_or_else(|| panic!("no commit: {shown}"));
    assert!(commit.len() >= 8, "{shown}");
    assert!(git(&["cat-file", "-e", &format!("{commit}^{{commit}}")]).unwrap().status.success(), "{shown}");
}

#[test]
fn outside_a_clone_the_version_is_plain_unless_the_commit_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("apps/farlane");
    std::fs::create_dir_all(&package).unwrap();
    let script = folder.path().join("build");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("build.rs");
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let built =
        Command::new(rustc).args(["--edition", "2024", "-o"]).arg(&script).arg(source).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let version = |commit: &str| {
        let mut command = Command::new(&script);
        command.envs([("CARGO_PKG_VERSION", PLAIN), ("FARLANE_COMMIT", commit)]);
        // Folders above this one may be another repository.
        command.env("CARGO_MANIFEST_DIR", &package);
        let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let line = output.lines().find_map(|line| line.strip_prefix("cargo::rustc-env=FARLANE_VERSION="));
        line.unwrap_or_else(|| panic!("{output}")).to_owned()
    };
    assert_eq!(version(""), PLAIN);
    assert_eq!(version("12345678"), format!("{PLAIN} (12345678)"));
    let inside = Command::new("git").args(["init", "--quiet"]).arg(folder.path().join("apps")).output();
    if inside.is_ok_and(|it| it.status.success()) {
        assert_eq!(version(""), PLAIN, "the commit of another repository");
    }
}
