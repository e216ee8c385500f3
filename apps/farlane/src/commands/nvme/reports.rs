//! `farlane nvme effects-log`, `ana-log`, `supported-log-pages`, `changed-ns-list-log` and
//! `endurance-log`.

use std::collections::BTreeMap;

use nvme::host::{AnaGroup, ana_groups, ana_log_length};
use nvme::wire::log::{AnaLogHeader, ENDURANCE_GROUP_PAGE, EnduranceGroupLog, LogPage};
use nvme::wire::{AdminOpcode, AnaState, IoOpcode, NamespaceId, SubmissionQueueEntry};
use schemars::JsonSchema;
use serde::Serialize;

use super::{OfNamespace, PAGE, Structure, logs, show_list, with};
use crate::args::{AnaLogArgs, ChangedNsArgs, DetailArgs, EffectsLogArgs, EnduranceLogArgs};
use crate::commands::counted;
use crate::commands::fields::{Fields, size};
use crate::error::{Error, NvmeError};
use crate::session::Session;

/// Bits of an entry of the Commands Supported and Effects log.
const EFFECTS: [(u32, &str); 13] = [
    (0, "supported"),
    (1, "changes blocks"),
    (2, "changes the capabilities of namespaces"),
    (3, "changes which namespaces there are"),
    (4, "changes the capabilities of the controller"),
    (16, "requires that no other command is in progress in the namespace"),
    (17, "requires that no other command is in progress in the subsystem"),
    (19, "takes the index of a UUID"),
    (20, "concerns a namespace"),
    (21, "concerns the controller"),
    (22, "concerns an NVM Set"),
    (23, "concerns an Endurance Group"),
    (25, "concerns the subsystem"),
];
/// Commands of each kind in that log.
const COMMANDS: usize = 256;
/// Bytes of the Supported Log Pages log.
const SUPPORTED_PAGES: u32 = 1024;
/// Bytes of the header of an ANA log.
const HEADER: u32 = 16;
/// How often an ANA log is read again because it has changed meanwhile.
const AGAIN_MAX: u32 = 10;
/// Bytes of a Data Unit of an Endurance Group: a thousand million.
const ENDURANCE_UNIT: u128 = 1_000_000_000;

/// The Commands Supported and Effects log of a command set.
#[derive(Serialize, JsonSchema)]
pub(super) struct Effects {
    /// Command Set Identifier.
    command_set_identifier: u8,
    /// Each admin command that the controller supports, and its effects.
    admin_cmd_set: BTreeMap<String, u32>,
    /// Each I/O command that the controller supports, and its effects.
    io_cmd_set: BTreeMap<String, u32>,
}

/// The Asymmetric Namespace Access log.
#[derive(Serialize, JsonSchema)]
pub(super) struct Ana {
    /// URL of the controller.
    #[serde(rename = "Asymmetric Namespace Access Log for NVMe device")]
    device: String,
    /// How often the log has changed.
    chgcnt: u64,
    /// Number of the groups.
    ngrps: u16,
    /// The groups. The space in the name is nvme-cli's.
    #[serde(rename = "ANA DESC LIST ")]
    groups: Vec<Group>,
}

/// A group of namespaces with one state.
#[derive(Serialize, JsonSchema)]
struct Group {
    /// Number of the group.
    grpid: u32,
    /// Number of its namespaces.
    nnsids: u32,
    /// How often it has changed.
    chgcnt: u64,
    /// Its state.
    state: &'static str,
    /// Its namespaces.
    #[serde(rename = "NSIDS")]
    nsids: Vec<OfNamespace>,
}

/// The Supported Log Pages log.
#[derive(Serialize, JsonSchema)]
pub(super) struct SupportedLogs {
    /// Each page by its identifier, with its properties.
    supported_logs: Vec<BTreeMap<String, u32>>,
}

/// The Changed Attached Namespace List log.
#[derive(Serialize, JsonSchema)]
pub(super) struct Changed {
    /// URL of the controller.
    #[serde(rename = "Changed Attached Namespace List Log")]
    device: String,
    /// The namespaces by their places in the list, under the URL.
    #[serde(flatten)]
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
}

