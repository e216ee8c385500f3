//! The guest's root: its contents, and the archive of them, which is kept for the next boot.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use crate::cpio::Archive;
use crate::{Error, Kit, libraries, modules};

/// The script of the guest's first process.
const INIT: &str = include_str!("init.sh");
/// The script that sends words to the owner of the guest.
const TELL: &str = "#!/bin/sh\necho \"tell $*\" >/dev/ttyS2\n";
/// Waits until the owner of the guest sends the words: `await WORDS`.
const AWAIT: &str =
    "#!/bin/sh\nwhile read -r line; do [ \"$line\" = \"$*\" ] && exit 0; done </dev/ttyS2\nexit 1\n";
/// Waits until a path exists, since drivers take their time: `appears PATH [SECONDS]`.
const APPEARS: &str = "#!/bin/sh\nfor i in $(seq $((${2:-30} * 20))); do [ -e \"$1\" ] && exit 0; sleep 0.05; done\n\
    echo \"$1 has not appeared\" >&2\nexit 1\n";
/// Directories that are links into `usr`, as in Debian's layout.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];
/// Mount points, and directories that programs expect.
const DIRECTORIES: [&str; 9] = ["dev", "proc", "sys", "tmp", "run", "mnt", "root", "var", "var/lib"];
/// Where the kit keeps the libraries that libibverbs loads for the kinds of RDMA devices.
const VERBS: &str = "usr/lib/x86_64-linux-gnu/libibverbs";
/// Number of archives kept in the cache. The archive that was unused for longest is removed first.
const KEPT_MAX: usize = 8;

#[derive(Clone, Debug, Hash)]
enum Entry {
    Directory,
    Link(String),
    Bytes { permissions: u32, bytes: Vec<u8> },
    File { permissions: u32, from: PathBuf },
}

/// The contents of a guest's first root. Paths have no leading slash.
#[derive(Clone, Debug)]
pub struct Initramfs {
    kit: Kit,
    entries: BTreeMap<String, Entry>,
    modules: Vec<String>,
}

impl Initramfs {
    /// A root with busybox, all its applets, and the init script.
    ///
    /// # Errors
    /// When the kit cannot be read.
    pub fn new(kit: &Kit) -> Result<Self, Error> {
        let mut initramfs = Self { kit: kit.clone(), entries: BTreeMap::new(), modules: Vec::new() };
        for name in MERGED {
            initramfs.put(name, Entry::Link(format!("usr/{name}")));
            initramfs.put(&format!("usr/{name}"), Entry::Directory);
        }
        for name in DIRECTORIES {
            initramfs.put(name, Entry::Directory);
        }
        initramfs.bytes("init", 0o755, INIT);
        initramfs.bytes("usr/local/bin/tell", 0o755, TELL);
        initramfs.bytes("usr/local/bin/await", 0o755, AWAIT);
        initramfs.bytes("usr/local/bin/appears", 0o755, APPEARS);
        let busybox = kit.guest_tree().join("usr/bin/busybox");
        let list = Command::new(&busybox).arg("--list").output().map_err(Error::at("running", &busybox))?;
        for applet in String::from_utf8_lossy(&list.stdout).lines() {
            initramfs.put(&format!("usr/bin/{applet}"), Entry::Link("busybox".to_owned()));
        }
        initramfs.file("usr/bin/busybox", 0o755, &busybox);
        Ok(initramfs)
    }

    /// Adds a file with the contents `bytes`.
    pub fn bytes(&mut self, path: &str, permissions: u32, bytes: impl AsRef<[u8]>) {
        self.put(path, Entry::Bytes { permissions, bytes: bytes.as_ref().to_owned() });
    }

    /// Adds a copy of the file `from` of this machine.
    pub fn file(&mut self, path: &str, permissions: u32, from: &Path) {
        self.put(path, Entry::File { permissions, from: from.to_owned() });
    }

