//! `farlane observe ui`: captures, scenarios and running daemons in a browser.

pub(crate) mod api;
mod assets;
pub(crate) mod captures;
mod guard;
mod index;
pub(crate) mod live;
mod server;
pub(crate) mod simulator;

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ::live::sys::entropy;
use indicatif::{ProgressBar, ProgressStyle};
use schemars::JsonSchema;
use serde::Serialize;

use super::{control, print, print_json};
use crate::args::UiArgs;
use crate::error::Error;
use api::Api;
use captures::Capture;
use guard::Token;
use simulator::Simulator;

/// How often the progress bar moves.
const TICK: Duration = Duration::from_millis(100);

/// Where the page is. Every process that knows the URL may look.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Place<'a> {
    listening: SocketAddr,
    url: &'a str,
}

pub(crate) fn run(args: &UiArgs) -> Result<(), Error> {
    let is_scenario = |path: &&std::path::PathBuf| has_extension(path, "toml");
    let (scenarios, files): (Vec<_>, Vec<_>) = args.files.iter().partition(is_scenario);
    for path in &files {
        // A wrong name is an error now, and not in a page that a browser opens later.
        path.metadata().map_err(|error| Error::File { path: (*path).clone(), error })?;
    }
    let captures: Arc<[Capture]> = files.iter().map(|path| Capture::new(path)).collect();
    let simulator = Simulator::new(&scenarios.into_iter().cloned().collect::<Vec<_>>())?;
    let fail = |error| Error::Page { address: args.listen, error };
    let listener = TcpListener::bind(args.listen).map_err(fail)?;
    let address = listener.local_addr().map_err(fail)?;
    if !address.ip().is_loopback() {
        warn!("{address} is not on loopback: the page's contents pass the network in the clear");
    }
    if let Err(why) = control::check_folder() {
        warn!("the page shows no daemons: control sockets are not kept in {why}");
    }
    let token = Token::new(entropy::system());
    let url = format!("http://{address}/{}/", token.text());
    match args.output.json {
        true => print_json(&Place { listening: address, url: &url })?,
        false => print(&format!("{url}\n"))?,
    }
    if args.open {
        open(&url);
    }
    let (read, is_json) = (captures.clone(), args.output.json);
    let read = std::thread::Builder::new().name("captures".into()).spawn(move || read_all(&read, is_json));
    read.map_err(fail)?;
    server::serve(&listener, token, Api::new(captures, simulator))
}

fn has_extension(path: &Path, wanted: &str) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(wanted))
}

/// Shows the page in the desktop's browser, if there is one.
fn open(url: &str) {
    let mut command = Command::new("xdg-open");
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.spawn() {
        Ok(mut child) => drop(std::thread::spawn(move || child.wait())),
        Err(error) => warn!("xdg-open: {error}; open the address in a browser"),
    }
}

/// Reads all captures, one after the other.
fn read_all(captures: &Arc<[Capture]>, is_json: bool) {
    let length = captures.iter().map(|capture| capture.progress().0).sum();
    let bar = if is_json { ProgressBar::hidden() } else { ProgressBar::new(length) };
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {bytes} of {total_bytes}, {eta}") {
        bar.set_style(style);
    }
    let watched = (captures.clone(), bar.clone());
    let watcher = std::thread::spawn(move || {
        let (captures, bar) = watched;
        while !bar.is_finished() {
            bar.set_position(captures.iter().map(|capture| capture.progress().1).sum());
            std::thread::sleep(TICK);
        }
    });
    for capture in captures.iter() {
        if let Err(why) = capture.read() {
            warn!("{why}");
        }
    }
    bar.finish_and_clear();
    // It ends by itself.
    let _ = watcher.join();
}
