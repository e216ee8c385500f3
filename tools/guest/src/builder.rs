//! The description of a guest: memory, devices, the contents of its root, and its script.

use std::time::Duration;

use crate::acceleration::Acceleration;
use crate::device::{Device, Slot};
use crate::running::{Outcome, Running};
use crate::{Error, Initramfs, Kit};

/// The kernel modules of a virtio network card; the prelude gives the card QEMU's usual address.
const NETWORK_MODULES: [&str; 2] = ["virtio_pci", "virtio_net"];
const NETWORK_PRELUDE: &str = "ip link set eth0 up; ip addr add 10.0.2.15/24 dev eth0\n\
    ip route add default via 10.0.2.2\n";

/// The other end of a guest's network card.
#[derive(Clone, Debug)]
pub(crate) enum Network {
    /// QEMU's own network, which ends in sockets of this machine. Ports of this machine's loopback,
    /// each with the port of the guest that it reaches.
    User { forwards: Vec<(u16, u16)> },
    /// An interface of this machine, which carries frames as they are.
    Tap { interface: String },
}

/// The firmware that QEMU starts before Linux.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Firmware {
    /// SeaBIOS, which drives NVMe controllers itself before it starts anything.
    #[default]
    SeaBios,
    /// qboot, which touches no device.
    Qboot,
    /// EDK2's UEFI firmware (OVMF), which has an NVMe driver of its own.
    Edk2,
}

/// A guest to be built; [`Guest::builder`] begins.
#[derive(Debug)]
pub struct Guest;

impl Guest {
    /// Describes a guest of two processors and 512 MiB, with busybox in its root and no devices.
    ///
    /// # Errors
    /// When the kit cannot be read.
    pub fn builder(kit: &Kit) -> Result<Builder, Error> {
        Ok(Builder {
            kit: kit.clone(),
            acceleration: None,
            memory: 512,
            processors: 2,
            firmware: Firmware::default(),
            slots: Vec::new(),
            network: None,
            iommu: false,
            disk_boots: false,
            reboots: false,
            command_line: String::new(),
            arguments: Vec::new(),
            initramfs: Initramfs::new(kit)?,
            script: None,
            boot_limit: Duration::from_secs(90),
            script_limit: Duration::from_secs(120),
            echo: false,
        })
    }
}

/// Describes a guest, which [`Builder::run`] or [`Builder::start`] boots.
#[derive(Clone, Debug)]
#[must_use = "nothing boots before `run` or `start`"]
pub struct Builder {
    pub(crate) kit: Kit,
    /// The acceleration to use; by default one that works on this machine.
    pub(crate) acceleration: Option<Acceleration>,
    pub(crate) memory: u32,
    pub(crate) processors: u32,
    pub(crate) firmware: Firmware,
    pub(crate) slots: Vec<Slot>,
    pub(crate) network: Option<Network>,
    pub(crate) iommu: bool,
    pub(crate) disk_boots: bool,
    pub(crate) reboots: bool,
    pub(crate) command_line: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) initramfs: Initramfs,
    pub(crate) script: Option<String>,
    pub(crate) boot_limit: Duration,
    pub(crate) script_limit: Duration,
    pub(crate) echo: bool,
}

impl Builder {
    /// Sets how the processors run.
    pub(crate) fn accelerated(mut self, acceleration: Acceleration) -> Self {
        self.acceleration = Some(acceleration);
        self
    }

    /// Sets the size of the memory in MiB. vfio-user servers share the memory.
    pub fn memory_mib(mut self, memory: u32) -> Self {
        self.memory = memory;
        self
    }

    /// Sets the number of processors.
    pub fn processors(mut self, processors: u32) -> Self {
        self.processors = processors;
        self
    }

    /// Sets the firmware that runs before Linux.
    pub fn firmware(mut self, firmware: Firmware) -> Self {
        self.firmware = firmware;
        self
    }

    /// Adds a device on the root complex. The monitor names devices `device0`, `device1` and so on.
    pub fn device(mut self, device: Device) -> Self {
        self.slots.push(Slot::Root(device));
        self
    }

    /// Adds a device below a root port of its own, which can be hot-plugged; `None` leaves the port
    /// empty. The monitor names the port `portN`, where N counts all calls of `root_port`, `device`
    /// and `switch`.
    pub fn root_port(mut self, device: Option<Device>) -> Self {
        self.slots.push(Slot::RootPort(device));
        self
    }

    /// Adds devices below a PCI Express switch, each below a downstream port of its own.
    pub fn switch(mut self, devices: impl IntoIterator<Item = Device>) -> Self {
        self.slots.push(Slot::Switch(devices.into_iter().collect()));
        self
    }

    /// Adds a network card. The guest reaches listeners on this machine's loopback at 10.0.2.2.
    ///
    /// # Errors
    /// When the kernel lacks the modules for the card.
    pub fn user_network(self) -> Result<Self, Error> {
        self.card(Network::User { forwards: Vec::new() }, NETWORK_PRELUDE)
    }

