//! `farlane nvme get-log` and `error-log`.

use nvme::host::command::get_log_page;
use nvme::wire::log::{ErrorEntry, LogPage};
use nvme::wire::{NamespaceId, Status, SubmissionQueueEntry};
use schemars::JsonSchema;
use serde::Serialize;

use super::{PAGE, show_data, show_list, with};
use crate::args::{ErrorLogArgs, GetLogArgs};
use crate::error::Error;
use crate::session::Session;

/// The most bytes of a log page that are read.
pub(super) const LENGTH_MAX: u32 = 64 << 20;

/// Reads `length` bytes of a log page from `offset` on, a piece at a time. `change` changes each
/// command before it is sent.
pub(super) fn read(
    session: &mut Session,
    (namespace, page): (NamespaceId, u8),
    (offset, length): (u64, u32),
    change: impl Fn(&mut SubmissionQueueEntry),
) -> Result<Vec<u8>, Error> {
    let mut data = Vec::new();
    while data.len() < length as usize {
        let done = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let piece = (length - done).min(PAGE);
        let mut command = get_log_page(namespace, page, offset + u64::from(done), piece);
        change(&mut command);
        data.extend(session.admin("Get Log Page", command, piece)?);
    }
    Ok(data)
}

pub(super) fn get(args: &GetLogArgs) -> Result<(), Error> {
    let length = args.log_len;
    // An index of entries can't be continued by bytes.
    let most = if args.ot { PAGE } else { LENGTH_MAX };
    if length == 0 || !length.is_multiple_of(4) || length > most {
        let expected = format!("a multiple of 4 up to {most}");
        return Err(Error::Range { what: "--log-len", value: length.into(), expected });
    }
    if !args.ot && !args.lpo.is_multiple_of(4) {
        return Err(Error::Range { what: "--lpo", value: args.lpo, expected: "a multiple of 4".to_owned() });
    }
    let place = (NamespaceId(args.namespace), args.log_id);
    let data = with(&args.at.target, |session| {
        read(session, place, (args.lpo, length), |command| {
            command.cdw10 |= u32::from(args.lsp & 0x7f) << 8 | u32::from(args.rae) << 15;
            command.cdw11 |= u32::from(args.lsi) << 16;
            command.cdw14 = u32::from(args.uuid_index) | u32::from(args.ot) << 23 | u32::from(args.csi) << 24;
        })
    })?;
    let title = format!("{} of {} B", LogPage::from(args.log_id), data.len());
    show_data(args.at.printing, &title, &data)
}

pub(super) fn errors(args: &ErrorLogArgs) -> Result<(), Error> {
    let size = u32::try_from(ErrorEntry::LENGTH).expect("64 bytes");
    let page = (NamespaceId::ALL, LogPage::ErrorInformation.into());
    let data = with(&args.at.target, |session| read(session, page, (0, size * args.log_entries), |_| ()))?;
    let entries = data.as_chunks::<{ ErrorEntry::LENGTH }>().0.iter().map(ErrorEntry::parse);
    let used: Vec<_> = entries.filter(|entry| entry.error_count > 0).collect();
    let json = || ErrorLog { errors: used.iter().map(LoggedError::from).collect() };
    let text = || match used.is_empty() {
        true => "the log has no entry\n".to_owned(),
        false => used.iter().map(error_text).collect(),
    };
    show_list(args.at.printing, &data, json, text)
}

/// The Error Information log: its entries that were used.
#[derive(Serialize, JsonSchema)]
pub(super) struct ErrorLog {
    /// The entries, newest first.
    errors: Vec<LoggedError>,
}

/// An entry of the Error Information log under nvme-cli's names.
#[derive(Serialize, JsonSchema)]
struct LoggedError {
    /// Number of the error over the controller's life.
    error_count: u64,
    /// Submission queue of the command.
    sqid: u16,
    /// Command identifier.
    cmdid: u16,
    /// Status of the command.
    status_field: u16,
    /// Phase Tag of the completion.
    phase_tag: u16,
    /// Byte and bit of the command that has the error.
    parm_error_location: u16,
    /// First logical block with the error.
    lba: u64,
    /// Namespace of the command.
    nsid: u32,
    /// Log page with vendor specific information.
    vs: u8,
    /// Transport of the queue.
    trtype: u8,
    /// Command specific information.
    cs: u64,
    /// Transport specific information.
    trtype_spec_info: u16,
}

impl From<&ErrorEntry> for LoggedError {
    fn from(entry: &ErrorEntry) -> Self {
        Self {
            error_count: entry.error_count,
            sqid: entry.submission_queue,
            cmdid: entry.command_id,
            status_field: entry.status >> 1,
            phase_tag: entry.status & 1,
            parm_error_location: entry.parameter_location,
            lba: entry.lba,
            nsid: entry.namespace,
            vs: entry.vendor_log_page,
            trtype: entry.transport_type,
            cs: entry.command_specific,
            trtype_spec_info: entry.transport_specific,
        }
    }
}

fn error_text(entry: &ErrorEntry) -> String {
    format!(
        "error {}: {} (queue {}, command {:#x}, namespace {}, LBA {})\n",
        entry.error_count,
        Status::from_raw(entry.status >> 1).code(),
        entry.submission_queue,
        entry.command_id,
        entry.namespace,
        entry.lba
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_the_error_log_is_reported_under_nvme_clis_names() {
        let entry = ErrorEntry {
            error_count: 7,
            submission_queue: 1,
            command_id: 0x2a,
            // The Phase Tag is bit 0.
            status: 0x80 << 1 | 1,
            lba: 99,
            namespace: 3,
            ..ErrorEntry::default()
        };
        let json = serde_json::to_value(LoggedError::from(&entry)).unwrap();
        let fields = ["error_count", "sqid", "cmdid", "status_field", "phase_tag", "lba", "nsid"];
        assert_eq!(fields.map(|name| json[name].as_u64().unwrap()), [7, 1, 0x2a, 0x80, 1, 99, 3]);
        let text = "error 7: LBA Out of Range (queue 1, command 0x2a, namespace 3, LBA 99)\n";
        assert_eq!(error_text(&entry), text);
    }
}
