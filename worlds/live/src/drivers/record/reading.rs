//! Reading, proving and repairing recordings.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use record::format::{ALIGNMENT, CERTIFICATE_SLOT, Certificate, Entry, Gap, Header, Kind, find_chunk_length};
use record::{Algorithm, Doubt, Hasher, Scan, StreamDigest, Survey};

use super::extents::Slots;
use super::far::Far;
use super::reads::{self, Block, Ends, Piece};
use super::real_time;
use super::signing::Signer;
use super::storage::media;
use super::striped::{Part, Stripes};
use crate::sys::digest::crc32c;
use crate::sys::files;
use crate::sys::lock::lock;

/// How much of a medium is searched for a first chunk, in bytes.
const SEARCHED_MAX: usize = 64 << 20;
/// The value in place of a byte that a disk can't read: a chunk that needs it is bad.
pub(super) const UNREADABLE: u8 = 0xff;

/// Why a recording can't be read.
#[derive(Debug)]
pub enum ReadError {
    /// The file can't be read.
    Io(io::Error),
    /// There is no chunk in it.
    NoRecording,
    /// A recorder is writing it.
    InUse,
    /// The result of recovery does not prove itself, for this reason.
    Contradiction(Doubt),
    /// Members of a striped recording are missing or wrong: which, and what to do.
    Members(String),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::NoRecording => write!(f, "it has no chunk of a recording"),
            Self::InUse => write!(f, "it is being written by a recorder"),
            Self::Contradiction(doubt) => {
                write!(f, "the data written by the recovery were read again, and {doubt}")
            }
            Self::Members(why) => write!(f, "{why}"),
        }
    }
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The medium of a recording.
#[derive(Debug)]
pub(super) enum Store {
    File(File),
    /// Reads go through the device's driver, which changes with each of them.
    Far(RefCell<Box<Far>>),
    /// Several media.
    Striped(Stripes),
}

impl Store {
    /// Opens a file or block device. Returns also whether a recorder writes it.
    pub(super) fn open(path: &Path, change: bool) -> Result<(Self, bool), ReadError> {
        media(path)?;
        let file = if change { files::change(path)? } else { File::open(path)? };
        // A recorder that was killed holds the lock until its last writes are over.
        let locked = if change { lock(&file, false) } else { file.try_lock_shared() };
        let in_use = locked.is_err();
        if in_use && change {
            return Err(ReadError::InUse);
        }
        Ok((Self::File(file), in_use))
    }

    /// A namespace of another device.
    pub(super) const fn far(far: Box<Far>) -> Self {
        Self::Far(RefCell::new(far))
    }

