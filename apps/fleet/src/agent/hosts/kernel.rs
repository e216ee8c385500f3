//! Attachments as block devices of the kernel's NVMe/TCP initiator.
//!
//! The kernel keeps the controllers, so that they outlive the agent: it finds them by the name of
//! their subsystem. Controllers of other subsystems are left alone.

use std::fs::{File, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use zeroize::Zeroizing;

use super::super::files;
use super::record::Record;

/// The file by which the kernel connects.
pub(super) const FABRICS: &str = "/dev/nvme-fabrics";
/// The most bytes of an attribute, and of a secret.
const ATTRIBUTE_MAX: u64 = 4096;
/// The seconds between two attempts of the kernel to reach a volume.
const RECONNECT_DELAY: u32 = 1;
/// The seconds after which the kernel notices that a path is silent.
const KEEP_ALIVE: u32 = 5;
/// How long the kernel may take to see that the owner has closed the connections of a volume.
const CLOSES_WITHIN: Duration = Duration::from_secs(1);

/// The kernel's initiator.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    /// `/dev/nvme-fabrics`.
    pub(super) fabrics: PathBuf,
    /// `/sys/class`.
    pub(super) classes: PathBuf,
}

/// A controller of the kernel.
#[derive(Debug)]
struct Controller {
    folder: PathBuf,
    is_live: bool,
    /// Where it is connected to, as the kernel writes it.
    address: String,
}

impl Controller {
    /// Whether the controller is connected to this address.
    fn is_at(&self, place: SocketAddr) -> bool {
        let [address, port] = [format!("traddr={}", place.ip()), format!("trsvcid={}", place.port())];
        let has = |word: &str| self.address.split(',').any(|part| part == word);
        has(&address) && has(&port)
    }
}

impl Default for Kernel {
    fn default() -> Self {
        Self { fabrics: FABRICS.into(), classes: "/sys/class".into() }
    }
}

impl Kernel {
    /// The kernel's controllers of this host for a subsystem.
    fn controllers(&self, record: &Record) -> io::Result<Vec<Controller>> {
        let class = self.classes.join("nvme");
        let mut found = Vec::new();
        for name in files::names(&class)? {
            let folder = class.join(name);
            let is_its = attribute(&folder, "subsysnqn").is_some_and(|nqn| nqn == record.nqn)
                && attribute(&folder, "hostnqn").is_none_or(|nqn| nqn == record.host_nqn);
            if is_its {
                let is_live = attribute(&folder, "state").as_deref() == Some("live");
                let address = attribute(&folder, "address").unwrap_or_default();
                found.push(Controller { folder, is_live, address });
            }
        }
        Ok(found)
    }

    /// The block device of an attachment, and whether it reaches its volume; `None` without a
    /// controller.
    ///
    /// # Errors
    /// The system's, in words.
    pub(super) fn state(&self, record: &Record) -> Result<Option<(Option<PathBuf>, bool)>, String> {
        let controllers = self.controllers(record).map_err(|error| error.to_string())?;
        if controllers.is_empty() {
            return Ok(None);
        }
        let is_live = controllers.iter().any(|controller| controller.is_live);
        Ok(Some((self.device(record, &controllers), is_live)))
    }

    /// The block device: that of the subsystem with multipath, else that of a controller.
    fn device(&self, record: &Record, controllers: &[Controller]) -> Option<PathBuf> {
        let class = self.classes.join("nvme-subsystem");
        let subsystems = files::names(&class).unwrap_or_default();
        let is_its = |folder: &PathBuf| attribute(folder, "subsysnqn").is_some_and(|nqn| nqn == record.nqn);
        let subsystems = subsystems.into_iter().map(|name| class.join(name)).filter(is_its);
        let folders = subsystems.chain(controllers.iter().map(|controller| controller.folder.clone()));
        folders.into_iter().find_map(|folder| {
            let names = files::names(&folder).unwrap_or_default();
            names.into_iter().find(|name| is_namespace(name)).map(|name| Path::new("/dev").join(name))
        })
    }

