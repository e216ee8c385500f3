//! Starts the guest that a builder describes: QEMU's arguments, its sockets, and the threads
//! that read.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::acceleration::Acceleration;
use crate::builder::{Builder, Firmware, Network};
use crate::cpio::Archive;
use crate::device::topology;
use crate::process::{self, Process};
use crate::running::{Parts, Running, Streams, ended};
use crate::{Error, stream};

/// The kernel's parameters for every boot: no waiting, nothing expensive for an interpreted
/// processor, a panic that ends QEMU instead of hanging, and registers that nvme-cli may read
/// beside the driver (`show-regs`, `effects-log`). [`clock`] adds to them.
const COMMAND_LINE: &str = "console=ttyS0 panic=-1 quiet init_on_alloc=0 mitigations=off nokaslr \
    cryptomgr.notests apparmor=0 iomem=relaxed";
/// Words that make Linux use the IOMMU.
const IOMMU_COMMAND_LINE: &str = " intel_iommu=on";
/// The files of EDK2's firmware: its code, and the variables with which it starts.
const CODE: &str = "OVMF_CODE_4M.fd";
const VARIABLES: &str = "OVMF_VARS_4M.fd";
/// How long QEMU may take to open its sockets.
const CONNECTING: Duration = Duration::from_secs(30);

impl Builder {
    /// Starts QEMU, with this process's terminal or with pipes as its console, and waits for the
    /// init script.
    pub(crate) fn launch(self, terminal: bool) -> Result<Running, Error> {
        let directory =
            TempDir::with_prefix("farlane-guest-").map_err(Error::io("making a temporary directory"))?;
        let initrd = self.initrd(directory.path())?;
        if self.firmware == Firmware::Edk2 {
            let (from, to) = (self.kit.edk2(VARIABLES), directory.path().join(VARIABLES));
            fs::copy(&from, to).map_err(Error::at("copying", &from))?;
        }
        let sockets = ["output", "control", "monitor"].map(|name| Listener::new(directory.path(), name));
        let [output, control, monitor] = sockets;
        let (output, control, monitor) = (output?, control?, monitor?);
        let mut command = gentle(&self.kit.qemu());
        self.machine(&mut command, &initrd);
        if self.firmware == Firmware::Edk2 {
            let flash = |unit: u32, file: &Path, more: &str| {
                format!("if=pflash,format=raw,unit={unit},file={}{more}", file.display())
            };
            let variables = directory.path().join(VARIABLES);
            command.args(["-drive", &flash(0, &self.kit.edk2(CODE), ",readonly=on")]);
            command.args(["-drive", &flash(1, &variables, "")]);
        }
        let console =
            if terminal { "stdio,id=console,mux=on,signal=off" } else { "stdio,id=console,signal=off" };
        command.args(["-chardev", console]);
        if self.disk_boots {
            // The console shows the firmware's own log, because the firmware has no console and no
            // kernel follows.
            command.args(["-device", "isa-debugcon,iobase=0x402,chardev=console", "-serial", "null"]);
        } else {
            command.args(["-serial", "chardev:console"]);
        }
        if terminal {
            command.args(["-object", "monitor-hmp,id=typed,chardev=console"]).stderr(Stdio::piped());
        } else {
            process::captured(&mut command);
        }
        for listener in [&output, &control, &monitor] {
            command.arg("-chardev").arg(listener.argument());
        }
        command.args(["-serial", "chardev:output", "-serial", "chardev:control"]);
        command.args(["-object", "monitor-qmp,id=commands,chardev=monitor"]);

        let begun = Instant::now();
        let (mut process, pipes) = Process::start(command).map_err(Error::io("starting QEMU"))?;
        let mut streams = Streams::default();
        let mut readers = Vec::new();
        if let Some(errors) = pipes.stderr {
            let (kept, reader) = stream::keep(errors, Vec::new());
            (streams.errors, _) = (kept, readers.push(reader));
        }
        if let Some(stdout) = pipes.stdout {
            let (kept, reader) = stream::keep(stdout, shown(self.echo));
            (streams.console, _) = (kept, readers.push(reader));
        }
        let mut accept = |listener: &Listener| listener.accept(&mut process, &streams);
        let (printed, control, monitor) = (accept(&output)?, accept(&control)?, accept(&monitor)?);
        let (kept, reader) = stream::keep(printed, shown(self.echo || terminal));
        (streams.output, _) = (kept, readers.push(reader));
        let script_limit = self.script_limit;
        let parts = Parts { process, streams, readers, control, monitor, begun, script_limit, directory };
        let running = Running::new(parts, self.boot_limit)?;
        // QEMU has the archive in memory, for later starts as well. Removed now, the file cannot be
        // left behind by a killed owner.
        fs::remove_file(&initrd).map_err(Error::at("removing", &initrd))?;
        Ok(running)
    }

    /// The cached archive, with an archive behind it that is for this boot only.
    fn initrd(&self, directory: &Path) -> Result<PathBuf, Error> {
        let path = directory.join("initrd");
        let kept = self.initramfs.archive()?;
        fs::copy(&kept, &path).map_err(Error::at("copying to", &path))?;
        let file = File::options().append(true).open(&path).map_err(Error::at("opening", &path))?;
        let mut archive = Archive::new(file);
        if let Some(script) = &self.script {
            let add = |archive: &mut Archive<File>| {
                archive.directory("etc")?;
                archive.directory("etc/guest")?;
                archive.file("etc/guest/script", 0o755, script.as_bytes())
            };
            add(&mut archive).map_err(Error::at("writing", &path))?;
        }
        archive.finish().map_err(Error::at("writing", &path))?;
        Ok(path)
    }

