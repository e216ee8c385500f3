//! The prediction of the simulation for the same commands over the same link, where its TCP has the
//! remedy too.

use serde_json::Value;

use super::rows::{Link, Row};
use crate::support::farlane;

/// Number of simulated commands at a depth of 1.
const COUNT: u32 = 5_000;
/// Number of simulated commands at a greater depth.
const COUNT_DEEP: u32 = 50_000;

/// The prediction of `farlane model sim` for a case; null where the model does not have the remedy.
pub(crate) fn simulated(link: &Link, row: &Row, workload: &str, depth: u32) -> Result<Value, String> {
    let Some(stack) = row.stack else { return Ok(Value::Null) };
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let file = directory.path().join("scenario.toml");
    let (kind, count) = (workload.trim_start_matches("rand"), if depth == 1 { COUNT } else { COUNT_DEEP });
    let task = format!("[[task]]\nkind = \"{kind}\"\ndepth = {depth}\ncount = {count}\ngap = \"0us\"\n");
    let text = scenario(link, row.lookahead(), stack) + &task;
    std::fs::write(&file, text).map_err(|error| error.to_string())?;
    let output =
        farlane().args(["model", "sim", "--json"]).arg(&file).output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let mut said: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    Ok(said["tasks"][0].take())
}

/// A scenario of the link with Linux at both ends, and with an SSD that answers at once, as memory
/// does.
fn scenario(link: &Link, lookahead: bool, stack: &str) -> String {
    // Leave out the tasks that a scenario file has behind its link.
    let text = link.text.replace("tcp = \"npap\"\n", "");
    let (before, behind) = text.split_once("\n[[task]]").unwrap_or((&text, ""));
    let rest = behind.find("\n[").map_or("", |at| &behind[at..]);
    format!(
        "{before}{rest}\n[link.stack]\n{stack}\n[switch]\nlookahead = {lookahead}\n[ssd]\nfirmware = \"0us\"\n\
         array_read = \"0us\"\narray_spread = \"0us\"\ncompletion = \"0us\"\n"
    )
}
