//! A discovery service is announced on the loopback interface, and found there.

use std::net::UdpSocket;
use std::process::Command;

use serde_json::Value;

use crate::support::running::wait_until;
use crate::support::schema::holds;
use crate::support::{Export, FARLANE, fail, json, succeed};

#[test]
fn a_discovery_service_is_announced_and_found() {
    let folder = tempfile::tempdir().unwrap();
    // A multicast DNS port of our own, which no other process of this machine hears.
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut command = Command::new(&*FARLANE);
    command.args(["target", "--json", "--mdns", "--mdns-port", &port, "--ram", "4MiB"]);
    command.args(["--listen", "127.0.0.1:0", "--nqn", "nqn.2026-01.io.farlane:mdns", "--control"]);
    let mut target = Export::of({
        command.arg(folder.path().join("control"));
        command
    });
    let words = ["discover", "--mdns", "--interface", "127.0.0.1", "--mdns-port", &port, "--search", "2s"];
    let search = || {
        let found = json(&[&words[..], &["--json"]].concat());
        holds("discover-mdns", &found);
        found["controllers"].as_array().unwrap().clone()
    };
    let mut found: Vec<Value> = Vec::new();
    wait_until("the discovery service is found", || {
        found = search();
        !found.is_empty()
    });
    let (host, service) = target.address.rsplit_once(':').unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["nqn"], "nqn.2014-08.org.nvmexpress.discovery");
    assert_eq!(found[0]["trtype"], "tcp");
    assert_eq!(found[0]["trsvcid"], service);
    assert_eq!(found[0]["traddr"], serde_json::json!([host]));
    // The found services answer. A responder may stay silent for a second after it has said the
    // same, so search until it answers.
    let mut text = String::new();
    wait_until("it is found again", || {
        text = succeed(&words);
        text.starts_with("nvme-tcp://")
    });
    let url = text.split_whitespace().next().unwrap();
    assert!(succeed(&["use", "discover", url]).contains("nqn.2026-01.io.farlane:mdns"), "{text}");
    // The target says goodbye when it ends.
    let (status, said) = target.end_by("TERM");
    assert_eq!(status, Some(0), "{said}");
    wait_until("nothing is found", || search().is_empty());
    assert_eq!(succeed(&words), "no discovery controller answers\n");
    let said = fail(&["use", "discover", "--mdns", "nvme-tcp://127.0.0.1:4420"]);
    assert!(said.contains("cannot be used with"), "{said}");
}
