//! `farlane nvme id-ctrl`, `id-ns`, `ns-descs` and `id-uuid`.

use nvme::wire::NamespaceId;
use nvme::wire::identify::{cns, uuid_list};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Structure, show_list, with};
use crate::args::{DetailArgs, IdNsArgs, NsDescsArgs, ReadAtArgs};
use crate::commands::fields::{digits, uuid};
use crate::commands::identify;
use crate::error::Error;

pub(super) fn controller(args: &DetailArgs) -> Result<(), Error> {
    let target = &args.at.target;
    let (name, (page, fields)) =
        with(target, |session| Ok((session.name(), identify::controller_fields(session)?)))?;
    let title = format!("Controller {name} at {}", target.url);
    let structure = Structure { title: &title, fields: &fields, bytes: &page[..] };
    structure.show(args.at.printing, args.detail.human_readable)
}

pub(super) fn namespace(args: &IdNsArgs) -> Result<(), Error> {
    let id = NamespaceId(args.namespace);
    let structure = if args.force { cns::ALLOCATED_NAMESPACE } else { cns::NAMESPACE };
    let (page, fields) = with(&args.at.target, |session| identify::namespace_fields(session, id, structure))?;
    let structure = Structure { title: &format!("Namespace {id}"), fields: &fields, bytes: &page[..] };
    structure.show(args.at.printing, args.detail.human_readable)
}

/// Bytes of the header of a Namespace Identification Descriptor.
const DESCRIPTOR_HEADER: usize = 4;

/// The Namespace Identification Descriptors of a namespace.
#[derive(Serialize, JsonSchema)]
pub(super) struct Descriptors<'a> {
    /// The descriptors.
    #[serde(rename = "ns-descs")]
    list: &'a [Descriptor],
}

/// A Namespace Identification Descriptor under the names that nvme-cli gives its parts.
#[derive(Serialize, JsonSchema)]
struct Descriptor {
    /// Place in the list, in bytes.
    loc: usize,
    /// Type of the identifier as a number.
    nidt: u8,
    /// Bytes of the identifier.
    nidl: u8,
    /// Type of the identifier.
    #[serde(rename = "Type")]
    kind: &'static str,
    /// The identifier, under its type.
    #[serde(flatten)]
    identifier: Identifier,
}

/// An identifier of a namespace.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Identifier {
    /// IEEE Extended Unique Identifier.
    Eui64(String),
    /// Namespace Globally Unique Identifier.
    Nguid(String),
    /// UUID.
    Uuid(String),
    /// Command Set Identifier.
    Csi(String),
}

impl Identifier {
    /// The identifier, and its type.
    fn parse(kind: u8, name: &[u8]) -> Option<(&'static str, Self)> {
        Some(match (kind, <[u8; 16]>::try_from(name)) {
            (1, _) => ("eui64", Self::Eui64(digits(name))),
            (2, _) => ("nguid", Self::Nguid(digits(name))),
            (3, Ok(bytes)) => ("uuid", Self::Uuid(uuid(&bytes))),
            (4, _) => ("csi", Self::Csi(format!("{:#x}", name.first()?))),
            _ => return None,
        })
    }

    fn text(&self) -> &str {
        match self {
            Self::Eui64(text) | Self::Nguid(text) | Self::Uuid(text) | Self::Csi(text) => text,
        }
    }
}

/// The UUID list of a controller.
#[derive(Serialize, JsonSchema)]
pub(super) struct Uuids {
    /// The UUIDs.
    #[serde(rename = "UUID-list")]
    list: Vec<ListedUuid>,
}

/// An entry of the UUID list.
#[derive(Serialize, JsonSchema)]
struct ListedUuid {
    /// Identifier association.
    association: u8,
    /// The UUID.
    uuid: String,
}

/// The descriptors in a list, with their places.
fn descriptors_of(page: &[u8]) -> Vec<Descriptor> {
    let (mut list, mut at) = (Vec::new(), 0);
    while let [nidt, nidl, ..] = *page.get(at..).unwrap_or_default() {
        let start = at + DESCRIPTOR_HEADER;
        let name = page.get(start..start + usize::from(nidl)).filter(|name| !name.is_empty());
        let Some(name) = name else { break };
        if let Some((kind, identifier)) = Identifier::parse(nidt, name) {
            list.push(Descriptor { loc: at, nidt, nidl, kind, identifier });
        }
        at = start + name.len();
    }
    list
}

pub(super) fn descriptors(args: &NsDescsArgs) -> Result<(), Error> {
    let id = NamespaceId(args.namespace);
    let page = with(&args.at.target, |session| {
        identify::identify(session, "Identify (descriptors)", cns::NAMESPACE_DESCRIPTORS, id)
    })?;
    let list = descriptors_of(&page[..]);
    let line = |one: &Descriptor| format!("{:5} : {}\n", one.kind, one.identifier.text());
    let text = || format!("Namespace {id}\n{}", list.iter().map(line).collect::<String>());
    show_list(args.at.printing, &page[..], || Descriptors { list: &list }, text)
}

pub(super) fn uuids(args: &ReadAtArgs) -> Result<(), Error> {
    let page = with(&args.at.target, |session| {
        identify::identify(session, "Identify (UUID list)", cns::UUID_LIST, NamespaceId::NONE)
    })?;
    let list: Vec<_> = uuid_list(&page[..]).collect();
    let json = || {
        let one = |(association, bytes): &(u8, [u8; 16])| ListedUuid {
            association: *association,
            uuid: uuid(bytes),
        };
        Uuids { list: list.iter().map(one).collect() }
    };
    let text = || match list.is_empty() {
        true => "the list has no UUID\n".to_owned(),
        false => (1..).zip(&list).map(|(at, (_, bytes))| format!("[{at:4}]: {}\n", uuid(bytes))).collect(),
    };
    show_list(args.at.printing, &page[..], json, text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_of_a_namespace_are_reported_with_their_places() {
        let mut page = vec![0; 4096];
        page[..5].copy_from_slice(&[4, 1, 0, 0, 0]);
        // A type that does not exist, then a UUID.
        page[5..11].copy_from_slice(&[9, 2, 0, 0, 7, 7]);
        page[11..15].copy_from_slice(&[3, 16, 0, 0]);
        page[15] = 0xab;
        let list = serde_json::to_value(descriptors_of(&page)).unwrap();
        assert_eq!(list[0], json!({ "loc": 0, "nidt": 4, "nidl": 1, "Type": "csi", "csi": "0x0" }));
        assert_eq!((&list[1]["loc"], &list[1]["Type"]), (&json!(11), &json!("uuid")));
        assert_eq!(list[1]["uuid"], "ab000000-0000-0000-0000-000000000000");
        for length in 0..31 {
            assert!(descriptors_of(&page[..length]).len() < 2);
        }
        assert!(descriptors_of(&[0xff; 4096]).is_empty());
    }
}
