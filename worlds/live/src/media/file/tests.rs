//! The file medium compared with a model, and its behaviour when things go wrong.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use engine::{Buffer, Rng};
use nvme::media::MediumId;

use super::*;

/// A directory that is removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(parent: PathBuf) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("farlane-live-{}-{count}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    /// Makes the directory on the file system of the build, which is seldom in memory.
    fn on_disk() -> Self {
        let exe = std::env::current_exe().unwrap();
        Self::new(exe.parent().unwrap().to_owned())
    }
    fn file(&self) -> PathBuf {
        self.0.join("medium")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Carries out one operation and returns the read bytes.
fn run(medium: &mut FileMedium, operation: Operation) -> Result<Vec<u8>, MediaError> {
    let length = match operation {
        Operation::Read { length, .. } => length as usize,
        _ => 0,
    };
    let (mut bytes, mut end) = (vec![0; length], None);
    medium.submit(Request { id: IoId(7), medium: MediumId(0), operation });
    while end.is_none() {
        medium
            .reap(&mut |completion| match completion {
                Completion::Data { id, offset, data } => {
                    assert_eq!(id, IoId(7));
                    bytes[offset as usize..][..data.len()].copy_from_slice(&data);
                }
                Completion::Done { id, result } => {
                    assert_eq!((id, end), (IoId(7), None));
                    end = Some(result);
                }
            })
            .unwrap();
    }
    assert_eq!(medium.in_flight(), 0);
    end.unwrap().map(|()| bytes)
}

fn write(medium: &mut FileMedium, offset: u64, bytes: &[u8], durable: bool) -> Result<(), MediaError> {
    let data = Buffer::copy_from_slice(bytes);
    run(medium, Operation::Write { offset, data, durable }).map(|_| ())
}

fn sized(size: u64) -> Options {
    Options { size: Some(size), ..Options::default() }
}

/// Carries out a thousand random operations and compares each with the same operation on a vector.
fn compare_with_model(options: Options, seed: u64) {
    let scratch = Scratch::on_disk();
    let mut medium = open(&scratch.file(), &options).unwrap();
    let mut model = vec![0_u8; usize::try_from(medium.size()).unwrap()];
    let mut rng = Rng::from_seed(seed);
    let block = u64::from(options.block);
    let blocks = medium.size() / block;
    for _ in 0..1_000 {
        let at = rng.below(blocks);
        let longest = if rng.one_in(20) { 1 << 21 } else { 64 << 10 };
        let count = 1 + rng.below((blocks - at).min(longest / block));
        let (offset, length) = (at * block, count * block);
        let range = usize::try_from(offset).unwrap()..usize::try_from(offset + length).unwrap();
        let operation = match rng.below(8) {
            0..3 => {
                let mut bytes = vec![0; range.len()];
                rng.fill(&mut bytes);
                model[range.clone()].copy_from_slice(&bytes);
                // Sometimes at an odd address, so that the bytes must be copied to an aligned one.
                let odd = usize::from(rng.one_in(2));
                let data = [&vec![9; odd][..], &bytes].concat();
                let data = Buffer::copy_from_slice(&data).slice(odd..odd + bytes.len());
                Operation::Write { offset, data, durable: rng.one_in(8) }
            }
            3 if rng.one_in(2) => Operation::Flush,
            3 => {
                model[range.clone()].fill(0);
                Operation::Deallocate { offset, length }
            }
            4 => {
                model[range.clone()].fill(0);
                let (deallocate, durable) = (rng.one_in(2), rng.one_in(4));
                Operation::WriteZeroes { offset, length, deallocate, durable }
            }
            _ => {
                let length = u32::try_from(length).unwrap();
                assert!(
                    run(&mut medium, Operation::Read { offset, length }).unwrap() == model[range],
                    "{seed}"
                );
                continue;
            }
        };
        run(&mut medium, operation).unwrap();
    }
    drop(medium);
    assert!(fs::read(scratch.file()).unwrap() == model);
}

#[test]
fn it_reads_what_was_written_direct() {
    compare_with_model(Options { block: 4096, ..sized(8 << 20) }, 1);
    compare_with_model(sized(8 << 20), 2);
}

#[test]
fn it_reads_what_was_written_through_the_page_cache() {
    compare_with_model(Options { direct: false, ..sized(8 << 20) }, 3);
}

#[test]
fn it_reads_what_was_written_without_a_ring() {
    compare_with_model(Options { ring: false, block: 4096, ..sized(8 << 20) }, 4);
    compare_with_model(Options { ring: false, direct: false, ..sized(8 << 20) }, 5);
}

#[test]
fn a_file_system_that_can_make_no_holes_gets_zeroes_written() {
    let scratch = Scratch::on_disk();
    let mut medium = open(&scratch.file(), &sized(4 << 20)).unwrap();
    (medium.can_punch, medium.can_zero) = (false, false);
    write(&mut medium, 0, &[7; 4 << 20], false).unwrap();
    run(
        &mut medium,
        Operation::WriteZeroes { offset: 512, length: 3 << 20, deallocate: true, durable: true },
    )
    .unwrap();
    let bytes = run(&mut medium, Operation::Read { offset: 0, length: 4 << 20 }).unwrap();
    assert!(bytes.iter().enumerate().all(|(at, &byte)| (byte == 0) == (512..512 + (3 << 20)).contains(&at)));
}

#[test]
fn unaligned_blocks_become_zeroes_where_no_holes_can_be_made() {
    for reserve in [false, true] {
        let scratch = Scratch::on_disk();
        let options = Options { block: 4096, reserve, ..sized(1 << 20) };
        let mut medium = open(&scratch.file(), &options).unwrap();
        // Where space is reserved, no holes are made though the file system could.
        (medium.can_punch, medium.can_zero) = (reserve, false);
        write(&mut medium, 0, &[7; 1 << 20], false).unwrap();
        run(&mut medium, Operation::Deallocate { offset: 512, length: 9 << 10 }).unwrap();
        assert_eq!(medium.direct, None, "unaligned bytes were written directly");
        let bytes = run(&mut medium, Operation::Read { offset: 0, length: 1 << 20 }).unwrap();
        let zeroes = 512..512 + (9 << 10);
        assert!(bytes.iter().enumerate().all(|(at, &byte)| (byte == 0) == zeroes.contains(&at)));
    }
}

#[test]
fn a_range_that_a_device_does_not_take_costs_no_other_range_its_hole() {
    let scratch = Scratch::on_disk();
    let mut medium = open(&scratch.file(), &sized(1 << 20)).unwrap();
    for (errno, can_punch) in [(libc::EINVAL, true), (libc::EOPNOTSUPP, false)] {
        let goal = Goal::Zero { how: Zeroing::Punch, durable: false };
        let mut job = Job { id: IoId(1), begin: 512, at: 512, left: 512, repeats: 0, goal };
        let call = medium.next_call(&mut job).unwrap();
        assert!(matches!(call, Call::Allocate { .. }));
        let error = io::Error::from_raw_os_error(errno);
        assert!(matches!(medium.on_failed(&mut job, call, &error), Step::Next));
        assert!(matches!(medium.next_call(&mut job), Some(Call::Write { offset: 512, .. })));
        assert_eq!(medium.can_punch, can_punch);
    }
}

#[test]
fn reserved_space_stays_where_blocks_are_deallocated() {
    let scratch = Scratch::on_disk();
    let mut medium = open(&scratch.file(), &Options { reserve: true, ..sized(4 << 20) }).unwrap();
    let space = || fs::metadata(scratch.file()).unwrap().blocks();
    write(&mut medium, 0, &[7; 3 << 20], true).unwrap();
    let reserved = space();
    run(&mut medium, Operation::Deallocate { offset: 0, length: 2 << 20 }).unwrap();
    let (offset, length) = (2 << 20, 1 << 20);
    run(&mut medium, Operation::WriteZeroes { offset, length, deallocate: true, durable: true }).unwrap();
    assert!(space() >= reserved, "{} of {reserved} sectors are left", space());
    assert_eq!(run(&mut medium, Operation::Read { offset: 0, length: 4 << 20 }), Ok(vec![0; 4 << 20]));
}

#[test]
fn many_requests_are_under_way_at_once_and_each_ends_once() {
    let scratch = Scratch::on_disk();
    let mut medium = open(&scratch.file(), &Options { block: 4096, ..sized(16 << 20) }).unwrap();
    for at in 0..4096_u64 {
        let data = Buffer::copy_from_slice(&at.to_le_bytes().repeat(512));
        let id = IoId(u32::try_from(at).unwrap());
        let operation = Operation::Write { offset: at * 4096, data, durable: false };
        medium.submit(Request { id, medium: MediumId(0), operation });
    }
    assert_eq!(medium.in_flight(), 4096);
    let mut ended = vec![0; 4096];
    while medium.in_flight() > 0 {
        medium
            .reap(&mut |completion| match completion {
                Completion::Done { id, result } => (result.unwrap(), ended[id.0 as usize] += 1).0,
                Completion::Data { .. } => panic!("a write reads nothing"),
            })
            .unwrap();
    }
    assert!(ended.iter().all(|&times| times == 1));
    for at in 0..4096_u32 {
        let operation = Operation::Read { offset: u64::from(at) * 4096, length: 4096 };
        medium.submit(Request { id: IoId(at), medium: MediumId(0), operation });
    }
    let mut right = 0;
    while medium.in_flight() > 0 {
        medium
            .reap(&mut |completion| {
                if let Completion::Data { id, offset: 0, data } = completion {
                    right += u32::from(data[4088..] == u64::from(id.0).to_le_bytes());
                }
            })
            .unwrap();
    }
    assert_eq!(right, 4096);
}

#[test]
fn dropping_it_waits_for_the_kernel() {
    let scratch = Scratch::on_disk();
    for _ in 0..20 {
        let mut medium = open(&scratch.file(), &sized(4 << 20)).unwrap();
        for at in 0..200_u32 {
            let operation = Operation::Read { offset: u64::from(at) * 4096, length: 128 << 10 };
            medium.submit(Request { id: IoId(at), medium: MediumId(0), operation });
        }
        medium.reap(&mut |_| ()).unwrap();
    }
}

#[test]
fn a_truncated_file_is_out_of_range_and_the_rest_still_reads() {
    for options in [sized(1 << 20), Options { ring: false, direct: false, ..sized(1 << 20) }] {
        let scratch = Scratch::on_disk();
        let mut medium = open(&scratch.file(), &options).unwrap();
        write(&mut medium, 0, &[5; 1 << 20], false).unwrap();
        File::options().write(true).open(scratch.file()).unwrap().set_len(300_000).unwrap();
        let read = |offset, length| Operation::Read { offset, length };
        assert_eq!(run(&mut medium, read(512 << 10, 4096)), Err(MediaError::OutOfRange));
        assert_eq!(run(&mut medium, read(299_520, 4096)), Err(MediaError::OutOfRange));
        assert_eq!(run(&mut medium, read(0, 4096)), Ok(vec![5; 4096]));
        assert_eq!(run(&mut medium, Operation::Flush), Err(MediaError::OutOfRange));
        assert_eq!(run(&mut medium, read(1 << 20, 512)), Err(MediaError::OutOfRange));
        assert_eq!(run(&mut medium, read(u64::MAX - 511, 512)), Err(MediaError::OutOfRange));
    }
}

#[test]
fn a_full_disk_is_no_space_and_harms_nothing_else() {
    let scratch = Scratch::on_disk();
    let target = scratch.0.join("small");
    fs::create_dir(&target).unwrap();
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(&target).status();
    if !mount.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: a small tmpfs can't be mounted here, so no disk was filled");
        return;
    }
    let result = std::panic::catch_unwind(|| {
        let path = target.join("medium");
        let reserving = open(&path, &Options { reserve: true, ..sized(4 << 20) });
        let error = reserving.err().unwrap().to_string();
        assert!(error.contains("the disk has no room for 4194304 B"), "{error}");
        assert!(!path.exists(), "a half made file was left behind");
        for ring in [true, false] {
            let mut medium = open(&path, &Options { ring, ..sized(4 << 20) }).unwrap();
            write(&mut medium, 0, &[1; 4096], true).unwrap();
            assert_eq!(write(&mut medium, 1 << 20, &[2; 2 << 20], false), Err(MediaError::NoSpace));
            assert_eq!(run(&mut medium, Operation::Read { offset: 0, length: 4096 }), Ok(vec![1; 4096]));
            run(&mut medium, Operation::Deallocate { offset: 1 << 20, length: 2 << 20 }).unwrap();
            write(&mut medium, 2 << 20, &[3; 4096], false).unwrap();
        }
    });
    let unmount = Command::new("umount").arg("--lazy").arg(&target).status();
    assert!(unmount.is_ok_and(|status| status.success()));
    result.unwrap();
}

