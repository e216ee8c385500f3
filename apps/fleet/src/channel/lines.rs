//! Lines of JSON over a stream.

use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf};

/// The longest line in bytes: some 20,000 volumes with a host each.
pub const LINE_MAX: usize = 16 << 20;
/// Bytes that one read takes at most.
const READ_BYTES: usize = 64 << 10;

/// Why a peer's lines cannot be read any further.
#[derive(Debug, thiserror::Error)]
pub enum LinesError {
    /// The stream has failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A line is longer than [`LINE_MAX`].
    #[error("the peer sent a line of more than {LINE_MAX} bytes")]
    TooLong,
    /// A line is no message.
    #[error("the peer sent a line that is no message: {0}")]
    NoMessage(#[from] serde_json::Error),
}

/// A message that is one line of JSON, with its kind in the field `message`.
pub trait Message: DeserializeOwned {
    /// The kinds of messages that this version knows. Another version has further ones.
    const KINDS: &[&str];
}

/// The kind of a message, whatever else it has.
#[derive(Deserialize)]
struct Kind {
    message: String,
}

/// The message that a line is; `None` if only another version knows its kind.
fn parse<T: Message>(line: &[u8]) -> Result<Option<T>, LinesError> {
    let error = match serde_json::from_slice(line) {
        Ok(message) => return Ok(Some(message)),
        Err(error) => error,
    };
    match serde_json::from_slice(line) {
        Ok(Kind { message }) if !T::KINDS.contains(&&*message) => Ok(None),
        _ => Err(error.into()),
    }
}

/// The reading end of a stream of lines.
#[derive(Debug)]
pub struct Lines<S> {
    stream: ReadHalf<S>,
    buffer: Vec<u8>,
    /// Bytes of the buffer that are known to have no end of a line.
    searched: usize,
}

impl<S: AsyncRead> Lines<S> {
    /// Reads lines from a stream.
    pub const fn new(stream: ReadHalf<S>) -> Self {
        Self { stream, buffer: Vec::new(), searched: 0 }
    }

    /// The next message of a kind that this version knows; `None` at the end of the stream. Loses
    /// nothing when it is dropped before its end.
    ///
    /// # Errors
    /// When the stream fails, or when the peer sends something else.
    pub async fn next<T: Message>(&mut self) -> Result<Option<T>, LinesError> {
        loop {
            let rest = &self.buffer[self.searched..];
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let end = self.searched + end;
                let message = parse(&self.buffer[..end]);
                self.buffer.drain(..=end);
                self.searched = 0;
                match message? {
                    Some(message) => return Ok(Some(message)),
                    None => continue,
                }
            }
            self.searched = self.buffer.len();
            if self.buffer.len() > LINE_MAX {
                return Err(LinesError::TooLong);
            }
            self.buffer.reserve(READ_BYTES);
            let mut limited = (&mut self.stream).take(READ_BYTES as u64);
            match limited.read_buf(&mut self.buffer).await {
                Ok(0) => return Ok(None),
                // The peer was killed: TLS has not ended in order.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                read => drop(read?),
            }
        }
    }
}

/// Writes a message as one line.
///
/// # Errors
/// When the stream fails.
pub(super) async fn write_line<W: AsyncWrite + Unpin>(
    stream: &mut W,
    message: &impl Serialize,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    stream.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{duplex, split};

    impl Message for Vec<u8> {
        const KINDS: &[&str] = &["old"];
    }

    #[tokio::test]
    async fn lines_come_whole_and_garbage_ends_them() {
        let (here, mut there) = duplex(64);
        let mut lines = Lines::new(split(here).0);
        let writer = tokio::spawn(async move {
            for part in ["[1", ",2]\n[3]", "\n", "nonsense\n"] {
                there.write_all(part.as_bytes()).await.unwrap();
            }
        });
        assert_eq!(lines.next::<Vec<u8>>().await.unwrap(), Some(vec![1, 2]));
        assert_eq!(lines.next::<Vec<u8>>().await.unwrap(), Some(vec![3]));
        assert!(matches!(lines.next::<Vec<u8>>().await, Err(LinesError::NoMessage(_))));
        writer.await.unwrap();
        assert_eq!(lines.next::<Vec<u8>>().await.unwrap(), None);
    }

    #[tokio::test]
    async fn messages_of_a_later_version_are_passed_over() {
        let (here, mut there) = duplex(256);
        let mut lines = Lines::new(split(here).0);
        there.write_all(b"{\"message\":\"new\",\"x\":{}}\n[4]\n{\"message\":\"old\"}\n").await.unwrap();
        assert_eq!(lines.next::<Vec<u8>>().await.unwrap(), Some(vec![4]));
        assert!(matches!(lines.next::<Vec<u8>>().await, Err(LinesError::NoMessage(_))));
    }

    #[tokio::test]
    async fn a_line_without_an_end_is_bounded() {
        let (here, mut there) = duplex(1 << 20);
        let mut lines = Lines::new(split(here).0);
        let writer = tokio::spawn(async move {
            let part = vec![b'x'; 1 << 20];
            while there.write_all(&part).await.is_ok() {}
        });
        assert!(matches!(lines.next::<Vec<u8>>().await, Err(LinesError::TooLong)));
        assert!(lines.buffer.len() < LINE_MAX + (1 << 20));
        drop(lines);
        writer.await.unwrap();
    }
}
