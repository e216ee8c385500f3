//! `farlane export` and `farlane target` as a service manager starts, watches and ends them.

use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::running::signal;
use crate::support::{FARLANE, succeed};

/// A started service, killed when dropped.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A manager's socket in `folder`, which gives up after a minute.
fn manager(folder: &Path) -> UnixDatagram {
    let socket = UnixDatagram::bind(folder.join("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket
}

/// Reads what a service says until it says `words`, and returns that message.
fn wait_for(manager: &UnixDatagram, words: &str) -> String {
    let mut bytes = [0; 4096];
    loop {
        let length = manager.recv(&mut bytes).unwrap_or_else(|error| panic!("{words}: {error}"));
        let said = String::from_utf8_lossy(&bytes[..length]).into_owned();
        if said.lines().any(|line| line.starts_with(words)) {
            return said;
        }
    }
}

fn start(folder: &Path, arguments: &[&str]) -> Service {
    let mut command = Command::new(&*FARLANE);
    command.args(arguments).current_dir(folder).env("NOTIFY_SOCKET", folder.join("notify"));
    command.env("WATCHDOG_USEC", "200000").stdout(Stdio::null()).stderr(Stdio::null());
    Service(command.spawn().unwrap())
}

#[test]
fn a_far_end_says_that_it_is_ready_alive_and_ending() {
    let folder = tempfile::tempdir().unwrap();
    let manager = manager(folder.path());
    let mut service = start(folder.path(), &["export", "--listen", "127.0.0.1:0", "--ram", "1MiB"]);
    wait_for(&manager, "FDSTORE=1");
    let ready = wait_for(&manager, "READY=1");
    assert!(ready.contains("\nSTATUS=1 far end"), "{ready}");
    // An idle loop wakes for this alone.
    for _ in 0..3 {
        wait_for(&manager, "WATCHDOG=1");
    }
    signal(service.0.id(), "TERM");
    wait_for(&manager, "STOPPING=1");
    assert_eq!(service.0.wait().unwrap().code(), Some(0));
}

/// A loop that hangs is what the watchdog is for: a stopped process stands for one.
#[test]
fn a_process_that_hangs_says_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let manager = manager(folder.path());
    let service = start(folder.path(), &["export", "--listen", "127.0.0.1:0", "--ram", "1MiB"]);
    wait_for(&manager, "WATCHDOG=1");
    signal(service.0.id(), "STOP");
    manager.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut said = 0;
    while manager.recv(&mut [0; 4096]).is_ok() {
        said += 1;
        assert!(said < 10, "it goes on");
    }
}

#[test]
fn a_target_logs_that_it_reads_its_file_again() {
    let folder = tempfile::tempdir().unwrap();
    let manager = manager(folder.path());
    let text = |listen: &str| {
        format!("[[port]]\nlisten = \"{listen}\"\n[[subsystem]]\nnqn = \"nqn.2026-01.io.farlane:disk\"\n")
    };
    let file = folder.path().join("target.toml");
    std::fs::write(&file, text("127.0.0.1:0")).unwrap();
    let arguments = ["target", "--config", "target.toml", "--control", "control"];
    let _service = start(folder.path(), &arguments);
    wait_for(&manager, "READY=1");
    std::fs::write(&file, text("127.0.0.2:0")).unwrap();
    let control = folder.path().join("control");
    succeed(&["target", "reload", "--control", control.to_str().unwrap()]);
    let reloading = wait_for(&manager, "RELOADING=1");
    assert!(reloading.contains("\nMONOTONIC_USEC="), "{reloading}");
    // The port that is no longer served is not to be kept.
    let forgotten = wait_for(&manager, "FDSTOREREMOVE=1");
    assert!(forgotten.contains("FDNAME=127.0.0.1_"), "{forgotten}");
    let ready = wait_for(&manager, "READY=1");
    assert!(ready.contains("STATUS=1 subsystem at 1 port"), "{ready}");
}

/// Starts a far end to which a socket is passed as a manager passes it, as descriptor 3.
fn with_socket(listener: &TcpListener, listen: &str) -> Service {
    let mut command = Command::new("sh");
    let script = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\"";
    command.args(["-c", script, &FARLANE, "export", "--ram", "1MiB", "--listen", listen]);
    command.stdin(OwnedFd::from(listener.try_clone().unwrap()));
    Service(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

#[test]
fn a_restart_refuses_no_connection_that_waits_in_the_managers_socket() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let url = format!("tcp://{address}");
    let before = with_socket(&listener, &address);
    // A process that binds the address anew would get the error that it is in use.
    succeed(&["measure", "ping", &url, "--count", "10"]);
    drop(before);
    let waiting = TcpStream::connect(&address).expect("no process serves, and the connection waits");
    drop(waiting);
    let _after = with_socket(&listener, &address);
    succeed(&["measure", "ping", &url, "--count", "10"]);
}
