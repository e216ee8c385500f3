//! `farlane nvme identify`: the descriptions that a controller and its namespaces give of
//! themselves.

mod controller;
mod namespace;

use nvme::wire::NamespaceId;
use nvme::wire::identify::{
    IDENTIFY_LENGTH, IdentifyController, IdentifyNamespace, NamespaceDescriptor, cns, namespace_list,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::fields::Fields;
use crate::args::AtArgs;
use crate::commands::{print, print_json};
use crate::error::Error;
use crate::session::{Needs, Session};

type Page = [u8; IDENTIFY_LENGTH];

/// What a controller and its namespaces report; controller and namespaces have nvme-cli's names.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Identified {
    /// The controller.
    controller: Fields,
    /// Each active namespace.
    namespaces: Vec<Fields>,
}

pub(crate) fn run(args: &AtArgs) -> Result<(), Error> {
    let target = &args.at.target;
    let mut session = Session::attach(target, Needs::default())?;
    let controller = controller::fields(session.identity()?.controller);
    let namespaces = namespaces(&mut session)?;
    let name = session.name();
    session.close()?;
    if args.at.printing.is_json() {
        return print_json(&Identified {
            controller,
            namespaces: namespaces.into_iter().map(|(_, it)| it).collect(),
        });
    }
    let mut text = format!("Controller {name} at {}\n{}", target.url, controller.table());
    if namespaces.is_empty() {
        text.push_str("\nNo namespace is attached to it.\n");
    }
    for (id, fields) in &namespaces {
        text.push_str(&format!("\nNamespace {id}\n{}", fields.table()));
    }
    print(&text)
}

/// The active namespaces with their fields. One list holds 1,024 of them; namespaces beyond that
/// are left out.
fn namespaces(session: &mut Session) -> Result<Vec<(NamespaceId, Fields)>, Error> {
    let list = identify(session, "Identify (active namespaces)", cns::ACTIVE_NAMESPACES, NamespaceId::NONE)?;
    let mut namespaces = Vec::new();
    for id in namespace_list(&list[..]) {
        namespaces.push((id, namespace_fields(session, id, cns::NAMESPACE)?.1));
    }
    Ok(namespaces)
}

/// The names of a namespace.
fn names(session: &mut Session, id: NamespaceId) -> Result<Vec<NamespaceDescriptor>, Error> {
    match identify(session, "Identify (descriptors)", cns::NAMESPACE_DESCRIPTORS, id) {
        Ok(page) => Ok(NamespaceDescriptor::list(&page[..]).collect()),
        // Controllers before NVMe 1.3 do not have this list.
        Err(Error::Command { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The Identify Controller structure, and its fields.
pub(crate) fn controller_fields(session: &mut Session) -> Result<(Box<Page>, Fields), Error> {
    let page = identify(session, "Identify (controller)", cns::CONTROLLER, NamespaceId::NONE)?;
    let fields = controller::fields(&IdentifyController::parse(&page));
    Ok((page, fields))
}

/// The Identify Namespace structure of the namespace `id`, and its fields. `structure` is that of
/// namespaces in use, or that of all.
pub(crate) fn namespace_fields(
    session: &mut Session,
    id: NamespaceId,
    structure: u32,
) -> Result<(Box<Page>, Fields), Error> {
    let page = identify(session, "Identify (namespace)", structure, id)?;
    let fields = namespace::fields(id, &IdentifyNamespace::parse(&page), &names(session, id)?);
    Ok((page, fields))
}

/// Reads a page of Identify.
pub(crate) fn identify(
    session: &mut Session,
    command: &'static str,
    structure: u32,
    namespace: NamespaceId,
) -> Result<Box<Page>, Error> {
    let entry = nvme::host::command::identify(structure, namespace);
    let length = u32::try_from(IDENTIFY_LENGTH).expect("4 KiB");
    let page = session.admin(command, entry, length)?.into_boxed_slice();
    Ok(page.try_into().expect("as many bytes as were asked for"))
}