    /// Connects to each address of the owner to which there is no controller yet.
    ///
    /// # Errors
    /// In words, when none can be reached.
    pub(super) fn connect(&self, record: &Record) -> Result<(), String> {
        if record.tls_key_file.is_some() {
            return Err(
                "the kernel's initiator gets no keys of TLS from this agent: let it use the devices \
                        ublk or user"
                    .to_owned(),
            );
        }
        let known = self.controllers(record).map_err(|error| error.to_string())?;
        let (mut reached, mut failed) = (!known.is_empty(), String::new());
        for address in &record.addresses {
            match self.connect_to(address, record, &known) {
                Ok(()) => reached = true,
                Err(error) => failed = format!("{address}: {error}"),
            }
        }
        if reached { Ok(()) } else { Err(failed) }
    }

    fn connect_to(&self, address: &str, record: &Record, known: &[Controller]) -> io::Result<()> {
        let found = address.to_socket_addrs()?.next();
        let place = found.ok_or_else(|| io::Error::new(ErrorKind::NotFound, "the name has no address"))?;
        if known.iter().any(|controller| controller.is_at(place)) {
            return Ok(());
        }
        let secret = files::read(&record.dhchap_secret_file, ATTRIBUTE_MAX)?.map(Zeroizing::new);
        let secret = secret.ok_or_else(|| io::Error::new(ErrorKind::NotFound, "its secret is gone"))?;
        let secret = std::str::from_utf8(&secret).map_err(io::Error::other)?;
        let words = words(place, record, secret.trim());
        let mut fabrics = File::options().read(true).write(true).open(&self.fabrics)?;
        match fabrics.write_all(words.as_bytes()) {
            // Another process has connected meanwhile.
            Err(error) if error.raw_os_error() == Some(Errno::ALREADY.raw_os_error()) => return Ok(()),
            written => written?,
        }
        let mut answer = Vec::new();
        // One read has the answer.
        (&fabrics).take(ATTRIBUTE_MAX).read_to_end(&mut answer)?;
        for controller in self.controllers(record)? {
            hide(&controller.folder.join("dhchap_secret"));
        }
        Ok(())
    }

    /// Removes the controllers of an attachment. The owner may close their connections meanwhile: a
    /// controller that Linux removes before it has seen that waits a minute for its last commands.
    ///
    /// # Errors
    /// The system's, in words.
    pub(super) fn disconnect(&self, record: &Record) -> Result<(), String> {
        let controllers = || self.controllers(record).map_err(|error| error.to_string());
        let until = Instant::now() + CLOSES_WITHIN;
        while controllers()?.iter().any(|one| one.is_live) && Instant::now() < until {
            std::thread::sleep(CLOSES_WITHIN / 50);
        }
        for controller in controllers()? {
            let path = controller.folder.join("delete_controller");
            match File::options().write(true).open(&path).and_then(|mut file| file.write_all(b"1")) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                written => written.map_err(|error| format!("{}: {error}", path.display()))?,
            }
        }
        Ok(())
    }
}

/// The kernel's words for a connection. Its I/O waits without end while the volume is away.
fn words(place: SocketAddr, record: &Record, secret: &str) -> Zeroizing<String> {
    let (address, port) = (place.ip(), place.port());
    let Record { nqn, host_nqn, host_identifier, .. } = record;
    Zeroizing::new(format!(
        "transport=tcp,traddr={address},trsvcid={port},nqn={nqn},hostnqn={host_nqn},hostid={host_identifier},\
         ctrl_loss_tmo=-1,reconnect_delay={RECONNECT_DELAY},keep_alive_tmo={KEEP_ALIVE},dhchap_secret={secret}"
    ))
}

/// Makes an attribute with a secret readable by root alone, as far as the kernel has it.
fn hide(path: &Path) {
    match std::fs::set_permissions(path, Permissions::from_mode(0o600)) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::warn!("{}: {error}; all users can read the secret", path.display());
        }
        _ => {}
    }
}

/// The text of an attribute in `/sys`, without its newline.
fn attribute(folder: &Path, name: &str) -> Option<String> {
    let bytes = files::read(&folder.join(name), ATTRIBUTE_MAX).ok()??;
    Some(String::from_utf8(bytes).ok()?.trim_end().to_owned())
}

