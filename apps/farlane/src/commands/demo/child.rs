//! Another farlane process: a far end, or the other side of a raw TCP measurement.

use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{self, Command, Stdio};
use std::time::Duration;

use super::way::Way;
use crate::commands::listening::Listening;
use crate::error::Error;

/// The name of a far end's socket for hosts of this machine, in the demo's directory.
const SOCKET: &str = "far";

/// A child process, which is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Child {
    process: process::Child,
    address: SocketAddr,
    /// The child's announcement.
    said: Listening,
}

impl Child {
    /// Starts a far end on processor `cpu`, if there is one. Its first namespace is the file at
    /// `path`, its second is memory. The far end spins for `spin` after it last had something to
    /// do. Beside TCP it is reached by `way`.
    pub(super) fn export(
        path: &Path,
        file_bytes: u64,
        ram_bytes: u64,
        (cpu, spin): (Option<usize>, Duration),
        way: &Way,
    ) -> Result<Self, Error> {
        let mut command = Command::new(super::own_path()?);
        // In an option, commas end a path, and the directory's name may have some: name the file
        // from within the directory.
        let (folder, name) = (path.parent(), path.file_name().unwrap_or_default());
        command
            .current_dir(folder.unwrap_or(Path::new(".")))
            .args(["export", "--json", "--listen", "127.0.0.1:0"])
            .args(["--spin", &humantime::format_duration(spin).to_string()])
            .args(["--namespace", &format!("{},size={file_bytes}", name.display())])
            .args(["--ram", &ram_bytes.to_string()]);
        if let Some(cpu) = cpu {
            command.args(["--cpu", &cpu.to_string()]);
        }
        match way {
            Way::Tcp => {}
            Way::Shm => drop(command.args(["--shm", SOCKET])),
            Way::Udp => drop(command.args(["--udp", "127.0.0.1:0"])),
            // A network that was made for this run has no other users.
            Way::Eth { far, .. } => drop(command.args(["--insecure", "--eth", far])),
        }
        Self::start(command, "the far end")
    }

    /// Starts the other side of raw TCP measurements, on processor `cpu`.
    pub(super) fn floor_server(cpu: usize) -> Result<Self, Error> {
        let mut command = Command::new(super::own_path()?);
        command.args(["floor-server", "--cpu", &cpu.to_string()]);
        Self::start(command, "the floor's server")
    }

    fn start(mut command: Command, what: &'static str) -> Result<Self, Error> {
        let child_error = |error| Error::Child { what, error };
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(child_error)?;
        match Self::read_address(&mut process) {
            Ok((address, said)) => {
                // Drain output that has no reader any more: a full pipe would stop the child.
                if let Some(mut stderr) = process.stderr.take() {
                    std::thread::spawn(move || io::copy(&mut stderr, &mut io::sink()));
                }
                Ok(Self { process, address, said })
            }
            Err(error) => {
                let _ = process.kill();
                let said = process.wait_with_output().map(|output| output.stderr).unwrap_or_default();
                let said = String::from_utf8_lossy(&said).trim().to_owned();
                Err(child_error(if said.is_empty() { error } else { io::Error::other(said) }))
            }
        }
    }

    fn read_address(process: &mut process::Child) -> io::Result<(SocketAddr, Listening)> {
        let Some(stdout) = process.stdout.as_mut() else { return Err(io::ErrorKind::BrokenPipe.into()) };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let wrong = || io::Error::other(format!("it said '{}'", line.trim()));
        let said: Listening = serde_json::from_str(&line).map_err(|_| wrong())?;
        let address = said.listening.parse().map_err(|_| wrong())?;
        Ok((address, said))
    }

    /// The URL of a far end whose first namespace is in `folder`.
    pub(super) fn url(&self, folder: &Path, way: &Way) -> String {
        match way {
            Way::Tcp => format!("tcp://{}", self.address),
            Way::Shm => format!("shm:{}", folder.join(SOCKET).display()),
            Way::Udp => format!("udp://{}", self.said.udp.as_deref().unwrap_or_default()),
            Way::Eth { near, .. } => {
                let station =
                    self.said.eth.as_deref().unwrap_or_default().rsplit('/').next().unwrap_or_default();
                format!("eth:{near}/{station}")
            }
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // The child has nothing left to lose: everything that was acknowledged is where it belongs.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
