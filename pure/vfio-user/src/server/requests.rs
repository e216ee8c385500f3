//! Handles the requests of a client.

use alloc::vec::Vec;

use super::output::Output;
use super::reason::CloseReason;
use super::{RegionConfig, Server};
use crate::errno::Errno;
use crate::index::{INTERRUPTS, InterruptIndex, REGIONS, RegionIndex};
use crate::interrupt::{InterruptAction, InterruptData};
use crate::limits::{DATA_MAX, WRITES_MAX};
use crate::peer::Peer;
use crate::pending::RequestHead;
use crate::version::{self, Negotiated};
use crate::wire::{
    Command, DeviceInfo, DmaMap, DmaUnmap, InterruptInfo, ParseError, RegionAccess, RegionInfo,
    RegionIoDescriptors, SetInterrupts, Version, VersionError, WriteMultiple,
};

/// A client's request that the world must answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Map { address: u64 },
    Unmap { remaining: usize, unmap: DmaUnmap },
    Read(RegionAccess),
    Write(RegionAccess),
    WriteMultiple { remaining: usize, count: usize, failure: Option<Errno> },
    Reset,
}

impl From<ParseError> for Errno {
    /// The error reported to a client for a payload that cannot be decoded.
    fn from(_: ParseError) -> Self {
        Self::EINVAL
    }
}