    fn machine(&self, command: &mut Command, initrd: &Path) {
        let memory = self.memory;
        let acceleration = self.acceleration.unwrap_or_else(|| Acceleration::of(&self.kit));
        command
            .args(["-accel", acceleration.argument(), "-M", "q35,memory-backend=memory", "-object"])
            .arg(format!("memory-backend-memfd,id=memory,size={memory}M,share=on"))
            .args(["-m", &memory.to_string(), "-smp", &self.processors.to_string()])
            .args(["-display", "none", "-nodefaults", "-no-user-config"])
            .args(["-run-with", "exit-with-parent=on"]);
        if !self.reboots {
            command.arg("-no-reboot");
        }
        if self.firmware == Firmware::Qboot {
            command.args(["-bios", "qboot.rom"]);
        }
        if !self.disk_boots {
            let iommu = if self.iommu { IOMMU_COMMAND_LINE } else { "" };
            command.arg("-kernel").arg(self.kit.kernel()).arg("-initrd").arg(initrd);
            command.arg("-append").arg(format!("{COMMAND_LINE} {}{iommu}{}", clock(), self.command_line));
        }
        if self.iommu {
            // The IOMMU must precede the devices behind it.
            command.args(["-device", "intel-iommu,intremap=off"]);
        }
        if let Some(network) = &self.network {
            command.args(["-netdev", &network_of(network)]);
            command.args(["-device", "virtio-net-pci,netdev=network,romfile="]);
        }
        command.args(topology(&self.slots)).args(&self.arguments);
    }
}

/// The same command with less of a claim on the processors: an interpreted guest would take them
/// from the programs that serve it.
fn gentle(command: &Command) -> Command {
    let mut gentle = Command::new("nice");
    gentle.args(["-n", "5"]).arg(command.get_program()).args(command.get_args());
    gentle
}

/// The argument for QEMU's `-netdev`.
fn network_of(network: &Network) -> String {
    match network {
        Network::User { forwards } => {
            let forward = |(port, guest): &(u16, u16)| format!(",hostfwd=tcp:127.0.0.1:{port}-:{guest}");
            let forwards: String = forwards.iter().map(forward).collect();
            format!("user,id=network,ipv6=off{forwards}")
        }
        Network::Tap { interface } => {
            format!("tap,id=network,ifname={interface},script=no,downscript=no")
        }
    }
}

/// Passes the rate of its time stamp counter, which is this machine's, to the guest: calibration
/// takes long under an interpreter, and finds a wrong value. A virtual machine sees the counter's
/// rate as the rate of its processor. On other machines that rate changes, so the guest should
/// watch the counter, and change to a slower clock if needed.
fn clock() -> String {
    let information = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    clock_of(&information).unwrap_or_else(|| "tsc_early_khz=2000000".to_owned())
}

fn clock_of(information: &str) -> Option<String> {
    let field = |name: &str| {
        let line = information.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim())
    };
    field("flags")?.split(' ').find(|&flag| flag == "hypervisor")?;
    let (whole, thousandths) = field("cpu MHz")?.split_once('.')?;
    let kilohertz = format!("{whole}{thousandths:0<3.3}").parse::<u32>().ok()?;
    Some(format!("tsc_early_khz={kilohertz} tsc=reliable"))
}

/// The destinations of a stream's copies: standard error, if it is echoed.
fn shown(echo: bool) -> Vec<Box<dyn Write + Send>> {
    if echo { vec![Box::new(io::stderr())] } else { Vec::new() }
}

/// A socket that QEMU connects to when QEMU starts.
struct Listener {
    name: &'static str,
    path: PathBuf,
    socket: UnixListener,
}

impl Listener {
    fn new(directory: &Path, name: &'static str) -> Result<Self, Error> {
        let path = directory.join(name);
        let socket = UnixListener::bind(&path).map_err(Error::at("listening on", &path))?;
        socket.set_nonblocking(true).map_err(Error::at("listening on", &path))?;
        Ok(Self { name, path, socket })
    }

    /// The argument for QEMU's `-chardev`.
    fn argument(&self) -> String {
        // A comma in a value must be doubled.
        format!("socket,id={},path={}", self.name, self.path.display().to_string().replace(',', ",,"))
    }

    fn accept(&self, process: &mut Process, streams: &Streams) -> Result<UnixStream, Error> {
        let waited_for = format!("its connection to {}", self.path.display());
        let begun = Instant::now();
        loop {
            match self.socket.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).map_err(Error::at("accepting on", &self.path))?;
                    return Ok(stream);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(Error::at("accepting on", &self.path)(error)),
            }
            if process.has_ended()
                && let Some(error) = ended(process, streams, &waited_for)
            {
                return Err(error);
            }
            if begun.elapsed() > CONNECTING {
                return Err(Error::ScriptTimeout { waited_for, after: CONNECTING, tail: streams.tail() });
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_machine_knows_its_counters_rate() {
        let information = "processor\t: 0\ncpu MHz\t\t: 2099.99\nflags\t\t: fpu hypervisor tsc\n";
        assert_eq!(clock_of(information).unwrap(), "tsc_early_khz=2099990 tsc=reliable");
        assert_eq!(clock_of(&information.replace("hypervisor", "")), None);
        assert_eq!(clock_of(""), None);
    }
}
