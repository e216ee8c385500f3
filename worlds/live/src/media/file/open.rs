//! Opening a file or block device as a medium, with every check that can be made beforehand.

use std::fmt;
use std::fs::{File, Metadata, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FallocateFlags, FileType, OFlags, StatxFlags, fcntl_getfl, fcntl_setfl, statx};

use super::kernel::allocate;
use crate::sys::files::{Kind, Place, make, open_there};
use crate::sys::lock::lock;

/// The alignment in bytes of the memory of all our direct transfers.
pub(super) const MEMORY_ALIGNMENT: usize = 4096;

/// How to open a medium.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The size of the medium in bytes; `None` takes the size of the file or device that is there.
    pub size: Option<u64>,
    /// The size of a block in bytes: 512 or 4096.
    pub block: u32,
    /// Whether every change is refused.
    pub readonly: bool,
    /// Whether a file that does not exist is made; this needs `size`.
    pub create: bool,
    /// Whether disk space for the whole size is reserved at opening, so that no write can find the
    /// disk full later. Deallocated blocks keep their space.
    pub reserve: bool,
    /// Whether transfers bypass the page cache (O_DIRECT) where the file system allows it.
    pub direct: bool,
    /// Whether io_uring is used where the kernel has it.
    pub ring: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            size: None,
            block: 512,
            readonly: false,
            create: true,
            reserve: false,
            direct: true,
            ring: true,
        }
    }
}

/// Why a path can't serve as a medium. Its text names the path, the fault and the remedy.
#[derive(Debug)]
pub struct OpenError {
    path: PathBuf,
    cause: OpenCause,
}

impl OpenError {
    pub(super) fn new(path: &Path, cause: OpenCause) -> Self {
        Self { path: path.to_owned(), cause }
    }

    /// The fault of the path.
    pub const fn cause(&self) -> &OpenCause {
        &self.cause
    }
}

