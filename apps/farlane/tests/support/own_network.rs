//! A network that a test shares with a guest only: a tap interface in a network namespace of the
//! test's own.

use std::env;
use std::io::{self, Write};
use std::process::{Command, Stdio};

/// The interface that the guest's card leads to.
pub(crate) const INTERFACE: &str = "tap0";
/// The address of this machine at the interface.
pub(crate) const HERE: &str = "10.9.0.1";
/// The guest's address, and the same with its prefix length.
pub(crate) const GUEST: &str = "10.9.0.2";
pub(crate) const GUEST_WITH_PREFIX: &str = "10.9.0.2/24";

/// Says, in the environment of a test, that it is in its own namespace.
const INSIDE: &str = "FARLANE_TEST_NETWORK";
/// How a namespace is made: with the rights of this process, or with rights in the namespace only.
const WAYS: [&[&str]; 2] = [&["--net"], &["--user", "--map-root-user", "--net"]];
/// Makes the interface, which carries packets of RoCE of every length. The command that follows is
/// run.
const SET_UP: &str = "ip link set lo up && ip tuntap add dev tap0 mode tap && \
    ip addr add 10.9.0.1/24 dev tap0 && ip link set tap0 mtu 4200 up && exec \"$@\"";

/// The path of the test called `$name` in this module, by which the test program finds it.
macro_rules! test_path {
    ($name:literal) => {
        concat!(module_path!(), "::", $name)
    };
}
pub(crate) use test_path;

/// Runs the test at the path `test` again, in a process and a network namespace of its own. Returns
/// false when it has passed there; in that process, returns true. Where no such namespace can be
/// made, says that the test is skipped, and why.
pub(crate) fn is_inside(test: &str) -> bool {
    is_within(test, "a tap interface", SET_UP)
}

/// The same in a network that `set_up` makes, with `what` in it. `set_up` is a script for `sh`, and
/// ends by running its arguments.
pub(crate) fn is_within(test: &str, what: &str, set_up: &str) -> bool {
    if env::var_os(INSIDE).is_some() {
        return true;
    }
    // The runner's names do not have the program's own name at their beginning.
    let (_, name) = test.split_once("::").expect("a test is in a module");
    let within = |way: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(way).args(["sh", "-c", set_up, "sh"]).stdin(Stdio::null());
        command
    };
    let mut refused = String::new();
    for way in WAYS {
        match within(way).arg("true").output() {
            Ok(output) if output.status.success() => {
                let mut again = within(way);
                again.arg(env::current_exe().unwrap()).args(["--exact", name, "--nocapture"]);
                let status = again.env(INSIDE, "1").status().unwrap();
                assert!(status.success(), "{name} in a network namespace of its own: {status}");
                return false;
            }
            Ok(output) => refused = String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => refused = format!("unshare: {error}"),
        }
    }
    // `eprintln` would not do: the test runner hides its output when the test passes.
    let _ = writeln!(io::stderr(), "SKIPPED {name}: no network of its own with {what}: {refused}");
    false
}
