//! Fetches a guest once a machine: packages of the machine's own Debian archive, unpacked into two
//! trees (QEMU's and the guest's), and a kernel that QEMU can enter. Everything is prepared in a
//! directory beside its final place, which is renamed at the end.

mod apt;
mod build;
mod sources;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::kit::{self, Kernel, Kit};
use crate::{Error, kernel};
use apt::Apt;

pub(crate) use build::{build_kernel, built_kernel};

/// The name of the recipe: the files to fetch, and their layout. A new recipe is fetched beside the
/// old one.
const RECIPE: &str = "trixie-5";
/// The name of the recipe of the newer kernel.
const NEWER_KERNEL_RECIPE: &str = "trixie-backports-kernel-1";
/// The name of the recipe of the kernel with every driver.
const FULL_KERNEL_RECIPE: &str = "trixie-full-kernel-1";

/// The packages of QEMU's tree.
const QEMU_PACKAGES: [&str; 2] = ["qemu-system-x86", "ovmf"];

/// The packages of the guest's tree without the kernel. zstd unpacks the kernel, kmod orders its
/// modules. ktls-utils has the service that shakes hands for the kernel's TLS, and keyutils puts
/// keys into its keyrings. iproute2 makes RDMA links; rdmacm-utils and perftest use them, through
/// ibverbs-providers.
const GUEST_PACKAGES: [&str; 14] = [
    "busybox-static",
    "nvme-cli",
    "fio",
    "e2fsprogs",
    "pciutils",
    "smartmontools",
    "kmod",
    "zstd",
    "ktls-utils",
    "keyutils",
    "iproute2",
    "rdmacm-utils",
    "perftest",
    "ibverbs-providers",
];
/// The metapackage of the guests' kernel, which has nvme, ext4 and virtio's PCI part built in.
const KERNEL_PACKAGE: &str = "linux-image-cloud-amd64";
/// The metapackage of the kernel with every driver. nvme, ext4 and virtio are modules there.
const FULL_KERNEL_PACKAGE: &str = "linux-image-amd64";
/// Directories of each tree that no guest needs.
const SUPERFLUOUS: [&str; 7] = [
    "var",
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/info",
    "usr/share/zoneinfo",
    "usr/lib/python3.13",
];

/// Makes sure that the parts of guests are in the cache directory.
///
/// # Errors
/// [`Error::Unavailable`] where fetching fails. Files that were downloaded are kept for the next
/// attempt.
pub(crate) fn fetch() -> Result<Kit, Error> {
    let place = prepared(RECIPE, assemble)?;
    Kit::open(&place)?.ok_or_else(|| incomplete(&place))
}

/// Makes sure that the newer kernel, backports', is in the cache directory. The tools that unpack
/// it are the kit's.
///
/// # Errors
/// [`Error::Unavailable`] where fetching fails, and the errors of [`fetch`].
pub(crate) fn newer_kernel() -> Result<Kernel, Error> {
    let kit = Kit::shared()?;
    let place = prepared(NEWER_KERNEL_RECIPE, |partial| {
        say(&format!("fetching a newer kernel (some 37 MB) into {}", partial.display()));
        assemble_kernel(&kit.guest_tree(), partial, apt::BACKPORTS, KERNEL_PACKAGE)
    })?;
    Kernel::open(&place, &place)?.ok_or_else(|| incomplete(&place))
}

/// Makes sure that the release's kernel with every driver is in the cache directory. The tools that
/// unpack it are the kit's.
///
/// # Errors
/// [`Error::Unavailable`] where fetching fails, and the errors of [`fetch`].
pub(crate) fn full_kernel() -> Result<Kernel, Error> {
    let kit = Kit::shared()?;
    let place = prepared(FULL_KERNEL_RECIPE, |partial| {
        say(&format!("fetching a kernel with every driver (some 110 MB) into {}", partial.display()));
        assemble_kernel(&kit.guest_tree(), partial, apt::RELEASE, FULL_KERNEL_PACKAGE)
    })?;
    Kernel::open(&place, &place)?.ok_or_else(|| incomplete(&place))
}

fn incomplete(place: &Path) -> Error {
    Error::unavailable(format!("{} is incomplete", place.display()))
}

