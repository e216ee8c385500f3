//! `farlane observe status`: the state of daemons, as JSON and as text.
//!
//! A daemon builds a [`Report`] and answers with it; every reader gets it from [`control`].

mod built;
pub(crate) mod list;
pub(crate) mod text;

use ::status::Report;

use crate::args::{DaemonStatusArgs, StatusArgs};
use crate::commands::{control, print, print_line};
use crate::error::Error;

pub(crate) use built::{of_far, of_far_ends, of_guest, of_port};
pub(crate) use text::text;

pub(crate) fn run(args: &StatusArgs) -> Result<(), Error> {
    if let Some(path) = &args.path {
        return show(&control::report(path)?, args.output.json);
    }
    let found = control::look()?;
    if args.output.json && found.daemons.is_empty() && found.unreadable.is_empty() {
        return print_line(&list::Listed::default());
    }
    if args.output.json {
        found.daemons.iter().try_for_each(|daemon| print_line(&daemon.report))?;
    } else if found.daemons.is_empty() && found.unreadable.is_empty() {
        print(&control::nothing_runs())?;
    } else {
        let one = |daemon: &control::Daemon| {
            format!("{}\n{}", daemon.socket.display(), text(&daemon.report.status))
        };
        print(&found.daemons.iter().map(one).collect::<Vec<_>>().join("\n"))?;
    }
    found.all_read()
}

/// Prints the report of the daemon at the socket of `args`, or else of the only one of this kind.
///
/// # Errors
/// When there is no such daemon, or more than one, or standard output can't be written.
pub(crate) fn show_only(kind: &'static str, args: &DaemonStatusArgs) -> Result<(), Error> {
    let socket = control::only(kind, args.control.control.as_ref())?;
    show(&control::report_of(kind, &socket)?, args.output.json)
}

/// Prints the report of one daemon.
pub(crate) fn show(report: &Report, json: bool) -> Result<(), Error> {
    if json { print_line(report) } else { print(&text(&report.status)) }
}
