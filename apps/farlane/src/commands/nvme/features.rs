//! `farlane nvme get-feature` and `set-feature`.

use std::collections::BTreeMap;

use nvme::wire::feature::{FID, FeatureId, SAVE, SELECT, capability};
use nvme::wire::{AdminOpcode, SubmissionQueueEntry};
use nvme_pcie::host::QueueId;
use schemars::JsonSchema;
use serde::Serialize;

use super::feature_words::{self, Word};
use super::{PAGE, Payload, done, dump, entry, read_file, show_list, with};
use crate::args::{FeatureArgs, Printed, SetFeatureArgs};
use crate::error::{Error, NvmeError};

/// Select of Get Features: the capabilities of the feature.
const CAPABILITIES: u32 = 3;
/// Bytes of a Timestamp, of which the first six are the time.
const TIMESTAMP: usize = 8;
/// The first time that a Timestamp does not hold, in milliseconds since 1970.
const TIME_END: u64 = 1 << 48;

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

/// A feature's value.
#[derive(Serialize, JsonSchema)]
pub(super) struct Feature<'a> {
    /// Feature identifier.
    feature: u8,
    /// Name of the feature.
    name: String,
    /// Select: 0 for the current value, 1 the default, 2 the saved one, 3 capabilities.
    sel: u8,
    /// The value.
    value: u32,
    /// Data that the feature has with its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a [u8]>,
    /// The same as nvme-cli prints it, by the feature's number.
    #[serde(flatten)]
    of_nvme_cli: BTreeMap<String, Vec<BTreeMap<String, Word>>>,
}

/// A feature that was set.
#[derive(Serialize, JsonSchema)]
pub(super) struct SetFeature {
    /// Feature identifier.
    feature: u8,
    /// The value.
    value: u64,
    /// The controller's answer.
    result: u32,
    /// Whether the value lasts longer than the controller of this command.
    lasts: bool,
}

pub(super) fn get(args: &FeatureArgs) -> Result<(), Error> {
    let feature = FeatureId::from(args.feature_id);
    let select = u32::from(args.sel);
    let is_capability = select == CAPABILITIES;
    let length = args.data_len.unwrap_or_else(|| if is_capability { 0 } else { length_of(feature) });
    if length == 0 && args.at.printing.form() == Printed::Binary {
        let why = format!("{feature} is a number without data");
        return Err(NvmeError::NoBytes { why }.into());
    }
    let command = SubmissionQueueEntry {
        cdw10: FID.put(args.feature_id.into()) | SELECT.put(select),
        cdw11: args.cdw11,
        cdw14: args.uuid_index.into(),
        ..entry(AdminOpcode::GetFeatures, args.namespace)
    };
    let (value, data) = with(&args.at.target, |session| {
        session.command("Get Features", QueueId::ADMIN, command, Payload::Wanted(length))
    })?;
    let words = match (args.detail.human_readable, is_capability) {
        (false, _) => Vec::new(),
        (true, true) => feature_words::of_capabilities(value),
        (true, false) => feature_words::of(feature, value, &data),
    };
    let which = ["Current", "Default", "Saved", "Supported capabilities"];
    let which = which.get(usize::from(args.sel)).unwrap_or(&"Reserved");
    let json = || {
        // This is how nvme-cli says the same.
        let mut fields: BTreeMap<String, Word> = words.iter().cloned().collect();
        fields.insert("name".to_owned(), feature.to_string().into());
        fields.insert((*which).to_owned(), format!("{value:#010x}").into());
        Feature {
            feature: args.feature_id,
            name: feature.to_string(),
            sel: args.sel,
            value,
            data: Some(&data[..]).filter(|data| !data.is_empty()),
            of_nvme_cli: BTreeMap::from([(format!("feature: {:#04x}", args.feature_id), vec![fields])]),
        }
    };
    let text = || {
        let words: String = words.iter().map(|(name, value)| format!("\t{name}: {value}\n")).collect();
        let id = args.feature_id;
        format!("get-feature:{id:#04x} ({feature}), {which} value:{value:#010x}\n{words}{}", dump(&data))
    };
    show_list(args.at.printing, &data, json, text)
}

/// Whether the value belongs to a namespace, and stays with it.
const fn stays(feature: FeatureId) -> bool {
    matches!(feature, FeatureId::ReservationPersistence | FeatureId::WriteProtection)
}

/// The value of CDW11, and the data that go with it.
fn value_of(args: &SetFeatureArgs) -> Result<(u32, Vec<u8>), Error> {
    let range = |what, value, expected: &str| Error::Range { what, value, expected: expected.to_owned() };
    let mut data =
        args.data.as_ref().map(|path| read_file(path, PAGE.into())).transpose()?.unwrap_or_default();
    if let Some(length) = args.data_len {
        if (length as usize) > data.len() {
            let expected = format!("at most {}, the length of --data", data.len());
            return Err(range("--data-len", length.into(), &expected));
        }
        data.truncate(length as usize);
    }
    if FeatureId::from(args.feature_id) == FeatureId::Timestamp && data.is_empty() {
        if args.value >= TIME_END {
            return Err(range(
                "--value",
                args.value,
                "a time of at most 48 bits, in milliseconds since 1970",
            ));
        }
        data = args.value.to_le_bytes()[..TIMESTAMP].to_vec();
        return Ok((0, data));
    }
    let value = u32::try_from(args.value)
        .map_err(|_| range("--value", args.value, "at most 32 bits, for any feature but Timestamp (0x0e)"))?;
    Ok((value, data))
}

/// Sets a feature. The controller that the command uses ends with the command, and values that are
/// not saved end with it.
pub(super) fn set(args: &SetFeatureArgs) -> Result<(), Error> {
    let (value, data) = value_of(args)?;
    let command = SubmissionQueueEntry {
        cdw10: FID.put(args.feature_id.into()) | SAVE.put(args.save.into()),
        cdw11: value,
        cdw12: args.cdw12,
        cdw14: args.uuid_index.into(),
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
        // Other controllers need not report a feature's capabilities.
        Ok((result, answer.is_ok_and(|(able, _)| able & capability::SAVEABLE != 0)))
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
    let answer = SetFeature { feature: args.feature_id, value: args.value, result, lasts };
    done(&args.at, &text, &answer)
}
