//! A sparse disk in memory.

use std::collections::BTreeMap;

use engine::Buffer;
use nvme::media::{Completion, MediaError, Operation, Request};

const PAGE: u64 = 4096;

/// Pages that were written; the others read as zeroes.
#[derive(Debug)]
pub(crate) struct RamDisk {
    bytes: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl RamDisk {
    pub(crate) const fn new(bytes: u64) -> Self {
        Self { bytes, pages: BTreeMap::new() }
    }

    pub(crate) fn submit(&mut self, request: Request, answer: &mut impl FnMut(Completion)) {
        let id = request.id;
        let result = match request.operation {
            Operation::Read { offset, length } => self.read(offset, u64::from(length)).map(|data| {
                answer(Completion::Data { id, offset: 0, data });
            }),
            Operation::Write { offset, data, .. } => self.write(offset, &data),
            Operation::Flush => Ok(()),
            Operation::WriteZeroes { offset, length, .. } | Operation::Deallocate { offset, length } => {
                let zeroes = vec![0; usize::try_from(length).expect("fits")];
                self.write(offset, &zeroes)
            }
        };
        answer(Completion::Done { id, result });
    }

    fn check(&self, offset: u64, length: u64) -> Result<(), MediaError> {
        let end = offset.checked_add(length).ok_or(MediaError::OutOfRange)?;
        if end > self.bytes { Err(MediaError::OutOfRange) } else { Ok(()) }
    }

    fn read(&self, offset: u64, length: u64) -> Result<Buffer, MediaError> {
        self.check(offset, length)?;
        let mut bytes = Vec::new();
        let mut at = offset;
        while at < offset + length {
            let (page, within) = (at / PAGE, at % PAGE);
            let count = (PAGE - within).min(offset + length - at);
            let range =
                usize::try_from(within).expect("fits")..usize::try_from(within + count).expect("fits");
            match self.pages.get(&page) {
                Some(page) => bytes.extend_from_slice(&page[range]),
                None => bytes.resize(bytes.len() + range.len(), 0),
            }
            at += count;
        }
        Ok(Buffer::from(bytes))
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), MediaError> {
        self.check(offset, data.len() as u64)?;
        let mut rest = data;
        let mut at = offset;
        while !rest.is_empty() {
            let (page, within) = (at / PAGE, usize::try_from(at % PAGE).expect("fits"));
            let count = rest.len().min(4096 - within);
            let bytes = self.pages.entry(page).or_insert_with(|| vec![0; 4096]);
            bytes[within..within + count].copy_from_slice(&rest[..count]);
            rest = &rest[count..];
            at += count as u64;
        }
        Ok(())
    }
}
