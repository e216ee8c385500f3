//! The permissions of each host in a target's subsystem, from the command line and from the file.

use std::fs;
use std::process::Command;

use crate::support::{Export, FARLANE, fail, farlane, json, succeed};

const DISK: &str = "nqn.2026-01.io.farlane:disk";
const ONE: &str = "nqn.2014-08.org.example:one";
const TWO: &str = "nqn.2014-08.org.example:two";

/// The operations a second of a short run of `bench`.
fn rate(url: &str) -> f64 {
    let bench = [
        "bench",
        url,
        "--namespace",
        "2",
        "--rw",
        "randread",
        "--iodepth",
        "16",
        "--runtime",
        "2s",
        "--json",
    ];
    json(&bench)["iops"].as_f64().unwrap()
}

fn namespaces(url: &str) -> usize {
    json(&["nvme", "identify", url, "--json"])["namespaces"].as_array().unwrap().len()
}

#[test]
fn hosts_see_and_do_what_the_target_lets_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (config, control) = (file("target.toml"), file("control.sock"));
    let offer = |one: &str| {
        let text = format!(
            "[[port]]\nlisten = \"127.0.0.1:0\"\n[[subsystem]]\nnqn = \"{DISK}\"\nhosts = [\"{TWO}\"]\n\
             [[subsystem.host]]\nnqn = \"{ONE}\"\n{one}\n[[subsystem.namespace]]\nram = \"8MiB\"\n\
             [[subsystem.namespace]]\nram = \"8MiB\"\n"
        );
        fs::write(&config, text).unwrap();
    };
    offer("nsid = [2]\nreadonly = true\niops = 500");
    let mut command = Command::new(&*FARLANE);
    command.args(["target", "--json", "--config", &config, "--control", &control]);
    let target = Export::of(command);
    let url = |host: &str| format!("nvme-tcp://{}/{DISK}?hostnqn={host}", target.address);
    let (one, two) = (url(ONE), url(TWO));
    assert_eq!((namespaces(&one), namespaces(&two)), (1, 2));
    let block = file("block");
    fs::write(&block, [b'w'; 4096]).unwrap();
    let write = |url| ["write", url, "--input", block.as_str(), "--namespace", "2"];
    succeed(&write(&two));
    assert!(fail(&write(&one)).contains("Write Protected"));
    let limited = rate(&one);
    assert!((400.0..600.0).contains(&limited), "{limited}");
    assert!(rate(&two) > 2.0 * limited);

    offer("");
    succeed(&["target", "reload", "--control", &control]);
    assert_eq!(namespaces(&one), 2);
    succeed(&write(&one));
    offer("iops = 0");
    assert!(fail(&["target", "reload", "--control", &control]).contains("expected more than 0"));
}

#[test]
fn hosts_of_the_command_line_have_permits_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(&*FARLANE);
    command.args(["target", "--json", "--listen", "127.0.0.1:0", "--nqn", DISK, "--ram", "8MiB"]);
    command.args(["--host", &format!("{ONE},readonly,bandwidth=10MiB"), "--host", TWO, "--control"]);
    command.arg(folder.path().join("control.sock"));
    let target = Export::of(command);
    let one = format!("nvme-tcp://{}/{DISK}?hostnqn={ONE}", target.address);
    let block = folder.path().join("block");
    fs::write(&block, [b'w'; 4096]).unwrap();
    assert!(fail(&["use", "write", &one, "--input", block.to_str().unwrap()]).contains("Write Protected"));
    assert!(
        fail(&["nvme", "identify", &one.replace(ONE, "nqn.2014-08.org.example:three")])
            .contains("Invalid Host")
    );

    let wrong = farlane(&["target", "--nqn", DISK, "--ram", "1MiB", "--host", &format!("{ONE},fast")]);
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(wrong.status.code() == Some(2) && said.contains("'fast' is not one of"), "{said}");
}
