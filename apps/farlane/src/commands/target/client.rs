//! `farlane target status`, `add`, `remove`, `resize`, `ana`, `put`, `drop`, `save` and `reload`:
//! requests to a running target.

use std::path::Path;

use ::status::Status;
use serde::de::DeserializeOwned;

use super::request::{AccessSet, Changed, Request, Resized};
use super::save;
use crate::args::{SubsystemArgs, TargetAction};
use crate::commands::control::{self, await_far, print_changes};
use crate::commands::{print, print_json, status};
use crate::error::Error;
use crate::whole_file;

/// The longest text of subsystems, in bytes: a request of a control socket has room for it.
const PUT_MAX: u64 = 32 << 10;

pub(super) fn run(action: TargetAction) -> Result<(), Error> {
    match action {
        TargetAction::Status(args) => status::show_only("target", &args),
        TargetAction::Add(args) => {
            // A device that is not there is waited for here: in the target, all hosts would wait.
            await_far(&args.added)?;
            let request = Request::Add {
                nqn: args.place.name(),
                namespace: args.added.namespace.map(|spec| spec.absolute().to_string()),
                ram: args.added.ram.map(|ram| ram.to_string()),
                ana_group: args.ana_group,
            };
            let Changed { nqn, nsid } = ask_at(&args.place, &request)?;
            print(&format!("added namespace {nsid} to {nqn}\n"))
        }
        TargetAction::Remove(args) => {
            let request = Request::Remove { nqn: args.place.name(), nsid: args.removed.nsid };
            let Changed { nqn, nsid } = ask_at(&args.place, &request)?;
            print(&format!("removed namespace {nsid} from {nqn}\n"))
        }
        TargetAction::Resize(args) => {
            let (nqn, resized) = (args.place.name(), args.resized);
            let request = Request::Resize { nqn, nsid: resized.nsid, size: resized.size };
            let done: Resized = ask_at(&args.place, &request)?;
            if args.output.json {
                return print_json(&done);
            }
            print(&format!("namespace {} of {} has {} B\n", done.nsid, done.nqn, done.bytes))
        }
        TargetAction::Ana(args) => {
            let (nqn, port) = (args.place.name(), args.port);
            let (group, state, controller) = (args.group, args.state, args.controller);
            let request = Request::Ana { nqn, group, state, port, controller };
            let done: AccessSet = ask_at(&args.place, &request)?;
            if args.output.json {
                return print_json(&done);
            }
            print(&format!("group {} of {} is {}\n", done.group, done.nqn, done.state.word()))
        }
        TargetAction::Put(args) => {
            let (path, standard_input) = (&args.file, Path::new("/dev/stdin"));
            let path = if path.as_os_str() == "-" { standard_input } else { path };
            let text = whole_file::read(path, PUT_MAX)?;
            print_changes(&control::ask_only(
                "target",
                args.control.control.as_ref(),
                &Request::Put { text },
            )?)
        }
        TargetAction::Drop(args) => {
            let (given, nqn) = (args.control.control.as_ref(), args.nqn.to_string());
            print_changes(&control::ask_only("target", given, &Request::Drop { nqn })?)
        }
        TargetAction::Save(args) => {
            let offered = control::ask_only("target", args.control.control.as_ref(), &Request::Offered)?;
            save::save(&args, &offered)
        }
        TargetAction::Reload(args) => {
            print_changes(&control::ask_only("target", args.control.as_ref(), &Request::Reload)?)
        }
    }
}

/// Asks the target that has the subsystem.
fn ask_at<T: DeserializeOwned>(place: &SubsystemArgs, request: &Request) -> Result<T, Error> {
    let given = place.control.control.as_ref();
    let socket = match place.name() {
        None => control::only("target", given)?,
        Some(nqn) => {
            let has = |status: &Status| match status {
                Status::Target(target) => target.subsystems.iter().any(|one| one.nqn == nqn),
                _ => false,
            };
            control::with("target", given, &format!("the subsystem {nqn}"), has)?
        }
    };
    control::ask_for(&socket, request)
}
