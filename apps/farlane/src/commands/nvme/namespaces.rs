//! `farlane nvme list-ns`, `list-ctrl`, `create-ns`, `delete-ns`, `attach-ns`, `detach-ns` and
//! `format`.

use nvme::wire::identify::{IdentifyNamespace, cns, namespace_list};
use nvme::wire::{AdminOpcode, NamespaceId, SubmissionQueueEntry};
use nvme_pcie::host::QueueId;
use schemars::JsonSchema;
use serde::Serialize;

use super::{OfNamespace, PAGE, Payload, done, entry, show_list, with};
use crate::args::{AtNamespaceArgs, AttachNsArgs, CreateNsArgs, FormatArgs, ListCtrlArgs, ListNsArgs};
use crate::commands::identify::identify;
use crate::error::Error;
use crate::session::Session;

/// Select (SEL) of Namespace Management: delete.
const DELETE: u32 = 1;
/// Controller identifiers that a list has room for.
const CONTROLLERS_MAX: usize = 2047;

/// Namespaces.
#[derive(Serialize, JsonSchema)]
pub(super) struct NamespaceList {
    /// The namespaces.
    nsid_list: Vec<OfNamespace>,
}

/// Controllers.
#[derive(Serialize, JsonSchema)]
pub(super) struct ControllerList {
    /// Number of the controllers.
    num_ctrl: usize,
    /// The controllers.
    ctrl_list: Vec<OfController>,
}

/// A controller.
#[derive(Serialize, JsonSchema)]
struct OfController {
    /// Controller identifier.
    ctrl_id: u16,
}

/// A namespace that was attached, or detached.
#[derive(Serialize, JsonSchema)]
pub(super) struct Attached {
    /// Namespace identifier.
    nsid: u32,
    /// The controllers.
    controllers: Vec<u16>,
}

pub(super) fn list(args: &ListNsArgs) -> Result<(), Error> {
    let structure = match (args.all, args.csi) {
        (false, None) => cns::ACTIVE_NAMESPACES,
        (true, None) => cns::ALLOCATED_NAMESPACES,
        (false, Some(_)) => cns::COMMAND_SET_ACTIVE_NAMESPACES,
        (true, Some(_)) => cns::COMMAND_SET_ALLOCATED_NAMESPACES,
    };
    let asked = nvme::host::command::identify(structure, NamespaceId(args.after));
    let asked = SubmissionQueueEntry { cdw11: u32::from(args.csi.unwrap_or_default()) << 24, ..asked };
    let page = with(&args.at.target, |session| session.admin("Identify (namespaces)", asked, PAGE))?;
    let ids: Vec<_> = namespace_list(&page).map(|id| id.0).collect();
    let json = || NamespaceList { nsid_list: ids.iter().map(|id| OfNamespace { nsid: *id }).collect() };
    let text = || ids.iter().enumerate().map(|(at, id)| format!("[{at:4}]:{id:#x}\n")).collect();
    show_list(args.at.printing, &page, json, text)
}

pub(super) fn controllers(args: &ListCtrlArgs) -> Result<(), Error> {
    let structure = match args.namespace {
        Some(_) => cns::ATTACHED_CONTROLLERS,
        None => cns::CONTROLLERS,
    };
    let from = u32::from(args.cntid) << 16;
    let asked = nvme::host::command::identify(structure, NamespaceId(args.namespace.unwrap_or_default()));
    let asked = SubmissionQueueEntry { cdw10: asked.cdw10 | from, ..asked };
    let page = with(&args.at.target, |session| session.admin("Identify (controllers)", asked, PAGE))?;
    let mut numbers = page.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    let count = usize::from(numbers.next().unwrap_or_default());
    let ids: Vec<_> = numbers.take(count.min(CONTROLLERS_MAX)).collect();
    let json = || {
        let ctrl_list = ids.iter().map(|id| OfController { ctrl_id: *id }).collect();
        ControllerList { num_ctrl: ids.len(), ctrl_list }
    };
    let text = || ids.iter().enumerate().map(|(at, id)| format!("[{at:4}]:{id:#x}\n")).collect();
    show_list(args.at.printing, &page, json, text)
}

