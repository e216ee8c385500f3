//! The daemon of `examples/minimal.rs`, from its start to its end.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use live::drivers::control::ask;

/// Cargo builds the examples into a folder beside that of its tests.
fn example() -> PathBuf {
    let test = std::env::current_exe().expect("the system knows the test's path");
    let folder = test.parent().and_then(Path::parent).expect("tests are in a folder of a folder");
    folder.join("examples").join("minimal")
}

#[test]
fn one_file_makes_a_daemon_that_is_confined_asked_and_ended() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("control");
    let mut process = Command::new(example()).arg(&socket).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(process.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("greeting at ").unwrap();

    let mut greeting = String::new();
    TcpStream::connect(address).unwrap().read_to_string(&mut greeting).unwrap();
    assert_eq!(greeting, "hello\n");
    let status = ask(&socket, r#"{"command":"status"}"#).unwrap();
    assert_eq!(status, r#"{"done":{"kind":"greet","greetings":1}}"#);
    let refused = ask(&socket, r#"{"command":"reload"}"#).unwrap();
    assert!(refused.contains("invalid request: unknown variant `reload`"), "{refused}");
    let confined = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    assert!(confined.contains("Seccomp:\t2"), "{confined}");

    let signal = |name: &str| {
        let sent = Command::new("kill").args([name, &process.id().to_string()]).status().unwrap();
        assert!(sent.success());
    };
    // Nothing can be read again, so it goes on.
    signal("-HUP");
    ask(&socket, r#"{"command":"status"}"#).unwrap();
    signal("-TERM");
    line.clear();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "greeted 1 clients\n");
    assert!(process.wait().unwrap().success());
}
