//! The bytes of a TCP connection, which is accepted first or there from the start.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, RawFd};

use engine::Instant;

use super::failing::Failing;
use super::incoming::Incoming;
use super::{Feed, Intake, RETRY, Took};

/// A connection, or the listener that accepts it.
pub(super) enum Connection {
    Listening {
        listener: TcpListener,
        failing: Failing,
        /// Whether a connection may be there.
        has_news: bool,
    },
    Open(Incoming),
}

impl Connection {
    pub(super) fn listening(listener: TcpListener) -> Self {
        Self::Listening { listener, failing: Failing::default(), has_news: true }
    }

    /// # Errors
    /// When the system refuses to read without waiting, or to probe the producer.
    pub(super) fn open(stream: TcpStream) -> io::Result<Self> {
        Incoming::new(stream).map(Self::Open)
    }
}

impl Feed for Connection {
    fn take(&mut self, intake: &mut Intake<'_, '_>) -> Took {
        let (listener, failing, has_news) = match self {
            Self::Open(incoming) => return intake.read(|now, room| incoming.read(now, room)),
            Self::Listening { listener, failing, has_news } => (listener, failing, has_news),
        };
        if !*has_news {
            return Took::Nothing;
        }
        let accepted = listener.accept();
        failing.on_result("accepting a connection", &accepted);
        *has_news = !matches!(&accepted, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        // One that is gone by now leaves its place to the next.
        let turn = if *has_news && !failing.fails() { Took::Something } else { Took::Nothing };
        if let Ok(open) = accepted.and_then(|(stream, _)| Self::open(stream)) {
            *self = open;
        }
        turn
    }

    fn wake(&mut self) {
        match self {
            Self::Listening { has_news, .. } => *has_news = true,
            Self::Open(incoming) => incoming.wake(),
        }
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(match self {
            Self::Listening { listener, .. } => listener.as_raw_fd(),
            Self::Open(incoming) => incoming.as_fd().as_raw_fd(),
        })
    }

    fn wake_at(&self, now: Instant) -> Option<Instant> {
        match self {
            Self::Listening { failing, .. } => failing.fails().then(|| now + RETRY),
            Self::Open(incoming) => incoming.patience().map(|patience| now + patience),
        }
    }
}
