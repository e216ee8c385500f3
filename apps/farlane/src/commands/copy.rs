//! `farlane use read` and `farlane use write`: copy bytes between a namespace and a file, like dd.

use live::sys::files::{self, Kind};
use live::sys::logging;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use engine::Nanos;
use indicatif::{ProgressBar, ProgressStyle};
use nvme::host::Namespace;
use nvme::wire::IoOpcode;
use nvme_pcie::host::{Data, QueueId, Submission};
use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::args::{Extent, ReadArgs, Target, WriteArgs};
use crate::commands::pieces::{Ahead, Behind, Piece, Sink, Source};
use crate::commands::{json_line, print, print_json};
use crate::error::Error;
use crate::lasting::Lasting;
use crate::protected::Protected;
use crate::session::{Needs, Session};
use crate::workload::rate;

/// The result of a read or a write.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Json {
    bytes: u64,
    elapsed_s: f64,
    mib_s: f64,
    /// The digest of these bytes; none where more was digested than was copied.
    sha256: Option<String>,
    /// Whether the user ended the copy early.
    interrupted: bool,
}

/// The account of a copy.
struct Copied {
    bytes: u64,
    sha256: Option<String>,
    /// Where the next copy has to go on, if the user ended this one early.
    goes_on_at: Option<u64>,
}

/// How long to wait for commands alone while an input or output is blocked.
const LOOK: Nanos = Nanos::from_millis(1);
/// How long an output may take, after an interrupt, to write the bytes already read for it.
const SETTLING: Duration = Duration::from_secs(1);

/// A copy to or from a part of a namespace, one chunk per command.
pub(crate) struct Copy<'a> {
    session: &'a mut Session,
    namespace: Namespace,
    protected: Protected,
    /// Where the part begins in the namespace, in bytes: a multiple of the block size.
    offset: u64,
    /// Bytes per command: a multiple of the block size.
    chunk: u32,
    depth: usize,
    sha256: Sha256,
    /// Bytes from the start of the part that were copied without a gap.
    done: u64,
    /// Bytes that were digested and not copied.
    lost: u64,
    /// Whether to show a person how far the copy is.
    show: bool,
    bar: ProgressBar,
}

/// A command under way.
struct Under {
    slot: usize,
    /// Where it begins in the part, in bytes.
    position: u64,
    /// Bytes of the command's data that are wanted: the last block may be needed in part.
    wanted: usize,
    done: bool,
}

pub(crate) fn read(args: &ReadArgs) -> Result<(), Error> {
    if args.output_file == Path::new("-") && io::stdout().is_terminal() {
        return Err(Error::Terminal);
    }
    let (mut session, namespace) = attach(&args.target, &args.extent)?;
    let extent = args.extent.in_bytes(namespace.block_bytes)?;
    let started = session.now();
    let size = namespace.blocks * u64::from(namespace.block_bytes);
    let mut copy = Copy::new(&mut session, namespace, &extent, true)?;
    let length = extent.length.unwrap_or(size - extent.offset);
    let to_stdout = args.output_file == Path::new("-");
    let output = match to_stdout {
        true => io::stdout().as_fd().try_clone_to_owned().map(File::from),
        false => files::write(&args.output_file, Kind::Private),
    };
    let output = output.map_err(|error| file_error(&args.output_file, error))?;
    let output = Behind::start(Lasting(output));
    match copy.read(length, &args.output_file, output) {
        // The reader of our output has closed it (`| head`).
        Err(Error::File { error, .. }) if to_stdout && error.kind() == io::ErrorKind::BrokenPipe => {
            return Ok(());
        }
        Err(Error::Interrupted) => {
            let (bytes, is_digested) = (copy.done, copy.lost == 0);
            let sha256 = Some(copy.finish()).filter(|_| is_digested);
            let copied = Copied { bytes, sha256, goes_on_at: Some(extent.offset + bytes) };
            report("read", session, started, &copied, args.printing.is_json(), to_stdout)?;
            return Err(Error::Interrupted);
        }
        copied => copied?,
    }
    let copied = Copied { bytes: length, sha256: Some(copy.finish()), goes_on_at: None };
    // When standard output carries the data, the report goes elsewhere.
    report("read", session, started, &copied, args.printing.is_json(), to_stdout)
}

