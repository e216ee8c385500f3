//! Why a capture can't be read.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use thiserror::Error as ThisError;

/// A file that is no capture, or can't be read to its end.
#[derive(Debug, ThisError)]
pub enum Error {
    /// The system does not let the file be read.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's words.
        error: io::Error,
    },
    /// The file is no capture, or is malformed from some byte on. What is before it was read.
    #[error("{} at byte {offset}: {what}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// Bytes before what is malformed.
        offset: u64,
        /// What is wrong.
        what: Cow<'static, str>,
    },
    /// Nothing in the file was decoded.
    #[error("{}: nothing in it was decoded{unknown}", path.display())]
    Nothing {
        /// The file.
        path: PathBuf,
        /// The link types that are not known, behind a semicolon each; empty if there are none.
        unknown: String,
    },
    /// A hardware analyser's table lacks a column.
    #[error("{}: no line has all the columns; {name:?} is not in the first one: {there}", path.display())]
    NoColumn {
        /// The file.
        path: PathBuf,
        /// The name of the column.
        name: String,
        /// The first line of the table.
        there: String,
    },
}