    /// Reads as much as there is.
    pub(super) fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Self::File(file) => read_at(file, bytes, offset),
            Self::Far(far) => far.borrow_mut().read_at(bytes, offset),
            Self::Striped(all) => all.read_at(bytes, offset),
        }
    }

    /// Reads as much as there is of a part of a recording, and all that can be read: in pages that
    /// a disk can't read, each byte is [`UNREADABLE`].
    ///
    /// # Errors
    /// The medium's; also when none of the pages can be read.
    pub(super) fn read_around(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let failed = match self.read_at(bytes, offset) {
            Err(error) if is_unreadable(&error) => error,
            result => return result,
        };
        let (mut length, mut has_read) = (0, false);
        for page in bytes.chunks_mut(ALIGNMENT as usize) {
            match self.read_at(page, offset + length as u64) {
                Err(error) if is_unreadable(&error) => {
                    page.fill(UNREADABLE);
                    length += page.len();
                }
                Err(error) => return Err(error),
                Ok(read) => {
                    (length, has_read) = (length + read, true);
                    if read < page.len() {
                        break;
                    }
                }
            }
        }
        if has_read { Ok(length) } else { Err(failed) }
    }

    /// Reads as much as there is of a slot. Each byte of a page that a disk can't read is
    /// [`UNREADABLE`], also when that are all pages: the chunk in the slot is bad then.
    pub(super) fn read_slot(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        match self.read_around(bytes, offset) {
            Err(error) if is_unreadable(&error) => {
                bytes.fill(UNREADABLE);
                Ok(bytes.len())
            }
            result => result,
        }
    }

    /// The slots before the number `end` that may have something, with `chunk` bytes each.
    pub(super) fn slots(&self, chunk: u32, end: u64) -> Slots<'_> {
        let file = if let Self::File(file) = self { Some(file.as_fd()) } else { None };
        Slots::new(file, chunk, end)
    }

    /// The length of the medium in bytes.
    pub(super) fn bytes(&self) -> io::Result<u64> {
        match self {
            Self::File(file) => {
                let mut file = file;
                file.seek(SeekFrom::End(0))
            }
            Self::Far(far) => Ok(far.borrow().bytes()),
            Self::Striped(all) => all.bytes(),
        }
    }

    /// Cuts a file off behind `length` bytes, if it is longer. Where that fails, nothing is lost
    /// but space.
    pub(super) fn cut(&self, length: u64) {
        if let Self::Striped(all) = self {
            all.cut(length);
        }
        if let Self::File(file) = self
            && file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() > length)
        {
            let _ = file.set_len(length);
        }
    }

    pub(super) fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        match self {
            Self::File(file) => file.write_all_at(bytes, offset),
            Self::Far(far) => far.borrow_mut().write_at(bytes, offset),
            Self::Striped(all) => all.write_at(bytes, offset),
        }
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        match self {
            Self::File(file) => file.sync_data(),
            Self::Far(far) => far.borrow_mut().flush(),
            Self::Striped(all) => all.sync(),
        }
    }
}

/// A recording, and its survey.
#[derive(Debug)]
pub struct Recording {
    pub(super) store: Store,
    /// Its contents.
    pub survey: Survey,
    /// The digest of the stored bytes of each stream ([`Survey::algorithm`]); nothing where the
    /// payloads were not read.
    pub digests: Vec<[u8; 32]>,
    /// Whether a recorder is writing it now.
    pub in_use: bool,
}

impl Recording {
    /// Reads a whole recording, and checks every chunk. If `change`, it can be repaired.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read(path: &Path, change: bool) -> Result<Self, ReadError> {
        Self::read_parts(vec![Part::open(path, change)?])
    }

    /// Reads a whole recording that lies on these media, and checks every chunk.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read_parts(parts: Vec<Part>) -> Result<Self, ReadError> {
        let (store, in_use) = Part::join(parts)?;
        Self::of(store, in_use)
    }

    fn of(store: Store, in_use: bool) -> Result<Self, ReadError> {
        let (survey, digests) = survey(&store)?;
        Ok(Self { store, survey, digests, in_use })
    }

    /// Reads the payload of a chunk into `bytes`, which is as long as a chunk.
    ///
    /// # Errors
    /// When it is not there any more.
    pub fn payload<'a>(&self, entry: &Entry, bytes: &'a mut [u8]) -> Result<&'a [u8], ReadError> {
        payload(&self.store, self.survey.chunk, entry, bytes)
    }

    /// The digest of the stored bytes of all streams ([`Survey::algorithm`]).
    pub fn digest_of_all(&self) -> [u8; 32] {
        self.survey.algorithm().digest_of_all(&self.digests)
    }

    /// Whether the certificate is true in every respect.
    pub fn is_proved(&self) -> bool {
        self.signer() != Signer::Wrong && self.doubt().is_none()
    }

    /// Why the recording does not prove itself, even if its signature is right.
    pub fn doubt(&self) -> Option<Doubt> {
        self.survey.doubt(&self.digests)
    }

    /// Declares the missing bytes as gaps, writes a certificate, and reads everything again.
    /// Returns the new gaps.
    ///
    /// # Errors
    /// When the medium does not take it; and when the result does not prove itself. There is no
    /// certificate any more then.
    pub fn mend(&mut self) -> Result<Vec<Gap>, ReadError> {
        let chunk = u64::from(self.survey.chunk);
        let slots = self.store.bytes()?.div_ceil(chunk);
        let recovery = self.survey.recover(&self.digests, slots, real_time(), crc32c);
        if let Store::Striped(all) = &self.store {
            all.write_labels()?;
        }
        for step in &recovery.steps {
            for patch in step {
                self.store.write_at(&patch.bytes, patch.slot * chunk)?;
            }
            self.store.sync()?;
        }
        // Space that a file was given ahead is empty.
        self.store.cut(recovery.slots * chunk);
        (self.survey, self.digests) = survey(&self.store)?;
        let Some(doubt) = self.doubt() else { return Ok(recovery.gaps) };
        self.store.write_at(&vec![0; self.survey.chunk as usize], CERTIFICATE_SLOT * chunk)?;
        self.store.sync()?;
        Err(ReadError::Contradiction(doubt))
    }

    pub(super) fn put(
        &mut self,
        kind: Kind,
        slot: u64,
        emit: impl FnOnce(&mut [u8]) -> usize,
    ) -> io::Result<()> {
        let patch = self.survey.patch(kind, slot, real_time(), crc32c, emit);
        self.store.write_at(&patch.bytes, slot * u64::from(self.survey.chunk))
    }
}

