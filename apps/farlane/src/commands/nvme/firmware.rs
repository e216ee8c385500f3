//! `farlane nvme fw-log`, `fw-download` and `fw-commit`.

use std::collections::BTreeMap;

use nvme::wire::log::{FirmwareSlotLog, LogPage};
use nvme::wire::{AdminOpcode, NamespaceId, Status, StatusCode, SubmissionQueueEntry, Text};
use nvme_pcie::host::QueueId;
use schemars::JsonSchema;
use serde::Serialize;

use super::{Payload, Structure, done, entry, logs, read_file, with};
use crate::args::{FwCommitArgs, FwDownloadArgs, ReadAtArgs};
use crate::commands::fields::Fields;
use crate::error::Error;

/// The longest image that is sent.
const IMAGE_MAX: u64 = 1 << 30;
/// The most bytes that one command sends.
const PIECE_MAX: u32 = 1 << 20;

pub(super) fn log(args: &ReadAtArgs) -> Result<(), Error> {
    let length = u32::try_from(FirmwareSlotLog::LENGTH).expect("512 bytes");
    let page = (NamespaceId::ALL, LogPage::FirmwareSlot.into());
    let target = &args.at.target;
    let data = with(target, |session| logs::read(session, page, (0, length), |_| ()))?;
    let log = FirmwareSlotLog::parse(data.first_chunk().expect("as many bytes as were asked for"));
    let mut fields = Fields::default();
    let (active, next) = (log.active & 0b111, log.active >> 4 & 0b111);
    let then = if next == 0 { String::new() } else { format!("; slot {next} at the next reset") };
    fields.hex("afi", log.active, 2, format!("slot {active} is active{then}"));
    for (slot, revision) in (1..).zip(log.revisions) {
        let revision = revision.to_string();
        if !revision.trim().is_empty() {
            fields.text(&format!("frs{slot}"), revision.trim(), "firmware revision in the slot");
        }
    }
    let json = BTreeMap::from([(target.url.to_string(), Slots::of(&log, &data))]);
    let structure = Structure { title: "Firmware slots", fields: &fields, bytes: &data };
    structure.show_as(args.at.printing, false, &json)
}

/// The Firmware Slot Information log under nvme-cli's names.
#[derive(Serialize, JsonSchema)]
pub(super) struct Slots {
    /// Active Firmware Info: the slot in use, and that after the next reset.
    #[serde(rename = "Active Firmware Slot (afi)")]
    active: u8,
    /// The revision in each slot that has one, as a number and as a text.
    #[serde(flatten)]
    revisions: BTreeMap<String, String>,
}

/// An image that was downloaded.
#[derive(Serialize, JsonSchema)]
pub(super) struct Downloaded {
    /// Its bytes.
    bytes: usize,
}

/// An image that was committed.
#[derive(Serialize, JsonSchema)]
pub(super) struct Committed {
    /// Firmware slot.
    slot: u8,
    /// Commit Action.
    action: u8,
    /// The reset that activates the image; null if none has to.
    needs: Option<&'static str>,
}

impl Slots {
    fn of(log: &FirmwareSlotLog, bytes: &[u8]) -> Self {
        let raw = bytes.as_chunks::<8>().0.iter().skip(1).map(|raw| u64::from_le_bytes(*raw));
        let slots = (1..).zip(log.revisions).zip(raw).filter(|(_, number)| number & 0xff != 0);
        let slot = |((slot, revision), number): ((u8, Text<8>), u64)| {
            (format!("Firmware Rev Slot {slot}"), format!("{number} ({revision})"))
        };
        Self { active: log.active, revisions: slots.map(slot).collect() }
    }
}

pub(super) fn download(args: &FwDownloadArgs) -> Result<(), Error> {
    let image = read_file(&args.fw, IMAGE_MAX)?;
    if image.is_empty() || !image.len().is_multiple_of(4) {
        let (value, expected) = (image.len() as u64, "a positive multiple of 4".to_owned());
        return Err(Error::Range { what: "the length of the image in bytes", value, expected });
    }
    if args.xfer == 0 || !args.xfer.is_multiple_of(4) || args.xfer > PIECE_MAX {
        let expected = format!("a multiple of 4 up to {PIECE_MAX}");
        return Err(Error::Range { what: "--xfer", value: args.xfer.into(), expected });
    }
    with(&args.at.target, |session| {
        let mut sent = 0;
        for piece in image.chunks(args.xfer as usize) {
            let words = u32::try_from(piece.len() / 4).unwrap_or(u32::MAX);
            let command = SubmissionQueueEntry {
                cdw10: words - 1,
                cdw11: sent,
                ..entry(AdminOpcode::FirmwareImageDownload, 0)
            };
            session.command("Firmware Image Download", QueueId::ADMIN, command, Payload::Sent(piece))?;
            sent += words;
        }
        Ok(())
    })?;
    done(&args.at, "Firmware download success\n", &Downloaded { bytes: image.len() })
}

pub(super) fn commit(args: &FwCommitArgs) -> Result<(), Error> {
    let command = SubmissionQueueEntry {
        cdw10: u32::from(args.slot) | u32::from(args.action) << 3,
        ..entry(AdminOpcode::FirmwareCommit, 0)
    };
    let ended = with(&args.at.target, |session| {
        session.command("Firmware Commit", QueueId::ADMIN, command, Payload::None)
    });
    let needs = match ended {
        Ok(_) => None,
        Err(Error::Command { status, .. }) if reset(status).is_some() => reset(status),
        Err(error) => return Err(error),
    };
    let then = needs.map(|needs| format!("; {needs} activates it")).unwrap_or_default();
    let value = Committed { slot: args.slot, action: args.action, needs };
    done(
        &args.at,
        &format!("Success committing firmware action:{} slot:{}{then}\n", args.action, args.slot),
        &value,
    )
}

/// The reset that activates an image, if `status` reports that the image was taken and needs one.
fn reset(status: Status) -> Option<&'static str> {
    match status.code() {
        StatusCode::FirmwareActivationRequiresConventionalReset => Some("a conventional reset"),
        StatusCode::FirmwareActivationRequiresSubsystemReset => Some("a reset of the subsystem"),
        StatusCode::FirmwareActivationRequiresControllerLevelReset => Some("a reset of the controller"),
        _ => None,
    }
}
