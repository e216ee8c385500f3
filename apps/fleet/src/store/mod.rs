//! The stores of a fleet: a file on one machine, or etcd.
//!
//! Each runs as a task that takes [`Request`]s and reports [`Event`]s. It elects its controller by
//! itself, and lists and watches for it.

mod codec;
pub mod etcd;
pub mod file;
mod place;

use std::path::PathBuf;

use fleet::store::{Answer, Event as Change, Transaction};
use tokio::sync::mpsc;

pub use etcd::Tls;
pub use place::{Place, PlaceError};

/// What a controller asks a store for.
#[derive(Clone, Debug)]
pub enum Request {
    /// Apply a transaction; [`Event::Answered`] has the answer.
    Transact(u64, Transaction),
    /// List all objects, and go on to watch from there. The list has this number. The list and the
    /// watch end with the term.
    List(u64),
    /// Give up the term, and stand for another one. The store must refuse what was sent in it.
    Resign,
    /// Copy the store into a new file; [`Event::BackedUp`] has the answer.
    Backup(u64, PathBuf),
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
    /// The answer to the request for a backup.
    BackedUp(u64, Result<(), String>),
    /// The store is away, for this reason; or back again. Only for people.
    Reachable(Result<(), String>),
}

/// The ends of a controller's connection with its store.
#[derive(Debug)]
pub struct Store {
    /// Where requests go. A store whose sender was dropped resigns, and ends.
    pub requests: mpsc::UnboundedSender<Request>,
    /// Where events come from; ends when the store's task has ended.
    pub events: mpsc::UnboundedReceiver<Event>,
}

/// Why a store can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has the file.
    #[error("{path} is in use by {user}: end that first, or name another file")]
    Busy {
        /// The file.
        path: String,
        /// The process that has it, as far as it can be known.
        user: String,
    },
    /// The file holds something else.
    #[error("{path} {what}: name another file, or one that does not exist yet")]
    Foreign {
        /// The file.
        path: String,
        /// What was found instead of a store.
        what: String,
    },
    /// The file can't be used.
    #[error("{path} can't be used as a store: {reason}")]
    File {
        /// The file.
        path: String,
        /// The words of the operating system or of the database.
        reason: String,
    },
    /// The settings for etcd are of no use.
    #[error("{0}")]
    Settings(String),
}

/// Opens the store of a place, with certificates if etcd demands them.
///
/// # Errors
/// When the store can't be used, or another process has its file.
pub async fn open(place: Place, tls: Option<Tls>) -> Result<Store, StoreError> {
    match place {
        Place::File(path) => {
            let opened = tokio::task::spawn_blocking(move || file::open(&path)).await;
            opened.map_err(|error| StoreError::Settings(error.to_string()))?
        }
        Place::Etcd { endpoints, cluster } => {
            etcd::open(etcd::Settings { endpoints, cluster, tls, user: None }).await
        }
    }
}