#[test]
fn a_read_only_medium_changes_nothing() {
    let scratch = Scratch::on_disk();
    fs::write(scratch.file(), [4; 8192]).unwrap();
    let mut medium = open(&scratch.file(), &Options { readonly: true, ..Options::default() }).unwrap();
    assert_eq!(write(&mut medium, 0, &[1; 512], false), Err(MediaError::ReadOnly));
    assert_eq!(run(&mut medium, Operation::Deallocate { offset: 0, length: 512 }), Err(MediaError::ReadOnly));
    assert_eq!(run(&mut medium, Operation::Flush), Ok(vec![]));
    assert_eq!(run(&mut medium, Operation::Read { offset: 0, length: 8192 }), Ok(vec![4; 8192]));
    // Readers may share; a writer may not join the readers.
    assert!(open(&scratch.file(), &Options { readonly: true, ..Options::default() }).is_ok());
    assert!(matches!(open(&scratch.file(), &Options::default()).err().unwrap().cause(), OpenCause::InUse));
}

#[test]
fn an_error_names_the_path_the_value_and_the_remedy() {
    let scratch = Scratch::on_disk();
    let message = |path: &Path, options: &Options| open(path, options).err().unwrap().to_string();
    let path = scratch.file();
    let named = |text: &str| format!("{}: {text}", path.display());
    assert_eq!(message(&path, &Options::default()), named("does not exist; give size= to make it"));
    assert_eq!(
        message(&path, &sized(1_000)),
        named("size 1000 B is not a multiple of the block size 512 B; the nearest are 512 and 1024")
    );
    assert_eq!(
        message(&path, &Options { block: 520, ..sized(5_200) }),
        named("block=520 is not possible; give 512 or 4096")
    );
    assert!(message(&scratch.0, &Options::default()).contains("is a directory"));
    assert!(
        message(Path::new("/dev/null"), &Options::default()).contains("neither a file nor a block device")
    );
    assert!(!path.exists());
    fs::write(&path, [0; 100]).unwrap();
    assert!(message(&path, &Options::default()).contains("has 100 B, less than one block of 512 B"));
    fs::write(&path, [0; 1024]).unwrap();
    assert!(message(&path, &sized(2048)).contains("has 1024 B, but size=2048 was given"));
    let _first = open(&path, &Options::default()).unwrap();
    assert!(message(&path, &Options::default()).contains("is in use"));
}

