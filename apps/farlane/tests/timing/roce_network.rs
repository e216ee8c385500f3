//! RoCE over a network of the test's own: IPv6, and an address that is taken away and comes back.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{Export, FARLANE, own_network, succeed};

const NQN: &str = "nqn.2026-01.io.farlane:network";
/// The host's address.
const HOST: &str = "10.9.0.3";

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "ip {arguments}");
}

fn target(at: &str, directory: &tempfile::TempDir) -> Export {
    let mut command = Command::new(&*FARLANE);
    command.args(["target", "--json", "--insecure", "--nqn", NQN, "--ram", "64MiB", "--rdma"]);
    command.arg(format!("roce,{at}")).arg("--control").arg(directory.path().join("control"));
    Export::of(command)
}

#[test]
fn ipv6_carries_roce() {
    if !own_network::is_inside(own_network::test_path!("ipv6_carries_roce")) {
        return;
    }
    ip("addr add fd09::1/64 dev lo nodad");
    ip("addr add fd09::3/64 dev lo nodad");
    let directory = tempfile::tempdir().unwrap();
    let _target = target("[fd09::1]:4420", &directory);
    let at = "nvme-rdma://[fd09::1]:4420";
    let query = "provider=roce&host-traddr=fd09::3";
    let found = succeed(&["use", "discover", &format!("{at}?{query}")]);
    assert!(found.contains("fd09::1") && found.contains(NQN), "{found}");
    let url = format!("{at}/{NQN}?queues=2&{query}");
    assert!(succeed(&["nvme", "identify", &url]).contains(NQN));
    let job = ["--rw", "randrw", "--bs", "16k", "--iodepth", "16", "--runtime", "300ms", "--verify"];
    succeed(&[&["bench", &url][..], &job[..]].concat());

    let mut command = Command::new(&*FARLANE);
    command.args(["measure", "rdma", "serve", "--json", "--provider", "roce", "--listen", "[fd09::5]:18515"]);
    ip("addr add fd09::5/64 dev lo nodad");
    let _server = Export::of(command);
    for verb in ["send", "write", "read"] {
        let local = ["--provider", "roce", "--local", "fd09::3", "--iters", "100"];
        succeed(&[&["measure", "rdma", "ping", "[fd09::5]:18515", "--verb", verb][..], &local[..]].concat());
    }
}

#[test]
fn an_address_that_comes_back_is_used_again() {
    if !own_network::is_inside(own_network::test_path!("an_address_that_comes_back_is_used_again")) {
        return;
    }
    ip(&format!("addr add {HOST}/24 dev lo"));
    let directory = tempfile::tempdir().unwrap();
    let _target = target(&format!("{}:4420", own_network::HERE), &directory);
    let url = format!("nvme-rdma://{}:4420/{NQN}?provider=roce&host-traddr={HOST}", own_network::HERE);
    let mut bench = Command::new(&*FARLANE);
    bench.args([
        "bench",
        &format!("{url}&ctrl-loss-tmo=60"),
        "--rw",
        "randrw",
        "--bs",
        "4k",
        "--iodepth",
        "16",
    ]);
    bench.args(["--runtime", "6s", "--verify"]);
    let bench = bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    ip(&format!("addr del {}/24 dev tap0", own_network::HERE));
    std::thread::sleep(Duration::from_secs(2));
    ip(&format!("addr add {}/24 dev tap0", own_network::HERE));
    let output = bench.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("no errors"), "{said}{errors}");
    succeed(&["nvme", "identify", &url]);
}
