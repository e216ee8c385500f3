//! The data transfer of a command, as its host describes it.

use engine::Buffer;

/// The data that a command moves between host and controller.
#[derive(Clone, Debug)]
pub enum Data {
    /// The command moves no data.
    None,
    /// The host sends these bytes to the controller.
    Write(Buffer),
    /// The controller sends this number of bytes to the host.
    Read(u32),
}

impl Data {
    /// Number of bytes that the command moves, in either direction.
    pub fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Write(data) => data.len(),
            Self::Read(length) => *length as usize,
        }
    }

    /// Whether the command moves no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
