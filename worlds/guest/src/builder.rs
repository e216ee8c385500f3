//! How a guest is made: memory, devices, what is in its root, what it is to run.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::cpio::Archive;
use crate::device::{Device, Slot, topology};
use crate::process::{self, Process};
use crate::running::{Outcome, Parts, Running, Streams, ended};
use crate::{Error, Initramfs, Kit, stream};

/// What every boot needs on the kernel's command line: no waiting, no calibrating, nothing that costs an interpreted
/// processor much, and a panic that ends QEMU instead of hanging.
const COMMAND_LINE: &str = "console=ttyS0 panic=-1 quiet tsc_early_khz=2000000 init_on_alloc=0 mitigations=off \
    nokaslr cryptomgr.notests apparmor=0";
/// How long QEMU may take to open its sockets.
const CONNECTING: Duration = Duration::from_secs(30);
/// The modules of a virtio network card, and what gives it QEMU's usual address.
const NETWORK_MODULE: &str = "virtio_net";
const NETWORK_PRELUDE: &str = "ip link set lo up; ip link set eth0 up; ip addr add 10.0.2.15/24 dev eth0\n\
    ip route add default via 10.0.2.2\n";

/// What QEMU starts before Linux.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Firmware {
    /// SeaBIOS, which drives NVMe controllers itself before it starts anything.
    #[default]
    SeaBios,
    /// qboot, which touches no device.
    Qboot,
}

/// A guest to be; [`Guest::builder`] begins one.
#[derive(Debug)]
pub struct Guest;

impl Guest {
    /// A guest of two processors and 512 MiB, with busybox in its root and nothing plugged in.
    ///
    /// # Errors
    /// When the kit cannot be read.
    pub fn builder(kit: &Kit) -> Result<Builder, Error> {
        Ok(Builder {
            kit: kit.clone(),
            memory: 512,
            processors: 2,
            firmware: Firmware::default(),
            slots: Vec::new(),
            network: false,
            reboots: false,
            command_line: String::new(),
            arguments: Vec::new(),
            initramfs: Initramfs::new(kit)?,
            script: None,
            boot_limit: Duration::from_secs(90),
            script_limit: Duration::from_secs(120),
            console: None,
            echo: false,
        })
    }
}

/// Says what a guest is like; [`Builder::run`] or [`Builder::start`] boots it.
#[derive(Clone, Debug)]
#[must_use = "nothing boots before `run` or `start`"]
pub struct Builder {
    kit: Kit,
    memory: u32,
    processors: u32,
    firmware: Firmware,
    slots: Vec<Slot>,
    network: bool,
    reboots: bool,
    command_line: String,
    arguments: Vec<String>,
    initramfs: Initramfs,
    script: Option<String>,
    boot_limit: Duration,
    script_limit: Duration,
    console: Option<PathBuf>,
    echo: bool,
}

impl Builder {
    /// Memory in MiB. It is shared with vfio-user servers.
    pub fn memory_mib(mut self, memory: u32) -> Self {
        self.memory = memory;
        self
    }

    /// Processors.
    pub fn processors(mut self, processors: u32) -> Self {
        self.processors = processors;
        self
    }

    /// What runs before Linux.
    pub fn firmware(mut self, firmware: Firmware) -> Self {
        self.firmware = firmware;
        self
    }

    /// Plugs a device in on the root complex. Devices are `device0`, `device1` and so on to the monitor.
    pub fn device(mut self, device: Device) -> Self {
        self.slots.push(Slot::Root(device));
        self
    }

    /// Plugs a device in below a root port of its own, which can be hot-plugged; `None` leaves the port empty. The
    /// port is `portN` to the monitor, N counting all calls of this, of `device` and of `switch`.
    pub fn root_port(mut self, device: Option<Device>) -> Self {
        self.slots.push(Slot::RootPort(device));
        self
    }

    /// Plugs devices in below a PCI Express switch, each at a downstream port of its own.
    pub fn switch(mut self, devices: impl IntoIterator<Item = Device>) -> Self {
        self.slots.push(Slot::Switch(devices.into_iter().collect()));
        self
    }

    /// Adds a network card; this machine's loopback listeners are at 10.0.2.2.
    ///
    /// # Errors
    /// When the kernel lacks the modules.
    pub fn user_network(mut self) -> Result<Self, Error> {
        self.network = true;
        self.initramfs.module(NETWORK_MODULE)?;
        self.initramfs.bytes("etc/guest/prelude", 0o644, NETWORK_PRELUDE);
        Ok(self)
    }

    /// A guest that resets itself, or is reset, starts again; otherwise QEMU ends.
    pub fn reboots(mut self) -> Self {
        self.reboots = true;
        self
    }

    /// Adds words to the kernel's command line.
    pub fn command_line(mut self, words: &str) -> Self {
        self.command_line = format!("{} {words}", self.command_line);
        self
    }

