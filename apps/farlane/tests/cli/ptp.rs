//! The PTP daemon of a machine: its domain is found out, and one that does not answer is named.

use std::os::unix::net::UnixDatagram;
use std::path::Path;

use crate::support::running::Running;
use crate::support::{Export, fail, succeed};

/// Serves the domain `number` with `transport_specific` at `place`, as `ptp4l` does: messages in
/// another domain get no answer.
fn daemon(place: &Path, number: u8, transport_specific: u8) -> String {
    let server = UnixDatagram::bind(place).unwrap();
    std::thread::spawn(move || {
        let mut room = [0; 128];
        while let Ok((length, from)) = server.recv_from(&mut room) {
            if (room[0], room[4]) != (transport_specific << 4 | 0xd, number) {
                continue;
            }
            let mut answer = [room[..length].to_vec(), vec![0; 50]].concat();
            answer[46] = 2;
            answer[51] = 52;
            answer[95] = 1;
            answer[96..104].fill(7);
            let _ = server.send_to(&answer, from.as_pathname().unwrap());
        }
    });
    place.to_str().unwrap().to_owned()
}

#[test]
fn the_domain_of_the_daemon_is_found_out() {
    let folder = tempfile::tempdir().unwrap();
    for (number, transport_specific) in [(0, 0), (24, 1), (20, 0), (99, 1)] {
        let place = daemon(&folder.path().join(format!("{number}")), number, transport_specific);
        let far = Export::start(&["--ram", "1MiB", "--ptp", &place]);
        far.wait_for(&format!("(domain {number}, transportSpecific {transport_specific})"));
        succeed(&["nvme", "identify", &far.url(), "--ptp", &place]);
        let named = format!("{place},domain={number},transport-specific={transport_specific}");
        succeed(&["nvme", "identify", &far.url(), "--ptp", &named]);
        let other = format!("{place},domain={}", number + 1);
        let said = fail(&["nvme", "identify", &far.url(), "--ptp", &other]);
        let expected =
            format!("no answer within 200ms in domain {} with transportSpecific 0 or 1", number + 1);
        assert!(said.contains(&place) && said.contains(&expected), "{said}");
    }
}

#[test]
fn a_daemon_that_does_not_answer_is_an_error_of_each_command() {
    let folder = tempfile::tempdir().unwrap();
    let far = Export::start(&["--ram", "1MiB"]);
    let (url, slot) = (far.url(), folder.path().join("slot"));
    let silent = folder.path().join("silent");
    let _server = UnixDatagram::bind(&silent).unwrap();
    let stopped = folder.path().join("stopped");
    drop(UnixDatagram::bind(&stopped).unwrap());
    for (place, why) in [
        (folder.path().join("none"), "No such file or directory"),
        (stopped, "Connection refused"),
        (silent, "no answer within 200ms in any domain with transportSpecific 0 or 1"),
    ] {
        let place = place.to_str().unwrap();
        for arguments in [
            &["identify", &url] as &[&str],
            &["lspci", &url],
            &["ping", &url, "--count", "1"],
            &["attach", &url, "--vfio-user", slot.to_str().unwrap()],
            &["export", "--listen", "127.0.0.1:0", "--ram", "1MiB"],
        ] {
            let said = fail(&[arguments, &["--ptp", place]].concat());
            let expected = format!("no PTP daemon answers at {place}: {why}");
            assert!(said.contains(&expected) && said.contains("uds_address"), "{arguments:?}: {said}");
        }
    }
}

#[test]
fn options_of_the_tunnel_are_for_far_ends() {
    for (option, value) in [("--ptp", "/run/ptp4l"), ("--second-path", "127.0.0.1:1")] {
        for url in ["nvme-tcp://127.0.0.1:1/nqn.2014-08.org.example:disk", "vfio-user:/nowhere"] {
            let said = fail(&["nvme", "identify", url, option, value]);
            assert!(said.contains(&format!("{option} is for the tunnel to a far end, not for")), "{said}");
        }
    }
    let running = Running::start(&["nvme", "identify", "vfio-user:/nowhere", "--no-crc"]);
    let output = running.output();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
