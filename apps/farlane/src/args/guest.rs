//! The options of `farlane attach` and `farlane offer device`, which offer an SSD to a virtual
//! machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use live::client::FarUrl;
use live::drivers::guest::LANES_MAX;
use pcie::requester::CompletionTimeout;

use super::target::parse_cores;
use super::{DaemonOptions, MemoryBuffer, Output, Served, TunnelOptions, completion_timeout, parse_time};

pub(super) const ATTACH_EXAMPLES: &str = "Example:\n  \
    farlane attach tcp://127.0.0.1:4430 --vfio-user /run/user/1000/ssd.sock\n  \
    qemu-system-x86_64 -object memory-backend-memfd,id=mem,size=1G,share=on \\\n    \
    -M q35,memory-backend=mem -m 1G ... -device \\\n    \
    '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"/run/user/1000/ssd.sock\"}}'\n\n\
    With hot-plug, below a port of a QEMU that runs already:\n  \
    qemu-system-x86_64 -object memory-backend-memfd,id=mem,size=1G,share=on -M q35,memory-backend=mem -m 1G \\\n    \
    -global ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off -device pcie-root-port,id=dn1,chassis=1 \\\n    \
    -qmp unix:/run/user/1000/qmp.sock,server=on,wait=off ...\n  \
    farlane attach tcp://127.0.0.1:4430 --vfio-user /run/user/1000/ssd.sock --qmp /run/user/1000/qmp.sock --port dn1";

/// The socket that a virtual machine's monitor connects to.
#[derive(Debug, Args)]
pub(crate) struct Socket {
    /// Listen on this socket for QEMU's vfio-user-pci or another vfio-user client.
    ///
    /// Every process that may write to the socket can use the SSD
    #[arg(long = "vfio-user", value_name = "PATH", required = true)]
    pub(crate) path: PathBuf,
    /// Let the client ring doorbells by a store into shared memory, and poll that memory.
    ///
    /// Polling is fast where a client keeps the SSD busy, but this process is then never quite idle
    #[arg(long)]
    pub(crate) poll_doorbells: bool,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("media").args(["namespace", "ram", "vfio", "pool"]).required(true).multiple(true))]
pub(crate) struct DeviceArgs {
    #[command(flatten)]
    pub(crate) socket: Socket,
    #[command(flatten)]
    pub(crate) served: Served,
    #[command(flatten)]
    pub(crate) memory_buffer: MemoryBuffer,

    /// Serve the guest's queues on this many threads [default: 1; with --poll-doorbells and without
    /// --cpu, one for each processor].
    ///
    /// The first thread has the socket and the Admin Queue. A capture shows what passes it. Without
    /// --poll-doorbells, each doorbell takes the way by that thread, so that one thread alone is
    /// faster. With --cpu N, the threads run on processors N, N+1 and so on
    #[arg(long, value_name = "N", value_parser = parse_cores)]
    pub(crate) cores: Option<usize>,
    #[command(flatten)]
    pub(crate) daemon: DaemonOptions,
    /// Print the socket as JSON on the first line of standard output
    #[command(flatten)]
    pub(crate) output: Output,
}

impl DeviceArgs {
    /// The number of threads that serve queues.
    pub(crate) fn cores(&self) -> usize {
        let all = || live::reactor::processors().unwrap_or(1);
        let is_one = self.daemon.spin.cpu.is_some() || !self.socket.poll_doorbells;
        let usual = || if is_one { 1 } else { all() };
        self.cores.unwrap_or_else(usual).clamp(1, 1 + LANES_MAX)
    }
}

/// The port of QEMU that the function is plugged into.
#[derive(Debug, Args)]
pub(crate) struct HotPlug {
    /// Plug the function into a port of the QEMU whose monitor listens at this socket (-qmp), and
    /// unplug it while the far end is lost.
    ///
    /// The guest then sees native PCI Express hot-plug. QEMU must run before this process starts
    #[arg(long = "qmp", value_name = "PATH", requires = "port")]
    pub(crate) monitor: Option<PathBuf>,
    /// Use this empty port of QEMU: the id of its pcie-root-port or xio3130-downstream
    #[arg(long, value_name = "ID", requires = "monitor", value_parser = parse_port)]
    pub(crate) port: Option<String>,
}

impl HotPlug {
    /// The socket of QEMU's monitor and the id of the port, if they were given.
    pub(crate) fn given(&self) -> Option<(&Path, &str)> {
        self.monitor.as_deref().zip(self.port.as_deref())
    }
}

/// An id as QEMU allows it.
fn parse_port(text: &str) -> Result<String, String> {
    let is_id = |text: &str| {
        text.starts_with(|first: char| first.is_ascii_alphabetic())
            && text.chars().all(|one| one.is_ascii_alphanumeric() || "-._".contains(one))
    };
    let expected = "expected the id of a port as in QEMU's -device pcie-root-port,id=dn1: a letter, then letters, \
        digits, '-', '.' or '_'";
    if is_id(text) { Ok(text.to_owned()) } else { Err(expected.to_owned()) }
}

#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// The far end: tcp://HOST:PORT, quic://HOST:PORT?key=FINGERPRINT, udp://HOST:PORT,
    /// eth:IFACE/MAC or shm:PATH
    #[arg(value_name = "URL")]
    pub(crate) url: FarUrl,
    #[command(flatten)]
    pub(crate) socket: Socket,
    #[command(flatten)]
    pub(crate) hot_plug: HotPlug,
    /// Give the guest this function of the far end; the first function is 0 [default: the first
    /// NVMe controller]
    #[arg(long, value_name = "N")]
    pub(crate) function: Option<usize>,

    /// Hold the session for this time while the far end is lost.
    ///
    /// After this time, the guest loses its SSD. The shorter of this time and the far end's
    /// --hold counts
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    pub(crate) hold: Duration,
    #[command(flatten)]
    pub(crate) tunnel: TunnelOptions,

    /// Let Farlane's root complex wait this long for an answer of the far end.
    ///
    /// After this time, the guest reads all ones, and a function that has not answered counts as
    /// absent. The value must be the longest time of a range that PCIe defines: 100us, 10ms, 50ms,
    /// 55ms, 210ms, 900ms, 3.5s, 13s or 64s. Farlane always answers a guest's monitor after 4s,
    /// regardless of this option
    #[arg(long, value_name = "TIME", default_value = "64s", value_parser = completion_timeout::parse)]
    pub(crate) completion_timeout: CompletionTimeout,
    #[command(flatten)]
    pub(crate) daemon: DaemonOptions,
    /// Print the socket as JSON on the first line of standard output
    #[command(flatten)]
    pub(crate) output: Output,
}
