//! The exit statuses of docs/operate.md that a user can bring about are reached.

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::support::running::signal;
use crate::support::{Export, FARLANE, farlane};

const PAGE: &str = include_str!("../../../../docs/operate.md");

#[test]
fn each_status_of_the_page_is_reached() {
    let status = |arguments: &[&str]| farlane(arguments).status.code().unwrap();
    let mut reached = vec![status(&["--version"])];
    // No process listens on port 1.
    reached.push(status(&["measure", "ping", "tcp://127.0.0.1:1", "--timeout", "200ms"]));
    reached.push(status(&["measure", "ping", "nowhere"]));
    reached.push(interrupted());
    assert_eq!(reached, [0, 1, 2, 130]);
    let listed: Vec<i32> =
        PAGE.lines().filter_map(|line| line.strip_prefix("| ")?.split(' ').next()?.parse().ok()).collect();
    assert_eq!(
        listed,
        [0, 1, 2, 101, 130, 143],
        "the page lists those, and what takes a fault or impatience"
    );
    // The manual pages are made of the table in the code.
    let page = String::from_utf8(farlane(&["setup", "man"]).stdout).unwrap();
    let endings = page.split(".SH \"EXIT STATUS\"").nth(1).unwrap();
    for one in listed {
        assert!(endings.contains(&format!("\\fB{one}\\fR")), "{one}: {endings}");
    }
}

/// The status of a command that is interrupted at its work.
fn interrupted() -> i32 {
    let far = Export::start(&["--ram", "1MiB"]);
    let mut command = Command::new(&*FARLANE);
    command.args(["bench", &far.url(), "--runtime", "60s"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    far.wait_for("link up");
    sleep(Duration::from_secs(1));
    signal(child.id(), "INT");
    child.wait().unwrap().code().unwrap()
}