pub(super) fn effects(args: &EffectsLogArgs) -> Result<(), Error> {
    let page = (NamespaceId::ALL, LogPage::CommandEffects.into());
    let data = with(&args.at.target, |session| {
        logs::read(session, page, (0, PAGE), |command| command.cdw14 = u32::from(args.csi) << 24)
    })?;
    let words: Vec<u32> = data.as_chunks::<4>().0.iter().map(|raw| u32::from_le_bytes(*raw)).collect();
    let (admin, io) = words.split_at_checked(COMMANDS).unwrap_or_default();
    let name = |kind: &str, opcode: u8| match kind {
        "ACS" => AdminOpcode::from(opcode).to_string(),
        _ => IoOpcode::from(opcode).to_string(),
    };
    let kinds = [("ACS", admin), ("IOCS", io)];
    let mut fields = Fields::default();
    let sets = kinds.map(|(kind, words)| {
        let mut commands = BTreeMap::new();
        for (opcode, word) in (0..=u8::MAX).zip(words).filter(|(_, word)| *word & 1 == 1) {
            let title = name(kind, opcode);
            fields.flags(&format!("{kind}{opcode}"), *word, 8, &title, &EFFECTS);
            commands.insert(format!("{kind}_{opcode} ({title})"), *word);
        }
        commands
    });
    let title = "Commands supported, and their effects";
    let [admin_cmd_set, io_cmd_set] = sets;
    let effects = Effects { command_set_identifier: args.csi, admin_cmd_set, io_cmd_set };
    let structure = Structure { title, fields: &fields, bytes: &data };
    // nvme-cli prints a list, with an entry for each command set.
    structure.show_as(args.at.printing, args.detail.human_readable, &[effects])
}

/// Reads the ANA log as it was at one time.
fn read_ana(session: &mut Session, groups_only: bool) -> Result<Vec<u8>, Error> {
    let page = (NamespaceId::ALL, LogPage::AsymmetricAccess.into());
    let lsp = u32::from(groups_only) << 8;
    for _ in 0..AGAIN_MAX {
        let mut log: Vec<u8> = Vec::new();
        // Its length is known only from all of its groups, and nothing may be read behind its end.
        let length = loop {
            let (at, flags) = (log.len() as u64, |command: &mut SubmissionQueueEntry| command.cdw10 |= lsp);
            log.extend(logs::read(session, page, (at, PAGE), flags)?);
            match ana_log_length(&log) {
                Some(length) => break length,
                None if log.len() >= logs::LENGTH_MAX as usize => break log.len(),
                None => {}
            }
        };
        log.truncate(length);
        let after = logs::read(session, page, (0, HEADER), |command| command.cdw10 |= lsp)?;
        // Its first 8 bytes count the changes.
        if log.first_chunk::<8>() == after.first_chunk::<8>() {
            return Ok(log);
        }
    }
    Err(NvmeError::Restless.into())
}

pub(super) fn ana(args: &AnaLogArgs) -> Result<(), Error> {
    let target = &args.at.target;
    let data = with(target, |session| read_ana(session, args.groups))?;
    let header = AnaLogHeader::parse(data.first_chunk().expect("as many bytes as were asked for"));
    let groups = ana_groups(&data);
    let group = |one: &AnaGroup| Group {
        grpid: one.descriptor.group,
        nnsids: one.descriptor.namespaces,
        chgcnt: one.descriptor.change_count,
        state: state(one),
        nsids: one.namespaces.iter().map(|id| OfNamespace { nsid: id.0 }).collect(),
    };
    let json = || Ana {
        device: target.url.to_string(),
        chgcnt: header.change_count,
        ngrps: header.groups,
        groups: groups.iter().map(group).collect(),
    };
    let line = |one: &AnaGroup| {
        let ids: Vec<_> = one.namespaces.iter().map(|id| id.0.to_string()).collect();
        let namespaces =
            if ids.is_empty() { String::new() } else { format!(", namespaces {}", ids.join(", ")) };
        format!(
            "group {}: {}, change {}{namespaces}\n",
            one.descriptor.group,
            state(one),
            one.descriptor.change_count
        )
    };
    let text = || {
        let lines: String = groups.iter().map(line).collect();
        format!("{}, change {}\n{lines}", counted((groups.len(), "group")), header.change_count)
    };
    show_list(args.at.printing, &data, json, text)
}

/// The state of a group in nvme-cli's words.
const fn state(group: &AnaGroup) -> &'static str {
    match AnaState::from_raw(group.descriptor.state) {
        AnaState::Optimized => "optimized",
        AnaState::NonOptimized => "non-optimized",
        AnaState::Inaccessible => "inaccessible",
        AnaState::PersistentLoss => "persistent-loss",
        AnaState::Change => "change",
    }
}

