//! `farlane attach --qmp` at sockets that are not what they should be.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;

use crate::support::{fail, unused_url};

/// Serves one client at `path`, which gets `greeting`, and an answer to each line of its own.
fn serve(path: &Path, greeting: &'static str, answer: fn(&str) -> &'static str) {
    let listener = UnixListener::bind(path).unwrap();
    thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        client.write_all(greeting.as_bytes()).unwrap();
        for (id, line) in (1..).zip(BufReader::new(client.try_clone().unwrap()).lines()) {
            let Ok(line) = line else { return };
            let answer = format!("{{\"id\": {id}, {}}}\r\n", answer(&line));
            if client.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
}

/// What `farlane attach` reports where QEMU's monitor should be at `monitor`.
fn attach(folder: &Path, monitor: &Path) -> String {
    let socket = folder.join("ssd");
    let paths = [socket.to_str().unwrap(), monitor.to_str().unwrap()];
    fail(&["attach", &unused_url(), "--vfio-user", paths[0], "--qmp", paths[1], "--port", "dn1"])
}

#[test]
fn a_monitor_that_is_none_is_named_with_the_remedy() {
    const GREETING: &str = "{\"QMP\": {\"version\": {}, \"capabilities\": []}}\r\n";
    const NO_SUCH: &str = "\"error\": {\"class\": \"DeviceNotFound\", \"desc\": \"Device not found\"}";
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let said = attach(folder, &folder.join("none"));
    assert!(said.contains("no QEMU answers") && said.contains("server=on,wait=off"), "{said}");

    serve(&folder.join("ssh"), "SSH-2.0-OpenSSH_9.9\r\n", |_| "");
    let said = attach(folder, &folder.join("ssh"));
    assert!(said.contains("does not speak QMP") && said.contains("SSH-2.0"), "{said}");

    serve(&folder.join("other"), GREETING, |line| {
        if line.contains("qmp_capabilities") { "\"return\": {}" } else { NO_SUCH }
    });
    let said = attach(folder, &folder.join("other"));
    assert!(said.contains("QEMU has no port \"dn1\"") && said.contains("id=dn1"), "{said}");
}
