//! Memory as a medium that several threads use.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use engine::Buffer;
use nvme::media::{Completion, MediaError, Operation, Request};

const PAGE: u64 = 4096;

#[derive(Debug)]
struct Shared {
    bytes: u64,
    pages: BTreeMap<u64, Box<[u8]>>,
}

/// Memory of this process that several threads use, each through a value of its own.
#[derive(Debug)]
pub struct SharedRam(Arc<Mutex<Shared>>);

/// A [`SharedRam`] on its way to another thread.
#[derive(Clone, Debug)]
pub struct SharedRamForLane(Arc<Mutex<Shared>>);

impl SharedRamForLane {
    /// The memory as this thread uses it.
    pub fn open(self) -> SharedRam {
        SharedRam(self.0)
    }
}

impl SharedRam {
    /// Memory of `bytes` zero bytes.
    pub fn new(bytes: u64) -> Self {
        Self(Arc::new(Mutex::new(Shared { bytes, pages: BTreeMap::new() })))
    }

    /// The same memory for another thread.
    pub fn for_lane(&self) -> SharedRamForLane {
        SharedRamForLane(Arc::clone(&self.0))
    }

    /// Sets the length in bytes. Contents beyond a new end are lost, and added bytes read as
    /// zeroes.
    pub fn resize(&mut self, bytes: u64) {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let old = shared.bytes;
        shared.write(bytes, old.saturating_sub(bytes), &mut |_| 0);
        shared.bytes = bytes;
    }

    /// Executes `request` at once and passes its completions to `complete`.
    pub fn submit(&mut self, request: Request, complete: &mut impl FnMut(Completion)) {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let id = request.id;
        let (offset, length) = match &request.operation {
            Operation::Read { offset, length } => (*offset, u64::from(*length)),
            Operation::Write { offset, data, .. } => (*offset, data.len() as u64),
            Operation::WriteZeroes { offset, length, .. } | Operation::Deallocate { offset, length } => {
                (*offset, *length)
            }
            Operation::Flush => (0, 0),
        };
        let inside = offset.checked_add(length).is_some_and(|end| end <= shared.bytes);
        let result = if inside { Ok(()) } else { Err(MediaError::OutOfRange) };
        match request.operation {
            _ if !inside => {}
            Operation::Read { .. } => {
                let data = Buffer::from(shared.read(offset, length));
                complete(Completion::Data { id, offset: 0, data });
            }
            Operation::Write { data, .. } => {
                let mut bytes = data.iter();
                shared.write(offset, length, &mut |_| bytes.next().copied().unwrap_or_default());
            }
            Operation::Flush => {}
            _ => shared.write(offset, length, &mut |_| 0),
        }
        drop(shared);
        complete(Completion::Done { id, result });
    }
}

impl Shared {
    fn read(&self, offset: u64, length: u64) -> Vec<u8> {
        let byte = |at: u64| {
            let page = self.pages.get(&(at / PAGE));
            page.map_or(0, |page| page[usize::try_from(at % PAGE).unwrap_or_default()])
        };
        (offset..offset + length).map(byte).collect()
    }

    fn write(&mut self, offset: u64, length: u64, byte: &mut dyn FnMut(u64) -> u8) {
        for at in offset..offset + length {
            let page = self.pages.entry(at / PAGE).or_insert_with(|| vec![0; 4096].into());
            page[usize::try_from(at % PAGE).unwrap_or_default()] = byte(at);
        }
    }
}