/// The directory in the cache for a recipe. `assemble` makes its contents, once a machine.
fn prepared(recipe: &str, assemble: impl FnOnce(&Path) -> Result<(), Error>) -> Result<PathBuf, Error> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Err(Error::unavailable("guests are fetched for Linux on x86-64 only"));
    }
    let cache = kit::cache_directory()?;
    fs::create_dir_all(&cache).map_err(|error| no_room(&cache, &error))?;
    let place = cache.join(recipe);
    if place.join(kit::KERNEL).exists() {
        return Ok(place);
    }
    let _lock = lock(&cache)?;
    // Another process may have fetched it while this one waited.
    if place.join(kit::KERNEL).exists() {
        return Ok(place);
    }
    let begun = Instant::now();
    let partial = cache.join(format!("{recipe}.partial"));
    assemble(&partial).map_err(|error| match error {
        Error::Io { doing, source } => Error::unavailable(format!("fetching a guest: {doing}: {source}")),
        other => other,
    })?;
    fs::rename(&partial, &place).map_err(Error::at("renaming", &partial))?;
    say(&format!("fetched in {:.1} s, kept in {}", begun.elapsed().as_secs_f64(), place.display()));
    Ok(place)
}

/// Locks the cache for one process at a time. The lock ends when the file is closed, also if the
/// process dies.
fn lock(cache: &Path) -> Result<File, Error> {
    let path = cache.join("lock");
    let file = File::create(&path).map_err(|error| no_room(&path, &error))?;
    if file.try_lock().is_err() {
        say("another process is fetching; waiting for it ...");
        file.lock().map_err(Error::at("locking", &path))?;
    }
    Ok(file)
}

fn no_room(path: &Path, error: &io::Error) -> Error {
    Error::unavailable(format!("the cache directory cannot be written: {}: {error}", path.display()))
}

fn assemble(partial: &Path) -> Result<(), Error> {
    let (qemu, guest) = (partial.join("qemu.packages"), partial.join("guest.packages"));
    say(&format!("fetching QEMU, a kernel and tools (some 140 MB) into {}", partial.display()));
    let apt = archive(partial)?;
    apt.download(apt::BACKPORTS, &QEMU_PACKAGES, &qemu)?;
    apt.download(apt::RELEASE, &GUEST_PACKAGES, &guest)?;
    apt.download_alone(&kernel_packages(&apt, apt::RELEASE, KERNEL_PACKAGE)?, &guest)?;
    say("unpacking ...");
    let mut record = String::new();
    for (packages, tree) in [(&qemu, "qemu"), (&guest, "guest")] {
        record.push_str(&unpack(packages, &partial.join(tree))?);
    }
    let list = partial.join("packages.txt");
    fs::write(&list, record).map_err(Error::at("writing", &list))?;
    let tree = partial.join("guest");
    prepare_kernel(&tree, &tree, partial)?;
    remove(partial, &["qemu.packages", "guest.packages", "apt"])
}

/// Fetches the kernel that `package` stands for in `release`. `tools` is the tree of a kit, with
/// the programs that unpack it.
fn assemble_kernel(tools: &Path, partial: &Path, release: &str, package: &str) -> Result<(), Error> {
    let apt = archive(partial)?;
    let (packages, tree) = (partial.join("packages"), partial.join("tree"));
    apt.download_alone(&kernel_packages(&apt, release, package)?, &packages)?;
    let record = unpack(&packages, &tree)?;
    let list = partial.join("packages.txt");
    fs::write(&list, record).map_err(Error::at("writing", &list))?;
    prepare_kernel(tools, &tree, partial)?;
    let (modules, place) = (tree.join("usr"), partial.join("usr"));
    if place.exists() {
        fs::remove_dir_all(&place).map_err(Error::at("removing", &place))?;
    }
    fs::rename(&modules, &place).map_err(Error::at("renaming", &modules))?;
    remove(partial, &["packages", "tree", "apt"])
}

/// The machine's Debian archive, with its lists of packages fetched.
fn archive(partial: &Path) -> Result<Apt, Error> {
    let mirror = sources::mirror(Path::new("/etc/apt")).ok_or_else(|| {
        Error::unavailable(
            "the package sources in /etc/apt have no Debian archive, which guests are fetched from",
        )
    })?;
    let apt = Apt::prepare(partial.join("apt"), &mirror)?;
    apt.update()?;
    Ok(apt)
}

