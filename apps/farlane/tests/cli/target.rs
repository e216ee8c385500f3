//! A target in a process of its own, used by our host.

use std::fs;
use std::process::Command;

use crate::support::running::Running;
use crate::support::{Export, FARLANE, farlane, json};

const OFFER: &str = r#"
[[port]]
listen = "127.0.0.1:0"

[[subsystem]]
nqn = "nqn.2026-01.io.farlane:one"
[[subsystem.namespace]]
ram = "32MiB"

[[subsystem]]
nqn = "nqn.2026-01.io.farlane:two"
[[subsystem.namespace]]
ram = "32MiB"
"#;

#[test]
fn two_cores_carry_out_two_subsystems_at_once() {
    let folder =
        std::env::current_exe().unwrap().parent().unwrap().join(format!("cores-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (file, socket) = (folder.join("target.toml"), folder.join("control.sock"));
    fs::write(&file, OFFER).unwrap();
    let mut command = Command::new(&*FARLANE);
    command.args(["target", "--json", "--cores", "2", "--config"]).arg(&file).arg("--control").arg(&socket);
    let mut target = Export::of(command);
    let url = |name: &str| format!("nvme-tcp://{}/nqn.2026-01.io.farlane:{name}", target.address);
    let urls = [url("one"), url("two")];

    let verify = |url: &String| {
        Running::start(&["bench", "--rw", "randwrite", "--verify", "--iodepth", "8", "--runtime", "1s", url])
    };
    for running in urls.each_ref().map(verify) {
        let output = running.output();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    let socket = socket.to_str().unwrap();
    let two = "nqn.2026-01.io.farlane:two";
    let added = farlane(&["target", "add", "--control", socket, "--nqn", two, "--ram", "1MiB"]);
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    let status = json(&["target", "status", "--json", "--control", socket]);
    let counts: Vec<_> = status["subsystems"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["nqn"].as_str().unwrap(), one["namespaces"].as_array().unwrap().len()))
        .collect();
    assert_eq!(counts, [("nqn.2026-01.io.farlane:one", 1), (two, 2)]);

    let (status, said) = target.end_by("TERM");
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("has shut down") && !said.contains("panicked"), "{said}");
    fs::remove_dir_all(folder).unwrap();
}
