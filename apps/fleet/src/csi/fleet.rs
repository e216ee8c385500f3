//! What the CSI driver asks a fleet for.

use std::future::Future;

use fleet::controller::{Expect, Wait};
use fleet::object::Kind;
use tonic::Status;

use crate::wire::Object;

/// A fleet, as the CSI driver sees it.
///
/// A caller that waits no longer drops the future. What the call has begun goes on.
pub trait Fleet: Send + Sync + 'static {
    /// An object.
    fn get(&self, kind: Kind, name: &str) -> impl Future<Output = Result<Item, FleetError>> + Send;

    /// All objects of a kind, in the order of their names.
    fn list(&self, kind: Kind) -> impl Future<Output = Result<Vec<Item>, FleetError>> + Send;

    /// Creates an object, or changes what users may change of it.
    fn put(
        &self,
        name: &str,
        object: Object,
        expect: Expect,
        wait: Option<Wait>,
    ) -> impl Future<Output = Result<Item, FleetError>> + Send;

    /// Marks an object as not wanted, or deletes it. One that is not there is deleted already.
    fn delete(
        &self,
        kind: Kind,
        name: &str,
        wait: Option<Wait>,
    ) -> impl Future<Output = Result<(), FleetError>> + Send;

    /// The pools that are fit for a volume of a class, for a host.
    fn space(
        &self,
        class: Option<&str>,
        near: Option<&str>,
    ) -> impl Future<Output = Result<Vec<Space>, FleetError>> + Send;
}

/// An object with what the fleet says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The object's name.
    pub name: String,
    /// The revision of its last change.
    pub revision: u64,
    /// The object.
    pub object: Object,
    /// How far it is.
    pub progress: Progress,
    /// The subsystem's NVMe Qualified Name (NQN), of an attachment whose host is let in.
    pub nqn: Option<String>,
    /// Whether the host reaches the volume, of an attachment.
    pub connected: bool,
}

/// How far an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is as its users want it.
    Ready,
    /// The fleet is at work on it: at what.
    Pending(String),
    /// It waits for a machine or a person: for what.
    Stuck(String),
}

/// The free space of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    /// The pool.
    pub pool: String,
    /// Bytes that no volume takes.
    pub free: u64,
}

/// Why a fleet did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FleetError {
    /// There is no such object.
    #[error("{0}")]
    NotFound(String),
    /// The object has changed since it was read.
    #[error("{0}")]
    Changed(String),
    /// The object cannot be so.
    #[error("{0}")]
    Invalid(String),
    /// Something else must be changed first.
    #[error("{0}")]
    InUse(String),
    /// The driver may not do that.
    #[error("{0}")]
    Forbidden(String),
    /// No controller answers.
    #[error("{0}")]
    Unavailable(String),
}

impl From<FleetError> for Status {
    fn from(error: FleetError) -> Self {
        match error {
            FleetError::NotFound(reason) => Self::not_found(reason),
            FleetError::Changed(reason) => Self::aborted(reason),
            FleetError::Invalid(reason) => Self::invalid_argument(reason),
            FleetError::InUse(reason) => Self::failed_precondition(reason),
            FleetError::Forbidden(reason) => Self::permission_denied(reason),
            FleetError::Unavailable(reason) => Self::unavailable(reason),
        }
    }
}
