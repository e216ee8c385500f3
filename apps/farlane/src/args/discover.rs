//! The options of `farlane use discover`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use live::client::SubsystemUrl;
use live::drivers::mdns;
use live::sys::address::Host;

use super::headings::AUTHENTICATION;
use super::{FabricPlace, StructurePrinting, parse_time};

#[derive(Debug, Args)]
pub(crate) struct DiscoverArgs {
    /// The discovery controller, nvme-tcp://HOST[:PORT] or nvme-rdma://HOST[:PORT]
    #[arg(value_name = "URL", required_unless_present_any = ["mdns", "traddr"], conflicts_with = "mdns")]
    pub(crate) url: Option<SubsystemUrl>,
    #[command(flatten)]
    pub(crate) place: FabricPlace,
    /// Look for discovery controllers by multicast DNS (_nvme-disc._tcp), and list them
    #[arg(long, conflicts_with = "traddr")]
    pub(crate) mdns: bool,
    /// Look for discovery controllers for this long
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_time, requires = "mdns")]
    pub(crate) search: Duration,
    /// Look on the interface that has this address [default: all]
    #[arg(long, value_name = "ADDRESS", requires = "mdns")]
    pub(crate) interface: Option<Host>,
    /// Use this port for multicast DNS
    #[arg(long, value_name = "PORT", default_value_t = mdns::PORT, hide = true)]
    pub(crate) mdns_port: u16,
    /// Give up if the controller is not there within this time
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_time)]
    pub(crate) timeout: Duration,
    /// Encrypt by the key in this file (TLS 1.3), as for the subsystems of the same target
    #[arg(long, value_name = "FILE", conflicts_with = "mdns", help_heading = AUTHENTICATION)]
    pub(crate) tls_key_file: Option<PathBuf>,
    /// Authenticate by the secret in this file (DH-HMAC-CHAP), as for the subsystems of the same
    /// target
    #[arg(long, value_name = "FILE", conflicts_with = "mdns", help_heading = AUTHENTICATION)]
    pub(crate) dhchap_secret_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) printing: StructurePrinting,
}
