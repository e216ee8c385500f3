//! `farlane target status`, `add`, `remove`, `resize`, `ana` and `reload`: requests to a running
//! target.

use std::path::PathBuf;

use live::sys::clock::Clock;
use serde_json::Value;

use super::request::Request;
use super::status;
use crate::args::{MediumSpec, TargetAction, format_text};
use crate::commands::served::{FAR_PATIENCE, open_far};
use crate::commands::{control, print, print_json};
use crate::error::Error;

pub(super) fn run(action: TargetAction) -> Result<(), Error> {
    match action {
        TargetAction::Status(args) => {
            let status = ask(args.control.control.as_ref(), &Request::Status)?;
            if args.output.json { print_json(&status) } else { print(&status::text(&status)) }
        }
        TargetAction::Add(args) => {
            // A device that is not there is waited for here: in the target, all hosts would wait.
            if let Some(MediumSpec::Far(spec)) = &args.namespace {
                drop(open_far(Clock::start(), spec, FAR_PATIENCE)?);
            }
            let request = Request::Add {
                nqn: args.nqn.map(|nqn| nqn.to_string()),
                namespace: args.namespace.map(absolute),
                ram: args.ram.map(|ram| format!("{},{}", ram.size, format_text(ram.block))),
                ana_group: args.ana_group,
            };
            let added = ask(args.control.control.as_ref(), &request)?;
            print(&format!("added namespace {} to {}\n", added["nsid"], plain(&added["nqn"])))
        }
        TargetAction::Remove(args) => {
            let request = Request::Remove { nqn: args.nqn.map(|nqn| nqn.to_string()), nsid: args.nsid };
            let removed = ask(args.control.control.as_ref(), &request)?;
            print(&format!("removed namespace {} from {}\n", removed["nsid"], plain(&removed["nqn"])))
        }
        TargetAction::Resize(args) => {
            let nqn = args.nqn.map(|nqn| nqn.to_string());
            let request = Request::Resize { nqn, nsid: args.nsid, size: args.size };
            let done = ask(args.control.control.as_ref(), &request)?;
            if args.output.json {
                return print_json(&done);
            }
            print(&format!("namespace {} of {} has {} B\n", done["nsid"], plain(&done["nqn"]), done["bytes"]))
        }
        TargetAction::Ana(args) => {
            let (nqn, port) = (args.nqn.map(|nqn| nqn.to_string()), args.port);
            let (group, state, controller) = (args.group, args.state, args.controller);
            let request = Request::Ana { nqn, group, state, port, controller };
            let done = ask(args.control.control.as_ref(), &request)?;
            if args.output.json {
                return print_json(&done);
            }
            print(&format!(
                "group {} of {} is {}\n",
                done["group"],
                plain(&done["nqn"]),
                plain(&done["state"])
            ))
        }
        TargetAction::Reload(args) => {
            let done = ask(args.control.as_ref(), &Request::Reload)?;
            let changes = done["changes"].as_array().map(Vec::as_slice).unwrap_or_default();
            let lines = changes.iter().map(|change| format!("{}\n", plain(change))).collect::<String>();
            print(if lines.is_empty() { "nothing has changed\n" } else { &lines })
        }
    }
}

fn ask(given: Option<&PathBuf>, request: &Request) -> Result<Value, Error> {
    control::ask(&control::only("target", given)?, request)
}

/// The specification with an absolute path: the target may have another working directory.
fn absolute(spec: MediumSpec) -> String {
    let spec = match spec {
        MediumSpec::File(spec) => spec,
        MediumSpec::Far(spec) => return spec.to_string(),
    };
    let path = std::path::absolute(&spec.path).unwrap_or(spec.path);
    let size = spec.size.map(|size| format!(",size={size}")).unwrap_or_default();
    let readonly = if spec.readonly { ",readonly" } else { "" };
    format!("{}{size},{}{readonly}", path.display(), format_text(spec.block))
}

fn plain(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
