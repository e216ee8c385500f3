//! Who calls a controller, and what they may do.

use std::fmt;
use std::path::Path;

use fleet::object::Kind;
use live::carrier::identity::Fingerprint;
use serde::Deserialize;

use crate::api::{Failure, FailureCode};

/// The rights of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sees everything.
    Viewer,
    /// Makes, attaches and deletes volumes, too. The CSI driver needs no more.
    Operator,
    /// Does everything.
    Admin,
}

/// A caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The name, for the audit log.
    pub name: String,
    /// The key that the caller has proved; none on the control socket.
    pub key: Option<Fingerprint>,
    /// The rights; none for a machine that may only join.
    pub role: Option<Role>,
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Principal {
    /// A user of the machine's control socket, which only the user that started the controller
    /// and root can open.
    pub fn local(user: u32) -> Self {
        Self { name: format!("uid {user}"), key: None, role: Some(Role::Admin) }
    }

    /// The user with a key; one without rights if the file names no such user.
    pub fn with_key(key: Fingerprint, users: &Users) -> Self {
        match users.user.iter().find(|user| user.key.0 == key) {
            Some(user) => Self { name: user.name.clone(), key: Some(key), role: Some(user.role) },
            None => Self { name: key.to_string(), key: Some(key), role: None },
        }
    }

    /// Checks that the caller may see objects.
    ///
    /// # Errors
    /// When the caller may not.
    pub fn may_see(&self) -> Result<(), Failure> {
        self.may(Role::Viewer, "see the fleet")
    }

    /// Checks that the caller may change objects of a kind.
    ///
    /// # Errors
    /// When the caller may not.
    pub fn may_change(&self, kind: Kind) -> Result<(), Failure> {
        match kind {
            Kind::Volume | Kind::Attachment | Kind::Snapshot => {
                self.may(Role::Operator, "change volumes, snapshots and attachments")
            }
            _ => self.may(Role::Admin, "change machines, pools, classes, links and tokens"),
        }
    }

    /// Checks that the caller may do everything.
    ///
    /// # Errors
    /// When the caller may not.
    pub fn may_administer(&self) -> Result<(), Failure> {
        self.may(Role::Admin, "administer the fleet")
    }

    fn may(&self, least: Role, what: &str) -> Result<(), Failure> {
        if self.role.is_some_and(|role| role >= least) {
            return Ok(());
        }
        let sentence = format!("{self} may not {what}: an administrator adds the key to the file of --users");
        Err(Failure::new(FailureCode::Forbidden, sentence))
    }
}

/// The users that reach a controller over the network, as the file of `--users` has them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Users {
    /// The users.
    #[serde(default)]
    user: Vec<User>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct User {
    name: String,
    key: Key,
    role: Role,
}

/// A key in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct Key(Fingerprint);

impl TryFrom<String> for Key {
    type Error = live::carrier::identity::FingerprintError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse().map(Self)
    }
}

/// Why the file of users cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    /// The file can't be read.
    #[error("{0}: {1}")]
    Read(std::path::PathBuf, std::io::Error),
    /// The file says something else.
    #[error("{0}: {1}")]
    Parse(std::path::PathBuf, toml::de::Error),
}

impl Users {
    /// Reads a file of users.
    ///
    /// # Errors
    /// When it can't be read, or is no such file.
    pub fn read(path: &Path) -> Result<Self, UsersError> {
        let text = std::fs::read_to_string(path).map_err(|error| UsersError::Read(path.to_owned(), error))?;
        toml::from_str(&text).map_err(|error| UsersError::Parse(path.to_owned(), error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_ordered_and_strangers_may_nothing() {
        let key = Fingerprint([3; 32]);
        let text = format!("[[user]]\nname = \"csi\"\nkey = \"{key}\"\nrole = \"operator\"\n");
        let users: Users = toml::from_str(&text).unwrap();
        let csi = Principal::with_key(key, &users);
        assert!(csi.may_see().is_ok() && csi.may_change(Kind::Volume).is_ok());
        assert_eq!(csi.may_change(Kind::Pool).unwrap_err().code, FailureCode::Forbidden);
        let stranger = Principal::with_key(Fingerprint([4; 32]), &users);
        let error = stranger.may_see().unwrap_err().message;
        assert!(error.contains("SHA256:") && error.contains("--users"), "{error}");
        assert!(Principal::local(0).may_administer().is_ok());
        assert!(toml::from_str::<Users>("[[user]]\nname = \"x\"\nkey = \"y\"\nrole = \"admin\"").is_err());
    }
}