    /// Adds arguments of QEMU.
    pub fn qemu_arguments<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Puts programs of the kit into the guest: `nvme`, `fio`, `lspci`, `mkfs.ext4`, `fsck.ext4`.
    ///
    /// # Errors
    /// [`Error::Missing`] when the kit lacks one.
    pub fn tools<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        for name in names {
            self.initramfs.tool(name)?;
        }
        Ok(self)
    }

    /// Puts kernel modules into the guest, inserted before the script runs.
    ///
    /// # Errors
    /// [`Error::Missing`] when the kernel lacks one.
    pub fn modules<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        for name in names {
            self.initramfs.module(name)?;
        }
        Ok(self)
    }

    /// The guest's root, for files and programs of the caller's own.
    pub fn initramfs(&mut self) -> &mut Initramfs {
        &mut self.initramfs
    }

    /// What the guest runs: text for busybox's shell. Its exit status is the outcome's.
    pub fn script(mut self, text: impl Into<String>) -> Self {
        self.script = Some(text.into());
        self
    }

    /// How long Linux may take to reach the init script.
    pub fn boot_limit(mut self, limit: Duration) -> Self {
        self.boot_limit = limit;
        self
    }

    /// How long the script may take from when its end is waited for.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.script_limit = limit;
        self
    }

    /// Also writes the console to this file, as it comes.
    pub fn console_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.console = Some(path.into());
        self
    }

    /// Also shows the console and the script's output on standard error, as they come.
    pub fn echo(mut self) -> Self {
        self.echo = true;
        self
    }

    /// Boots, runs the script, waits for its end.
    ///
    /// # Errors
    /// As [`Builder::start`] and [`Running::finish`].
    pub fn run(self) -> Result<Outcome, Error> {
        self.start()?.finish()
    }

    /// Boots until the script runs.
    ///
    /// # Errors
    /// [`Error::BootTimeout`], or [`Error::QemuEnded`] with QEMU's words when it refuses its arguments.
    pub fn start(self) -> Result<Running, Error> {
        self.launch(false)
    }

    /// Boots with this terminal as the console: with a script shows it, without one gives a shell. Ctrl-A X ends QEMU.
    ///
    /// # Errors
    /// As [`Builder::run`].
    pub fn interact(self) -> Result<Outcome, Error> {
        self.launch(true)?.finish()
    }

    fn launch(self, terminal: bool) -> Result<Running, Error> {
        let directory =
            TempDir::with_prefix("farlane-guest-").map_err(Error::io("making a temporary directory"))?;
        let initrd = self.initrd(directory.path())?;
        let sockets = ["output", "control", "monitor"].map(|name| Listener::new(directory.path(), name));
        let [output, control, monitor] = sockets;
        let (output, control, monitor) = (output?, control?, monitor?);
        let mut command = self.kit.qemu();
        self.machine(&mut command, &initrd);
        let console =
            if terminal { "stdio,id=console,mux=on,signal=off" } else { "stdio,id=console,signal=off" };
        command.args(["-chardev", console, "-serial", "chardev:console"]);
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
        let mut copies: Vec<Box<dyn Write + Send>> =
            if self.echo { vec![Box::new(io::stderr())] } else { Vec::new() };
        if let Some(path) = &self.console {
            copies.push(Box::new(File::create(path).map_err(Error::at("creating", path))?));
        }
        if let Some(errors) = pipes.stderr {
            let (kept, reader) = stream::keep(errors, Vec::new());
            (streams.errors, _) = (kept, readers.push(reader));
        }
        if let Some(stdout) = pipes.stdout {
            let (kept, reader) = stream::keep(stdout, copies);
            (streams.console, _) = (kept, readers.push(reader));
        }
        let mut accept = |listener: &Listener| listener.accept(&mut process, &streams);
        let (printed, control, monitor) = (accept(&output)?, accept(&control)?, accept(&monitor)?);
        let echo: Vec<Box<dyn Write + Send>> =
            if self.echo || terminal { vec![Box::new(io::stderr())] } else { Vec::new() };
        let (kept, reader) = stream::keep(printed, echo);
        (streams.output, _) = (kept, readers.push(reader));
        let script_limit = self.script_limit;
        let parts = Parts { process, streams, readers, control, monitor, begun, script_limit, directory };
        Running::new(parts, self.boot_limit)
    }

    /// The kept archive and, behind it, one of what is this boot's alone.
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
        command
            .args(["-accel", "tcg,thread=multi,tb-size=512", "-M", "q35,memory-backend=memory", "-object"])
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
        command.arg("-kernel").arg(self.kit.kernel()).arg("-initrd").arg(initrd);
        command.arg("-append").arg(format!("{COMMAND_LINE}{}", self.command_line));
        if self.network {
            command.args(["-netdev", "user,id=network,ipv6=off"]);
            command.args(["-device", "virtio-net-pci,netdev=network,romfile="]);
        }
        command.args(topology(&self.slots)).args(&self.arguments);
    }
}

/// A socket that QEMU connects to when it starts.
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

    /// The argument of `-chardev`.
    fn argument(&self) -> String {
        // A comma ends a value unless doubled.
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