pub(super) fn supported(args: &DetailArgs) -> Result<(), Error> {
    let page = (NamespaceId::ALL, LogPage::SupportedLogPages.into());
    let data = with(&args.at.target, |session| logs::read(session, page, (0, SUPPORTED_PAGES), |_| ()))?;
    let words = data.as_chunks::<4>().0.iter().map(|raw| u32::from_le_bytes(*raw));
    let (mut fields, mut list) = (Fields::default(), Vec::new());
    for (id, word) in (0..=u8::MAX).zip(words).filter(|(_, word)| word & 1 == 1) {
        let meaning = LogPage::from(id).to_string();
        fields.flags(&format!("{id:#04x}"), word, 8, &meaning, &[(0, "supported"), (1, "takes an index")]);
        // The space is nvme-cli's.
        list.push(BTreeMap::from([(format!("lid_{id:#x} "), word)]));
    }
    let structure = Structure { title: "Supported log pages", fields: &fields, bytes: &data };
    let json = SupportedLogs { supported_logs: list };
    structure.show_as(args.at.printing, args.detail.human_readable, &json)
}

pub(super) fn changed(args: &ChangedNsArgs) -> Result<(), Error> {
    let page = (NamespaceId::ALL, LogPage::ChangedNamespaces.into());
    let target = &args.at.target;
    let data = with(target, |session| {
        logs::read(session, page, (0, PAGE), |command| command.cdw10 |= u32::from(args.rae) << 15)
    })?;
    let ids: Vec<u32> = data.as_chunks::<4>().0.iter().map(|raw| u32::from_le_bytes(*raw)).collect();
    let ids: Vec<u32> = ids.into_iter().take_while(|id| *id != 0).collect();
    let json = || {
        let device = target.url.to_string();
        let numbered = (1..).zip(&ids).map(|(at, id)| (format!("[{at:4}]"), format!("{id:#x}")));
        let namespaces = BTreeMap::from([(device.clone(), numbered.collect())]);
        Changed { device, namespaces }
    };
    let text = || match ids.as_slice() {
        [] => "no namespace has changed since the log was read\n".to_owned(),
        [u32::MAX] => "more namespaces have changed than the log holds\n".to_owned(),
        ids => (1..).zip(ids).map(|(at, id)| format!("[{at:4}]:{id:#x}\n")).collect::<String>(),
    };
    show_list(args.at.printing, &data, json, text)
}

pub(super) fn endurance(args: &EnduranceLogArgs) -> Result<(), Error> {
    let length = u32::try_from(EnduranceGroupLog::LENGTH).expect("512 bytes");
    let page = (NamespaceId::ALL, ENDURANCE_GROUP_PAGE);
    let data = with(&args.at.target, |session| {
        logs::read(session, page, (0, length), |command| command.cdw11 |= u32::from(args.group_id) << 16)
    })?;
    let log = EnduranceGroupLog::parse(data.first_chunk().expect("as many bytes as were asked for"));
    let mut fields = Fields::default();
    let warnings = [(0, "available spare is below its threshold"), (2, "degraded"), (3, "read-only")];
    fields.flags("critical_warning", log.critical_warning, 2, "warnings", &warnings);
    fields.number("endurance_group_features", log.features, "features");
    fields.number("avl_spare", log.available_spare, "% of the spare blocks are left");
    fields.number("avl_spare_threshold", log.available_spare_threshold, "% is where to worry");
    fields.number("percent_used", log.percentage_used, "% of the endurance is used; may exceed 100");
    fields.number("domain_identifier", log.domain, "domain");
    for (name, units, what) in [
        ("endurance_estimate", log.endurance_estimate, "may be written over the life"),
        ("data_units_read", log.data_units_read, "read"),
        ("data_units_written", log.data_units_written, "written"),
        ("media_units_written", log.media_units_written, "written to the media"),
    ] {
        fields.number(name, units, format!("{} {what}", size(units.saturating_mul(ENDURANCE_UNIT))));
    }
    for (name, value, what) in [
        ("host_read_cmds", log.host_reads, "reads and compares"),
        ("host_write_cmds", log.host_writes, "writes"),
        ("media_data_integrity_err", log.media_errors, "times that data were lost"),
        ("num_err_info_log_entries", log.error_entries, "errors logged"),
        ("total_end_grp_cap", log.total_capacity, "bytes in all"),
        ("unalloc_end_grp_cap", log.unallocated_capacity, "bytes that are not allocated"),
    ] {
        fields.number(name, value, what);
    }
    let title = format!("Endurance Group {}", args.group_id);
    let structure = Structure { title: &title, fields: &fields, bytes: &data };
    structure.show(args.at.printing, false)
}
