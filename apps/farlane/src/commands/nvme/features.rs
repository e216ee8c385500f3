//! `farlane get-feature` and `set-feature`.

use nvme::wire::feature::{FID, FeatureId, SAVE, SELECT};
use nvme::wire::{AdminOpcode, SubmissionQueueEntry};
use nvme_pcie::host::QueueId;
use serde_json::json;

use super::{PAGE, Payload, done, dump, entry, read_file, with};
use crate::args::{FeatureArgs, SetFeatureArgs};
use crate::commands::{print, print_json_of_nvme_cli};
use crate::error::Error;

/// Bytes of the data that a feature has with its value, unless the user says how many.
const fn length_of(feature: FeatureId) -> u32 {
    match feature {
        FeatureId::Timestamp => 8,
        FeatureId::HostBehavior => 512,
        FeatureId::HostIdentifier => 16,
        // LBA Range Type; Host Memory Buffer.
        FeatureId::Other(0x03 | 0x0d) => PAGE,
        // Autonomous Power State Transition.
        FeatureId::Other(0x0c) => 256,
        _ => 0,
    }
}

pub(super) fn get(args: &FeatureArgs) -> Result<(), Error> {
    let feature = FeatureId::from(args.feature_id);
    let length = args.data_len.unwrap_or_else(|| if args.sel == 3 { 0 } else { length_of(feature) });
    let command = SubmissionQueueEntry {
        cdw10: FID.put(args.feature_id.into()) | SELECT.put(args.sel.into()),
        cdw11: args.cdw11,
        ..entry(AdminOpcode::GetFeatures, args.namespace)
    };
    let (value, data) = with(&args.at.target, |session| {
        session.command("Get Features", QueueId::ADMIN, command, Payload::Wanted(length))
    })?;
    if args.raw_binary {
        return super::show_data(&args.at, true, "", &data);
    }
    if args.at.is_json() {
        let mut answer = json!({ "feature": args.feature_id, "name": feature.to_string(), "sel": args.sel,
            "value": value });
        if !data.is_empty() {
            answer["data"] = json!(data);
        }
        return print_json_of_nvme_cli(&answer);
    }
    let which = ["Current", "Default", "Saved", "Supported capabilities"];
    let which = which.get(usize::from(args.sel)).unwrap_or(&"Reserved");
    print(&format!(
        "get-feature:{:#04x} ({feature}), {which} value:{value:#010x}\n{}",
        args.feature_id,
        dump(&data)
    ))
}

/// Select of Get Features: what the feature can do.
const CAPABILITIES: u32 = 3;
/// Whether a value can be saved, in the answer to that.
const SAVEABLE: u32 = 1 << 0;

/// Whether the value belongs to a namespace, and stays with it.
const fn stays(feature: FeatureId) -> bool {
    matches!(feature, FeatureId::ReservationPersistence | FeatureId::WriteProtection)
}

/// Sets a feature. The controller that the command uses ends with the command, and values that are
/// not saved end with it.
pub(super) fn set(args: &SetFeatureArgs) -> Result<(), Error> {
    let data = args.data.as_ref().map(|path| read_file(path, PAGE.into())).transpose()?.unwrap_or_default();
    let command = SubmissionQueueEntry {
        cdw10: FID.put(args.feature_id.into()) | SAVE.put(args.save.into()),
        cdw11: args.value,
        cdw12: args.cdw12,
        ..entry(AdminOpcode::SetFeatures, args.namespace)
    };
    let sent = if data.is_empty() { Payload::None } else { Payload::Sent(&data) };
    let feature = FeatureId::from(args.feature_id);
    let lasts = args.save || stays(feature);
    let capabilities = SubmissionQueueEntry {
        cdw10: FID.put(args.feature_id.into()) | SELECT.put(CAPABILITIES),
        ..entry(AdminOpcode::GetFeatures, args.namespace)
    };
    let (result, can_save) = with(&args.at.target, |session| {
        let (result, _) = session.command("Set Features", QueueId::ADMIN, command, sent)?;
        let answer = match lasts {
            true => Ok((0, Vec::new())),
            false => session.command("Get Features", QueueId::ADMIN, capabilities, Payload::None),
        };
        // Controllers of others need not know what a feature can do.
        Ok((result, answer.is_ok_and(|(able, _)| able & SAVEABLE != 0)))
    })?;
    let mut text = format!(
        "set-feature:{:#04x} ({feature}), value:{:#010x}, save:{}\n",
        args.feature_id,
        args.value,
        u8::from(args.save)
    );
    if !lasts {
        text += "the value ends with this command's controller";
        text += if can_save { "; --save makes it last\n" } else { ", and can't be saved\n" };
    }
    let answer = json!({ "feature": args.feature_id, "value": args.value, "result": result, "lasts": lasts });
    done(&args.at, &text, &answer)
}
