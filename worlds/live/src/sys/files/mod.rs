//! Files that this process makes or writes, so that no name in a folder of other users leads it to
//! another file, and no other user reads their contents.
//!
//! A path is walked name by name to a [`Place`]: a name in a folder that is held open. Whether a
//! symbolic link on the way is followed depends on its owner (`trust`). From then on, a file is
//! opened, replaced and removed by its name in that folder, and the last name is never followed.
//!
//! [`write()`] is for outputs, which are written from their beginning, and [`change`] for files
//! that are there. A [`Replacement`] takes the place of another file when it is whole.

mod making;
mod place;
mod replacement;
#[cfg(test)]
mod tests;
mod trust;

pub use making::{change, write, write_on};
pub(crate) use making::{make, open_or_make, open_ours, open_there};
pub use place::Place;
pub use replacement::Replacement;
pub(crate) use trust::make_private;
pub use trust::{make_for, make_with};

/// The purpose of a file, which determines its default readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Data, state, a key or a capture: for this user alone, or as [`make_with`] says.
    Private,
    /// A report, a table or a picture: as the process's umask says.
    Report,
}
