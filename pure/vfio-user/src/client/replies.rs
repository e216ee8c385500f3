//! Handles the messages of a server: replies to the client, and requests by the server.

use alloc::vec::Vec;

use engine::Instant;

use super::Client;
use super::output::{Answer, Output};
use super::reason::CloseReason;
use super::waiting::{Ask, Sent};
use crate::errno::Errno;
use crate::limits::DATA_MAX;
use crate::peer::Peer;
use crate::pending::RequestHead;
use crate::stream::{Descriptors, Message};
use crate::version::{MAJOR, MINOR, Negotiated};
use crate::wire::{
    Command, DeviceInfo, DmaAccess, Header, InterruptInfo, Kind, ParseError, RegionAccess, RegionInfo,
    Version,
};

/// The longest information about a region that is accepted, in bytes.
const REGION_INFO_MAX: u32 = 1 << 16;

impl<D: 'static> Client<D> {
    pub(super) fn on_message(&mut self, now: Instant, message: Message<'_, D>) {
        let Message { header, payload, attached } = message;
        match (header.kind, self.core.peer) {
            (Kind::Reply { error }, Peer::AwaitingVersion { .. }) if header.command == Command::Version => {
                self.on_version(error, payload);
            }
            (Kind::Reply { error }, _) => self.on_reply(now, &header, error, payload, attached),
            (Kind::Command { no_reply }, _) => {
                let asked = RequestHead { id: header.id, command: header.command, no_reply };
                // No request of a server carries a descriptor.
                let alone = attached.list.is_empty() && !attached.too_many;
                let result = if alone { self.on_request(asked, payload) } else { Err(Errno::EINVAL) };
                if let Err(error) = result {
                    self.core.refuse(asked, error);
                }
            }
        }
    }

    fn on_version(&mut self, error: Option<Errno>, payload: &[u8]) {
        if let Some(error) = error {
            return self.close(CloseReason::Refused { error });
        }
        let theirs = match Version::parse(payload) {
            Ok(theirs) if theirs.major == MAJOR && theirs.minor <= MINOR => theirs,
            Ok(Version { major, minor, .. }) => return self.close(CloseReason::Newer { major, minor }),
            Err(error) => return self.close(CloseReason::Version(error)),
        };
        match Negotiated::with(&theirs) {
            Ok(negotiated) => {
                self.core.peer = Peer::Ready(negotiated);
                self.core.outputs.push_back(Output::Negotiated(negotiated));
            }
            Err(error) => self.close(CloseReason::Version(error)),
        }
    }

    /// Handles a reply. A late or unexpected reply is ignored.
    fn on_reply(
        &mut self,
        now: Instant,
        header: &Header,
        error: Option<Errno>,
        payload: &[u8],
        attached: Descriptors<D>,
    ) {
        let Some(sent) = self.waiting.take(header.id, header.command) else { return };
        let result = match error {
            Some(Errno(0)) => Err(Errno::EIO),
            Some(error) => Err(error),
            None if attached.too_many => Err(Errno::EINVAL),
            None => match self.answer_of(now, sent, payload, attached.list) {
                Ok(Some(answer)) => Ok(answer),
                Ok(None) => return,
                Err(error) => Err(error),
            },
        };
        self.answer(sent.request, result);
    }

    /// The answer in a reply; `None` if the client must repeat the request.
    fn answer_of(
        &mut self,
        now: Instant,
        sent: Sent,
        payload: &[u8],
        descriptors: Vec<D>,
    ) -> Result<Option<Answer<D>>, Errno> {
        let answer = match sent.ask {
            Ask::Device => Answer::Device(DeviceInfo::parse(payload)?),
            Ask::Region { index, room } => {
                let info = RegionInfo::parse(payload)?;
                check(info.index == index)?;
                if info.argsz as usize > payload.len() {
                    // The reply is longer than the offered room. A server that reports this twice
                    // does not get a third request.
                    check(info.argsz > room && room < REGION_INFO_MAX)?;
                    self.ask_region(now, sent.request, index, REGION_INFO_MAX);
                    return Ok(None);
                }
                Answer::Region { info, descriptors }
            }
            Ask::Interrupt { index } => {
                let info = InterruptInfo::parse(payload)?;
                check(info.index == index)?;
                Answer::Interrupt(info)
            }
            Ask::Read(access) => {
                let (read, data) = RegionAccess::parse(payload)?;
                ParseError::exact(read.count.into(), data.len() as u64)?;
                check(
                    (read.offset, read.region) == (access.offset, access.region)
                        && read.count <= access.count,
                )?;
                Answer::Data(self.core.pool.copy(data))
            }
            Ask::WriteMultiple { count } => {
                check(payload == count.to_le_bytes())?;
                Answer::Done
            }
            Ask::Done(_) => Answer::Done,
        };
        Ok(Some(answer))
    }

    /// Handles a request by the server.
    fn on_request(&mut self, asked: RequestHead, payload: &[u8]) -> Result<(), Errno> {
        if !matches!(self.core.peer, Peer::Ready(_)) {
            return Err(Errno::EINVAL);
        }
        if !matches!(asked.command, Command::DmaRead | Command::DmaWrite) {
            return Err(Errno::ENOSYS);
        }
        if self.core.pending.is_full() {
            return Err(Errno::EBUSY);
        }
        let (access, data) = DmaAccess::parse(payload)?;
        let length = u32::try_from(access.count).map_err(|_| Errno::E2BIG)?;
        if length > DATA_MAX {
            return Err(Errno::E2BIG);
        }
        check(length > 0 && access.address.checked_add(access.count - 1).is_some())?;
        let address = access.address;
        if asked.command == Command::DmaRead {
            ParseError::exact(0, data.len() as u64)?;
            let token = self.core.pending.insert(asked, access);
            self.core.outputs.push_back(Output::DmaRead { token, address, length });
        } else {
            ParseError::exact(access.count, data.len() as u64)?;
            let token = (!asked.no_reply).then(|| self.core.pending.insert(asked, access));
            let data = self.core.pool.copy(data);
            self.core.outputs.push_back(Output::DmaWrite { token, address, data });
        }
        Ok(())
    }
}

/// Checks a rule that a well-behaved server keeps.
const fn check(holds: bool) -> Result<(), Errno> {
    if holds { Ok(()) } else { Err(Errno::EINVAL) }
}