const CHILD: &str = "FARLANE_LIVE_TEST_CHILD";

/// Not a test by itself: the process that `what_was_flushed_survives_a_kill` kills.
#[test]
fn child_that_writes_until_it_is_killed() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let mut medium = open(Path::new(&path), &Options { block: 4096, ..Options::default() }).unwrap();
    let mut out = std::io::stdout();
    for round in 0_u64.. {
        let bytes = (round + 1).to_le_bytes().repeat(512);
        // Alternately a write followed by a flush, and a write that is durable by itself.
        write(&mut medium, round % 256 * 4096, &bytes, round % 2 == 0).unwrap();
        if round % 2 == 1 {
            run(&mut medium, Operation::Flush).unwrap();
        }
        writeln!(out, "\nacknowledged {}", round + 1).unwrap();
        out.flush().unwrap();
    }
}

/// Weaker than a power cut, because the page cache outlives a process. The test shows that nothing
/// acknowledged waits in our own memory.
#[test]
fn what_was_flushed_survives_a_kill() {
    let scratch = Scratch::on_disk();
    drop(open(&scratch.file(), &sized(1 << 20)).unwrap());
    let log = scratch.0.join("log");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["media::file::tests::child_that_writes_until_it_is_killed", "--exact", "--nocapture"])
        .env(CHILD, scratch.file())
        .stdout(OpenOptions::new().create(true).append(true).open(&log).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let last = || {
        let text = fs::read_to_string(&log).unwrap();
        let complete = &text[..text.rfind('\n').unwrap_or(0)];
        complete.lines().rev().find_map(|line| line.strip_prefix("acknowledged ")?.parse::<u64>().ok())
    };
    let start = Instant::now();
    while last().is_none_or(|last| last < 50) && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let last = last().unwrap();
    assert!(last >= 50, "the disk is too slow for this test");
    // Opened anew: the lock of a dead process is gone.
    drop(open(&scratch.file(), &Options::default()).unwrap());
    let file = File::open(scratch.file()).unwrap();
    for round in last.saturating_sub(255)..last {
        let mut bytes = [0; 4096];
        file.read_exact_at(&mut bytes, round % 256 * 4096).unwrap();
        let found = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        assert!(bytes == found.to_le_bytes().repeat(512)[..], "a torn block");
        // Rounds after the last acknowledged one may have arrived too.
        assert!(found == round + 1 || found > last, "round {round} holds {found} of {last}");
    }
}

#[test]
fn a_ring_that_is_not_asked_for_leaves_nothing_to_wait_on() {
    let scratch = Scratch::on_disk();
    let medium = open(&scratch.file(), &Options { ring: false, ..sized(4096) }).unwrap();
    assert_eq!((medium.poll_fd(), medium.size(), medium.block()), (None, 4096, 512));
}

#[test]
fn a_request_beyond_the_limit_fails_and_the_others_go_on() {
    let scratch = Scratch::on_disk();
    let options = Options { ring: false, ..sized(1 << 20) };
    let mut medium = open(&scratch.file(), &options).unwrap();
    let mut ask = |id| {
        let operation = Operation::Read { offset: 0, length: 4096 };
        medium.submit(Request { id: IoId(id), medium: MediumId(0), operation });
    };
    (0..REQUESTS_MAX).for_each(|_| ask(1));
    ask(2);
    let mut ended = Vec::new();
    let mut out = |completion| {
        if let Completion::Done { id, result } = completion {
            ended.push((id.0, result));
        }
    };
    medium.reap(&mut out).unwrap();
    assert_eq!(ended[0], (2, Err(MediaError::Unreachable)));
    assert!(ended.len() > 1 && ended[1..].iter().all(|one| *one == (1, Ok(()))));
}