pub(crate) fn write(args: &WriteArgs) -> Result<(), Error> {
    let (input, known) = open(&args.input)?;
    let too_short = |wanted: Option<u64>| match (wanted, known) {
        (Some(wanted), Some(there)) if there < wanted => {
            let expected = format!("at most {there}, the length of {}", args.input.display());
            Err(Error::Range { what: "--length", value: wanted, expected })
        }
        _ => Ok(()),
    };
    too_short(args.extent.length)?;
    let (mut session, namespace) = attach(&args.target, &args.extent)?;
    let extent = args.extent.in_bytes(namespace.block_bytes)?;
    too_short(extent.length)?;
    let started = session.now();
    let length = extent.length.or(known);
    let mut copy = Copy::new(&mut session, namespace, &extent, true)?;
    // One byte more than there is room for shows whether the input is too long.
    let most = length.unwrap_or(copy.room() + 1);
    let input = Ahead::start(input, usize::try_from(copy.chunk).expect("32 bits fit"), most);
    let written = match copy.write(length, &args.input, input) {
        Err(Error::Interrupted) => {
            // The digest may cover more bytes than were written.
            let copied =
                Copied { bytes: copy.done, sha256: None, goes_on_at: Some(extent.offset + copy.done) };
            copy.finish();
            report("written", session, started, &copied, args.printing.is_json(), false)?;
            return Err(Error::Interrupted);
        }
        written => written?,
    };
    let copied = Copied { bytes: written, sha256: Some(copy.finish()), goes_on_at: None };
    report("written", session, started, &copied, args.printing.is_json(), false)
}

