//! The REST interface of controllers: its types, its routes, its description, and its client.
//!
//! Every object is at `/v1/KIND/NAME`. The command line and the CSI driver use the same types and
//! the same client.

pub mod client;
pub mod description;
pub mod routes;
mod types;
mod watch;

pub use types::{
    Change, Enrolment, Explanation, Failure, FailureCode, Health, Item, Items, OrphanItem, Orphans, Ranked,
    Recovered, Space, Spaces, Status, Unfit, WaitFor,
};

use fleet::object::Kind;

/// The kinds of objects, by their words in paths.
pub const KINDS: [Kind; 9] = [
    Kind::Fleet,
    Kind::Node,
    Kind::Pool,
    Kind::Volume,
    Kind::Class,
    Kind::Link,
    Kind::Attachment,
    Kind::Token,
    Kind::Snapshot,
];

/// The kind with this word.
pub fn kind_of(word: &str) -> Option<Kind> {
    KINDS.into_iter().find(|kind| kind.word() == word)
}