impl<D: 'static> Server<D> {
    /// Handles the first message of a client.
    pub(super) fn on_version(&mut self, asked: RequestHead, payload: &[u8]) {
        let parsed = Version::parse(payload);
        if let Ok(Version { major, .. }) = parsed
            && major != version::MAJOR
        {
            self.core.refuse(asked, Errno::EOPNOTSUPP);
            return self.close(CloseReason::Major { major });
        }
        match parsed.and_then(|theirs| Negotiated::with(&theirs).map(|negotiated| (theirs, negotiated))) {
            Ok((theirs, negotiated)) => {
                // Only capabilities that the client has named may be named to it.
                let capabilities = theirs.capabilities.map(|theirs| version::ours().in_common_with(&theirs));
                let Negotiated { major, minor, .. } = negotiated;
                self.core.reply(asked, [&Version { major, minor, capabilities }.emit(), &[]]);
                self.core.peer = Peer::Ready(negotiated);
                self.core.outputs.push_back(Output::Negotiated(negotiated));
            }
            Err(error) => self.on_bad_version(asked, error),
        }
    }

    fn on_bad_version(&mut self, asked: RequestHead, error: VersionError) {
        self.core.refuse(asked, Errno::EINVAL);
        self.close(CloseReason::Version(error));
    }

    /// Handles any message after the first. A request that is not answered here waits for the
    /// world.
    pub(super) fn on_command(
        &mut self,
        asked: RequestHead,
        payload: &[u8],
        descriptors: Vec<D>,
    ) -> Result<(), Errno> {
        match asked.command {
            Command::DmaMap => return self.on_map(asked, payload, descriptors),
            Command::DeviceSetIrqs => return self.on_set_interrupts(asked, payload, descriptors),
            // SPDK's client sends the descriptor of the memory once more.
            Command::DmaUnmap => return self.on_unmap(asked, payload),
            _ if !descriptors.is_empty() => return Err(Errno::EINVAL),
            _ => {}
        }
        match asked.command {
            Command::DeviceGetInfo => self.on_device_info(asked, payload),
            Command::DeviceGetRegionInfo => self.on_region_info(asked, payload),
            Command::DeviceGetRegionIoFds => self.on_region_descriptors(asked, payload),
            Command::DeviceGetIrqInfo => self.on_interrupt_info(asked, payload),
            Command::RegionRead => self.on_read(asked, payload),
            Command::RegionWrite => self.on_write(asked, payload),
            Command::RegionWriteMulti => self.on_write_multiple(asked, payload),
            Command::DeviceReset => self.on_reset(asked, payload),
            Command::DirtyPages | Command::DeviceFeature | Command::MigDataRead | Command::MigDataWrite => {
                Err(Errno::EOPNOTSUPP)
            }
            // A version is sent once; the other commands are for servers to send.
            Command::Version | Command::DmaRead | Command::DmaWrite => Err(Errno::EINVAL),
            Command::DmaMap | Command::DmaUnmap | Command::DeviceSetIrqs => unreachable!("served above"),
            Command::Other(_) => Err(Errno::ENOSYS),
        }
    }

    fn on_map(&mut self, asked: RequestHead, payload: &[u8], mut descriptors: Vec<D>) -> Result<(), Errno> {
        let map = DmaMap::parse(payload)?;
        if descriptors.len() > 1 || (!descriptors.is_empty() && !map.fits_a_file()) {
            return Err(Errno::EINVAL);
        }
        self.memory.check(&map)?;
        let token = self.core.pending.insert(asked, Request::Map { address: map.address });
        self.memory.insert(&map, token);
        self.core.outputs.push_back(Output::Map { token, map, descriptor: descriptors.pop() });
        Ok(())
    }

    fn on_unmap(&mut self, asked: RequestHead, payload: &[u8]) -> Result<(), Errno> {
        let unmap = DmaUnmap::parse(payload)?;
        if !unmap.all {
            self.memory.remove(unmap.address, unmap.length)?;
            let token = Some(self.core.pending.insert(asked, Request::Unmap { remaining: 1, unmap }));
            self.core.outputs.push_back(Output::Unmap {
                token,
                address: unmap.address,
                length: unmap.length,
            });
            return Ok(());
        }
        let remaining = self.memory.len();
        if remaining == 0 {
            self.core.reply(asked, [&unmap.emit(), &[]]);
            return Ok(());
        }
        let token = Some(self.core.pending.insert(asked, Request::Unmap { remaining, unmap }));
        while let Some((address, length)) = self.memory.pop() {
            self.core.outputs.push_back(Output::Unmap { token, address, length });
        }
        Ok(())
    }

    fn on_device_info(&mut self, asked: RequestHead, payload: &[u8]) -> Result<(), Errno> {
        DeviceInfo::parse(payload)?;
        let [regions, interrupts] = [REGIONS, INTERRUPTS].map(|count| u32::try_from(count).expect("a few"));
        let info = DeviceInfo { resettable: self.config.resettable, pci: true, regions, interrupts };
        self.core.reply(asked, [&info.emit(), &[]]);
        Ok(())
    }

    fn on_region_info(&mut self, asked: RequestHead, payload: &[u8]) -> Result<(), Errno> {
        // SPDK's client sends as many bytes as it has room for, of which only the first have a
        // defined meaning.
        let request = RegionInfo::parse(payload.get(..RegionInfo::LENGTH).unwrap_or(payload))?;
        let region = self.region(request.index)?;
        // Without its descriptor, no part of a region can be mapped.
        let takes_descriptors = matches!(self.core.peer, Peer::Ready(client) if client.descriptors_max > 0);
        let areas = if takes_descriptors { region.areas.clone() } else { Vec::new() };
        let info = RegionInfo {
            argsz: 0,
            index: request.index,
            readable: region.readable,
            writable: region.writable,
            mappable: !areas.is_empty(),
            size: region.length,
            offset: region.file_offset,
            areas,
        };
        let shared = info.mappable.then_some(RegionIndex(request.index));
        self.reply_sharing(asked, [&info.emit(request.argsz), &[]], shared);
        Ok(())
    }

    fn on_region_descriptors(&mut self, asked: RequestHead, payload: &[u8]) -> Result<(), Errno> {
        let request = RegionIoDescriptors::parse(payload)?;
        self.region(request.index)?;
        self.core.reply(asked, [&RegionIoDescriptors { index: request.index, count: 0 }.emit(), &[]]);
        Ok(())
    }

    fn on_interrupt_info(&mut self, asked: RequestHead, payload: &[u8]) -> Result<(), Errno> {
        let request = InterruptInfo::parse(payload)?;
        let kind = InterruptIndex::from_number(request.index).ok_or(Errno::EINVAL)?;
        let config = self.config.interrupts[kind.slot()];
        let pin = kind == InterruptIndex::Intx && config.count > 0;
        let info = InterruptInfo {
            index: request.index,
            count: config.count,
            descriptors: config.count > 0,
            maskable: pin,
            masks_itself: pin,
            all_at_once: config.all_at_once,
        };
        self.core.reply(asked, [&info.emit(), &[]]);
        Ok(())
    }

    fn on_set_interrupts(
        &mut self,
        asked: RequestHead,
        payload: &[u8],
        descriptors: Vec<D>,
    ) -> Result<(), Errno> {
        let set = SetInterrupts::parse(payload)?;
        let index = InterruptIndex::from_number(set.index).ok_or(Errno::EINVAL)?;
        let available = self.config.interrupts[index.slot()].count;
        let end = set.start.checked_add(set.count).ok_or(Errno::EINVAL)?;
        let with_descriptors = set.data() == SetInterrupts::DESCRIPTORS;
        let triggers = set.action() == SetInterrupts::TRIGGER;
        let teardown = set.count == 0 && set.start == 0 && set.data() == SetInterrupts::NONE && triggers;
        if !teardown && (set.count == 0 || end > available) {
            return Err(Errno::EINVAL);
        }
        // Only the pin can be masked, and no descriptor announces its masking.
        if !triggers && (index != InterruptIndex::Intx || with_descriptors) {
            return Err(Errno::EINVAL);
        }
        let one_each = with_descriptors && descriptors.len() == set.count as usize;
        if !one_each && !descriptors.is_empty() {
            return Err(Errno::EINVAL);
        }
        self.set_up[index.slot()] = !teardown && (self.set_up[index.slot()] || !descriptors.is_empty());
        let action = match set.action() {
            SetInterrupts::MASK => InterruptAction::Mask,
            SetInterrupts::UNMASK => InterruptAction::Unmask,
            _ => InterruptAction::Trigger,
        };
        let data = match set.data() {
            SetInterrupts::BOOLS => InterruptData::Bools(set.bools.iter().map(|byte| *byte != 0).collect()),
            SetInterrupts::DESCRIPTORS => InterruptData::Descriptors(descriptors),
            _ => InterruptData::None,
        };
        self.core.outputs.push_back(Output::SetInterrupts {
            index,
            action,
            start: set.start,
            count: set.count,
            data,
        });
        self.core.reply(asked, [&[], &[]]);
        Ok(())
    }

    fn on_read(&mut self, asked: RequestHead, payload: &[u8]) -> Result<(), Errno> {
        let (access, rest) = RegionAccess::parse(payload)?;
        ParseError::exact(0, rest.len() as u64)?;
        self.check_access(&access, |region| region.readable)?;
        let token = self.core.pending.insert(asked, Request::Read(access));
        let RegionAccess { offset, region, count } = access;
        self.core.outputs.push_back(Output::RegionRead {
            token,
            region: RegionIndex(region),
            offset,
            length: count,
        });
        Ok(())
    }

    fn on_write(&mut self, asked: RequestHead, payload: &[u8]) -> Result<(), Errno> {
        let (access, data) = RegionAccess::parse(payload)?;
        ParseError::exact(access.count.into(), data.len() as u64)?;
        self.check_access(&access, |region| region.writable)?;
        let token = (!asked.no_reply).then(|| self.core.pending.insert(asked, Request::Write(access)));
        let data = self.core.pool.copy(data);
        let RegionAccess { offset, region, .. } = access;
        self.core.outputs.push_back(Output::RegionWrite { token, region: RegionIndex(region), offset, data });
        Ok(())
    }

    fn on_write_multiple(&mut self, asked: RequestHead, payload: &[u8]) -> Result<(), Errno> {
        let multiple = WriteMultiple::parse(payload)?;
        let count = multiple.count();
        if !(1..=WRITES_MAX).contains(&count) {
            return Err(Errno::EINVAL);
        }
        for write in multiple.writes() {
            self.check_access(&write.access, |region| region.writable)?;
        }
        let request = Request::WriteMultiple { remaining: count, count, failure: None };
        let token = (!asked.no_reply).then(|| self.core.pending.insert(asked, request));
        for write in multiple.writes() {
            let data = self.core.pool.copy(write.data());
            let RegionAccess { offset, region, .. } = write.access;
            self.core.outputs.push_back(Output::RegionWrite {
                token,
                region: RegionIndex(region),
                offset,
                data,
            });
        }
        Ok(())
    }

    fn on_reset(&mut self, asked: RequestHead, payload: &[u8]) -> Result<(), Errno> {
        ParseError::exact(0, payload.len() as u64)?;
        if !self.config.resettable {
            return Err(Errno::EOPNOTSUPP);
        }
        let token = self.core.pending.insert(asked, Request::Reset);
        self.core.outputs.push_back(Output::Reset { token });
        Ok(())
    }

    fn region(&self, index: u32) -> Result<&RegionConfig, Errno> {
        usize::try_from(index).ok().and_then(|index| self.config.regions.get(index)).ok_or(Errno::EINVAL)
    }

    /// Checks that an access lies within its region and that the region allows it.
    fn check_access(
        &self,
        access: &RegionAccess,
        allows: impl Fn(&RegionConfig) -> bool,
    ) -> Result<(), Errno> {
        let region = self.region(access.region)?;
        let end = access.offset.checked_add(access.count.into()).ok_or(Errno::EINVAL)?;
        if !(1..=DATA_MAX).contains(&access.count) || end > region.length {
            return Err(Errno::EINVAL);
        }
        if allows(region) { Ok(()) } else { Err(Errno::EACCES) }
    }
}
