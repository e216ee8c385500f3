//! A network of a test's own.

use std::io;
use std::process::Command;

/// Gives this thread a network namespace, with the interfaces that these commands of `ip` make in
/// it. Returns false, and says why, where that can't be.
pub(crate) fn enter_network(commands: &[&str]) -> bool {
    // SAFETY: only this thread leaves its network, and none of its descriptors is touched.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        eprintln!("SKIPPED: no network namespace can be made here: {}", io::Error::last_os_error());
        return false;
    }
    for command in commands {
        let done = Command::new("ip").args(command.split(' ')).status();
        if !done.is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: ip {command}: failed");
            return false;
        }
    }
    true
}
