//! The sockets of `farlane offer device` and `farlane attach`, without a guest.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use crate::support::running::wait_until;
use crate::support::{Export, FARLANE, fail, farlane, unused_url};

/// A version message without JSON, as SPDK's client sends it: header, major 0, minor 1.
const VERSION: [u8; 20] = [1, 0, 1, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];

fn device(socket: &Path) -> Export {
    let mut command = Command::new(&*FARLANE);
    command.args(["offer", "device", "--json", "--ram", "1MiB", "--vfio-user"]).arg(socket);
    Export::of(command)
}

fn connect(socket: &Path) -> UnixStream {
    let stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Connects a client that has exchanged versions with the server.
fn greet(socket: &Path) -> UnixStream {
    let mut stream = connect(socket);
    stream.write_all(&VERSION).unwrap();
    let mut header = [0; 16];
    stream.read_exact(&mut header).unwrap();
    assert_eq!((header[2], header[8]), (1, 1), "a reply to a version");
    stream
}

#[test]
fn a_socket_is_made_used_and_removed() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("ssd");
    let mut device = device(&socket);
    assert_eq!(device.address, socket.to_str().unwrap());
    // One client after the other is served. A second one at the same time is turned away.
    for _ in 0..3 {
        let first = greet(&socket);
        let mut second = connect(&socket);
        // The second client is heard first: QEMU aborts if its connection ends before it has said
        // anything.
        second.set_nonblocking(true).unwrap();
        sleep(Duration::from_millis(50));
        assert_eq!(second.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::WouldBlock);
        second.set_nonblocking(false).unwrap();
        second.write_all(&VERSION).unwrap();
        assert_eq!(second.read(&mut [0; 1]).unwrap(), 0);
        drop(first);
    }
    device.wait_for("was turned away");
    // A second client is turned away, too, if it says nothing.
    let first = greet(&socket);
    assert_eq!(connect(&socket).read(&mut [0; 1]).unwrap(), 0);
    drop(first);
    // A client that talks nonsense is closed, with the reason in the log.
    let mut stranger = connect(&socket);
    stranger.write_all(&[0xff; 64]).unwrap();
    // The read gives the end of the connection, or an error if the device had not read everything.
    let _ = stranger.read_to_end(&mut Vec::new());
    device.wait_for("the client was closed: ");
    greet(&socket);
    let (status, said) = device.end_by("TERM");
    assert_eq!(status, Some(0), "{said}");
    assert!(!socket.exists());
}

#[test]
fn a_client_that_is_connected_does_not_keep_the_end_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("ssd");
    let mut device = device(&socket);
    let mut client = greet(&socket);
    let (status, said) = device.end_by("INT");
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("the device has shut down"), "{said}");
    client.read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn a_name_that_can_not_be_had_is_reported_with_the_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let taken = path("taken");
    let _listener = UnixListener::bind(&taken).unwrap();
    let file = path("file");
    std::fs::write(&file, "no socket").unwrap();
    let long = path(&"x".repeat(120));
    for (socket, words) in [
        (&taken, "another process listens there already"),
        (&file, "it is no socket"),
        (&path("missing/ssd"), "there is no directory"),
        (&long, "a socket's at most 107"),
    ] {
        let said = fail(&["offer", "device", "--ram", "1MiB", "--vfio-user", socket]).replace('│', " ");
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(words) && said.contains("can't listen at"), "{said}");
        let output = farlane(&["attach", &unused_url(), "--vfio-user", socket]);
        // A socket that another process has is no wrong usage.
        let code = if socket == &taken { 1 } else { 2 };
        assert_eq!(output.status.code(), Some(code), "{socket}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"no socket");
    // A socket that a killed process left behind is replaced.
    let stale = directory.path().join("stale");
    let mut killed = device(&stale);
    killed.kill();
    assert!(stale.exists());
    let device = device(&stale);
    greet(&stale);
    drop(device);
}

#[test]
fn a_monitor_that_comes_before_the_far_end_waits_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("ssd");
    // A port that is still free when its far end starts.
    let address = unused_url().replace("tcp://", "");
    let mut command = Command::new(&*FARLANE);
    command.args(["attach", &format!("tcp://{address}"), "--json", "--vfio-user"]).arg(&socket);
    let mut near = Export::of(command);
    near.wait_for("no far end answers");
    let mut early = connect(&socket);
    early.write_all(&VERSION).unwrap();
    let far = Export::at(&address, &["--ram", "1MiB", "--hold", "1s"]);
    let mut header = [0; 16];
    early.read_exact(&mut header).unwrap();
    near.wait_for("offering function");
    drop(early);
    near.wait_for("the client has gone");
    // A near end that is killed leaves the far end as it was.
    near.kill();
    wait_until("the far end serves another", || farlane(&["observe", "lspci", &far.url()]).status.success());
}
