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
    /// The file is not a capture, or is malformed from some byte on. The part before it was read.
    #[error("{} at byte {offset}: {what}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// Number of bytes before the malformed part.
        offset: u64,
        /// The fault.
        what: Cow<'static, str>,
    },
    /// No frame of the file was decoded.
    #[error("{}: no packet in it was decoded{unknown}", path.display())]
    Nothing {
        /// The file.
        path: PathBuf,
        /// The unknown link types, each behind a semicolon; empty if there are none.
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
