//! Addresses of one link, whose interface is named: `[fe80::77%near]:4430` (RFC 4007, RFC 6874).

use std::net::{SocketAddr, SocketAddrV6, UdpSocket};
use std::process::Command;
use std::time::Duration;

use live::sys::address::Host;

use crate::support::own_network::{is_within, test_path};
use crate::support::running::{Running, wait_until};
use crate::support::{Export, FARLANE, fail, succeed};

/// A network with a pair of interfaces, of which `near` has two addresses of its link.
const PAIR: &str = "ip link set lo up && ip link add near type veth peer name far && \
    ip link set near up && ip link set far up && ip addr add fe80::77/64 dev near nodad && \
    ip addr add fe80::78/64 dev near nodad && exec \"$@\"";

/// The port of an address.
fn port(address: &str) -> u16 {
    address.parse::<SocketAddr>().unwrap().port()
}

/// Runs `command`, whose first line of JSON names where it listens.
fn listening(arguments: &[&str]) -> Export {
    let mut command = Command::new(&*FARLANE);
    command.args(arguments).arg("--json");
    Export::of(command)
}

#[test]
fn every_address_may_name_its_interface() {
    if !is_within(test_path!("every_address_may_name_its_interface"), "a pair of interfaces", PAIR) {
        return;
    }
    let far = listening(&[
        "export",
        "--listen",
        "[fe80::77%near]:0",
        "--udp",
        "[fe80::77%25near]:0",
        "--insecure",
        "--ram",
        "1MiB",
        "--metrics",
        "[fe80::77%near]:0",
    ]);
    let (tcp, udp) = (port(&far.address), port(far.announcement["udp"].as_str().unwrap()));
    for url in [
        format!("tcp://[fe80::77%near]:{tcp}"),
        format!("tcp://[fe80::77%25near]:{tcp}"),
        format!("udp://[fe80::77%near]:{udp}"),
        format!("udp://[fe80::77%25near]:{udp}"),
    ] {
        assert!(succeed(&["nvme", "identify", &url]).contains(&format!("at {url}")), "{url}");
    }
    let second = format!("[fe80::77%near]:{tcp}");
    succeed(&["nvme", "identify", &format!("tcp://{second}"), "--second-path", &second]);
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link.toml");
    std::fs::write(&link, "[link]\nlatency = \"1us\"\n").unwrap();
    let link = link.to_str().unwrap();
    let between = listening(&[
        "model",
        "emulate",
        "--link",
        link,
        "--connect",
        &second,
        "--listen",
        "[fe80::78%near]:0",
    ]);
    succeed(&["nvme", "identify", &format!("tcp://[fe80::78%near]:{}", port(&between.address))]);
}

#[test]
fn targets_may_name_their_interface() {
    if !is_within(test_path!("targets_may_name_their_interface"), "a pair of interfaces", PAIR) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let nqn = "nqn.2014-08.org.example:disk";
    let file = folder.path().join("target.toml");
    let ports = "insecure = true\n[[port]]\nlisten = \"[fe80::77%near]:4420\"\n\
                 [[port]]\nlisten = \"[fe80::77%near]:4421\"\nrdma = \"roce\"\n";
    let subsystem = "[[subsystem]]\nnqn = \"nqn.2014-08.org.example:disk\"\nports = [\"[fe80::77%25near]:4420\", \
                     \"[fe80::77%near]:4421\"]\n[[subsystem.namespace]]\nram = \"1MiB\"\n";
    std::fs::write(&file, format!("{ports}{subsystem}")).unwrap();
    let _target = listening(&["target", "--config", file.to_str().unwrap()]);
    succeed(&["nvme", "identify", &format!("nvme-tcp://[fe80::77%near]/{nqn}")]);
    succeed(&["nvme", "identify", &format!("nvme-tcp://[fe80::77%25near]:4420/{nqn}")]);
    succeed(&["use", "discover", "nvme-tcp://[fe80::77%near]:4420"]);
    for local in ["fe80::78", "fe80::78%near", "fe80::78%25near"] {
        let settings = format!("provider=roce&host-traddr={local}");
        succeed(&["nvme", "identify", &format!("nvme-rdma://[fe80::77%near]:4421/{nqn}?{settings}")]);
    }
    std::fs::write(&file, format!("{ports}{subsystem}").replace("near", "nope")).unwrap();
    let said = fail(&["target", "--config", file.to_str().unwrap()]);
    assert!(said.contains("no interface 'nope'; its interfaces are: lo, "), "{said}");
}

