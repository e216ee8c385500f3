//! `farlane use discover`: lists the subsystems that a discovery controller reports.

use std::net::{IpAddr, SocketAddr};

use engine::Nanos;
use live::client::{AttachError, Controller};
use live::drivers::mdns::{self, Found};
use nvme::host::Data;
use nvme_fabrics::host::discovery::{Reader, Step};
use nvme_fabrics::wire::{
    DiscoveryEntry, DiscoveryHeader, EntryFlags, SecureChannel, SecurityType, SubsystemType,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::args::{DiscoverArgs, Printed};
use crate::commands::nvme::print_bytes;
use crate::commands::{print, print_json};
use crate::error::{Error, NvmeError};
use crate::session::{self, Needs};

/// The records of a discovery log, in nvme-cli's words.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Records<'a> {
    /// The number of changes of the log; none if its header is malformed.
    genctr: Option<u64>,
    records: &'a [Record],
}

/// The discovery controllers that answer to multicast DNS.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Controllers<'a> {
    controllers: Vec<Answered<'a>>,
}

/// A discovery controller.
#[derive(Serialize, JsonSchema)]
struct Answered<'a> {
    name: &'a str,
    nqn: &'a str,
    trtype: &'a str,
    trsvcid: String,
    traddr: &'a [IpAddr],
}

/// A discovery log entry. The names are those of nvme-cli.
#[derive(Serialize, JsonSchema)]
struct Record {
    trtype: String,
    adrfam: String,
    subtype: &'static str,
    portid: u16,
    trsvcid: String,
    subnqn: String,
    traddr: String,
    treq: &'static str,
    eflags: &'static str,
    sectype: &'static str,
    /// Only of a port of NVMe/RDMA.
    #[serde(skip_serializing_if = "Option::is_none")]
    rdma_prtype: Option<String>,
}

impl<'a> Answered<'a> {
    fn of(found: &'a Found) -> Self {
        Self {
            name: &found.name,
            nqn: &found.nqn,
            trtype: &found.transport,
            trsvcid: found.port.to_string(),
            traddr: &found.addresses,
        }
    }
}

impl Record {
    fn of(entry: &DiscoveryEntry) -> Self {
        let subtype = match entry.subsystem_type {
            SubsystemType::Nvm => "nvme subsystem",
            SubsystemType::CurrentDiscovery => "current discovery subsystem",
            SubsystemType::Referral => "discovery subsystem referral",
            SubsystemType::Other(_) => "unrecognized",
        };
        Self {
            trtype: entry.address.transport.to_string(),
            adrfam: entry.address.family.to_string(),
            subtype,
            portid: entry.port.0,
            trsvcid: entry.address.service.clone(),
            subnqn: entry.subsystem.to_string(),
            traddr: entry.address.address.clone(),
            treq: match (entry.requirements.secure_channel, entry.requirements.flow_control_can_be_disabled) {
                (SecureChannel::NotSpecified, true) => "not specified, sq flow control disable supported",
                (SecureChannel::NotSpecified, false) => "not specified",
                (SecureChannel::Required, _) => "required",
                (SecureChannel::NotRequired, _) => "not required",
                (SecureChannel::Reserved, _) => "unrecognized",
            },
            eflags: match (entry.flags.has(EntryFlags::PERSISTENT), entry.flags.has(EntryFlags::DUPLICATE)) {
                (false, false) => "none",
                (false, true) => "duplicate discovery information",
                (true, false) => "explicit discovery connections",
                (true, true) => "explicit discovery connections, duplicate discovery information",
            },
            sectype: match entry.security {
                SecurityType::None => "none",
                SecurityType::Tls13 => "tls13",
                SecurityType::Other(_) => "unrecognized",
            },
            rdma_prtype: entry.address.provider.map(|provider| provider.to_string()),
        }
    }
}

