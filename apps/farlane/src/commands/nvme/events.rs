//! `farlane nvme persistent-event-log` and `telemetry-log`.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use live::sys::files::{self, Kind};
use nvme::host::persistent_events;
use nvme::wire::log::{
    LogPage, PersistentEventKind, PersistentEventLogHeader, TELEMETRY_BLOCK, TelemetryHeader,
};
use nvme::wire::{NamespaceId, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;

use super::{done, logs, print_bytes, show_list, with};
use crate::args::{PersistentEventLogArgs, TelemetryLogArgs};
use crate::commands::counted;
use crate::commands::fields::Count;
use crate::error::{Error, NvmeError};
use crate::session::Session;

/// Action (ACT) of the Persistent Event log, in the Log Specific Parameter: read.
const READ: u8 = 0;
/// Establish a reporting context, and read.
const ESTABLISH: u8 = 1;
/// Release the reporting context.
const RELEASE: u8 = 2;
/// Log Specific Parameter of Telemetry: make a new snapshot.
const CREATE: u32 = 1 << 8;
/// Retain Asynchronous Event (RAE), in CDW10.
const RETAIN: u32 = 1 << 15;
/// Telemetry data area 4, in Log Page Attributes (LPA).
const AREA_4: u8 = 1 << 6;

/// Carries out an action on the log, and reads `length` bytes.
fn act(session: &mut Session, action: u8, length: u32) -> Result<Vec<u8>, Error> {
    let page = (NamespaceId::ALL, LogPage::PersistentEvent.into());
    logs::read(session, page, (0, length), |command| command.cdw10 |= u32::from(action) << 8)
}

/// Reads the log. A reporting context that this establishes ends with it.
fn read_events(session: &mut Session, args: &PersistentEventLogArgs) -> Result<Vec<u8>, Error> {
    let header = u32::try_from(PersistentEventLogHeader::LENGTH).expect("512 bytes");
    let first = match args.action {
        Some(RELEASE) => {
            act(session, RELEASE, header)?;
            return Ok(Vec::new());
        }
        Some(action) => act(session, action, header)?,
        None => match act(session, ESTABLISH, header) {
            // There is a context already.
            Err(Error::Command { status, .. }) if status.code() == StatusCode::CommandSequenceError => {
                act(session, READ, header)?
            }
            first => first?,
        },
    };
    let parsed =
        PersistentEventLogHeader::parse(first.first_chunk().expect("as many bytes as were asked for"));
    let whole = u32::try_from(parsed.length.next_multiple_of(4)).unwrap_or(u32::MAX);
    let length = args.log_len.unwrap_or(whole).min(whole).min(logs::LENGTH_MAX);
    let log = act(session, READ, length)?;
    if args.action.is_none() {
        act(session, RELEASE, header)?;
    }
    Ok(log)
}

pub(super) fn persistent(args: &PersistentEventLogArgs) -> Result<(), Error> {
    if let Some(length) = args.log_len.filter(|length| !length.is_multiple_of(4) || *length == 0) {
        let expected = "a multiple of 4".to_owned();
        return Err(Error::Range { what: "--log-len", value: length.into(), expected });
    }
    let data = with(&args.at.target, |session| read_events(session, args))?;
    let Some(raw) = data.first_chunk() else {
        let (json, text) = (|| Released { released: true }, || "the context is released\n".to_owned());
        return show_list(args.at.printing, &data, json, text);
    };
    let header = PersistentEventLogHeader::parse(raw);
    show_list(args.at.printing, &data, || EventLog::of(&header, &data), || text_of(&header, &data))
}

/// The context of a Persistent Event log that was released.
#[derive(Serialize, JsonSchema)]
pub(super) struct Released {
    /// Always true.
    released: bool,
}

/// A log that was saved.
#[derive(Serialize, JsonSchema)]
pub(super) struct Saved {
    /// Its bytes.
    bytes: usize,
    /// The file.
    file: String,
}

/// The Persistent Event log under nvme-cli's names.
#[derive(Serialize, JsonSchema)]
pub(super) struct EventLog<'a> {
    /// Log page identifier.
    log_id: u8,
    /// Number of events.
    total_num_of_events: u32,
    /// Bytes of the log.
    total_log_len: u64,
    /// Revision of the log.
    log_revision: u8,
    /// Bytes of the header.
    log_header_len: u16,
    /// Time of the header.
    timestamp: u64,
    /// Hours under power.
    power_on_hours: Count,
    /// Power cycles.
    power_cycle_count: u64,
    /// PCI vendor.
    pci_vid: u16,
    /// PCI subsystem vendor.
    pci_ssvid: u16,
    /// Serial number.
    sn: String,
    /// Model number.
    mn: String,
    /// NVMe Qualified Name of the subsystem.
    subnqn: String,
    /// Generation of the log.
    gen_number: u16,
    /// Reporting context.
    rci: u32,
    /// The events.
    list_of_event_entries: Vec<LoggedEvent<'a>>,
}

