//! How a running program is asked through its control socket: one line of JSON each way.

use std::path::{Path, PathBuf};

use live::drivers::control::Control;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Error;

/// The answer to a request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Answer {
    /// The request was carried out, with this result.
    Done(Value),
    /// The request was not carried out, for this reason.
    Failed(String),
}

/// Sends `request` to the program whose control socket is at `path`, and returns the result.
pub(crate) fn ask(path: &Path, request: &impl Serialize) -> Result<Value, Error> {
    let fail = |error| Error::Control { path: path.to_owned(), error };
    let request = serde_json::to_string(request).map_err(|error| fail(error.into()))?;
    let answer = live::drivers::control::ask(path, &request).map_err(fail)?;
    match serde_json::from_str(&answer).map_err(|error| fail(error.into()))? {
        Answer::Done(value) => Ok(value),
        Answer::Failed(why) => Err(Error::Asked { why }),
    }
}

/// The line that answers a request with `result`.
pub(crate) fn answer(result: Result<Value, String>) -> String {
    let answer = result.map_or_else(Answer::Failed, Answer::Done);
    serde_json::to_string(&answer).unwrap_or_default()
}

/// Opens the control socket at `path`, if one was asked for.
pub(crate) fn bind(path: Option<&PathBuf>) -> Result<Option<Control>, Error> {
    let bind =
        |path: &PathBuf| Control::bind(path).map_err(|error| Error::Bind { path: path.clone(), error });
    path.map(bind).transpose()
}
