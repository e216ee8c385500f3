//! `farlane model sim`: simulated networks.

pub(crate) mod explain;
pub(crate) mod play;
mod plot;
pub(crate) mod published;
pub(crate) mod score;
pub(crate) mod streams;
pub(crate) mod sweep;
mod table;
mod timeline;

use std::path::Path;

use scenarios::file::scenario::Scenario;

use crate::error::Error;
use crate::whole_file;

/// Checks the scenario at `path` without playing it.
pub(crate) fn check(path: &Path) -> Result<(), Error> {
    read_scenario(path).map(drop)
}

/// The text of the file at `path`, or of standard input if `path` is `-`.
fn read(path: &Path) -> Result<String, Error> {
    let text = match path.as_os_str() == "-" {
        true => texts::read_from(std::io::stdin(), texts::FILE_MAX),
        false => texts::read(path, texts::FILE_MAX),
    };
    text.map_err(|error| Error::File { path: path.to_owned(), error })
}

/// The scenario that the file at `path` describes.
fn read_scenario(path: &Path) -> Result<Scenario, Error> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let scenario = Scenario::parse_in(&read(path)?, folder);
    let scenario = scenario.map_err(|error| Error::Simulation(format!("{}: {error}", path.display())))?;
    warn_of(path, &scenario);
    Ok(scenario)
}

/// Warns of results of the scenario at `path` that mean less than they seem to.
fn warn_of(path: &Path, scenario: &Scenario) {
    scenario.warnings().iter().for_each(|warning| warn!("{}: {warning}", path.display()));
}

/// Replaces the file at `path` by a new file of this text.
fn write(path: &Path, text: &str) -> Result<(), Error> {
    whole_file::replace(path, text.as_bytes())
}
