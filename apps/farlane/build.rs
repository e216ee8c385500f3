//! Names the commit that the program is built from, for `farlane --version`.

use std::env::var;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=FARLANE_COMMIT");
    let version = var("CARGO_PKG_VERSION").unwrap_or_default();
    // Builds of a release's archive name its commit.
    let named = var("FARLANE_COMMIT").ok().filter(|commit| !commit.is_empty());
    let version = match named.or_else(checked_out) {
        Some(commit) => format!("{version} ({commit})"),
        None => version,
    };
    println!("cargo::rustc-env=FARLANE_VERSION={version}");
}

/// The commit that is checked out; none outside of a clone of this repository.
fn checked_out() -> Option<String> {
    let folder = var("CARGO_MANIFEST_DIR").ok()?;
    let top = Path::new(&folder).join("../..").canonicalize().ok()?;
    // A package that another repository holds does not name that repository's commit.
    if Path::new(&git(&top, &["rev-parse", "--show-toplevel"])?).canonicalize().ok()? != top {
        return None;
    }
    for name in ["HEAD", "logs/HEAD"] {
        let path = top.join(git(&top, &["rev-parse", "--git-path", name])?);
        // A path that does not exist would have the program built anew each time.
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    git(&top, &["rev-parse", "--short=8", "HEAD"])
}

/// The line that git prints.
fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().ok()?;
    let line = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !line.is_empty()).then_some(line)
}