#[test]
fn a_group_of_one_link_is_joined_there() {
    if !is_within(test_path!("a_group_of_one_link_is_joined_there"), "a pair of interfaces", PAIR) {
        return;
    }
    let Host(SocketAddr::V6(near)) = "fe80::77%near".parse().unwrap() else { panic!() };
    let folder = tempfile::tempdir().unwrap();
    for (index, url) in [
        "udp://[ff02::77%near]:5077",
        "udp://[ff02::77%25near]:5077",
        "udp://[ff02::77%near]:5077?source=fe80::77%near",
        "udp://[ff02::77]:5077?source=fe80::77%near",
    ]
    .into_iter()
    .enumerate()
    {
        let to = folder.path().join(index.to_string());
        let to = to.to_str().unwrap();
        let recorder =
            Running::start(&["record", "--raw", "--json", "--chunk", "16k", "--from", url, "--to", to]);
        wait_until("datagrams are received", || recorder.said().contains("receiving datagrams at"));
        let sender = UdpSocket::bind(near).unwrap();
        let group = SocketAddrV6::new("ff02::77".parse().unwrap(), 5077, 0, near.scope_id());
        for _ in 0..10 {
            sender.send_to(&[7; 100], group).unwrap();
        }
        std::thread::sleep(Duration::from_millis(300));
        recorder.signal("INT");
        let said = String::from_utf8(recorder.output().stdout).unwrap();
        let end: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        assert_eq!(end["bytes_in"], 1_000, "{url}: {said}");
    }
    let said = fail(&["record", "--from", "udp://[ff02::77%near]:5077?iface=far", "--to", "/dev/null"]);
    assert!(said.contains("expected one interface"), "{said}");
}

#[test]
fn an_unknown_interface_is_named() {
    let expected = "this machine has no interface 'nope'; its interfaces are: lo";
    for arguments in [
        &["identify", "tcp://[fe80::1%nope]:4430"] as &[&str],
        &["identify", "udp://[fe80::1%25nope]:4430"],
        &["identify", "nvme-tcp://[fe80::1%nope]/nqn.2014-08.org.example:disk"],
        &[
            "identify",
            "nvme-rdma://[::1]/nqn.2014-08.org.example:disk?provider=roce&host-traddr=fe80::1%nope",
        ],
        &["export", "--listen", "[fe80::1%nope]:4430", "--ram", "1MiB"],
        &["export", "--listen", "[::1]:0", "--udp", "[fe80::1%nope]:4430", "--ram", "1MiB"],
        &["export", "--listen", "[::1]:0", "--quic", "[fe80::1%nope]:4430", "--ram", "1MiB"],
        &["export", "--listen", "[::1]:0", "--metrics", "[fe80::1%nope]:9100", "--ram", "1MiB"],
        &["target", "--listen", "[fe80::1%nope]:4420", "--ram", "1MiB"],
        &["ui", "--listen", "[fe80::1%nope]:8080"],
        &["emulate", "--link", "/dev/null", "--connect", "127.0.0.1:1", "--listen", "[fe80::1%nope]:1"],
        &["record", "--from", "udp://[ff02::1%nope]:5000", "--to", "/dev/null"],
        &["discover", "--mdns", "--interface", "fe80::1%nope"],
        &["nic", "ping", "udp:[fe80::1%nope]:4440"],
    ] {
        let said = fail(arguments);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}