/// The number of the LBA format without metadata whose blocks have `bytes` bytes.
fn format_of(session: &mut Session, namespace: NamespaceId, bytes: u32) -> Result<u8, Error> {
    let page = identify(session, "Identify (namespace)", cns::NAMESPACE, namespace)?;
    let known = IdentifyNamespace::parse(&page);
    let formats = (0..).zip(known.lba_formats).take(usize::from(known.lba_format_count) + 1);
    let plain: Vec<(u8, u32)> = formats
        .filter(|(_, format)| format.metadata_size == 0 && (9..32).contains(&format.data_size))
        .map(|(number, format)| (number, 1 << format.data_size))
        .collect();
    let found = plain.iter().find(|(_, size)| *size == bytes);
    found.map(|(number, _)| *number).ok_or_else(|| {
        let sizes: Vec<_> = plain.iter().map(|(_, size)| size.to_string()).collect();
        let expected = format!("one of {}", sizes.join(", "));
        Error::Range { what: "--block-size", value: bytes.into(), expected }
    })
}

pub(super) fn create(args: &CreateNsArgs) -> Result<(), Error> {
    let id = with(&args.at.target, |session| {
        let format = match args.block_size {
            Some(bytes) => format_of(session, NamespaceId::ALL, bytes)?,
            None => args.flbas,
        };
        let mut wanted = [0; PAGE as usize];
        wanted[0..8].copy_from_slice(&args.nsze.to_le_bytes());
        wanted[8..16].copy_from_slice(&args.ncap.unwrap_or(args.nsze).to_le_bytes());
        (wanted[26], wanted[29], wanted[30]) = (format, args.dps, args.nmic);
        wanted[92..96].copy_from_slice(&args.anagrp_id.to_le_bytes());
        let command = entry(AdminOpcode::NamespaceManagement, 0);
        let sent = Payload::Sent(&wanted);
        Ok(session.command("Namespace Management (create)", QueueId::ADMIN, command, sent)?.0)
    })?;
    done(&args.at, &format!("create-ns: Success, created nsid:{id}\n"), &OfNamespace { nsid: id })
}

pub(super) fn delete(args: &AtNamespaceArgs) -> Result<(), Error> {
    let id = args.namespace;
    let command = SubmissionQueueEntry { cdw10: DELETE, ..entry(AdminOpcode::NamespaceManagement, id) };
    with(&args.at.target, |session| session.admin("Namespace Management (delete)", command, 0))?;
    done(&args.at, &format!("delete-ns: Success, deleted nsid:{id}\n"), &OfNamespace { nsid: id })
}

/// Attaches a namespace to controllers, or detaches it from them.
pub(super) fn attach(args: &AttachNsArgs, attach: bool) -> Result<(), Error> {
    if args.controllers.len() > CONTROLLERS_MAX {
        let (value, expected) = (args.controllers.len() as u64, format!("1 to {CONTROLLERS_MAX}"));
        return Err(Error::Range { what: "the number of --controllers", value, expected });
    }
    let id = args.place.namespace;
    let controllers = with(&args.place.at.target, |session| {
        let controllers = match args.controllers.as_slice() {
            [] => vec![session.identity()?.controller.controller_id],
            given => given.to_vec(),
        };
        let mut list = vec![u16::try_from(controllers.len()).unwrap_or(u16::MAX)];
        list.extend(&controllers);
        let mut page: Vec<u8> = list.iter().flat_map(|number| number.to_le_bytes()).collect();
        page.resize(PAGE as usize, 0);
        let command =
            SubmissionQueueEntry { cdw10: u32::from(!attach), ..entry(AdminOpcode::NamespaceAttachment, id) };
        session.command("Namespace Attachment", QueueId::ADMIN, command, Payload::Sent(&page))?;
        Ok(controllers)
    })?;
    let verb = if attach { "attach-ns" } else { "detach-ns" };
    let value = Attached { nsid: id, controllers };
    done(&args.place.at, &format!("{verb}: Success, nsid:{id}\n"), &value)
}

pub(super) fn format(args: &FormatArgs) -> Result<(), Error> {
    let id = args.place.namespace;
    if !args.force {
        return Err(Error::WithoutForce { what: format!("formatting namespace {id}") });
    }
    with(&args.place.at.target, |session| {
        let number = match (args.block_size, args.lbaf) {
            (Some(bytes), _) => format_of(session, NamespaceId(id), bytes)?,
            (None, Some(number)) => number,
            // The present format stays.
            (None, None) => {
                let page = identify(session, "Identify (namespace)", cns::NAMESPACE, NamespaceId(id))?;
                IdentifyNamespace::parse(&page).formatted_index()
            }
        };
        let (low, high) = (u32::from(number & 0xf), u32::from(number >> 4 & 0b11));
        let cdw10 = low | u32::from(args.pi) << 5 | u32::from(args.ses) << 9 | high << 12;
        let command = SubmissionQueueEntry { cdw10, ..entry(AdminOpcode::FormatNvm, id) };
        session.admin("Format NVM", command, 0)
    })?;
    done(&args.place.at, &format!("Success formatting namespace:{id:x}\n"), &OfNamespace { nsid: id })
}