    /// Adds a program of the kit with its libraries. The names are `nvme`, `fio`, `lspci`,
    /// `mkfs.ext4` and `fsck.ext4`.
    ///
    /// # Errors
    /// [`Error::Missing`] when the kit has no such program or library.
    pub fn tool(&mut self, name: &str) -> Result<(), Error> {
        let tree = self.kit.guest_tree();
        let place = ["usr/sbin", "usr/bin"].into_iter().find(|place| tree.join(place).join(name).is_file());
        let place = place
            .ok_or_else(|| Error::Missing { what: name.to_owned(), looked_in: tree.display().to_string() })?;
        // A busybox applet of this name might precede it in the search path.
        self.entries.remove(&format!("usr/bin/{name}"));
        self.program(&format!("{place}/{name}"), &tree.join(place).join(name))?;
        if name == "lspci" {
            let names = "usr/share/misc/pci.ids";
            self.file(names, 0o644, &tree.join(names));
            // With -k, lspci looks up which modules fit a device.
            for index in
                ["modules.dep.bin", "modules.alias.bin", "modules.symbols.bin", "modules.builtin.bin"]
            {
                let from = self.kit.modules().join(index);
                // A kernel built without modules has no such indexes.
                if !from.exists() {
                    continue;
                }
                let place = format!("usr/lib/modules/{}/{index}", self.kit.kernel_version());
                self.file(&place, 0o644, &from);
            }
        }
        Ok(())
    }

    /// Adds the files that programs need to use RDMA links of the kinds `siw` and `rxe` through
    /// libibverbs: the libraries of both kinds, and `rdma`, which creates the links.
    ///
    /// # Errors
    /// [`Error::Missing`] when the kit has no such library.
    pub fn rdma(&mut self) -> Result<(), Error> {
        let tree = self.kit.guest_tree();
        for kind in ["siw", "rxe"] {
            let names = format!("etc/libibverbs.d/{kind}.driver");
            self.file(&names, 0o644, &tree.join(&names));
            let folder = tree.join(VERBS);
            let mut entries = fs::read_dir(&folder).map_err(Error::at("reading", &folder))?;
            let library = entries.find_map(|entry| {
                let name = entry.ok()?.file_name().into_string().ok()?;
                name.starts_with(&format!("lib{kind}-")).then_some(name)
            });
            let library = library.ok_or_else(|| Error::Missing {
                what: format!("libibverbs' library for {kind}"),
                looked_in: folder.display().to_string(),
            })?;
            self.program(&format!("{VERBS}/{library}"), &folder.join(&library))?;
        }
        // The C library loads this one when a thread ends.
        let threads = "usr/lib/x86_64-linux-gnu/libgcc_s.so.1";
        self.file(threads, 0o755, &tree.join(threads));
        self.tool("rdma")
    }

    /// Adds the program `from` of this machine, with the libraries of the kit that it needs.
    ///
    /// # Errors
    /// [`Error::Missing`] when the program needs a library that the kit lacks.
    pub fn program(&mut self, path: &str, from: &Path) -> Result<(), Error> {
        for (place, file) in libraries::needed(from, &self.kit.guest_tree())? {
            self.file(&place, 0o755, &file);
        }
        self.file(path, 0o755, from);
        Ok(())
    }

    /// Adds a kernel module by name, with the modules that it needs. The init script inserts
    /// modules in the order of the calls. A module that is built into the kernel needs nothing.
    ///
    /// # Errors
    /// [`Error::Missing`] when the kernel has no such module.
    pub fn module(&mut self, name: &str) -> Result<(), Error> {
        for path in modules::in_order(self.kit.modules(), &[name.to_owned()])? {
            let name = modules::name_of(&path.to_string_lossy());
            if self.modules.contains(&name) {
                continue;
            }
            // Unpacked here, because a guest needs ten times as long.
            let xz = path.extension().is_some_and(|extension| extension == "xz");
            let bytes = if xz {
                self.unpack(&path)?
            } else {
                fs::read(&path).map_err(Error::at("reading", &path))?
            };
            self.bytes(&format!("usr/lib/modules/{name}.ko"), 0o644, bytes);
            self.modules.push(name);
        }
        let list = self.modules.join("\n");
        self.bytes("etc/guest/modules", 0o644, list);
        Ok(())
    }