/// Opens the input. Its length is known only for a regular file.
fn open(path: &Path) -> Result<(Box<dyn Read + Send>, Option<u64>), Error> {
    if path == Path::new("-") {
        return Ok((Box::new(io::stdin()), None));
    }
    let file = File::open(path).map_err(|error| file_error(path, error))?;
    let metadata = file.metadata().map_err(|error| file_error(path, error))?;
    let length = metadata.is_file().then_some(metadata.len());
    Ok((Box::new(file), length))
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

fn report(
    verb: &str,
    session: Session,
    started: engine::Instant,
    copied: &Copied,
    json: bool,
    to_stderr: bool,
) -> Result<(), Error> {
    let elapsed = session.now() - started;
    session.close()?;
    let Copied { bytes, sha256, goes_on_at } = copied;
    let mib_s = rate(*bytes, elapsed) / f64::from(1 << 20);
    let text = match json {
        true => {
            let elapsed_s = Duration::from(elapsed).as_secs_f64();
            let (sha256, interrupted) = (sha256.clone(), goes_on_at.is_some());
            let object = Json { bytes: *bytes, elapsed_s, mib_s, sha256, interrupted };
            if !to_stderr {
                return print_json(&object);
            }
            json_line(&object)?
        }
        false => {
            let sha256 = sha256.as_ref().map(|digest| format!("\nsha256 {digest}")).unwrap_or_default();
            // A read empties its file first.
            let other = if verb == "read" && !to_stderr { ", with another --output" } else { "" };
            let rest =
                goes_on_at.map(|at| format!("\ninterrupted: --offset {at} continues behind them{other}"));
            format!("{bytes} bytes {verb} in {elapsed}, {mib_s:.1} MiB/s{sha256}{}", rest.unwrap_or_default())
        }
    };
    match to_stderr {
        true => logging::show(text + "\n"),
        false => print(&format!("{text}\n"))?,
    }
    Ok(())
}

impl<'a> Copy<'a> {
    /// A copy to or from the part of `namespace` that begins at `extent`'s offset.
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
        let protected = Protected::of(session, &namespace, false)?;
        Ok(Self {
            session,
            namespace,
            protected,
            offset: extent.offset,
            chunk,
            depth,
            sha256: Sha256::new(),
            done: 0,
            lost: 0,
            show,
            bar,
        })
    }

    /// Shows how far the copy is: out of `length` bytes, if the length is known.
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

    /// Submits the transfer of the blocks that hold `length` bytes at `position` in the part.
    fn submit(&mut self, slot: usize, position: u64, length: u32, write: bool) -> Result<(), Error> {
        let block = self.namespace.block_bytes;
        let blocks = length.div_ceil(block);
        let data = self.data(slot, blocks * block);
        let lba = (self.offset + position) / u64::from(block);
        let (queue, namespace, cookie) = (QueueId(1), self.namespace.id, slot as u64);
        let (command, opcode) = match write {
            true => ("a write", IoOpcode::Write),
            false => ("a read", IoOpcode::Read),
        };
        let submission = Submission::on_blocks(opcode, queue, namespace, lba, blocks, data, cookie);
        self.session.submit(command, self.protected.submission(submission, 0))
    }

    /// Waits for a command to end, and marks it in `under`. The wait is short where an input or
    /// output is `blocked`.
    fn wait(
        &mut self,
        under: &mut VecDeque<Under>,
        command: &'static str,
        blocked: bool,
    ) -> Result<(), Error> {
        let deadline = blocked.then(|| self.session.now() + LOOK);
        let Some(completed) = self.session.next_completed(deadline)? else { return Ok(()) };
        let status = completed.status;
        match under.iter_mut().find(|under| under.slot as u64 == completed.cookie) {
            Some(ended) if !status.is_success() => {
                let (offset, bytes) = (self.offset + ended.position, ended.wanted);
                Err(Error::Copy { command, status, offset, bytes })
            }
            Some(ended) => {
                ended.done = true;
                Ok(())
            }
            None if !status.is_success() => Err(Error::Command { command, status }),
            None => Ok(()),
        }
    }

    /// Reads `length` bytes and hands them in order to `sink`, which is at `path`.
    pub(crate) fn read(&mut self, length: u64, path: &Path, mut sink: impl Sink) -> Result<(), Error> {
        let copied = self.read_to(length, path, &mut sink);
        if matches!(copied, Err(Error::Interrupted)) {
            // A later copy that continues behind these bytes relies on finding them in the output.
            self.lost = sink.settle(SETTLING).map_err(|error| file_error(path, error))?;
            self.done = self.done.saturating_sub(self.lost);
        }
        copied
    }

    fn read_to(&mut self, length: u64, path: &Path, sink: &mut impl Sink) -> Result<(), Error> {
        self.start_bar(Some(length));
        let error = |error| file_error(path, error);
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
                under.push_back(Under { slot, position, wanted: bytes as usize, done: false });
                position += u64::from(bytes);
            }
            let blocked = !sink.has_room().map_err(error)?;
            self.wait(&mut under, "a read", blocked)?;
            while under.front().is_some_and(|first| first.done)
                && sink.has_room().map_err(error)?
                && let Some(first) = under.pop_front()
            {
                let data = self.data(first.slot, self.chunk);
                let bytes = &self.session.bytes(data)[..first.wanted];
                self.sha256.update(bytes);
                sink.put(bytes).map_err(error)?;
                self.done += first.wanted as u64;
                self.bar.inc(first.wanted as u64);
                free.push(first.slot);
            }
        }
        while !sink.is_done().map_err(error)? {
            self.session.keep_alive()?;
        }
        Ok(())
    }

    /// Bytes from the copy's offset to the end of the namespace.
    pub(crate) fn room(&self) -> u64 {
        self.namespace.blocks * u64::from(self.namespace.block_bytes) - self.offset
    }

    /// Writes everything that `source`, which is at `path`, gives, makes it durable, and returns
    /// its length in bytes. A partial block at the end leaves the rest of the block as it was.
    ///
    /// # Errors
    /// When the input is shorter than `length`, or longer than there is room for: it writes the
    /// part that there is, or that fits. It writes no byte when there is no room for `length`.
    pub(crate) fn write(
        &mut self,
        length: Option<u64>,
        path: &Path,
        mut source: impl Source,
    ) -> Result<u64, Error> {
        let room = self.room();
        if let Some(length) = length.filter(|length| *length > room) {
            return Err(too_long(length, room));
        }
        self.start_bar(length);
        let limit = length.unwrap_or(room);
        let mut free: Vec<usize> = (0..self.depth).collect();
        let mut under: VecDeque<Under> = VecDeque::new();
        let (mut position, mut more, mut overflows) = (0, length != Some(0), false);
        while more || !under.is_empty() {
            let mut blocked = false;
            while more && let Some(&slot) = free.last() {
                let left = limit - position;
                let wanted = usize::try_from(left.clamp(1, u64::from(self.chunk))).unwrap_or(usize::MAX);
                let mut bytes = match source.take(wanted).map_err(|error| file_error(path, error))? {
                    Piece::Bytes(bytes) => bytes,
                    Piece::NotYet => {
                        blocked = true;
                        break;
                    }
                    Piece::End => {
                        more = false;
                        break;
                    }
                };
                if bytes.len() as u64 > left {
                    overflows = true;
                    bytes.truncate(wanted.min(usize::try_from(left).unwrap_or(usize::MAX)));
                }
                if !bytes.is_empty() {
                    free.pop();
                    self.write_piece(&mut under, slot, position, &bytes)?;
                    position += bytes.len() as u64;
                }
                more = !overflows && length.is_none_or(|length| position < length);
            }
            if blocked || under.iter().any(|under| !under.done) {
                self.wait(&mut under, "a write", blocked)?;
            }
            under.retain(|ended| {
                if ended.done {
                    self.bar.inc(ended.wanted as u64);
                    free.push(ended.slot);
                }
                !ended.done
            });
            // Pieces under way are in order.
            self.done = under.front().map_or(position, |first| first.position);
        }
        self.session.execute("a flush", Submission::flush(QueueId(1), self.namespace.id, 0))?;
        match length {
            Some(wanted) if position < wanted => Err(Error::EndedEarly { wanted, written: position }),
            _ if overflows => Err(Error::Full { written: position }),
            _ => Ok(position),
        }
    }

    /// Begins the write of one piece of the input.
    fn write_piece(
        &mut self,
        under: &mut VecDeque<Under>,
        slot: usize,
        position: u64,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let length = u32::try_from(bytes.len()).unwrap_or(self.chunk);
        let data = self.data(slot, length);
        self.session.put(data, |place| place.copy_from_slice(bytes));
        self.sha256.update(bytes);
        if !length.is_multiple_of(self.namespace.block_bytes) {
            // Nothing else may be under way: it could complete while the last block is waited for.
            while under.iter().any(|under| !under.done) {
                self.wait(under, "a write", false)?;
            }
            self.complete_block(slot, position, length)?;
        }
        self.submit(slot, position, length, true)?;
        under.push_back(Under { slot, position, wanted: bytes.len(), done: false });
        Ok(())
    }

    /// Fills the last block in `slot` up to its end with the bytes that the namespace holds there.
    fn complete_block(&mut self, slot: usize, position: u64, bytes: u32) -> Result<(), Error> {
        let block = self.namespace.block_bytes;
        let (whole, part) = (bytes / block * block, (bytes % block) as usize);
        let all = self.data(slot, self.chunk);
        let kept = self.session.bytes(all)[whole as usize..][..part].to_vec();
        let mut data = self.data(slot, block);
        data.address += u64::from(whole);
        let lba = (self.offset + position + u64::from(whole)) / u64::from(block);
        let read = Submission::on_blocks(IoOpcode::Read, QueueId(1), self.namespace.id, lba, 1, data, 0);
        self.session.execute("a read", self.protected.submission(read, 0))?;
        data.length = bytes % block;
        self.session.put(data, |bytes| bytes.copy_from_slice(&kept));
        Ok(())
    }
}
