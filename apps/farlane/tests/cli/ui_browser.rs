//! `farlane observe ui` in a real browser: each view is opened, clicked and typed into, in light
//! and dark, at the widths of a desk and a phone. `make ui-test` installs what this needs; without
//! that it is skipped, and says so.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{Export, FARLANE, json, succeed};

/// Where `make ui-test` puts Playwright, and where pictures of the views go.
const PLACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/ui-test");

/// The tools of the test: the library that drives the browser, and the browser.
fn tools() -> Option<(PathBuf, PathBuf)> {
    let place = std::env::var_os("PLAYWRIGHT")
        .map_or_else(|| Path::new(PLACE).join("node_modules/playwright-core"), PathBuf::from);
    let on_path = |name: &str| {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.exists())
    };
    let browser = std::env::var_os("CHROMIUM").map(PathBuf::from).or_else(|| on_path("chromium"));
    let node = on_path("node");
    if !place.exists() || browser.is_none() || node.is_none() {
        eprintln!("SKIPPED: Playwright, Chromium or Node.js is not there; make ui-test installs them");
        return None;
    }
    Some((place.canonicalize().unwrap(), browser?))
}

#[test]
fn each_view_works_in_a_browser() {
    let Some((playwright, browser)) = tools() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let mut command = Command::new(&*FARLANE);
    command.args(["export", "--listen", "127.0.0.1:0", "--ram", "64MiB", "--json"]);
    let far = Export::of({
        command.env("XDG_RUNTIME_DIR", folder.path());
        command
    });
    // Steps of two captures differ by more than chance: one has four times as much data.
    for (name, size) in [("mixed.pcapng", "4k"), ("large.pcapng", "16k")] {
        // More than a thousand reads have a share of 0.01 % at the end of an axis.
        let load =
            ["--rw", "randrw", "--iodepth", "8", "--runtime", "2s", "--rate_iops", "2000", "--bs", size];
        succeed(&[&["bench", &far.url(), "--capture", &path(name)][..], &load].concat());
    }
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/tcp-1g.toml");
    json(&["model", "sim", scenario, "--capture", &path("simulated.pcapng"), "--json"]);
    let mut command = Command::new(&*FARLANE);
    command.args(["observe", "ui", "--json"]).stdin(Stdio::null()).env("XDG_RUNTIME_DIR", folder.path());
    command.args(["mixed.pcapng", "large.pcapng", "simulated.pcapng"].map(path));
    let page = Export::of(command);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/ui/tests/browser.mjs");
    let pictures = Path::new(PLACE).join("pictures");
    let output = Command::new("node")
        .args([script, page.announcement["url"].as_str().unwrap(), pictures.to_str().unwrap()])
        .env("PLAYWRIGHT", playwright)
        .env("CHROMIUM", browser)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.trim_end().lines().next_back().is_some_and(|line| line.starts_with("passed")), "{said}");
    assert_eq!(page.said(), "", "the program has met no fault");
}
