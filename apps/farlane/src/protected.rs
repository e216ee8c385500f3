//! The component that makes and checks the protection information of a namespace that a subcommand
//! uses.

use live::client::Identity;
use nvme::host::{Mismatch, Namespace, Protection, command};
use nvme::wire::NamespaceId;
use nvme::wire::identify::{IDENTIFY_LENGTH, cns};
use nvme_pcie::host::{Data, Submission};

use crate::error::Error;
use crate::session::Session;

/// Controller Attributes (CTRATT): Extended LBA Formats (ELBAS).
const EXTENDED_FORMATS: u32 = 1 << 15;

/// The component that makes and checks the protection information of a namespace.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Protected {
    /// None: the namespace has no protection information.
    No,
    /// The controller, at its medium: information is never transferred.
    ByController(Protection),
    /// This host and the controller: information goes with the data all the way.
    ByHost(Protection),
}

impl Protected {
    /// Asks the controller how `namespace` is protected. The host takes part if `by_host` is set
    /// and the transport lets it: over fabrics, metadata has no place of its own.
    ///
    /// # Errors
    /// When the namespace has metadata of another kind.
    pub(crate) fn of(session: &mut Session, namespace: &Namespace, by_host: bool) -> Result<Self, Error> {
        if namespace.metadata_bytes == 0 {
            return Ok(Self::No);
        }
        let page = identify(session, cns::NAMESPACE, namespace.id)?;
        let Identity { controller, .. } = session.identity()?;
        let formats = match controller.attributes & EXTENDED_FORMATS {
            0 => None,
            _ => Some(identify(session, cns::COMMAND_SET_NAMESPACE, namespace.id)?),
        };
        let other = Error::Metadata { namespace: namespace.id.0, bytes: namespace.metadata_bytes };
        let protection = Protection::of(&page, formats.as_ref()).ok_or(other)?;
        match by_host && !session.is_fabric() && Protection::is_separate(&page) {
            true => Ok(Self::ByHost(protection)),
            false => Ok(Self::ByController(protection)),
        }
    }

    /// The word for reports; none without protection.
    pub(crate) const fn word(&self) -> Option<&'static str> {
        match self {
            Self::No => None,
            Self::ByController(_) => Some("controller"),
            Self::ByHost(_) => Some("host"),
        }
    }

    /// Length in bytes of the information that a host keeps for `blocks` blocks of a command.
    pub(crate) fn bytes(&self, blocks: u32) -> u32 {
        match self {
            Self::No | Self::ByController(_) => 0,
            Self::ByHost(protection) => protection.bytes(blocks),
        }
    }

    /// The submission of a Read or Write whose information, where the host keeps it, is
    /// at `metadata`.
    pub(crate) fn submission(&self, submission: Submission, metadata: u64) -> Submission {
        let entry = match self {
            Self::No => submission.entry,
            Self::ByController(protection) => protection.by_controller(submission.entry),
            Self::ByHost(protection) => protection.by_host(submission.entry, metadata),
        };
        Submission { entry, ..submission }
    }

    /// Writes the information of the blocks at `data`, from `lba` on, to `metadata`.
    pub(crate) fn generate(&self, session: &mut Session, lba: u64, data: Data, metadata: Data) {
        if let Self::ByHost(protection) = self {
            let blocks = session.bytes(data).to_vec();
            session.put(metadata, |bytes| protection.generate(lba, &blocks, bytes));
        }
    }

    /// Checks the information of the blocks at `data`, from `lba` on, that came to `metadata`.
    ///
    /// # Errors
    /// The first block whose information is wrong.
    pub(crate) fn check(
        &self,
        session: &mut Session,
        lba: u64,
        data: Data,
        metadata: Data,
    ) -> Result<(), Mismatch> {
        let Self::ByHost(protection) = self else { return Ok(()) };
        let information = session.bytes(metadata).to_vec();
        protection.check(lba, session.bytes(data), &information)
    }
}

fn identify(
    session: &mut Session,
    structure: u32,
    namespace: NamespaceId,
) -> Result<[u8; IDENTIFY_LENGTH], Error> {
    let length = u32::try_from(IDENTIFY_LENGTH).expect("a page is small");
    let page = session.admin("Identify (namespace)", command::identify(structure, namespace), length)?;
    Ok(page.try_into().expect("as long as was asked for"))
}