/// The packages of the kernel that `package` stands for: a single one, or one that depends on two
/// packages with the image and the modules.
fn kernel_packages(apt: &Apt, release: &str, package: &str) -> Result<Vec<String>, Error> {
    let stands_for = apt.needs(release, package)?;
    let image = stands_for.into_iter().find(|name| name.starts_with("linux-image-"));
    let image =
        image.ok_or_else(|| Error::unavailable(format!("{release}'s {package} names no kernel any more")))?;
    let parts = apt.needs(release, &image)?.into_iter();
    let parts = parts.filter(|name| ["linux-binary-", "linux-modules-"].iter().any(|p| name.starts_with(p)));
    Ok([image].into_iter().chain(parts).collect())
}

/// Removes directories that are no longer needed.
fn remove(place: &Path, names: &[&str]) -> Result<(), Error> {
    for name in names {
        let path = place.join(name);
        fs::remove_dir_all(&path).map_err(Error::at("removing", &path))?;
    }
    Ok(())
}

/// Unpacks every package in `packages` into `tree`, which is emptied first. Returns a line with the
/// name and the version of each package.
fn unpack(packages: &Path, tree: &Path) -> Result<String, Error> {
    if tree.exists() {
        fs::remove_dir_all(tree).map_err(Error::at("removing", tree))?;
    }
    let entries = fs::read_dir(packages).map_err(Error::at("reading", packages))?;
    let mut files: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "deb"));
    files.sort();
    let mut record = String::new();
    for file in &files {
        run(Command::new("dpkg-deb").arg("--extract").arg(file).arg(tree))?;
        // File names are NAME_VERSION_ARCHITECTURE.deb, with %3a for colons.
        let name = file.file_stem().unwrap_or_default().to_string_lossy().replace("%3a", ":");
        let mut parts = name.split('_');
        let (package, version) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        record.push_str(&format!("{package} {version}\n"));
    }
    for superfluous in SUPERFLUOUS {
        let path = tree.join(superfluous);
        if path.exists() {
            fs::remove_dir_all(&path).map_err(Error::at("removing", &path))?;
        }
    }
    Ok(record)
}

/// Writes the index of the modules of the kernel in `tree`, and unpacks the kernel's image into
/// `place`. `tools` is a tree with the programs for this.
fn prepare_kernel(tools: &Path, tree: &Path, place: &Path) -> Result<(), Error> {
    let version = kit::kernel_version(tree)?;
    run(kit::loaded(tools, "usr/sbin/depmod").arg("-b").arg(tree.join("usr")).arg(&version))?;
    let images = [format!("boot/vmlinuz-{version}"), format!("{}/{version}/vmlinuz", kit::MODULES)];
    let [first, other] = images.map(|path| tree.join(path));
    let image = if first.exists() { first } else { other };
    let bytes = fs::read(&image).map_err(Error::at("reading", &image))?;
    let payload = kernel::payload(&bytes)
        .map_err(|error| Error::unavailable(format!("the kernel {version} cannot be unpacked: {error}")))?;
    let (packed, unpacked) = (place.join("vmlinux.zst"), place.join(kit::KERNEL));
    fs::write(&packed, payload).map_err(Error::at("writing", &packed))?;
    // Kernels are packed with the largest possible window.
    run(kit::loaded(tools, "usr/bin/zstd")
        .args(["--decompress", "--quiet", "--force", "--long=31", "-o"])
        .args([&unpacked, &packed]))?;
    fs::remove_file(&packed).map_err(Error::at("removing", &packed))
}

/// Runs a command that prints nothing when it succeeds.
pub(crate) fn run(command: &mut Command) -> Result<(), Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(Error::io(format!("running {program}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Io {
        doing: format!("running {program} ({})", output.status),
        source: io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    })
}

/// Prints a line of progress. Tests capture the output of `eprintln`, but the user must see this
/// line at once.
pub(crate) fn say(line: &str) {
    // Without a reader of standard error, the line is not needed.
    let _ = writeln!(io::stderr(), "guest: {line}");
}
