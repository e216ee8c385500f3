//! Boots a guest by hand.

#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use guest::{Device, Error, Firmware, Guest, Kit};

/// Boots a stock Linux guest with an NVMe device, and gives a shell or runs a script in it.
#[derive(Debug, Parser)]
#[command(after_help = "EXAMPLE\n  \
    farlane offer device --ram 64MiB --vfio-user /tmp/ssd.sock &\n  \
    guest --vfio-user /tmp/ssd.sock\n  \
    ~ # nvme list; mkfs.ext4 -q /dev/nvme0n1; mount /dev/nvme0n1 /mnt\n\n\
    Leaving the shell powers off; Ctrl-A X ends QEMU at once.")]
struct Arguments {
    /// A vfio-user socket to plug in; may be given several times
    #[arg(long, value_name = "SOCKET")]
    vfio_user: Vec<PathBuf>,
    /// A file for QEMU's own NVMe controller; may be given several times
    #[arg(long, value_name = "FILE")]
    nvme: Vec<PathBuf>,
    /// Plug the devices in below a PCI Express switch
    #[arg(long)]
    switch: bool,
    /// Run this shell script instead of giving a shell; its status is ours
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Add a network card; this machine is 10.0.2.2
    #[arg(long)]
    network: bool,
    /// Have PORT of this machine's loopback reach a port of the guest; adds a network card; may be
    /// given several times
    #[arg(long, value_name = "PORT:GUEST-PORT", value_parser = parse_forward)]
    forward: Vec<(u16, u16)>,
    /// Kernel modules to insert, by name
    #[arg(long, value_name = "NAME")]
    module: Vec<String>,
    /// Add an IOMMU, so that programs in the guest can drive devices (vfio-pci)
    #[arg(long)]
    iommu: bool,
    /// Words to add to the kernel's command line
    #[arg(long, value_name = "WORDS", default_value = "")]
    append: String,
    /// Arguments to add to QEMU's, one at a time
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    qemu: Vec<String>,
    /// The guest's memory in MiB
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    memory: u32,
    /// The guest's processors
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    processors: u32,
    /// Start Linux by qboot: SeaBIOS drives NVMe devices before Linux does, qboot touches none
    #[arg(long)]
    qboot: bool,
    /// The kernel: the release's, a newer one of Debian's with peer-to-peer DMA, the release's with
    /// every driver, or one with iommufd and siw, which is built on this machine if it does not
    /// exist yet (minutes)
    #[arg(long, value_enum, default_value_t = Kernel::Release)]
    kernel: Kernel,
    /// How long the script may take
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = humantime::parse_duration)]
    limit: Duration,
    /// Only fetch the files that guests need, and print what they are
    #[arg(long)]
    fetch: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kernel {
    Release,
    Newer,
    Full,
    Built,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("guest: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse_forward(text: &str) -> Result<(u16, u16), String> {
    let ports =
        text.split_once(':').and_then(|(port, guest)| Some((port.parse().ok()?, guest.parse().ok()?)));
    ports.ok_or_else(|| "expected PORT:GUEST-PORT, for example 14420:4420".to_owned())
}

/// A year: the user of the shell decides when it ends.
const SHELL_LIMIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let kit = &match arguments.kernel {
        Kernel::Release => Kit::shared()?.clone(),
        Kernel::Newer => Kit::newer()?.clone(),
        Kernel::Full => Kit::full()?.clone(),
        Kernel::Built => Kit::build()?,
    };
    if arguments.fetch {
        println!("{}\nkernel {}", kit.place().display(), kit.kernel_version());
        println!("{}", kit.packages()?.trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    let mut builder = Guest::builder(kit)?
        .memory_mib(arguments.memory)
        .processors(arguments.processors)
        .tools(["nvme", "rdma", "fio", "lspci", "mkfs.ext4", "fsck.ext4"])?
        .modules(arguments.module.iter().map(String::as_str))?;
    builder = builder.command_line(&arguments.append).qemu_arguments(arguments.qemu.clone());
    if arguments.iommu {
        builder = builder.iommu();
    }
    if arguments.network {
        builder = builder.user_network()?;
    }
    for (port, guest_port) in &arguments.forward {
        builder = builder.forward(*port, *guest_port)?;
    }
    if arguments.qboot {
        builder = builder.firmware(Firmware::Qboot);
    }
    let sockets = arguments.vfio_user.iter().map(Device::vfio_user);
    let files = arguments.nvme.iter().zip(1..).map(|(file, n)| Device::qemu_nvme(file, &format!("QEMU{n}")));
    let devices: Vec<Device> = sockets.chain(files).collect();
    if arguments.switch {
        builder = builder.switch(devices);
    } else {
        builder = devices.into_iter().fold(builder, guest::Builder::device);
    }
    let outcome = match &arguments.script {
        None => builder.limit(SHELL_LIMIT).interact()?,
        Some(path) => {
            let doing = format!("reading {}", path.display());
            let script = fs::read_to_string(path).map_err(|source| Error::Io { doing, source })?;
            builder.limit(arguments.limit).script(script).echo().run()?
        }
    };
    eprintln!(
        "guest: status {}; booted in {:.1} s, ran {:.1} s",
        outcome.status,
        outcome.boot.as_secs_f64(),
        outcome.elapsed.as_secs_f64()
    );
    Ok(u8::try_from(outcome.status).map_or(ExitCode::FAILURE, ExitCode::from))
}
