//! How a running program is asked through its control socket: one line of JSON each way.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use daemon::OnlyStatus;
use daemon::control::Answer;
pub(crate) use daemon::control::{check_folder, folder};
use live::sys::clock::Clock;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use status::{Report, Status, Unreadable};

use super::print;
use super::served::{FAR_PATIENCE, open_far};
use crate::args::{AddedMedium, MediumSpec};
use crate::error::{CaptureError, DaemonError, Error};

/// How long a daemon may take from the making of its control socket until it listens there.
const LISTENS_WITHIN: Duration = Duration::from_millis(50);

/// Sends `request` to the program whose control socket is at `path`, and returns the result.
pub(crate) fn ask(path: &Path, request: &impl Serialize) -> Result<Value, Error> {
    ask_with(path, request, &[])
}

/// Sends `request` like [`ask`], with descriptors for the program.
pub(crate) fn ask_with(
    path: &Path,
    request: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> Result<Value, Error> {
    let fail = |error| Error::Control { path: path.to_owned(), error };
    let request = serde_json::to_string(request).map_err(|error| fail(error.into()))?;
    let answer = live::drivers::control::ask_with(path, &request, descriptors).map_err(fail)?;
    match serde_json::from_str::<Answer<Value>>(&answer).map_err(|error| fail(error.into()))? {
        Answer::Done(value) => Ok(value),
        Answer::Failed(why) => Err(DaemonError::Asked { why }.into()),
    }
}

/// Sends `request` like [`ask`], and returns the answer as its type.
///
/// # Errors
/// As of [`ask`], and when the answer has another form.
pub(crate) fn ask_for<T: DeserializeOwned>(path: &Path, request: &impl Serialize) -> Result<T, Error> {
    understand(ask(path, request)?)
}

/// The answer of a daemon, as its type.
///
/// # Errors
/// When the answer has another form.
pub(crate) fn understand<T: DeserializeOwned>(answer: Value) -> Result<T, Error> {
    let wrong = |error| DaemonError::Asked { why: format!("the daemon's answer: {error}") }.into();
    serde_json::from_value(answer).map_err(wrong)
}

/// The answer of a daemon, as its control socket sends it.
///
/// # Errors
/// When a path in the answer is no UTF-8.
pub(crate) fn reply(answer: &impl Serialize) -> Result<Value, String> {
    serde_json::to_value(answer).map_err(|error| error.to_string())
}

/// The report of the daemon whose control socket is at `path`.
///
/// # Errors
/// When nothing answers there, or its answer is no report that this version can read.
pub(crate) fn report(path: &Path) -> Result<Report, Error> {
    let answer = ask(path, &OnlyStatus::Status)?;
    Report::read(answer).map_err(|why| DaemonError::Unreadable { socket: path.to_owned(), why }.into())
}

/// The report of a daemon that is to be of `kind`.
///
/// # Errors
/// As of [`report`], and when the daemon is of another kind.
pub(crate) fn report_of(kind: &'static str, path: &Path) -> Result<Report, Error> {
    let report = report(path)?;
    match report.status.kind() {
        found if found == kind => Ok(report),
        found => Err(DaemonError::OtherKind { socket: path.to_owned(), expected: kind, found }.into()),
    }
}

fn is_socket(path: &Path) -> bool {
    path.metadata().is_ok_and(|it| it.file_type().is_socket())
}

/// A running daemon that has answered.
pub(crate) struct Daemon {
    /// Its control socket.
    pub(crate) socket: PathBuf,
    /// The daemon's report about itself.
    pub(crate) report: Report,
}

/// The daemons of this user.
#[derive(Default)]
pub(crate) struct Found {
    /// Those whose reports this version can read.
    pub(crate) daemons: Vec<Daemon>,
    /// The control sockets of the others, and why this version can't read their reports.
    pub(crate) unreadable: Vec<(PathBuf, Unreadable)>,
}

impl Found {
    fn add(&mut self, socket: PathBuf, answer: Value) {
        match Report::read(answer) {
            Ok(report) => self.daemons.push(Daemon { socket, report }),
            // A process with another answer is no daemon of Farlane.
            Err(Unreadable::NoStatus) => {}
            Err(why) => self.unreadable.push((socket, why)),
        }
    }

    /// Reports the daemons whose reports this version can't read: all but one as warnings.
    ///
    /// # Errors
    /// When there are any.
    pub(crate) fn all_read(self) -> Result<(), Error> {
        let mut unreadable = self.unreadable.into_iter();
        let Some((socket, why)) = unreadable.next() else { return Ok(()) };
        for (socket, why) in unreadable {
            warn!(each = true, "{}: {why}", socket.display());
        }
        Err(DaemonError::Unreadable { socket, why }.into())
    }
}

/// The daemons of [`look`] whose reports this version can read. Logs a warning for each other one.
///
/// # Errors
/// When other users may put sockets where they are by default.
pub(crate) fn daemons() -> Result<Vec<Daemon>, Error> {
    let found = look()?;
    for (socket, why) in &found.unreadable {
        warn!(each = true, "{}: {why}", socket.display());
    }
    Ok(found.daemons)
}

/// The daemons of this user whose control sockets are where they are by default, in the order of
/// the sockets' names. The sockets of daemons that are gone are removed.
///
/// # Errors
/// When other users may put sockets where they are by default.
pub(crate) fn look() -> Result<Found, Error> {
    check_folder()?;
    let entries = std::fs::read_dir(folder()).into_iter().flatten().flatten();
    let mut sockets: Vec<_> = entries.map(|entry| entry.path()).collect();
    sockets.retain(|path| is_socket(path));
    sockets.sort();
    let mut refused = Vec::new();
    let mut found = Found::default();
    for socket in sockets {
        match ask(&socket, &OnlyStatus::Status) {
            Ok(answer) => found.add(socket, answer),
            Err(error) if is_refused(&error) => refused.push(socket),
            // A process with another answer is no daemon of Farlane.
            Err(_) => {}
        }
    }
    if refused.is_empty() {
        return Ok(found);
    }
    // Until it listens, a starting daemon refuses connections as an ended daemon does.
    std::thread::sleep(LISTENS_WITHIN);
    for socket in refused {
        match ask(&socket, &OnlyStatus::Status) {
            Ok(answer) => found.add(socket, answer),
            Err(error) if is_refused(&error) => {
                // The socket has no listener any more. Another user's socket stays.
                let _ = std::fs::remove_file(&socket);
            }
            Err(_) => {}
        }
    }
    found.daemons.sort_by(|one, other| one.socket.cmp(&other.socket));
    Ok(found)
}

/// The message for people where no daemon runs.
pub(crate) fn nothing_runs() -> String {
    format!(
        "no daemon of this user has its control socket in {}\n  \
         farlane export --listen 127.0.0.1:4430 --ram 1GiB starts one; so do attach, connect, device, record and \
         target\n  \
         a daemon that has a socket of its own (--control PATH) is asked by farlane observe status PATH\n",
        folder().display()
    )
}

/// Whether the control socket had no listener.
fn is_refused(error: &Error) -> bool {
    matches!(error, Error::Control { error, .. } if error.kind() == io::ErrorKind::ConnectionRefused)
}

/// The control socket of the daemon that `which` names by its socket, its process identifier or its
/// kind; without `which`, of the only daemon.
///
/// # Errors
/// When there is no such daemon, or more than one.
pub(crate) fn find(which: Option<&str>) -> Result<PathBuf, Error> {
    if let Some(path) = which.map(Path::new).filter(|path| is_socket(path)) {
        return Ok(path.to_owned());
    }
    let mut found = daemons()?;
    let is_meant = |daemon: &Daemon| {
        let report = &daemon.report;
        which.is_none_or(|which| report.status.kind() == which || which.parse() == Ok(report.pid))
    };
    found.retain(is_meant);
    match (found.as_slice(), which) {
        ([one], _) => Ok(one.socket.clone()),
        ([], Some(which)) => Err(CaptureError::NoDaemon { which: which.to_owned() }.into()),
        (several, _) => {
            let sockets = several.iter().map(|daemon| daemon.socket.display().to_string()).collect();
            Err(Error::WhichDaemon { kind: "daemon", sockets, folder: folder() })
        }
    }
}

/// The control socket to ask: the one given, or else that of the only daemon of this kind.
///
/// # Errors
/// When no socket is given, and there is no such daemon or more than one.
pub(crate) fn only(kind: &'static str, given: Option<&PathBuf>) -> Result<PathBuf, Error> {
    match given {
        Some(path) => Ok(path.clone()),
        None => the_one(kind, &of_kind(kind)?),
    }
}

/// Asks the daemon at the given socket, or else the only daemon of this kind.
///
/// # Errors
/// As of [`only`], and when the daemon refuses the request.
pub(crate) fn ask_only<T: DeserializeOwned>(
    kind: &'static str,
    given: Option<&PathBuf>,
    request: &impl Serialize,
) -> Result<T, Error> {
    ask_for(&only(kind, given)?, request)
}

/// The control socket for a question about `what`: the given one, or else that of the daemon of
/// this kind whose status `has` this, or that of the only daemon.
///
/// # Errors
/// When no socket is given, and none of several daemons has it, or more than one.
pub(crate) fn with(
    kind: &'static str,
    given: Option<&PathBuf>,
    what: &str,
    has: impl Fn(&Status) -> bool,
) -> Result<PathBuf, Error> {
    if let Some(path) = given {
        return Ok(path.clone());
    }
    let mut found = of_kind(kind)?;
    // A single daemon reports a missing part itself.
    if found.len() > 1 {
        let sockets: Vec<_> = found.iter().map(|daemon| daemon.socket.display().to_string()).collect();
        found.retain(|daemon| has(&daemon.report.status));
        if found.is_empty() {
            let why = format!("none of the running processes has {what}: {}", sockets.join(", "));
            return Err(DaemonError::Asked { why }.into());
        }
    }
    the_one(kind, &found)
}

fn of_kind(kind: &str) -> Result<Vec<Daemon>, Error> {
    let mut found = daemons()?;
    found.retain(|daemon| daemon.report.status.kind() == kind);
    Ok(found)
}

fn the_one(kind: &'static str, found: &[Daemon]) -> Result<PathBuf, Error> {
    match found {
        [one] => Ok(one.socket.clone()),
        several => {
            let sockets = several.iter().map(|daemon| daemon.socket.display().to_string()).collect();
            Err(Error::WhichDaemon { kind, sockets, folder: folder() })
        }
    }
}

/// Waits here for a device that is to be added, if it is far away: in the daemon that is asked, all
/// hosts would wait.
///
/// # Errors
/// When the device is not there in time.
pub(crate) fn await_far(added: &AddedMedium) -> Result<(), Error> {
    let Some(MediumSpec::Far(spec)) = &added.namespace else { return Ok(()) };
    open_far(Clock::start(), spec, FAR_PATIENCE).map(drop)
}

/// The answer to a request to reload.
#[derive(Serialize, Deserialize)]
pub(crate) struct Reloaded {
    /// A sentence for each change.
    pub(crate) changes: Vec<String>,
}

/// Prints the changes of a reload.
pub(crate) fn print_changes(done: &Reloaded) -> Result<(), Error> {
    let lines = done.changes.iter().map(|change| format!("{change}\n")).collect::<String>();
    print(if lines.is_empty() { "nothing has changed\n" } else { &lines })
}