pub(crate) fn run(args: &DiscoverArgs) -> Result<(), Error> {
    let timeout = Nanos::from(args.timeout);
    let named = args.place.url("")?;
    let Some(url) = named.as_ref().or(args.url.as_ref()) else { return search(args) };
    let mut options = session::options(Needs::default(), Nanos::ZERO, timeout);
    options.secrets.tls.clone_from(&args.tls_key_file);
    options.secrets.host.clone_from(&args.dhchap_secret_file);
    let attached = url.resolve().and_then(|address| session::attach(&address, &options, timeout));
    let mut controller = attached.map_err(|error| match error {
        AttachError::Interrupted => Error::Interrupted,
        error @ AttachError::HostRefused { .. } => Error::Fabrics(error),
        error => Error::NoDiscovery(error),
    })?;
    let log = read(&mut controller)?;
    controller.close().map_err(AttachError::Io)?;
    let records: Vec<Record> = log.entries.iter().map(Record::of).collect();
    match args.printing.form() {
        Printed::Binary => return print_bytes(&[&log.header[..], &log.bytes].concat()),
        Printed::Json => {
            let header = log.header.first_chunk().and_then(|raw| DiscoveryHeader::parse(raw).ok());
            let generation = header.map(|header| header.generation);
            return print_json(&Records { genctr: generation, records: &records });
        }
        Printed::Normal => {}
    }
    let mut text = format!("{} at {}\n", plural(records.len()), url.addresses().join(", "));
    for record in &records {
        let security = match (record.sectype, record.treq) {
            ("tls13", "required") => "  TLS required",
            ("tls13", _) => "  TLS possible",
            _ => "",
        };
        let provider = record.rdma_prtype.as_deref().map_or(String::new(), |one| format!(" ({one})"));
        text.push_str(&format!(
            "{}  {}{provider}  {}:{}  {}{security}\n",
            record.subnqn, record.trtype, record.traddr, record.trsvcid, record.subtype
        ));
    }
    print(&text)
}

/// A Discovery log: its entries, and the bytes of its header and of its entries.
#[derive(Default)]
struct Log {
    entries: Vec<DiscoveryEntry>,
    header: Vec<u8>,
    bytes: Vec<u8>,
}

fn read(controller: &mut Controller) -> Result<Log, Error> {
    let mut log = Log::default();
    let (mut reader, mut step) = Reader::start();
    loop {
        match step {
            Step::Done(entries) => return Ok(Log { entries, ..log }),
            Step::Read { entry, length } => {
                let is_header = (entry.cdw12, entry.cdw13) == (0, 0);
                let read = controller.admin(entry, Data::Read(length))?;
                step = reader.next(&read.data).map_err(Error::Discovery)?;
                if !is_header {
                    log.bytes.extend_from_slice(&read.data);
                } else if log.header != read.data[..] {
                    // The log has changed meanwhile, and is read again.
                    log.bytes.clear();
                    log.header = read.data.to_vec();
                }
            }
        }
    }
}

/// Lists the discovery controllers that answer to multicast DNS.
fn search(args: &DiscoverArgs) -> Result<(), Error> {
    if args.printing.form() == Printed::Binary {
        return Err(NvmeError::NoBytes { why: "--mdns reads no log".to_owned() }.into());
    }
    let found = mdns::search(args.search, args.interface, args.mdns_port)?;
    if args.printing.is_json() {
        let controllers = found.iter().map(Answered::of).collect();
        return print_json(&Controllers { controllers });
    }
    let mut text = String::new();
    for one in &found {
        for address in &one.addresses {
            let address = SocketAddr::from((*address, one.port));
            text.push_str(&format!("nvme-{}://{address}  {}  {}\n", one.transport, one.nqn, one.name));
        }
    }
    print(if text.is_empty() { "no discovery controller answers\n" } else { &text })
}

fn plural(count: usize) -> String {
    match count {
        1 => "1 entry".to_owned(),
        count => format!("{count} entries"),
    }
}
