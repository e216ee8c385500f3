//! What namespaces are kept on in the live world.

pub mod file;

pub use file::{FileMedium, Note, OpenError, Options, open};
