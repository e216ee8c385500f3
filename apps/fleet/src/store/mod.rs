//! The stores of a fleet: a file on one machine, or etcd.
//!
//! Each runs as a task that takes [`Request`]s and reports [`Event`]s. It elects its controller by
//! itself, and lists and watches for it.

use fleet::store::{Answer, Event as Change, Transaction};
use tokio::sync::mpsc;

/// What a controller asks a store for.
#[derive(Clone, Debug)]
pub enum Request {
    /// Apply a transaction; [`Event::Answered`] has the answer.
    Transact(u64, Transaction),
    /// List all objects, and go on to watch from there. The list has this number.
    List(u64),
    /// Give up the term, and stand for another one. The store must refuse what was sent in it.
    Resign,
}

/// What a store reports to its controller.
#[derive(Clone, Debug)]
pub enum Event {
    /// The controller leads in this term.
    Elected(u64),
    /// The controller leads no longer.
    Deposed,
    /// The answer to a transaction.
    Answered(u64, Answer),
    /// A change, a list, or the loss of changes.
    Changed(Change),
    /// The store is away, for this reason; or back again. Only for people.
    Reachable(Result<(), String>),
}

/// The ends of a controller's connection with its store.
#[derive(Debug)]
pub struct Store {
    /// Where requests go.
    pub requests: mpsc::UnboundedSender<Request>,
    /// Where events come from; ends when the store's task has ended.
    pub events: mpsc::UnboundedReceiver<Event>,
}
/// x
#[derive(Debug, Clone)]
pub enum Place {
    /// a
    File(std::path::PathBuf),
    /// a
    Etcd {
        /// a
        endpoints: Vec<String>,
        /// a
        cluster: String,
    },
}
impl std::str::FromStr for Place {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        text.strip_prefix("file:").map(|p| Self::File(p.into())).ok_or_else(|| "x".to_owned())
    }
}
/// x
#[derive(Debug, Clone)]
pub struct Tls {
    /// a
    pub ca: std::path::PathBuf,
    /// a
    pub certificate: std::path::PathBuf,
    /// a
    pub key: std::path::PathBuf,
}
/// x
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct StoreError;
/// x
pub async fn open(_: Place, _: Option<Tls>) -> Result<Store, StoreError> {
    Err(StoreError)
}
