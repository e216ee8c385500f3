//! `farlane nvme sanitize` and `sanitize-log`.

use std::collections::BTreeMap;

use nvme::wire::log::{LogPage, SanitizeLog, sanitize_status};
use nvme::wire::{AdminOpcode, Bits, NamespaceId, SubmissionQueueEntry};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Structure, done, entry, logs, with};
use crate::args::{DetailArgs, SanitizeArgs};
use crate::commands::fields::Fields;
use crate::error::Error;

/// Sanitize Action (SANACT): exit failure mode, which erases nothing.
const EXIT_FAILURE: u8 = 1;

pub(super) fn sanitize(args: &SanitizeArgs) -> Result<(), Error> {
    if !args.force && args.sanact != EXIT_FAILURE {
        return Err(Error::WithoutForce { what: "sanitizing the subsystem".to_owned() });
    }
    let cdw10 = u32::from(args.sanact)
        | u32::from(args.ause) << 3
        | u32::from(args.owpass) << 4
        | u32::from(args.oipbp) << 8
        | u32::from(args.no_dealloc) << 9;
    let command = SubmissionQueueEntry { cdw10, cdw11: args.ovrpat, ..entry(AdminOpcode::Sanitize, 0) };
    with(&args.at.target, |session| session.admin("Sanitize", command, 0))?;
    let text = "the operation has begun; farlane nvme sanitize-log shows its progress\n";
    done(&args.at, text, &Sanitized { sanact: args.sanact })
}

pub(super) fn log(args: &DetailArgs) -> Result<(), Error> {
    let length = u32::try_from(SanitizeLog::LENGTH).expect("512 bytes");
    let page = (NamespaceId::ALL, LogPage::SanitizeStatus.into());
    let data = with(&args.at.target, |session| logs::read(session, page, (0, length), |_| ()))?;
    let log = SanitizeLog::parse(data.first_chunk().expect("as many bytes as were asked for"));
    let json = BTreeMap::from([(args.at.target.url.to_string(), SanitizeStatus::from(&log))]);
    let fields = fields(&log);
    let structure = Structure { title: "Sanitize status", fields: &fields, bytes: &data };
    structure.show_as(args.at.printing, args.detail.human_readable, &json)
}

/// An operation that has begun.
#[derive(Serialize, JsonSchema)]
pub(super) struct Sanitized {
    /// Sanitize Action.
    sanact: u8,
}

/// The Sanitize Status log under nvme-cli's names. Times are estimates in seconds.
#[derive(Serialize, JsonSchema)]
pub(super) struct SanitizeStatus {
    /// Sanitize Progress, in 1/65,536; 65,535 when no operation is under way.
    sprog: u16,
    /// Sanitize Status.
    sstat: OperationStatus,
    /// CDW10 of the latest Sanitize command.
    cdw10_info: u32,
    /// Time to overwrite.
    time_over_write: u32,
    /// Time to erase blocks.
    time_block_erase: u32,
    /// Time to change the key.
    time_crypto_erase: u32,
    /// Time to overwrite and keep blocks allocated.
    time_over_write_no_dealloc: u32,
    /// Time to erase blocks and keep them allocated.
    time_block_erase_no_dealloc: u32,
    /// Time to change the key and keep blocks allocated.
    time_crypto_erase_no_dealloc: u32,
}

/// The status of the latest operation.
#[derive(Serialize, JsonSchema)]
struct OperationStatus {
    /// 1 if nothing was written since the latest success.
    global_erased: u32,
    /// Passes of an overwrite that are complete.
    no_cmplted_passes: u32,
    /// The outcome, as nvme-cli prints it.
    status: String,
}

impl From<&SanitizeLog> for SanitizeStatus {
    fn from(log: &SanitizeLog) -> Self {
        let (status, part) = (u32::from(log.status), |bits: Bits| bits.of(log.status.into()));
        let operation = sanitize_status::OPERATION.of(status);
        let words = match operation {
            sanitize_status::NEVER => "NVM Subsystem has never been sanitized.",
            sanitize_status::COMPLETED => "Most Recent Sanitize Command Completed Successfully.",
            sanitize_status::IN_PROGRESS => "Sanitize in Progress.",
            sanitize_status::FAILED => "Most Recent Sanitize Command Failed.",
            4 => "Most Recent Sanitize Command (No-Deallocate) Completed Successfully.",
            _ => "Unknown.",
        };
        Self {
            sprog: log.progress,
            sstat: OperationStatus {
                global_erased: part(sanitize_status::DATA_ERASED),
                no_cmplted_passes: part(sanitize_status::PASSES),
                status: format!("({operation}) {words}"),
            },
            cdw10_info: log.command_dword_10,
            time_over_write: log.overwrite_time,
            time_block_erase: log.block_erase_time,
            time_crypto_erase: log.crypto_erase_time,
            time_over_write_no_dealloc: log.overwrite_no_deallocate_time,
            time_block_erase_no_dealloc: log.block_erase_no_deallocate_time,
            time_crypto_erase_no_dealloc: log.crypto_erase_no_deallocate_time,
        }
    }
}

fn fields(log: &SanitizeLog) -> Fields {
    let mut fields = Fields::default();
    let percent = f64::from(log.progress) / 65_536.0 * 100.0;
    let progress = match log.progress {
        u16::MAX => "no operation is under way".to_owned(),
        _ => format!("{percent:.1} % done"),
    };
    fields.number("sprog", log.progress, progress);
    let status = match sanitize_status::OPERATION.of(log.status.into()) {
        sanitize_status::NEVER => "never sanitized",
        sanitize_status::COMPLETED => "the latest operation succeeded",
        sanitize_status::IN_PROGRESS => "an operation is under way",
        sanitize_status::FAILED => "the latest operation failed",
        _ => "the latest operation succeeded, blocks were deallocated",
    };
    fields.hex("sstat", log.status, 4, status);
    fields.part(8, 8, "no data were written since the latest success");
    fields.part(7, 3, "passes of an overwrite that are complete");
    fields.part(2, 0, status);
    fields.hex("scdw10", log.command_dword_10, 8, "Command Dword 10 of the latest Sanitize");
    let mut time = |name: &str, seconds: u32, what: &str| {
        let meaning = if seconds == u32::MAX { "no estimate".to_owned() } else { format!("seconds {what}") };
        fields.number(name, seconds, meaning);
    };
    time("eto", log.overwrite_time, "to overwrite");
    time("etbe", log.block_erase_time, "to erase blocks");
    time("etce", log.crypto_erase_time, "to change the key");
    time("etond", log.overwrite_no_deallocate_time, "to overwrite and keep blocks allocated");
    time("etbend", log.block_erase_no_deallocate_time, "to erase blocks and keep them allocated");
    time("etcend", log.crypto_erase_no_deallocate_time, "to change the key and keep blocks allocated");
    fields
}
