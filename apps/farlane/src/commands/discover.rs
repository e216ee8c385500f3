//! `farlane discover`: what a discovery controller tells.

use std::time::Duration;

use clap::Args;
use engine::Nanos;
use nvme_fabrics::host::Data;
use nvme_fabrics::host::discovery::{Reader, Step};
use nvme_fabrics::wire::{DiscoveryEntry, SubsystemType};
use serde::Serialize;

use crate::args::{Output, parse_time};
use crate::commands::{print, print_json};
use crate::error::Error;
use crate::fabrics;
use crate::fabrics::url::SubsystemUrl;
use crate::session::Needs;

#[derive(Debug, Args)]
pub(crate) struct DiscoverArgs {
    /// The discovery controller, nvme-tcp://HOST[:PORT]
    #[arg(value_name = "URL")]
    pub(crate) url: SubsystemUrl,
    /// Give up when the controller is not there within this time
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_time)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The names are those of nvme-cli.
#[derive(Serialize)]
struct Record {
    trtype: String,
    adrfam: String,
    subtype: &'static str,
    portid: u16,
    trsvcid: String,
    subnqn: String,
    traddr: String,
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
        }
    }
}

pub(crate) fn run(args: &DiscoverArgs) -> Result<(), Error> {
    let timeout = Nanos::from(args.timeout);
    let mut attachment = fabrics::attach(&args.url, Needs::default(), Nanos::ZERO, timeout)?;
    let (mut reader, mut step) = Reader::start();
    let entries = loop {
        match step {
            Step::Done(entries) => break entries,
            Step::Read { entry, length } => {
                let (_, bytes) = attachment.admin(entry, Data::Read(length))?;
                step = reader.next(&bytes).map_err(Error::Discovery)?;
            }
        }
    };
    attachment.close().map_err(|error| Error::Fabrics(error.into()))?;
    let records: Vec<Record> = entries.iter().map(Record::of).collect();
    if args.output.json {
        return print_json(&records);
    }
    let mut text = format!("{} at {}\n", plural(records.len()), args.url.paths.join(", "));
    for record in &records {
        text.push_str(&format!(
            "{}  {}  {}:{}  {}\n",
            record.subnqn, record.trtype, record.traddr, record.trsvcid, record.subtype
        ));
    }
    print(&text)
}

fn plural(count: usize) -> String {
    match count {
        1 => "1 entry".to_owned(),
        count => format!("{count} entries"),
    }
}
