//! What a host and this reactor have exchanged so far, with which another reactor begins again.
//!
//! The other reactor hears the host's bytes anew and gives the same answers. It skips the part of
//! its answers that the host has already. The answers of an authentication come from the home of
//! the subsystem: only the home has the secrets.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use nvme_fabrics::target::Connected;

/// Limit in bytes on what is kept of a host's bytes and of the answers to them.
const BYTES_MAX: usize = 16 << 10;

/// The answer to a command that authenticates a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// An Authentication Send was accepted.
    Accepted,
    /// An Authentication Receive got this message.
    Message(Vec<u8>),
}

/// What host and reactor have exchanged.
#[derive(Debug, Default)]
pub(super) struct Trail {
    /// All bytes received so far. Something was sent between two pieces.
    received: Vec<Vec<u8>>,
    /// Number of bytes that are kept.
    length: usize,
    /// Bytes that were sent when the latest bytes came.
    answered: u64,
    /// The queue that the connection has claimed, whose host must authenticate.
    pub(super) claimed: Option<Connected>,
    /// The answers to the commands that have authenticated the host.
    answers: VecDeque<Answer>,
}

impl Trail {
    /// The trail with `bytes`, which came after `sent` bytes had been sent; `None` if it is too
    /// long with them. What answers something that was sent is kept apart, because a host may not
    /// say it before.
    pub(super) fn with_bytes(mut self, bytes: &[u8], sent: u64) -> Option<Self> {
        self.length += bytes.len();
        match self.received.last_mut() {
            Some(last) if self.answered == sent => last.extend_from_slice(bytes),
            _ => self.received.push(bytes.to_vec()),
        }
        self.answered = sent;
        self.checked()
    }

    /// The trail with another answer; `None` if it is too long with it.
    pub(super) fn with_answer(mut self, answer: Answer) -> Option<Self> {
        self.length += match &answer {
            Answer::Accepted => 0,
            Answer::Message(message) => message.len(),
        };
        self.answers.push_back(answer);
        self.checked()
    }

    fn checked(self) -> Option<Self> {
        (self.length <= BYTES_MAX).then_some(self)
    }

    /// The host's bytes, and the answers of its authentication.
    pub(super) fn into_parts(self) -> (Vec<Vec<u8>>, VecDeque<Answer>) {
        (self.received, self.answers)
    }
}
