//! `farlane id-ctrl` and `id-ns`.

use crate::args::{AtArgs, AtNamespaceArgs};
use crate::commands::identify;
use crate::error::Error;

pub(super) fn controller(args: &AtArgs) -> Result<(), Error> {
    let (name, fields) =
        super::with(&args.at.target, |session| Ok((session.name(), identify::controller_fields(session)?)))?;
    super::show(&args.at, &format!("Controller {name} at {}", args.at.target.url), &fields)
}

pub(super) fn namespace(args: &AtNamespaceArgs) -> Result<(), Error> {
    let id = args.namespace;
    let fields = super::with(&args.at.target, |session| identify::namespace_fields(session, id))?;
    super::show(&args.at, &format!("Namespace {id}"), &fields)
}