    fn unpack(&self, path: &Path) -> Result<Vec<u8>, Error> {
        let busybox = self.kit.guest_tree().join("usr/bin/busybox");
        let output = Command::new(&busybox).arg("xzcat").arg(path).output();
        let output = output.map_err(Error::at("running", &busybox))?;
        if output.status.success() && !output.stdout.is_empty() {
            return Ok(output.stdout);
        }
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(Error::at("unpacking", path)(io::Error::other(complaint)))
    }

    fn put(&mut self, path: &str, entry: Entry) {
        // Parents must come first in the archive. They do, because the map is ordered, and a
        // directory's name is a prefix of its contents' names.
        for (end, _) in path.match_indices('/') {
            self.entries.entry(path[..end].to_owned()).or_insert(Entry::Directory);
        }
        self.entries.insert(path.to_owned(), entry);
    }

    /// The archive of the root, from the cache if it has an archive of the same parts.
    pub(crate) fn archive(&self) -> Result<PathBuf, Error> {
        let directory = self.kit.place().join("initramfs");
        fs::create_dir_all(&directory).map_err(Error::at("creating", &directory))?;
        let path = directory.join(format!("{:016x}.cpio", self.digest()?));
        if let Ok(file) = File::options().append(true).open(&path) {
            // Marks the archive as used. If this fails, the archive is only removed sooner.
            let _ = file.set_modified(SystemTime::now());
            return Ok(path);
        }
        let mut partial =
            tempfile::NamedTempFile::new_in(&directory).map_err(Error::at("writing in", &directory))?;
        self.emit(BufWriter::new(partial.as_file_mut())).map_err(Error::at("writing", &path))?;
        partial.persist(&path).map_err(|error| Error::at("renaming to", &path)(error.error))?;
        forget_old(&directory);
        Ok(path)
    }

    /// Writes the archive.
    pub(crate) fn emit(&self, out: impl Write) -> io::Result<()> {
        let mut archive = Archive::new(out);
        for (path, entry) in &self.entries {
            match entry {
                Entry::Directory => archive.directory(path)?,
                Entry::Link(target) => archive.symbolic_link(path, target)?,
                Entry::Bytes { permissions, bytes } => archive.file(path, *permissions, bytes)?,
                Entry::File { permissions, from } => {
                    let bytes = fs::read(from).map_err(|error| {
                        io::Error::new(error.kind(), format!("{}: {error}", from.display()))
                    })?;
                    archive.file(path, *permissions, &bytes)?;
                }
            }
        }
        archive.finish()?.flush()
    }

    /// A digest of the contents. Files of this machine count by place, size and time of change.
    fn digest(&self) -> Result<u64, Error> {
        let mut hasher = DefaultHasher::new();
        for (path, entry) in &self.entries {
            (path, entry).hash(&mut hasher);
            if let Entry::File { from, .. } = entry {
                let metadata = fs::metadata(from).map_err(Error::at("reading", from))?;
                (metadata.len(), metadata.mtime(), metadata.mtime_nsec()).hash(&mut hasher);
            }
        }
        Ok(hasher.finish())
    }
}

/// Removes old archives from the cache. An archive that cannot be removed stays, as another process
/// may use it.
fn forget_old(directory: &Path) {
    let entries = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    let mut archives: Vec<(SystemTime, PathBuf)> = entries
        .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "cpio"))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    archives.sort();
    for (_, path) in archives.iter().rev().skip(KEPT_MAX) {
        let _ = fs::remove_file(path);
    }
}