/// The fault of a path.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenCause {
    /// Nothing exists there, and nothing may be made or its size is not given.
    Missing,
    /// The path is a directory.
    Directory,
    /// The path is neither a file nor a block device.
    NotStorage,
    /// This user may not open the path.
    Permission {
        /// Whether it was opened for reading only.
        readonly: bool,
    },
    /// Blocks of this many bytes are not supported.
    BlockSize(u32),
    /// The size is not a whole number of blocks.
    NotMultiple {
        /// The size in bytes.
        size: u64,
        /// The size of a block in bytes.
        block: u32,
        /// Whether the size is that of the file, not the given one.
        found: bool,
    },
    /// The medium would be smaller than one block.
    TooSmall {
        /// The size in bytes.
        size: u64,
        /// The size of a block in bytes.
        block: u32,
    },
    /// The file or device has a size, and a different one was given.
    SizeDiffers {
        /// The size of the file or device, in bytes.
        found: u64,
        /// The given size, in bytes.
        given: u64,
    },
    /// Another export, another process or a mount uses the file or device.
    InUse,
    /// The disk has no room for the file.
    NoSpace {
        /// The size asked for, in bytes.
        size: u64,
    },
    /// The system refuses an operation on the path.
    Io {
        /// The refused operation, as it follows "can't" in a message.
        doing: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match &self.cause {
            OpenCause::Missing => f.write_str("does not exist; give size= to make it"),
            OpenCause::Directory => f.write_str("is a directory; give a file or a block device"),
            OpenCause::NotStorage => f.write_str("is neither a file nor a block device; give one of these"),
            OpenCause::Permission { readonly: true } => {
                f.write_str("may not be read by this user; change its permissions or run as its owner")
            }
            OpenCause::Permission { readonly: false } => {
                f.write_str("may not be written by this user; change its permissions or give readonly")
            }
            OpenCause::BlockSize(block) => write!(f, "block={block} is not possible; give 512 or 4096"),
            OpenCause::NotMultiple { size, block, found } => {
                let (below, whose) =
                    (size - size % u64::from(*block), if *found { "its size" } else { "size" });
                write!(
                    f,
                    "{whose} {size} B is not a multiple of the block size {block} B; the nearest are "
                )?;
                write!(f, "{below} and {}", below.saturating_add(u64::from(*block)))
            }
            OpenCause::TooSmall { size, block } => {
                write!(f, "has {size} B, less than one block of {block} B; give size= or a larger file")
            }
            OpenCause::SizeDiffers { found, given } => {
                write!(f, "has {found} B, but size={given} was given; leave size= out or resize it first")
            }
            OpenCause::InUse => f.write_str(
                "is in use (another export, device or target, or mounted); stop that first, or reach it through the process that has it (--namespace nvme-tcp://… or tcp://…)",
            ),
            OpenCause::NoSpace { size } => {
                write!(f, "the disk has no room for {size} B; free some or give a smaller size=")
            }
            OpenCause::Io { doing, error } => write!(f, "can't {doing}: {error}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            OpenCause::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// A property of the service of a medium, for its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Transfers go through the page cache, for this reason.
    Buffered(String),
    /// Without io_uring, transfers are made one at a time and each is waited for, for this reason.
    OneAtATime(String),
    /// The file has no space yet for all of its bytes, and its file system has less than they need.
    Thin {
        /// The bytes that have no space yet.
        lacking: u64,
        /// The bytes that are free.
        free: u64,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buffered(why) => write!(f, "transfers go through the page cache: {why}"),
            Self::Thin { lacking, free } => write!(
                f,
                "it still needs {lacking} B of space, and its file system has {free} B free: writes fail once that \
                 is used up; free some space, or make the namespace smaller"
            ),
            Self::OneAtATime(why) => write!(f, "transfers are made one at a time, without io_uring: {why}"),
        }
    }
}

/// An open and locked file of a known size.
pub(super) struct Opened {
    pub(super) file: File,
    pub(super) size: u64,
    /// Whether it is a file, which can be truncated, and no block device.
    pub(super) regular: bool,
    /// The alignment in bytes of offsets and lengths when the page cache is bypassed.
    pub(super) direct: Option<usize>,
    pub(super) notes: Vec<Note>,
}

/// Opens, locks and checks `path`; makes the file if that was asked for.
pub(super) fn open(path: &Path, options: &Options) -> Result<Opened, OpenError> {
    let mut made = None;
    let result = try_open(path, options, &mut made);
    let result = result.and_then(|opened| {
        let named = made.as_ref().map_or(Ok(()), Place::sync_folder);
        named.map(|()| opened).map_err(|error| OpenCause::Io { doing: "make its name durable", error })
    });
    if let (Err(_), Some(place)) = (&result, made) {
        // Leave no half-made file behind. A failure here would only hide the first error.
        let _ = place.remove();
    }
    result.map_err(|cause| OpenError { path: path.to_owned(), cause })
}

fn try_open(path: &Path, options: &Options, made: &mut Option<Place>) -> Result<Opened, OpenCause> {
    if ![512, 4096].contains(&options.block) {
        return Err(OpenCause::BlockSize(options.block));
    }
    if let Some(size) = options.size {
        check_size(size, options.block, false)?;
    }
    let (mut file, metadata) = open_locked(path, options, made)?;
    let device = metadata.file_type().is_block_device();
    let found =
        file.seek(SeekFrom::End(0)).map_err(|error| OpenCause::Io { doing: "find its size", error })?;
    let size = settle_size(&file, found, device, options)?;
    if options.reserve && !device && !options.readonly {
        match allocate(&file, 0, size, FallocateFlags::empty()) {
            // Where space can't be reserved, a write may still find the disk full, and then
            // says so.
            Err(error) if error.raw_os_error() != Some(libc::EOPNOTSUPP) => {
                return Err(no_space_or("reserve its space", size, error));
            }
            _ => {}
        }
    }
    let (direct, note) = match options.direct {
        true => set_direct(path, &file, options.block),
        false => (None, None),
    };
    let thin = if device || options.readonly { None } else { thin(&file, size) };
    let notes = note.into_iter().chain(thin).collect();
    Ok(Opened { file, size, regular: !device, direct, notes })
}

/// Notes that the file system has less space than a file of `size` bytes still needs.
pub(super) fn thin(file: &File, size: u64) -> Option<Note> {
    // Space is counted in blocks of 512 bytes.
    let used = file.metadata().ok()?.blocks().saturating_mul(512);
    let system = rustix::fs::fstatvfs(file).ok()?;
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    let lacking = size.saturating_sub(used);
    (lacking > free).then_some(Note::Thin { lacking, free })
}

/// Opens the file at `path` and locks it against other exports; returns it with its metadata. Its
/// place is `made` if there was none.
fn open_locked(
    path: &Path,
    options: &Options,
    made: &mut Option<Place>,
) -> Result<(File, Metadata), OpenCause> {
    let refused = |doing| {
        move |error: io::Error| match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM | libc::EROFS) => {
                OpenCause::Permission { readonly: options.readonly }
            }
            Some(libc::EBUSY) => OpenCause::InUse,
            Some(libc::ENOSPC | libc::EDQUOT) => OpenCause::NoSpace { size: options.size.unwrap_or(0) },
            _ => OpenCause::Io { doing, error },
        }
    };
    let creates = options.create && options.size.is_some() && !options.readonly;
    let place = Place::find(path).map_err(|error| match error.kind() {
        io::ErrorKind::IsADirectory => OpenCause::Directory,
        io::ErrorKind::NotFound if !creates => OpenCause::Missing,
        _ => refused("look at it")(error),
    })?;
    let there = place.look().map_err(refused("look at it"))?;
    let mut flags = if options.readonly { OFlags::RDONLY } else { OFlags::RDWR };
    match there.map(|there| FileType::from_raw_mode(there.st_mode)) {
        Some(FileType::Directory) => return Err(OpenCause::Directory),
        // With O_EXCL the kernel refuses a device that is mounted.
        Some(FileType::BlockDevice) if !options.readonly => flags |= OFlags::EXCL,
        Some(FileType::BlockDevice) => {}
        Some(FileType::RegularFile) => place.warn(),
        Some(_) => return Err(OpenCause::NotStorage),
        None if !creates => return Err(OpenCause::Missing),
        None => {}
    }
    let file = match there {
        Some(_) => open_there(&place, flags).map_err(refused("open it"))?,
        None => {
            let file = make(&place, Kind::Private).map_err(refused("open it"))?;
            place.warn();
            *made = Some(place);
            file
        }
    };
    match lock(&file, options.readonly) {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(OpenCause::InUse),
        // On a file system without locks nothing keeps two exports apart.
        Err(TryLockError::Error(error)) if error.raw_os_error() == Some(libc::ENOLCK) => {}
        Err(TryLockError::Error(error)) => return Err(OpenCause::Io { doing: "lock it", error }),
    }
    let metadata = file.metadata().map_err(refused("look at it"))?;
    Ok((file, metadata))
}

