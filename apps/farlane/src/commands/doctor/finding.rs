//! The result of one check.

use schemars::JsonSchema;
use serde::Serialize;

/// How good it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// As it should be.
    Ok,
    /// Something is slower, or less certain, than it could be.
    Weak,
    /// Something can't be done.
    Missing,
}

/// One thing of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(super) struct Finding {
    /// The thing.
    pub(super) name: &'static str,
    pub(super) state: State,
    /// The state that the check found.
    pub(super) found: String,
    /// The remedy, unless all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
}

impl Finding {
    pub(super) fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, state: State::Ok, found: found.into(), remedy: None }
    }

    pub(super) fn weak(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, state: State::Weak, found: found.into(), remedy: Some(remedy.into()) }
    }

    pub(super) fn missing(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, state: State::Missing, found: found.into(), remedy: Some(remedy.into()) }
    }
}