    /// Adds a network card on the tap interface `interface` of this machine, and gives the guest
    /// `address` with its prefix length, such as `10.9.0.2/24`. Unlike with [`Self::user_network`],
    /// every protocol passes unchanged. QEMU must be allowed to open the interface, in the network
    /// namespace of the process that starts the guest.
    ///
    /// # Errors
    /// When the kernel lacks the modules for the card.
    pub fn tap_network(self, interface: &str, address: &str) -> Result<Self, Error> {
        let prelude = format!("ip addr add {address} dev eth0; ip link set eth0 up\n");
        self.card(Network::Tap { interface: interface.to_owned() }, &prelude)
    }

    fn card(mut self, network: Network, prelude: &str) -> Result<Self, Error> {
        self.network = Some(network);
        for module in NETWORK_MODULES {
            self.initramfs.module(module)?;
        }
        self.initramfs.bytes("etc/guest/prelude", 0o644, prelude);
        Ok(self)
    }

    /// Adds a network card, like [`Self::user_network`], and forwards connections from `port` of
    /// this machine's loopback to the guest's `guest_port`.
    ///
    /// # Errors
    /// When the kernel lacks the modules for the card.
    pub fn forward(mut self, port: u16, guest_port: u16) -> Result<Self, Error> {
        if let Some(Network::User { forwards }) = &mut self.network {
            forwards.push((port, guest_port));
            return Ok(self);
        }
        self.card(Network::User { forwards: vec![(port, guest_port)] }, NETWORK_PRELUDE)
    }

    /// Adds an Intel IOMMU. Without one, a guest cannot hand a device to a program (`vfio-pci`).
    pub fn iommu(mut self) -> Self {
        self.iommu = true;
        self
    }

    /// Lets the firmware boot from a device, for example one with [`crate::boot_image`] or
    /// [`crate::efi_image`]. The guest then has no kernel, no root and no script.
    pub fn boot_from_device(mut self) -> Self {
        self.disk_boots = true;
        self
    }

    /// Lets the guest start again after a reset; otherwise a reset ends QEMU.
    pub fn reboots(mut self) -> Self {
        self.reboots = true;
        self
    }

    /// Adds words to the kernel's command line.
    pub fn command_line(mut self, words: &str) -> Self {
        self.command_line = format!("{} {words}", self.command_line);
        self
    }

    /// Adds arguments to QEMU's.
    pub fn qemu_arguments<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Puts programs of the kit into the guest: `nvme`, `fio`, `lspci`, `mkfs.ext4`, `fsck.ext4`.
    ///
    /// # Errors
    /// [`Error::Missing`] when the kit lacks one of the programs.
    pub fn tools<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        for name in names {
            self.initramfs.tool(name)?;
        }
        Ok(self)
    }

    /// Lets the guest have RDMA links over its network card, which its script makes: `rdma link add
    /// siw0 type siw netdev eth0`, or `rxe0 type rxe`. Programs of the kit use them: `rping`,
    /// `ib_send_lat` and the like. A kernel must have the kind: that of [`Kit::built`] has both,
    /// that of [`Kit::full`] has rxe, as modules.
    ///
    /// # Errors
    /// [`Error::Missing`] when the kit lacks a part.
    pub fn rdma(mut self) -> Result<Self, Error> {
        self.initramfs.rdma()?;
        Ok(self)
    }

    /// Puts kernel modules into the guest; they are inserted before the script runs.
    ///
    /// # Errors
    /// [`Error::Missing`] when the kernel lacks one of the modules.
    pub fn modules<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        for name in names {
            self.initramfs.module(name)?;
        }
        Ok(self)
    }

    /// The guest's root, for the caller's own files and programs.
    pub fn initramfs(&mut self) -> &mut Initramfs {
        &mut self.initramfs
    }

    /// Sets the script that the guest runs, as text for busybox's shell. The script's exit status
    /// is the outcome's.
    pub fn script(mut self, text: impl Into<String>) -> Self {
        self.script = Some(text.into());
        self
    }

    /// Sets how long Linux may take to reach the init script.
    pub fn boot_limit(mut self, limit: Duration) -> Self {
        self.boot_limit = limit;
        self
    }

    /// Sets how long the script may take, counted from when its end is waited for.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.script_limit = limit;
        self
    }

    /// Also copies the console and the script's output to standard error, as they arrive.
    pub fn echo(mut self) -> Self {
        self.echo = true;
        self
    }

    /// Boots the guest, runs the script, and waits for its end.
    ///
    /// # Errors
    /// The errors of [`Builder::start`] and [`Running::finish`].
    pub fn run(self) -> Result<Outcome, Error> {
        self.start()?.finish()
    }

    /// Boots the guest, and returns when the script runs.
    ///
    /// # Errors
    /// [`Error::BootTimeout`], or [`Error::QemuEnded`] with QEMU's words when it refuses
    /// its arguments.
    pub fn start(self) -> Result<Running, Error> {
        self.launch(false)
    }

    /// Boots the guest with this terminal as its console. A script's output is shown; without a
    /// script, the guest gives a shell. Ctrl-A X ends QEMU.
    ///
    /// # Errors
    /// The errors of [`Builder::run`].
    pub fn interact(self) -> Result<Outcome, Error> {
        self.launch(true)?.finish()
    }
}
