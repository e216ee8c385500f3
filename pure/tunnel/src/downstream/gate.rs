//! Connections of which nobody knows yet who they are.

use alloc::vec::Vec;

use engine::{Buffer, Instant};

use super::ConnectionId;
use crate::frame::{
    Frame, FrameError, FrameHeader, FrameKind, HEADER_LENGTH, HELLO_BODY_MAX, InstanceId, Member, RefuseCode,
    Role, Sequence,
};
use crate::session::{Ungreeted, greeting};

/// How many connections may be waiting for their Hello to arrive.
pub const WAITING_MAX: usize = 16;

/// What has become of a connection.
pub(super) enum Verdict {
    /// Its Hello is not complete.
    Waits,
    /// A host with this instance has said Hello, for this strand of a link or a link, in these bytes; the rest of the piece
    /// follows them.
    Host(InstanceId, Option<Member>, [Buffer; 2]),
    /// Not one that we talk to.
    No(Ungreeted),
}

struct Waiting {
    connection: ConnectionId,
    deadline: Instant,
    /// What has arrived of the Hello's frame.
    bytes: Vec<u8>,
}

/// Waits with each new connection for its Hello. It keeps no more of a stranger than one frame.
#[derive(Default)]
pub(super) struct Gate {
    waiting: Vec<Waiting>,
}

impl Gate {
    /// Takes in a new connection, unless too many are waiting.
    pub(super) fn accept(&mut self, connection: ConnectionId, deadline: Instant) -> bool {
        self.forget(connection);
        let room = self.waiting.len() < WAITING_MAX;
        if room {
            self.waiting.push(Waiting { connection, deadline, bytes: Vec::new() });
        }
        room
    }

    pub(super) fn forget(&mut self, connection: ConnectionId) {
        self.waiting.retain(|waiting| waiting.connection != connection);
    }

    /// A piece of the stream of `connection`; nothing, if it isn't here. Unless it goes on waiting, it is forgotten.
    pub(super) fn receive(&mut self, connection: ConnectionId, piece: &Buffer) -> Option<Verdict> {
        let index = self.waiting.iter().position(|waiting| waiting.connection == connection)?;
        let verdict = self.waiting[index].receive(piece);
        if !matches!(verdict, Verdict::Waits) {
            self.waiting.swap_remove(index);
        }
        Some(verdict)
    }

    /// Takes out a connection whose Hello is late.
    pub(super) fn expire(&mut self, now: Instant) -> Option<ConnectionId> {
        let index = self.waiting.iter().position(|waiting| waiting.deadline <= now)?;
        Some(self.waiting.swap_remove(index).connection)
    }

    pub(super) fn earliest(&self) -> Option<Instant> {
        self.waiting.iter().map(|waiting| waiting.deadline).min()
    }
}

impl Waiting {
    fn receive(&mut self, piece: &Buffer) -> Verdict {
        let mut rest = &piece[..];
        let frame = loop {
            let lacking = match self.lacking() {
                Err(error) => break Err(error),
                Ok(0) => break self.frame(),
                Ok(_) if rest.is_empty() => return Verdict::Waits,
                Ok(lacking) => lacking,
            };
            let (taken, left) = rest.split_at(lacking.min(rest.len()));
            self.bytes.extend_from_slice(taken);
            rest = left;
        };
        match greeting(&frame, FrameKind::Hello, Role::Upstream) {
            Ok((_, hello)) => {
                let rest = piece.slice(piece.len() - rest.len()..piece.len());
                Verdict::Host(hello.instance, hello.member, [Buffer::copy_from_slice(&self.bytes), rest])
            }
            Err(no) => Verdict::No(no),
        }
    }

    /// How many bytes are lacking, first of the header and then of the body.
    fn lacking(&self) -> Result<usize, FrameError> {
        let have = self.bytes.len();
        let Some(head) = self.bytes.first_chunk() else {
            // A stranger is recognised by its first byte.
            self.bytes.first().map_or(Ok(FrameKind::Hello), |octet| FrameKind::parse(*octet))?;
            return Ok(HEADER_LENGTH - have);
        };
        let header = FrameHeader::parse(head)?;
        if !matches!(header.kind, FrameKind::Hello | FrameKind::Refuse) {
            // It will be told so; its body is not worth waiting for.
            return Ok(0);
        }
        Ok(HEADER_LENGTH + usize::from(header.length) - have)
    }

    /// The frame, all of which is there, or a header that has no place here.
    fn frame(&self) -> Result<(FrameHeader, Buffer), FrameError> {
        let (need, have) = (HEADER_LENGTH, self.bytes.len());
        let (head, body) = self.bytes.split_first_chunk().ok_or(FrameError::Truncated { need, have })?;
        Ok((FrameHeader::parse(head)?, Buffer::copy_from_slice(body)))
    }
}

/// The bytes of a Refuse.
pub(super) fn refusal(code: RefuseCode, text: &str) -> Buffer {
    let mut bytes = [0; HEADER_LENGTH + HELLO_BODY_MAX];
    let length = Frame::Refuse(code, text).emit(Sequence::FIRST, Sequence::FIRST, &mut bytes);
    Buffer::copy_from_slice(&bytes[..length])
}