/// An event of the Persistent Event log.
#[derive(Serialize, JsonSchema)]
struct LoggedEvent<'a> {
    /// Place in the log.
    event_number: usize,
    /// Type of the event.
    event_type: String,
    /// Revision of the event's format.
    event_type_rev: u8,
    /// Bytes of the event's header.
    event_header_len: u8,
    /// Additional information of the header.
    event_header_additional_info: u8,
    /// Controller identifier.
    ctrl_id: u16,
    /// Time of the event.
    event_time_stamp: u64,
    /// Port identifier.
    port_id: u16,
    /// Bytes of vendor specific information.
    vu_info_len: u16,
    /// Bytes of the event.
    event_len: u16,
    /// The event's data.
    data: &'a [u8],
}

impl<'a> EventLog<'a> {
    fn of(header: &PersistentEventLogHeader, log: &'a [u8]) -> Self {
        let events = persistent_events(log).enumerate().map(|(number, (event, data))| LoggedEvent {
            event_number: number,
            event_type: PersistentEventKind::from(event.kind).to_string(),
            event_type_rev: event.revision,
            event_header_len: event.header_length,
            event_header_additional_info: event.additional,
            ctrl_id: event.controller,
            event_time_stamp: event.timestamp,
            port_id: event.port,
            vu_info_len: event.vendor_length,
            event_len: event.length,
            data,
        });
        Self {
            log_id: header.log_page,
            total_num_of_events: header.events,
            total_log_len: header.length,
            log_revision: header.revision,
            log_header_len: header.header_length,
            timestamp: header.timestamp,
            power_on_hours: Count::from(header.power_on_hours),
            power_cycle_count: header.power_cycles,
            pci_vid: header.vendor,
            pci_ssvid: header.subsystem_vendor,
            sn: header.serial_number.to_string(),
            mn: header.model_number.to_string(),
            subnqn: header.subsystem_name.to_string(),
            gen_number: header.generation,
            rci: header.context,
            list_of_event_entries: events.collect(),
        }
    }
}

fn text_of(header: &PersistentEventLogHeader, log: &[u8]) -> String {
    let mut text = format!("{} of {}\n", counted((header.events as usize, "event")), header.serial_number);
    for (event, data) in persistent_events(log) {
        let kind = PersistentEventKind::from(event.kind);
        let hex: String = data.iter().map(|byte| format!("{byte:02x}")).collect();
        text += &format!(
            "at {} ms, controller {}: {kind} {hex}\n",
            event.timestamp & 0xffff_ffff_ffff,
            event.controller
        );
    }
    text
}

/// Reads a Telemetry log up to the data area that was asked for.
fn read_telemetry(session: &mut Session, args: &TelemetryLogArgs) -> Result<Vec<u8>, Error> {
    let kind = if args.controller_init { LogPage::TelemetryController } else { LogPage::TelemetryHost };
    let page = (NamespaceId::ALL, kind.into());
    let block = u32::try_from(TELEMETRY_BLOCK).expect("512 bytes");
    let create = !args.controller_init && args.host_generate == 1;
    // The header alone must not release the log that the controller has made.
    let flags = if create { CREATE } else { 0 } | if args.controller_init { RETAIN } else { 0 };
    let first = logs::read(session, page, (0, block), |command| command.cdw10 |= flags)?;
    let header = TelemetryHeader::parse(first.first_chunk().expect("as many bytes as were asked for"));
    if args.controller_init && header.controller_available == 0 {
        return Err(NvmeError::Lacking { what: "telemetry that it has made on its own" }.into());
    }
    let last = match usize::from(args.data_area).checked_sub(1).and_then(|area| header.last_blocks.get(area))
    {
        Some(last) => u32::from(*last),
        None if session.identity()?.controller.log_page_attributes & AREA_4 != 0 => header.last_block_4,
        None => return Err(NvmeError::Lacking { what: "telemetry data area 4" }.into()),
    };
    if last == 0 {
        return Err(NvmeError::Lacking { what: "telemetry in that data area" }.into());
    }
    let length = last.saturating_add(1).saturating_mul(block).min(logs::LENGTH_MAX);
    let flags = if args.controller_init { RETAIN } else { 0 };
    let log = logs::read(session, page, (0, length), |command| command.cdw10 |= flags)?;
    if args.controller_init && !args.rae {
        // With all of it here, the controller may make another one.
        logs::read(session, page, (0, block), |_| ())?;
    }
    Ok(log)
}

pub(super) fn telemetry(args: &TelemetryLogArgs) -> Result<(), Error> {
    let path = &args.output_file;
    let fail = |error| Error::File { path: path.clone(), error };
    // A file that can't be written is no reason to make a snapshot, or to release one.
    let to_stdout = path == Path::new("-");
    let mut file: Option<File> = match to_stdout {
        true => None,
        false => Some(files::write(path, Kind::Private).map_err(fail)?),
    };
    let data = with(&args.at.target, |session| read_telemetry(session, args))?;
    let Some(file) = &mut file else { return print_bytes(&data) };
    file.write_all(&data).and_then(|()| file.sync_all()).map_err(fail)?;
    let text = format!("{} B of telemetry are in {}\n", data.len(), path.display());
    done(&args.at, &text, &Saved { bytes: data.len(), file: path.to_string_lossy().into_owned() })
}
