//! The audit log: who has changed what, and with which result.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::SystemTime;

use serde::Serialize;

use super::Principal;
use crate::api::{Failure, FailureCode};

/// A file to which a line of JSON is appended for each change.
#[derive(Debug, Default)]
pub struct Audit(Option<Mutex<File>>);

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    user: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    action: &'a str,
    object: &'a str,
    details: &'a str,
    result: &'a str,
}

impl Audit {
    /// Appends to the file at `path`, which only its owner may read; without a path, to none.
    ///
    /// # Errors
    /// When the file can't be opened.
    pub fn open(path: Option<&Path>) -> io::Result<Self> {
        let open = |path| OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        Ok(Self(path.map(open).transpose()?.map(Mutex::new)))
    }

    /// Notes a change, and whether it succeeded.
    pub fn note(
        &self,
        principal: &Principal,
        action: &str,
        object: &str,
        details: &str,
        result: Result<(), &Failure>,
    ) {
        if result.is_err_and(|failure| failure.code == FailureCode::NotLeader) {
            return; // Another controller gets the call.
        }
        let result = result.map_or_else(|failure| failure.message.clone(), |()| "done".to_owned());
        tracing::info!("{principal}: {action} {object}: {result}");
        let Some(file) = &self.0 else { return };
        let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        let key = principal.key.map(|key| key.to_string());
        let line = Line { time, user: &principal.name, key, action, object, details, result: &result };
        let written = serde_json::to_vec(&line).map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            let mut file = file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            file.write_all(&line)
        });
        if let Err(error) = written {
            tracing::error!("the audit log has not got the line: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_a_line_that_names_the_user() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let audit = Audit::open(Some(&path)).unwrap();
        let failure = Failure::new(FailureCode::InUse, "the volume a is attached");
        audit.note(&Principal::local(7), "delete", "volume a", "", Err(&failure));
        audit.note(&Principal::local(7), "put", "volume b", "{}", Ok(()));
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0]["user"], "uid 7");
        assert_eq!(lines[0]["result"], "the volume a is attached");
        assert_eq!((lines.len(), &lines[1]["result"]), (2, &"done".into()));
    }
}
