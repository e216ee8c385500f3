//! `farlane export status`, `add`, `remove`, `resize`, `save` and `reload`: requests to running
//! far ends.

use std::path::PathBuf;

use serde_json::Value;

use super::request::Request;
use crate::args::ExportAction;
use crate::commands::control::{self, await_far, plain, tell_changes};
use crate::commands::{print, print_json, save, status};
use crate::error::Error;

pub(super) fn run(action: ExportAction) -> Result<(), Error> {
    match action {
        ExportAction::Status(args) => {
            let told = ask(args.control.control.as_ref(), &Request::Status)?;
            if args.output.json { print_json(&told) } else { print(&status::text(&told)) }
        }
        ExportAction::Add(args) => {
            await_far(&args.added)?;
            let request = Request::Add {
                far_end: args.place.far_end,
                namespace: args.added.namespace.map(|spec| spec.absolute().to_string()),
                ram: args.added.ram.map(|ram| ram.to_string()),
            };
            let added = ask(args.place.control.control.as_ref(), &request)?;
            print(&format!("added namespace {} to {}\n", added["nsid"], plain(&added["far_end"])))
        }
        ExportAction::Remove(args) => {
            let request = Request::Remove { far_end: args.place.far_end, nsid: args.removed.nsid };
            let removed = ask(args.place.control.control.as_ref(), &request)?;
            print(&format!("removed namespace {} from {}\n", removed["nsid"], plain(&removed["far_end"])))
        }
        ExportAction::Resize(args) => {
            let (far_end, resized) = (args.place.far_end, args.resized);
            let request = Request::Resize { far_end, nsid: resized.nsid, size: resized.size };
            let done = ask(args.place.control.control.as_ref(), &request)?;
            if args.output.json {
                return print_json(&done);
            }
            let far_end = plain(&done["far_end"]);
            print(&format!("namespace {} of {far_end} has {} B\n", done["nsid"], done["bytes"]))
        }
        ExportAction::Save(args) => {
            let offered = ask(args.control.control.as_ref(), &Request::Offered)?;
            save::export(&args, &offered)
        }
        ExportAction::Reload(args) => tell_changes(&ask(args.control.as_ref(), &Request::Reload)?),
    }
}

fn ask(given: Option<&PathBuf>, request: &Request) -> Result<Value, Error> {
    control::ask(&control::only("export", given)?, request)
}