/// Reads a whole recording, and checks every chunk. Returns the survey, and the digest of the
/// stored bytes of each stream.
fn survey(store: &Store) -> Result<(Survey, Vec<[u8; 32]>), ReadError> {
    let chunk = find(store)?.ok_or(ReadError::NoRecording)?;
    let mut scan = Scan::new(chunk, crc32c);
    let mut early = Early::default();
    let slots = store.slots(chunk, store.bytes()?.div_ceil(u64::from(chunk)));
    let length = chunk as usize;
    // A recorder that writes meanwhile may fill holes: each slot is asked for once.
    let asked = RefCell::new(VecDeque::new());
    let slots = slots.inspect(|slot| asked.borrow_mut().push_back(*slot));
    let pieces = slots.map(|slot| Piece { offset: slot * u64::from(chunk), length });
    let (spare, mut failed) = (RefCell::new(Vec::new()), None);
    let take = &mut |block: io::Result<Block>| match block {
        Ok(block) => {
            let Some(slot) = asked.borrow_mut().pop_front() else { return ControlFlow::Break(()) };
            scan.on_slot(slot, &block);
            early.on_slot(slot, &block);
            spare.borrow_mut().push(block);
            ControlFlow::Continue(())
        }
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    };
    let mut taken = || spare.borrow_mut().pop().unwrap_or_else(|| Block::of(length));
    reads::read(store, pieces, &mut Ends { spare: &mut taken, take });
    failed.map_or(Ok(()), Err)?;
    let survey = scan.finish();
    let digests = match early.digests(&survey) {
        Some(digests) => digests,
        None => digest(store, &survey)?,
    };
    Ok((survey, digests))
}

/// The digest of the stored bytes of each stream.
fn digest(store: &Store, survey: &Survey) -> Result<Vec<[u8; 32]>, ReadError> {
    let mut bytes = vec![0; survey.chunk as usize];
    let mut digests = vec![StreamDigest::new(survey.algorithm(), survey.is_ring()); survey.streams()];
    for entry in &survey.entries {
        digests[entry.stream as usize].update(payload(store, survey.chunk, entry, &mut bytes)?);
    }
    Ok(digests.iter().map(StreamDigest::finalize).collect())
}

