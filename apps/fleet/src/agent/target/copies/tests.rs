//! Copies of files, on the file system of the tests, and on one that shares blocks if root can
//! mount one.

use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::Duration;

use super::*;

struct Bench {
    /// Ends with the file system, if it was mounted for the test.
    _mount: Option<Mount>,
    directory: tempfile::TempDir,
    frame: Frame,
    copies: Copies,
}

struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn snapshot() -> Data {
    Data::Snapshot(name("s"))
}

fn clone() -> Data {
    Data::Volume(name("c"))
}

fn volume() -> Data {
    Data::Volume(name("v"))
}

impl Bench {
    fn at(directory: tempfile::TempDir, mount: Option<Mount>) -> Self {
        let pool = directory.path().join("pool");
        std::fs::create_dir_all(&pool).unwrap();
        let frame = Frame {
            listen: Vec::new(),
            pools: vec![(name("p"), pool)],
            secrets: directory.path().to_owned(),
            encrypt: false,
        };
        Self { _mount: mount, directory, frame, copies: Copies::default() }
    }

    fn new() -> Self {
        Self::at(tempfile::tempdir().unwrap(), None)
    }

    /// A pool on a file system that shares blocks; `None` if this machine cannot have one.
    fn sharing() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let (image, pool) = (directory.path().join("image"), directory.path().join("pool"));
        File::create(&image).unwrap().set_len(320 << 20).unwrap();
        std::fs::create_dir(&pool).unwrap();
        let done = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        let is_made = done(Command::new("mkfs.xfs").arg("-q").arg(&image))
            && done(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&pool));
        if !is_made {
            eprintln!("SKIPPED: no XFS can be mounted here (root, a loop device and xfsprogs are needed)");
            return None;
        }
        Some(Self::at(directory, Some(Mount(pool))))
    }

    fn pool(&self) -> &Path {
        self.frame.pool(&self.frame.pools[0].0).unwrap()
    }

    /// Makes the file of the volume `v`: data, a hole, data.
    fn fill(&self) -> PathBuf {
        let path = volume_path(self.pool(), &name("v"));
        let file = File::create(&path).unwrap();
        file.set_len(16 << 20).unwrap();
        file.write_all_at(&[7; 10_000], 0).unwrap();
        file.write_all_at(&[9; 4096], 12 << 20).unwrap();
        path
    }

    fn want(&mut self, data: &Data, of: &Data, bytes: u64) {
        let epoch = Epoch { incarnation: 1, number: 5 };
        let (pool, of) = (name("p"), of.clone());
        let saved = SavedCopy { of: of.clone(), pool: pool.clone(), bytes, epoch, made: None, delete: false };
        self.copies.known.insert(data.clone(), saved);
        let shares = self.copies.clones.get(&pool).is_some_and(|(_, shares)| *shares);
        let copy = ToCopy { data: data.clone(), of, pool, bytes, epoch, shares };
        let number = self.copies.number + 1;
        self.copies.want(number, vec![copy]);
    }

    /// Lets copies go on until none is being made. Returns the copies that are there.
    fn settle(&mut self) -> fleet::agent::Copies {
        for _ in 0..2_000 {
            let (is_busy, _) = self.copies.turn(&self.frame, Instant::now());
            if !is_busy {
                return self.copies.observe(&self.frame);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("{:?}", self.copies);
    }

    /// The names of the pool's files.
    fn names(&self) -> Vec<String> {
        let mut names = files::names(self.pool()).unwrap();
        names.sort();
        names
    }

    /// Takes a snapshot, writes to the volume, and makes a volume from the snapshot.
    fn takes_what_was_there(&mut self) {
        let path = self.fill();
        let before = std::fs::read(&path).unwrap();
        self.settle();
        self.want(&snapshot(), &volume(), 16 << 20);
        let observed = self.settle();
        assert_eq!(observed.present[0].0, snapshot(), "{observed:?}");
        assert!(observed.problems.is_empty() && observed.present[0].2 > 1_600_000_000);
        File::options().write(true).open(&path).unwrap().write_all_at(&[1; 5_000], 4_000).unwrap();
        self.want(&clone(), &snapshot(), 20 << 20);
        assert_eq!(self.settle().present.len(), 2);
        let copied = std::fs::read(volume_path(self.pool(), &name("c"))).unwrap();
        assert_eq!(copied.len(), 20 << 20);
        assert!(copied.starts_with(&before) && copied[before.len()..].iter().all(|byte| *byte == 0));
        assert_eq!(std::fs::read(self.pool().join("s.E1-5.snapshot")).unwrap(), before);
        assert_eq!(self.names(), ["c.raw", "s.E1-5.snapshot", "v.raw"]);
    }
}

#[test]
fn a_copy_has_what_its_source_had_and_its_holes() {
    let mut bench = Bench::new();
    bench.takes_what_was_there();
    if bench.copies.clones[&name("p")].1 {
        return; // Blocks are shared, and counted twice.
    }
    let found = std::fs::metadata(bench.pool().join("s.E1-5.snapshot")).unwrap();
    assert!(found.blocks() * 512 < 1 << 20, "{} blocks", found.blocks());
}

#[test]
fn where_files_share_blocks_a_copy_takes_no_space_and_ignores_locks() {
    let Some(mut bench) = Bench::sharing() else { return };
    let path = bench.fill();
    let user = File::open(&path).unwrap();
    user.lock().unwrap();
    bench.takes_what_was_there();
    assert!(bench.copies.clones[&name("p")].1);
}

#[test]
fn a_volume_that_is_in_use_is_not_copied_and_the_reason_is_known() {
    let mut bench = Bench::new();
    let path = bench.fill();
    bench.settle();
    let device = std::fs::metadata(bench.pool()).unwrap().dev();
    bench.copies.clones.insert(name("p"), (device, false));
    let user = File::open(&path).unwrap();
    user.lock().unwrap();
    bench.want(&snapshot(), &volume(), 16 << 20);
    let observed = bench.settle();
    assert!(observed.present.is_empty());
    assert!(observed.problems[0].1.contains("v.raw: a process still uses it"), "{observed:?}");
    assert_eq!(bench.names(), ["v.raw"]);
    drop(user);
    std::thread::sleep(bench.copies.problems[&snapshot()].1.wait());
    let observed = bench.settle();
    assert!(observed.problems.is_empty() && observed.present.len() == 1, "{observed:?}");
}

#[test]
fn what_is_wanted_no_longer_is_not_made_and_what_is_left_goes() {
    let mut bench = Bench::new();
    bench.fill();
    std::fs::write(bench.pool().join("s.E1-4.snapshot.part"), "half").unwrap();
    bench.settle();
    assert_eq!(bench.names(), ["v.raw"]);
    bench.want(&snapshot(), &volume(), 16 << 20);
    bench.copies.want(2, Vec::new());
    assert!(bench.settle().present.is_empty());
    // One that is there is not made once more, and is deleted only if the state says so.
    bench.want(&snapshot(), &volume(), 16 << 20);
    bench.settle();
    let epoch = Epoch { incarnation: 1, number: 5 };
    let frame = bench.frame.clone();
    bench.copies.delete(&frame, &name("s"), epoch);
    assert_eq!(bench.settle().present.len(), 1);
    bench.copies.known.get_mut(&snapshot()).unwrap().delete = true;
    bench.copies.delete(&frame, &name("s"), epoch);
    bench.copies.want(4, Vec::new());
    let observed = bench.settle();
    assert!(observed.present.is_empty() && observed.number == 4);
    assert!(bench.directory.path().exists());
}
