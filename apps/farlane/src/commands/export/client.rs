//! `farlane export status`, `add`, `remove`, `resize`, `save` and `reload`: requests to running
//! far ends.

use std::net::SocketAddr;

use ::status::Status;
use serde::de::DeserializeOwned;

use super::request::{Changed, Request, Resized, is_at};
use super::save;
use crate::args::{ExportAction, FarEndArgs};
use crate::commands::control::{self, await_far, print_changes};
use crate::commands::{print, print_json, status};
use crate::error::Error;

pub(super) fn run(action: ExportAction) -> Result<(), Error> {
    match action {
        ExportAction::Status(args) => status::show_only("export", &args),
        ExportAction::Add(args) => {
            await_far(&args.added)?;
            let request = Request::Add {
                far_end: args.place.far_end,
                namespace: args.added.namespace.map(|spec| spec.absolute().to_string()),
                ram: args.added.ram.map(|ram| ram.to_string()),
            };
            let Changed { far_end, nsid } = ask_at(&args.place, &request)?;
            print(&format!("added namespace {nsid} to {far_end}\n"))
        }
        ExportAction::Remove(args) => {
            let request = Request::Remove { far_end: args.place.far_end, nsid: args.removed.nsid };
            let Changed { far_end, nsid } = ask_at(&args.place, &request)?;
            print(&format!("removed namespace {nsid} from {far_end}\n"))
        }
        ExportAction::Resize(args) => {
            let (far_end, resized) = (args.place.far_end, args.resized);
            let request = Request::Resize { far_end, nsid: resized.nsid, size: resized.size };
            let done: Resized = ask_at(&args.place, &request)?;
            if args.output.json {
                return print_json(&done);
            }
            let Resized { far_end, nsid, bytes } = done;
            print(&format!("namespace {nsid} of {far_end} has {bytes} B\n"))
        }
        ExportAction::Save(args) => {
            let offered = control::ask_only("export", args.control.control.as_ref(), &Request::Offered)?;
            save::save(&args, &offered)
        }
        ExportAction::Reload(args) => {
            print_changes(&control::ask_only("export", args.control.as_ref(), &Request::Reload)?)
        }
    }
}

/// Asks the process that has the far end.
fn ask_at<T: DeserializeOwned>(place: &FarEndArgs, request: &Request) -> Result<T, Error> {
    let given = place.control.control.as_ref();
    let socket = match place.far_end {
        None => control::only("export", given)?,
        Some(address) => {
            let what = format!("a far end that listens on {address}");
            control::with("export", given, &what, |status| has_far_end(status, address))?
        }
    };
    control::ask_for(&socket, request)
}

/// Whether a process has a far end at `address`, by its status.
fn has_far_end(status: &Status, address: SocketAddr) -> bool {
    let Status::Export(export) = status else { return false };
    export.far_ends.iter().any(|one| one.listening.parse().is_ok_and(|own| is_at(own, address)))
}
