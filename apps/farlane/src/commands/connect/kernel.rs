//! The kernel's NVMe/TCP initiator: its controllers are made by a line written to a file, and shown
//! and removed below `/sys/class/nvme`.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nvme_fabrics::authentication::Secret;
use nvme_fabrics::wire::Nqn;

/// The file that controllers are made by.
const FABRICS: &str = "/dev/nvme-fabrics";
/// The controllers.
const CLASS: &str = "/sys/class/nvme";
/// The longest time in milliseconds that the block layer can wait for a request.
const TIMEOUT_MAX: u64 = i32::MAX as u64;
/// How long a namespace may take to appear when its controller is there.
const APPEARS_WITHIN: Duration = Duration::from_secs(30);

/// Loads the initiator if it is not there.
///
/// # Errors
/// When the kernel does not have it, or this process may not use it.
pub(super) fn load() -> io::Result<()> {
    if !Path::new("/sys/module/nvme_tcp").exists() {
        super::load("nvme-tcp");
    }
    fs::OpenOptions::new().read(true).write(true).open(FABRICS).map(|_| ())
}

/// How the kernel is to connect, and how it has.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    /// The subsystem, which no other block device has.
    pub(super) subsystem: Nqn,
    /// The port on loopback; 0 for any.
    pub(super) port: u16,
    /// The secret by which the kernel authenticates; none if it need not.
    pub(super) secret: Option<Secret>,
    /// The host's name and identifier.
    pub(super) host: Nqn,
    pub(super) host_id: String,
}

/// A controller that a process of ours has connected before, with the terms of then.
#[derive(Debug)]
pub(super) struct Known {
    /// The controller's name: `nvme3`.
    pub(super) name: String,
    pub(super) port: u16,
    pub(super) secret: Option<Secret>,
}

/// The controller of the subsystem called `name`, if there is one.
pub(super) fn find(name: &Nqn) -> Option<Known> {
    controllers().find_map(|controller| {
        let folder = Path::new(CLASS).join(&controller);
        let read = |file: &str| fs::read_to_string(folder.join(file)).ok().map(|text| text.trim().to_owned());
        if read("subsysnqn")? != name.as_str() {
            return None;
        }
        let port = port_of(&read("address")?)?;
        Some(Known {
            name: controller,
            port,
            secret: read("dhchap_secret").and_then(|text| text.parse().ok()),
        })
    })
}

/// The port in the address of a controller: `traddr=127.0.0.1,trsvcid=4420`.
fn port_of(address: &str) -> Option<u16> {
    address.split(',').find_map(|part| part.trim().strip_prefix("trsvcid=")?.parse().ok())
}

fn controllers() -> impl Iterator<Item = String> {
    let entries = fs::read_dir(CLASS).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

/// The line that makes a controller.
pub(super) fn line(terms: &Terms, queues: u16, depth: u16, timeout: Option<Duration>) -> String {
    let Terms { subsystem, port, secret, host, host_id } = terms;
    let mut line = format!(
        "transport=tcp,traddr=127.0.0.1,trsvcid={port},nqn={subsystem},hostnqn={host},hostid={host_id},\
         nr_io_queues={queues},queue_size={},reconnect_delay=1,ctrl_loss_tmo=-1",
        // The least and the most that the kernel takes.
        depth.clamp(16, 1024)
    );
    if let Some(time) = timeout {
        line += &format!(",fast_io_fail_tmo={}", time.as_secs().max(1));
    }
    if let Some(secret) = secret {
        line += &format!(",dhchap_secret={}", *secret.emit());
    }
    line
}

/// Makes a controller; returns its name. The kernel waits meanwhile for the target.
pub(super) fn connect(line: &str) -> io::Result<String> {
    let mut file = fs::OpenOptions::new().read(true).write(true).open(FABRICS)?;
    file.write_all(line.as_bytes())?;
    let mut answer = [0; 256];
    let length = file.read(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
    let instance = answer.split(',').find_map(|part| part.trim().strip_prefix("instance="));
    let name = instance.map(|instance| format!("nvme{instance}"));
    let name = name.ok_or_else(|| io::Error::other(format!("it answers '{}'", answer.trim())))?;
    // The kernel shows the secret to every user.
    let secret = Path::new(CLASS).join(&name).join("dhchap_secret");
    if secret.exists() {
        fs::set_permissions(secret, fs::Permissions::from_mode(0o600))?;
    }
    Ok(name)
}

/// Waits for the block device of the controller called `name`, and lets its requests take as long
/// as they take; returns the name of the block device.
pub(super) fn block_device(name: &str, timeout: Option<Duration>) -> io::Result<String> {
    let until = Instant::now() + APPEARS_WITHIN;
    let path = loop {
        if let Some(path) = namespace(name) {
            break path;
        }
        if Instant::now() > until {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{name} has no namespace")));
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    // Otherwise the kernel would give up the connection when a request takes 30 s. The target ends
    // requests in time by itself.
    let most = timeout.map_or(TIMEOUT_MAX, |time| time.as_secs().saturating_add(31).saturating_mul(1_000));
    fs::write(path.join("queue/io_timeout"), most.min(TIMEOUT_MAX).to_string())?;
    let block = head(&path.file_name().unwrap_or_default().to_string_lossy());
    while !Path::new("/sys/class/block").join(&block).exists() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(block)
}

/// Where the kernel shows the namespace of a controller.
fn namespace(name: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(Path::new(CLASS).join(name)).ok()?;
    let mut found = entries.flatten().map(|entry| entry.path());
    found.find(|path| path.join("queue/io_timeout").exists())
}

/// The block device to which a path leads: `nvme3c4n1` is a path to `nvme3n1`.
fn head(path: &str) -> String {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let Some(rest) = path.strip_prefix("nvme") else { return path.to_owned() };
    let (subsystem, rest) = rest.split_at(digits(rest));
    match rest.strip_prefix('c') {
        Some(rest) => format!("nvme{subsystem}{}", &rest[digits(rest)..]),
        None => path.to_owned(),
    }
}

/// Removes a controller with its block device. The kernel waits until its requests have ended.
pub(super) fn delete(name: &str) -> io::Result<()> {
    fs::write(Path::new(CLASS).join(name).join("delete_controller"), "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_names_are_understood() {
        assert_eq!(port_of("traddr=127.0.0.1,trsvcid=4420,src_addr=127.0.0.1"), Some(4420));
        assert_eq!(port_of("traddr=127.0.0.1,trsvcid=x"), None);
        for (path, block) in [("nvme3c4n1", "nvme3n1"), ("nvme3n1", "nvme3n1"), ("nvme12c0n2", "nvme12n2")] {
            assert_eq!(head(path), block);
        }
    }

    #[test]
    fn the_line_says_all_and_the_secret_only_where_there_is_one() {
        let terms = Terms {
            subsystem: "nqn.2026-01.io.farlane:block:1".parse().unwrap(),
            port: 4420,
            secret: None,
            host: "nqn.2014-08.org.nvmexpress:uuid:1".parse().unwrap(),
            host_id: "1".to_owned(),
        };
        let reported = line(&terms, 2, 4, Some(Duration::from_millis(10)));
        for part in ["transport=tcp", "trsvcid=4420", "nr_io_queues=2", "queue_size=16", "fast_io_fail_tmo=1"]
        {
            assert!(reported.split(',').any(|one| one == part), "{part} in {reported}");
        }
        assert!(!reported.contains("dhchap"));
        assert!(!line(&terms, 1, 128, None).contains("fast_io_fail"));
    }
}