/// Reads the payload of a chunk into `bytes`, which is as long as a chunk of `chunk` bytes.
fn payload<'a>(store: &Store, chunk: u32, entry: &Entry, bytes: &'a mut [u8]) -> Result<&'a [u8], ReadError> {
    let length = store.read_slot(bytes, entry.slot * u64::from(chunk))?;
    let chunk = Header::parse_chunk(entry.slot, &bytes[..length], crc32c);
    chunk.map(|(_, payload)| payload).map_err(|why| io::Error::other(why.to_string()).into())
}

/// Digests of streams whose chunks lie on the medium in the streams' order, as they mostly do. Such
/// a recording is read once.
#[derive(Default)]
struct Early {
    recording: Option<[u8; 16]>,
    /// Which digest the certificate has, once it was seen: its chunk comes before the data.
    algorithm: Algorithm,
    streams: Vec<EarlyStream>,
}

struct EarlyStream {
    digest: Hasher,
    end: u64,
    chunks: usize,
    is_out_of_order: bool,
}

impl EarlyStream {
    fn new(algorithm: Algorithm) -> Self {
        Self { digest: Hasher::new(algorithm), end: 0, chunks: 0, is_out_of_order: false }
    }
}

impl Early {
    fn on_slot(&mut self, slot: u64, bytes: &[u8]) {
        let Ok((header, payload)) = Header::parse_chunk(slot, bytes, crc32c) else { return };
        let is_ours = *self.recording.get_or_insert(header.recording) == header.recording;
        let is_certificate = header.kind == Kind::Certificate && slot == CERTIFICATE_SLOT && is_ours;
        if let Some(certificate) = Certificate::parse(payload).filter(|_| is_certificate) {
            self.algorithm = certificate.algorithm;
        }
        if header.kind != Kind::Data || !is_ours || payload.is_empty() {
            return;
        }
        let at = header.stream as usize;
        if self.streams.len() <= at {
            self.streams.resize_with(at + 1, || EarlyStream::new(self.algorithm));
        }
        let stream = &mut self.streams[at];
        stream.is_out_of_order |= header.offset < stream.end;
        if !stream.is_out_of_order {
            stream.digest.update(payload);
        }
        (stream.end, stream.chunks) = (header.end(), stream.chunks + 1);
    }

    /// The digests, if the survey has counted the same chunks and no others.
    fn digests(mut self, survey: &Survey) -> Option<Vec<[u8; 32]>> {
        // A ring digests each chunk by itself.
        if survey.is_ring() || survey.algorithm() != self.algorithm {
            return None;
        }
        let length = self.streams.len().max(survey.streams());
        self.streams.resize_with(length, || EarlyStream::new(self.algorithm));
        let mut counted = vec![0; self.streams.len()];
        survey.entries.iter().for_each(|entry| counted[entry.stream as usize] += 1);
        let is_same =
            |(stream, counted): (&EarlyStream, &usize)| !stream.is_out_of_order && stream.chunks == *counted;
        let all = self.streams.iter().zip(&counted).all(is_same);
        let digests = self.streams.iter().take(survey.streams());
        all.then(|| digests.map(|stream| stream.digest.finalize()).collect())
    }
}

/// The length of the recording's chunks, if there is a chunk.
pub(super) fn find(store: &Store) -> io::Result<Option<u32>> {
    if let Store::Striped(all) = store {
        return Ok(Some(all.chunk()));
    }
    let mut bytes = vec![0; 1 << 20];
    for at in (0..SEARCHED_MAX).step_by(bytes.len()) {
        let length = store.read_around(&mut bytes, at as u64)?;
        let found = find_chunk_length(&bytes[..length], crc32c);
        if found.is_some() || length < bytes.len() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Whether a disk can't read some bytes, while it may read others: a sector is damaged, or a file
/// system finds that the bytes it reads were changed.
pub(super) fn is_unreadable(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::ENODATA | libc::EILSEQ))
}

/// Reads as much as there is.
fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut length = 0;
    while length < bytes.len() {
        match file.read_at(&mut bytes[length..], offset + length as u64) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}
