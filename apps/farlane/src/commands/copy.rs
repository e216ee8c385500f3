//! `farlane read` and `farlane write`: bytes between a namespace and a file, like dd.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use nvme_pcie::host::{Data, Namespace, QueueId, Submission};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::args::{Extent, ReadArgs, Target, WriteArgs};
use crate::commands::{print, print_json};
use crate::error::Error;
use crate::session::{Needs, Session};
use crate::workload::rate;

#[derive(Serialize)]
struct Json {
    bytes: u64,
    elapsed_s: f64,
    mib_s: f64,
    sha256: String,
}

/// A namespace of which a part is copied, a chunk a command.
pub(crate) struct Copy<'a> {
    session: &'a mut Session,
    namespace: Namespace,
    /// First byte, a multiple of the block size.
    offset: u64,
    /// Bytes a command, a multiple of the block size.
    chunk: u32,
    depth: usize,
    sha256: Sha256,
    /// Whether a person wants to see how far it is.
    show: bool,
    bar: ProgressBar,
}

/// A command under way.
struct Under {
    slot: usize,
    /// Bytes of it that are wanted: the last block may be needed in part.
    wanted: usize,
    done: bool,
}

pub(crate) fn read(args: &ReadArgs) -> Result<(), Error> {
    let (mut session, namespace) = attach(&args.target, &args.extent)?;
    let started = session.now();
    let size = namespace.blocks * u64::from(namespace.block_bytes);
    let mut copy = Copy::new(&mut session, namespace, &args.extent, true)?;
    let length = args.extent.length.unwrap_or(size - args.extent.offset);
    let to_stdout = args.output_file == Path::new("-");
    let mut output: Box<dyn Write> = match to_stdout {
        true => Box::new(io::stdout().lock()),
        false => {
            Box::new(File::create(&args.output_file).map_err(|error| file_error(&args.output_file, error))?)
        }
    };
    let copied = copy
        .read(length, |bytes| output.write_all(bytes).map_err(|error| file_error(&args.output_file, error)));
    match copied {
        // Whoever reads what we write has enough (`| head`).
        Err(Error::File { error, .. }) if to_stdout && error.kind() == io::ErrorKind::BrokenPipe => {
            return Ok(());
        }
        copied => copied?,
    }
    output.flush().map_err(|error| file_error(&args.output_file, error))?;
    let sha256 = copy.finish();
    // Standard output is the data's when it was asked for.
    report("read", session, started, length, &sha256, args.output.json, to_stdout)
}

pub(crate) fn write(args: &WriteArgs) -> Result<(), Error> {
    let (mut session, namespace) = attach(&args.target, &args.extent)?;
    let started = session.now();
    let (mut input, known): (Box<dyn Read>, Option<u64>) = match args.input == Path::new("-") {
        true => (Box::new(io::stdin().lock()), None),
        false => {
            let file = File::open(&args.input).map_err(|error| file_error(&args.input, error))?;
            let length = file.metadata().map_err(|error| file_error(&args.input, error))?;
            (Box::new(file), length.is_file().then_some(length.len()))
        }
    };
    let length = match (args.extent.length, known) {
        (Some(wanted), Some(there)) => Some(wanted.min(there)),
        (wanted, there) => wanted.or(there),
    };
    let mut copy = Copy::new(&mut session, namespace, &args.extent, true)?;
    let written = copy.write(length, |bytes| {
        read_full(&mut input, bytes).map_err(|error| file_error(&args.input, error))
    })?;
    let sha256 = copy.finish();
    report("written", session, started, written, &sha256, args.output.json, false)
}

fn attach(target: &Target, extent: &Extent) -> Result<(Session, Namespace), Error> {
    let data_bytes = u64::from(extent.iodepth) * extent.bs.next_multiple_of(4096).min(1 << 20);
    let session = Session::attach(target, Needs { data_bytes, depth: extent.iodepth, ..Needs::default() })?;
    let namespace = session.namespace(extent.namespace)?;
    Ok((session, namespace))
}

fn file_error(path: &Path, error: io::Error) -> Error {
    Error::File { path: path.to_owned(), error }
}

fn too_long(value: u64, room: u64) -> Error {
    let expected = format!("at most {room} from --offset to the namespace's end");
    Error::Range { what: "the input's length", value, expected }
}