pub(super) fn check_size(size: u64, block: u32, found: bool) -> Result<(), OpenCause> {
    if size < u64::from(block) {
        return Err(OpenCause::TooSmall { size, block });
    }
    if !size.is_multiple_of(u64::from(block)) {
        return Err(OpenCause::NotMultiple { size, block, found });
    }
    Ok(())
}

/// The size to serve: the one found, or the given one where it does not contradict the one found.
fn settle_size(file: &File, found: u64, device: bool, options: &Options) -> Result<u64, OpenCause> {
    match options.size {
        None => check_size(found, options.block, true).map(|()| found),
        Some(size) if size == found || (device && size < found) => Ok(size),
        Some(size) if found == 0 && !device && !options.readonly => {
            file.set_len(size).map_err(|error| no_space_or("set its size", size, error)).map(|()| size)
        }
        Some(given) => Err(OpenCause::SizeDiffers { found, given }),
    }
}

pub(super) fn no_space_or(doing: &'static str, size: u64, error: io::Error) -> OpenCause {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => OpenCause::NoSpace { size },
        _ => OpenCause::Io { doing, error },
    }
}

/// Lets transfers bypass the page cache, if blocks of `block` bytes allow that. Returns the
/// alignment, or a note that says why not.
fn set_direct(path: &Path, file: &File, block: u32) -> (Option<usize>, Option<Note>) {
    let block = usize::try_from(block).expect("a block size was checked");
    let buffered = |why: String| (None, Some(Note::Buffered(why)));
    match direct_alignment(file) {
        Some((0, _) | (_, 0)) => return buffered("the file system has no direct transfers".into()),
        Some((memory, offset)) if memory > MEMORY_ALIGNMENT || !block.is_multiple_of(offset) => {
            return buffered(format!(
                "direct transfers of {} need an alignment of {offset} B, and a block has {block} B",
                path.display()
            ));
        }
        None if !block.is_multiple_of(MEMORY_ALIGNMENT) => {
            return buffered(format!(
                "the alignment for direct transfers is unknown, and a block has {block} B"
            ));
        }
        _ => {}
    }
    if let Err(error) = fcntl_getfl(file).and_then(|flags| fcntl_setfl(file, flags | OFlags::DIRECT)) {
        return buffered(format!("direct transfers are refused: {}", io::Error::from(error)));
    }
    (Some(block), None)
}

/// Lets transfers use the page cache again.
pub(super) fn leave_direct(file: &File) -> io::Result<()> {
    let flags = fcntl_getfl(file)?;
    Ok(fcntl_setfl(file, flags - OFlags::DIRECT)?)
}

/// The alignment of memory and of offsets for direct transfers, in bytes. Both are 0 where there
/// are no direct transfers; `None` where the kernel does not report them.
fn direct_alignment(file: &File) -> Option<(usize, usize)> {
    let status = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let known = StatxFlags::from_bits_retain(status.stx_mask).contains(StatxFlags::DIOALIGN);
    let bytes = |value: u32| usize::try_from(value).ok();
    known.then(|| Some((bytes(status.stx_dio_mem_align)?, bytes(status.stx_dio_offset_align)?)))?
}
