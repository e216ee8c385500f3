//! The options of `farlane export`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use live::carrier::datagrams::Ethernet;
use nvme_pcie::controller::SEATS_MAX;

use super::{
    Control, ExportAction, LaunchArgs, MemoryBuffer, MetricsArgs, Output, PtpArgs, QuicListen, Sandbox,
    Served, Spin, Tcp, Trust, parse_address, parse_time,
};

pub(super) const EXAMPLES: &str = "Examples:
  farlane export --listen 127.0.0.1:4430 --namespace disk.img,size=10GiB
  farlane export --listen 127.0.0.1:4430 --pool pool.img,size=1TiB --state ssd.state
  farlane export --listen 0.0.0.0:4430 --allow SHA256:... --namespace /dev/sdb,readonly
  farlane export --listen 127.0.0.1:4430 --ram 1GiB --listen 127.0.0.1:4431 --ram 1GiB
  farlane export --quic 0.0.0.0:4430 --allow-file hosts --ram 1GiB
  farlane export --listen 0.0.0.0:4430 --allow-file hosts --hosts 8 --namespace /dev/sdb
  farlane export --listen 127.0.0.1:4430 --vfio-user /run/user/1000/device.sock
  farlane export --listen 0.0.0.0:4430 --allow SHA256:... --vfio 0000:01:00.0
  farlane export --config /etc/farlane/export/disk.toml
  farlane export add --namespace new.img,size=10GiB";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(group = clap::ArgGroup::new("offered").args(["namespace", "ram", "vfio", "pool", "vfio_user"]).required(true).multiple(true))]
pub(crate) struct ExportArgs {
    #[command(subcommand)]
    pub(crate) action: Option<ExportAction>,

    /// Listen on this address and port; may be given again.
    ///
    /// An address off loopback needs --allow, --allow-file or --insecure. Each further --listen
    /// begins another far end, which offers the namespaces given after that --listen
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4430", value_parser = parse_address)]
    pub(crate) listen: Vec<SocketAddr>,

    /// Also listen for hosts of this machine, at this socket.
    ///
    /// Both ends then share memory, and no byte passes the kernel. A near end names this far end
    /// shm:PATH. Every process that may open the socket reaches the device
    #[arg(long, value_name = "PATH")]
    pub(crate) shm: Option<PathBuf>,

    /// Also listen for datagrams on this address and UDP port.
    ///
    /// A near end names this far end udp://HOST:PORT. An address off loopback needs --allow, which
    /// encrypts, or --insecure. docs/networks.md says when to use this
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    pub(crate) udp: Option<SocketAddr>,

    /// Also listen for bare Ethernet frames at IFACE[+IFACE][,vlan=N][,pcp=N][,port=N].
    ///
    /// A near end names this far end eth:IFACE/MAC, with its own interface and the address that is
    /// printed. It needs the capability CAP_NET_RAW, and --allow or --insecure: every machine in
    /// the same network reaches the device. Over two interfaces, joined by +, each frame is sent
    /// twice and the first copy counts (802.1CB); the near end does likewise. Each far end of an
    /// interface has a port of its own, 0 if none is given. IFACE,xdp takes packets around the
    /// kernel's network stack (AF_XDP), or reports why not; docs/networks.md describes its cost to
    /// other programs
    #[arg(long, value_name = "IFACE")]
    pub(crate) eth: Option<Ethernet>,
    #[command(flatten)]
    pub(crate) served: Served,
    #[command(flatten)]
    pub(crate) memory_buffer: MemoryBuffer,
    /// Offer the PCIe device, of any kind, that another process emulates and serves at this socket
    #[arg(long, value_name = "PATH", conflicts_with_all = ["namespace", "ram", "vfio", "pool", "state", "serial", "cmb"])]
    pub(crate) vfio_user: Option<PathBuf>,
    /// Give up if the device of --vfio-user is not there within this time
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_time)]
    pub(crate) timeout: Duration,

    /// Hold the session of a lost host for this time.
    ///
    /// During this time, the host can resume its session, and no other host gets the device. After
    /// this time, the device is reset. The shorter of this time and the near end's --hold counts
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    pub(crate) hold: Duration,

    /// Serve this many hosts at once, at most 64.
    ///
    /// Each host gets an NVMe controller of its own, and all controllers have the same namespaces,
    /// but for those that --allow KEY,nsid=N keeps from a host. Hosts that write to one namespace
    /// need software that is made for it, such as a cluster's file system: reservations say which
    /// host may write. Each far end of this command serves as many
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=SEATS_MAX.into()),
        conflicts_with = "vfio_user"
    )]
    pub(crate) hosts: u16,
    #[command(flatten)]
    pub(crate) tcp: Tcp,
    #[command(flatten)]
    pub(crate) launch: LaunchArgs,
    #[command(flatten)]
    pub(crate) ptp: PtpArgs,
    #[command(flatten)]
    pub(crate) control: Control,
    #[command(flatten)]
    pub(crate) quic: QuicListen,
    #[command(flatten)]
    pub(crate) trust: Trust,
    #[command(flatten)]
    pub(crate) watch: MetricsArgs,
    #[command(flatten)]
    pub(crate) sandbox: Sandbox,
    /// Print the address that was bound as JSON on the first line of standard output
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) spin: Spin,
}
