//! docs/nvme-cli.md names commands that exist.

use std::path::Path;

use crate::support::farlane;

const PAGE: &str = "../../docs/nvme-cli.md";
/// Commands of nvme-cli that the page must say something about, whether farlane has them or not.
const VERBS: &str = "list list-subsys id-ctrl id-ns list-ns list-ctrl ns-descs id-uuid create-ns delete-ns \
    attach-ns detach-ns get-log telemetry-log fw-log changed-ns-list-log smart-log ana-log error-log \
    effects-log endurance-log persistent-event-log supported-log-pages get-feature set-feature \
    device-self-test self-test-log get-property format fw-commit fw-download admin-passthru io-passthru \
    resv-acquire resv-register resv-release resv-report dsm copy flush compare read write write-zeroes \
    write-uncor verify sanitize sanitize-log reset subsystem-reset show-regs discover connect-all connect \
    disconnect gen-hostnqn show-hostnqn gen-dhchap-key gen-tls-key virt-mgmt lockdown \
    version";

/// The rows of the page's table: nvme-cli's commands, and ours.
fn rows(page: &str) -> Vec<(Vec<String>, Vec<String>)> {
    let code =
        |cell: &str| -> Vec<String> { cell.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    let lines = page.lines().filter(|line| line.starts_with("| `"));
    lines
        .map(|line| line.split('|').collect::<Vec<_>>())
        .map(|cells| (code(cells[1]), code(cells[2])))
        .collect()
}

#[test]
fn each_command_of_the_page_exists() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE)).unwrap();
    let rows = rows(&page);
    let theirs: Vec<_> = rows.iter().flat_map(|(theirs, _)| theirs).map(String::as_str).collect();
    for verb in VERBS.split_whitespace() {
        assert!(theirs.contains(&verb), "{verb} has no row");
    }
    let ours = rows.iter().flat_map(|(_, ours)| ours);
    for command in ours {
        let words: Vec<_> = command.split_whitespace().skip_while(|word| *word == "farlane").collect();
        let output = farlane(&[&words[..], &["--help"]].concat());
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        let help = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(help.contains("Usage: farlane"), "{command}: {help}");
    }
}
