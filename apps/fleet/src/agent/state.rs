//! The durable state of an agent, and the folder that one agent alone uses.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use fleet::agent::State;
use serde::{Deserialize, Serialize};

use super::{AgentError, files};
use crate::wire::{self, Wire};

/// The version of the file. Another version is no state that this agent can read.
const VERSION: u32 = 1;
/// The most bytes of a state: a thousand volumes with a hundred hosts each.
const BYTES_MAX: u64 = 64 << 20;

/// What the file has.
#[derive(Serialize, Deserialize)]
struct Saved {
    version: u32,
    state: wire::State,
}

/// The folder of an agent. Its lock ends with the last user of it.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Makes the folder, unless it is there, and keeps others from using it.
    ///
    /// # Errors
    /// When another agent uses it, or the system refuses.
    pub(crate) fn open(path: &Path) -> Result<Self, AgentError> {
        files::make_folder(path)?;
        let path = std::path::absolute(path).map_err(|error| files::at(path, &error))?;
        let lock = path.join("agent.lock");
        let at_lock = |error| files::at(&lock, &error);
        let file = File::options().write(true).create(true).truncate(false).open(&lock).map_err(at_lock)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { path, _lock: file }),
            Err(TryLockError::WouldBlock) => Err(AgentError::Taken(path)),
            Err(TryLockError::Error(error)) => Err(at_lock(error).into()),
        }
    }

    /// A path in the folder.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn state(&self) -> PathBuf {
        self.join("state.json")
    }

    /// The durable state; `None` if this is a new folder.
    ///
    /// # Errors
    /// When there is a file that is no state. It is never taken for an empty state, which would
    /// forget whom the disks' owner has let in.
    pub(crate) fn load(&self) -> Result<Option<State>, AgentError> {
        let path = self.state();
        let unreadable = |why: String| AgentError::State { path: path.clone(), why };
        let Some(bytes) = files::read(&path, BYTES_MAX).map_err(|error| unreadable(error.to_string()))?
        else {
            return Ok(None);
        };
        let saved: Saved = serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
        if saved.version != VERSION {
            let found = saved.version;
            return Err(unreadable(format!("it has version {found}, this agent reads version {VERSION}")));
        }
        Ok(Some(saved.state.pure().map_err(|error| unreadable(error.to_string()))?))
    }

    /// Makes a state durable.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn save(&self, state: &State) -> std::io::Result<()> {
        let saved = Saved { version: VERSION, state: wire::State::wire(state) };
        files::replace(&self.state(), &serde_json::to_vec(&saved)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet::agent::SavedVolume;
    use fleet::{Epoch, Name};

    fn state() -> State {
        let name = |text| Name::new(text).unwrap();
        let epoch = Epoch { incarnation: 1, number: 8 };
        let volume = SavedVolume { pool: name("p"), bytes: 7, epoch, admitted: Vec::new(), delete: true };
        State { volumes: [(name("v"), volume)].into(), ended: [name("a")].into(), ..State::default() }
    }

    #[test]
    fn a_state_is_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::open(&directory.path().join("new/agent")).unwrap();
        assert_eq!(folder.load().unwrap(), None);
        folder.save(&state()).unwrap();
        folder.save(&state()).unwrap();
        assert_eq!(folder.load().unwrap(), Some(state()));
    }

    #[test]
    fn one_agent_has_a_folder() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::open(directory.path()).unwrap();
        let error = Folder::open(directory.path()).unwrap_err().to_string();
        assert!(
            error.contains("another agent") && error.contains(directory.path().to_str().unwrap()),
            "{error}"
        );
        drop(folder);
        Folder::open(directory.path()).unwrap();
    }

    #[test]
    fn garbage_is_no_empty_state() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::open(directory.path()).unwrap();
        folder.save(&state()).unwrap();
        let path = directory.path().join("state.json");
        let good = std::fs::read_to_string(&path).unwrap();
        let other = good.replace("\"version\":1", "\"version\":2");
        let misnamed = good.replace("\"v\"", "\"V V\"");
        for bad in ["", "{}", "\0\0\0\0", &good[..good.len() / 2], &other, &misnamed] {
            std::fs::write(&path, bad).unwrap();
            let error = folder.load().unwrap_err().to_string();
            assert!(error.contains("state.json") && error.contains("put back"), "{bad}: {error}");
        }
    }
}