/// Whether this is the name of a namespace's block device, such as `nvme0n1`; not that of a path.
fn is_namespace(name: &str) -> bool {
    let parts = name.strip_prefix("nvme").and_then(|rest| rest.split_once('n'));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    parts.is_some_and(|(controller, namespace)| digits(controller) && digits(namespace))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire;

    const NQN: &str = "nqn.2026-01.io.farlane:fleet:v:E0-5";
    const HOST: &str = "nqn.2026-01.io.farlane:fleet-host:h";

    fn record(secret: PathBuf, port: u16) -> Record {
        let name = |text: &str| wire::Name(text.to_owned());
        Record {
            attachment: name("a"),
            volume: name("v"),
            owner: name("o"),
            epoch: wire::Epoch(fleet::Epoch { incarnation: 0, number: 5 }),
            mode: wire::Mode::Exclusive,
            transport: wire::Transport::NvmeTcp,
            key_file: None,
            way: super::super::Way::Kernel,
            url: String::new(),
            nqn: NQN.to_owned(),
            addresses: vec![format!("127.0.0.1:{port}")],
            host_nqn: HOST.to_owned(),
            host_identifier: "12000000-0000-8000-8000-0000000000ef".to_owned(),
            dhchap_secret_file: secret,
            tls_key_file: None,
            device: None,
        }
    }

    /// A kernel made of files, with a controller of `nqn`.
    fn add(kernel: &Kernel, name: &str, nqn: &str, state: &str) -> PathBuf {
        let folder = kernel.classes.join("nvme").join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let attributes = [
            ("subsysnqn", nqn),
            ("hostnqn", HOST),
            ("state", state),
            ("address", "traddr=127.0.0.1,trsvcid=4420,src_addr=127.0.0.1"),
            ("delete_controller", ""),
        ];
        for (attribute, text) in attributes {
            std::fs::write(folder.join(attribute), format!("{text}\n")).unwrap();
        }
        folder
    }

    #[test]
    fn the_kernels_controllers_are_found_by_their_subsystem() {
        let directory = tempfile::tempdir().unwrap();
        let [fabrics, classes] = ["fabrics", "class"].map(|name| directory.path().join(name));
        let kernel = Kernel { fabrics, classes };
        let secret = directory.path().join("secret");
        std::fs::write(&secret, "DHHC-1:01:secret:\n").unwrap();
        let ours = record(secret, 4420);
        assert_eq!(kernel.state(&ours), Ok(None));

        let other = add(&kernel, "nvme1", "nqn.2014-08.org.example:disk", "live");
        let folder = add(&kernel, "nvme3", NQN, "connecting");
        assert_eq!(kernel.state(&ours), Ok(Some((None, false))));
        std::fs::write(folder.join("state"), "live\n").unwrap();
        std::fs::create_dir(folder.join("nvme3c3n1")).unwrap();
        let subsystem = kernel.classes.join("nvme-subsystem/nvme-subsys3");
        std::fs::create_dir_all(subsystem.join("nvme3n1")).unwrap();
        std::fs::write(subsystem.join("subsysnqn"), NQN).unwrap();
        assert_eq!(kernel.state(&ours), Ok(Some((Some("/dev/nvme3n1".into()), true))));

        kernel.disconnect(&ours).unwrap();
        assert_eq!(std::fs::read(folder.join("delete_controller")).unwrap()[0], b'1');
        assert_eq!(std::fs::read(other.join("delete_controller")).unwrap(), b"\n");
    }

    #[test]
    fn the_kernel_connects_to_addresses_without_a_controller() {
        let directory = tempfile::tempdir().unwrap();
        let [fabrics, classes] = ["fabrics", "class"].map(|name| directory.path().join(name));
        let kernel = Kernel { fabrics: fabrics.clone(), classes };
        let secret = directory.path().join("secret");
        std::fs::write(&secret, "DHHC-1:01:secret:\n").unwrap();
        std::fs::write(&fabrics, "").unwrap();
        add(&kernel, "nvme3", NQN, "live");
        kernel.connect(&record(secret.clone(), 4420)).unwrap();
        assert_eq!(std::fs::read(&fabrics).unwrap(), b"");
        kernel.connect(&record(secret.clone(), 442)).unwrap();
        let written = std::fs::read_to_string(&fabrics).unwrap();
        assert!(written.starts_with("transport=tcp,traddr=127.0.0.1,trsvcid=442,nqn=nqn."), "{written}");
        assert!(written.ends_with(",dhchap_secret=DHHC-1:01:secret:"), "{written}");
        assert!(written.contains(",ctrl_loss_tmo=-1,"), "{written}");
        let encrypted = Record { tls_key_file: Some(secret.clone()), ..record(secret, 442) };
        assert!(kernel.connect(&encrypted).unwrap_err().contains("no keys of TLS"));
    }
}