/// Reads until `bytes` is full or the input ends; returns how much that was.
fn read_full(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match input.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn report(
    verb: &str,
    session: Session,
    started: engine::Instant,
    bytes: u64,
    sha256: &str,
    json: bool,
    to_stderr: bool,
) -> Result<(), Error> {
    let elapsed = session.now() - started;
    session.close()?;
    let mib_s = rate(bytes, elapsed) / f64::from(1 << 20);
    let text = match json {
        true => {
            let elapsed_s = Duration::from(elapsed).as_secs_f64();
            let object = Json { bytes, elapsed_s, mib_s, sha256: sha256.to_owned() };
            if !to_stderr {
                return print_json(&object);
            }
            serde_json::to_string(&object).map_err(|error| Error::Output(error.into()))?
        }
        false => format!("{bytes} bytes {verb} in {elapsed}, {mib_s:.1} MiB/s\nsha256 {sha256}"),
    };
    match to_stderr {
        true => tell!("{text}"),
        false => print(&format!("{text}\n"))?,
    }
    Ok(())
}

impl<'a> Copy<'a> {
    /// The part of `namespace` from `extent`'s offset on.
    pub(crate) fn new(
        session: &'a mut Session,
        namespace: Namespace,
        extent: &Extent,
        show: bool,
    ) -> Result<Self, Error> {
        let limit = session.identity()?.transfer_bytes_max;
        let block = u64::from(namespace.block_bytes);
        let range = |what, value, expected| Error::Range { what, value, expected };
        let size = namespace.blocks * block;
        if !extent.offset.is_multiple_of(block) || extent.offset >= size {
            let expected = format!("a multiple of the block size {block}, below the namespace's size {size}");
            return Err(range("--offset", extent.offset, expected));
        }
        let chunk = u32::try_from(extent.bs).unwrap_or(u32::MAX).min(limit);
        if chunk == 0 || !u64::from(chunk).is_multiple_of(block) {
            return Err(range("--bs", extent.bs, format!("a multiple of the block size {block}")));
        }
        if extent.length.is_some_and(|length| length > size - extent.offset) {
            let expected = format!("at most {} from --offset to the namespace's end", size - extent.offset);
            return Err(range("--length", extent.length.unwrap_or(0), expected));
        }
        let depth = usize::try_from(extent.iodepth).expect("32 bits fit");
        let bar = ProgressBar::hidden();
        Ok(Self { session, namespace, offset: extent.offset, chunk, depth, sha256: Sha256::new(), show, bar })
    }

    /// Shows how far it is, of `length` bytes if that is known.
    fn start_bar(&mut self, length: Option<u64>) {
        if !self.show {
            return;
        }
        let template = "{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta}";
        let style = ProgressStyle::with_template(template).unwrap_or(ProgressStyle::default_bar());
        self.bar = match length {
            Some(length) => ProgressBar::new(length).with_style(style),
            None => ProgressBar::new_spinner(),
        };
    }

    /// The digest of everything that was copied, in hexadecimal.
    pub(crate) fn finish(self) -> String {
        self.bar.finish_and_clear();
        self.sha256.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn data(&self, slot: usize, length: u32) -> Data {
        let base = self.session.data_region().base;
        Data { address: base + slot as u64 * u64::from(self.chunk), length }
    }

    /// Submits the transfer of the blocks that hold `length` bytes at `position` of the part.
    fn submit(&mut self, slot: usize, position: u64, length: u32, write: bool) -> Result<(), Error> {
        let block = self.namespace.block_bytes;
        let blocks = length.div_ceil(block);
        let data = self.data(slot, blocks * block);
        let lba = (self.offset + position) / u64::from(block);
        let (queue, namespace, cookie) = (QueueId(1), self.namespace.id, slot as u64);
        match write {
            true => {
                let submission = Submission::write(queue, namespace, lba, blocks, data, cookie);
                self.session.submit("a write", submission)
            }
            false => {
                let submission = Submission::read(queue, namespace, lba, blocks, data, cookie);
                self.session.submit("a read", submission)
            }
        }
    }

    /// Waits for a command to end, and marks it in `under`.
    fn wait(&mut self, under: &mut VecDeque<Under>, command: &'static str) -> Result<(), Error> {
        let Some(completed) = self.session.next_completed(None)? else { return Ok(()) };
        if !completed.status.is_success() {
            return Err(Error::Command { command, status: completed.status });
        }
        if let Some(ended) = under.iter_mut().find(|under| under.slot as u64 == completed.cookie) {
            ended.done = true;
        }
        Ok(())
    }

    /// Reads `length` bytes and hands them to `sink` in order.
    pub(crate) fn read(
        &mut self,
        length: u64,
        mut sink: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.start_bar(Some(length));
        let mut free: Vec<usize> = (0..self.depth).collect();
        let mut under: VecDeque<Under> = VecDeque::new();
        let mut position = 0;
        while position < length || !under.is_empty() {
            while position < length
                && let Some(slot) = free.pop()
            {
                let bytes =
                    u32::try_from((length - position).min(u64::from(self.chunk))).unwrap_or(self.chunk);
                self.submit(slot, position, bytes, false)?;
                under.push_back(Under { slot, wanted: bytes as usize, done: false });
                position += u64::from(bytes);
            }
            self.wait(&mut under, "a read")?;
            while under.front().is_some_and(|first| first.done)
                && let Some(first) = under.pop_front()
            {
                let data = self.data(first.slot, self.chunk);
                let bytes = &self.session.bytes(data)[..first.wanted];
                self.sha256.update(bytes);
                sink(bytes)?;
                self.bar.inc(first.wanted as u64);
                free.push(first.slot);
            }
        }
        Ok(())
    }

    /// Writes what `source` gives, up to `length` bytes, and makes it durable; returns how much that was. A part of
    /// a block at the end leaves the rest of the block as it was.
    pub(crate) fn write(
        &mut self,
        length: Option<u64>,
        mut source: impl FnMut(&mut [u8]) -> Result<usize, Error>,
    ) -> Result<u64, Error> {
        self.start_bar(length);
        let block = self.namespace.block_bytes;
        let room = self.namespace.blocks * u64::from(block) - self.offset;
        if let Some(length) = length.filter(|length| *length > room) {
            return Err(too_long(length, room));
        }
        let mut free: Vec<usize> = (0..self.depth).collect();
        let mut under: VecDeque<Under> = VecDeque::new();
        let (mut position, mut more) = (0, true);
        while more || !under.is_empty() {
            while more && let Some(slot) = free.pop() {
                let left = length.map_or(u64::MAX, |length| length - position);
                let wanted = usize::try_from(left.min(u64::from(self.chunk))).unwrap_or(usize::MAX);
                let mut data = self.data(slot, self.chunk);
                data.length = u32::try_from(wanted).unwrap_or(u32::MAX).min(data.length);
                let count = self.session.put(data, &mut source)?;
                more = count == wanted && u64::try_from(count).is_ok_and(|count| count < left);
                if count == 0 {
                    free.push(slot);
                    break;
                }
                if count as u64 > room - position {
                    return Err(too_long(position + count as u64, room));
                }
                self.sha256.update(&self.session.bytes(data)[..count]);
                let bytes = u32::try_from(count).unwrap_or(self.chunk);
                if !bytes.is_multiple_of(block) {
                    // What is under way must not complete while the last block is waited for.
                    while under.iter().any(|under| !under.done) {
                        self.wait(&mut under, "a write")?;
                    }
                    self.complete_block(slot, position, bytes)?;
                }
                self.submit(slot, position, bytes, true)?;
                under.push_back(Under { slot, wanted: count, done: false });
                position += count as u64;
            }
            if under.iter().any(|under| !under.done) {
                self.wait(&mut under, "a write")?;
            }
            under.retain(|ended| {
                if ended.done {
                    self.bar.inc(ended.wanted as u64);
                    free.push(ended.slot);
                }
                !ended.done
            });
        }
        self.session.execute("a flush", Submission::flush(QueueId(1), self.namespace.id, 0))?;
        Ok(position)
    }

    /// Fills the last block of what `slot` holds up to its end with what the namespace has there.
    fn complete_block(&mut self, slot: usize, position: u64, bytes: u32) -> Result<(), Error> {
        let block = self.namespace.block_bytes;
        let (whole, part) = (bytes / block * block, (bytes % block) as usize);
        let all = self.data(slot, self.chunk);
        let kept = self.session.bytes(all)[whole as usize..][..part].to_vec();
        let mut data = self.data(slot, block);
        data.address += u64::from(whole);
        let lba = (self.offset + position + u64::from(whole)) / u64::from(block);
        let read = Submission::read(QueueId(1), self.namespace.id, lba, 1, data, 0);
        self.session.execute("a read", read)?;
        data.length = bytes % block;
        self.session.put(data, |bytes| bytes.copy_from_slice(&kept));
        Ok(())
    }
}
