//! Builds a kernel with features that no kernel of Debian's has: iommufd, and RDMA over TCP (siw).
//! `CONFIG_IOMMUFD` and `CONFIG_RDMA_SIW` are off in trixie's 6.12 and in backports' 7.2 and 7.3,
//! in every flavour. The source is trixie's; the configuration is as small as the tests allow.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use super::{apt, archive, incomplete, prepared, remove, run, say};
use crate::Error;
use crate::kit::{self, Kernel};

/// The name of the recipe, and of its directory in the cache.
const RECIPE: &str = "built-kernel-2";
/// The metapackage of the source of the release's kernel.
const SOURCE_PACKAGE: &str = "linux-source";
/// Options that are added to the smallest configuration.
const CONFIGURATION: &str = include_str!("built.config");
/// Programs that a build needs; [`PACKAGES`] installs them on Debian.
const PROGRAMS: [&str; 8] = ["gcc", "make", "flex", "bison", "bc", "perl", "tar", "xz"];
const PACKAGES: &str = "apt-get install gcc make flex bison bc perl tar xz-utils libelf-dev";
/// A part of the source that our kernel does not need: a fifth of it.
const SUPERFLUOUS: &str = "*/drivers/gpu/drm/amd/include/*";
/// Number of lines of a failed build that are passed on.
const COMPLAINT_LINES_MAX: usize = 20;

/// The kernel, if it has been built on this machine.
///
/// # Errors
/// [`Error::Unavailable`] when the kernel has not been built.
pub(crate) fn built_kernel() -> Result<Kernel, Error> {
    let place = kit::cache_directory()?.join(RECIPE);
    Kernel::open(&place, &place)?.ok_or_else(|| {
        let help = "`make kernel` builds one, in minutes";
        Error::unavailable(format!(
            "no kernel of Debian's has iommufd or siw, and none was built here; {help}"
        ))
    })
}

/// Builds the kernel if that has not been done: 150 MB to download, some 2 GB of room meanwhile,
/// minutes.
///
/// # Errors
/// [`Error::Unavailable`] when something is missing for the build, or the build fails.
pub(crate) fn build_kernel() -> Result<Kernel, Error> {
    let place = prepared(RECIPE, build)?;
    Kernel::open(&place, &place)?.ok_or_else(|| incomplete(&place))
}

fn build(partial: &Path) -> Result<(), Error> {
    let missing = PROGRAMS.iter().find(|program| Command::new(program).arg("--version").output().is_err());
    if let Some(program) = missing {
        return Err(Error::unavailable(format!("{program} is needed to build a kernel: {PACKAGES}")));
    }
    let (packages, tree, source) = (partial.join("packages"), partial.join("tree"), partial.join("source"));
    let apt = archive(partial)?;
    let package = apt.needs(apt::RELEASE, SOURCE_PACKAGE)?.swap_remove(0);
    apt.download_alone(std::slice::from_ref(&package), &packages)?;
    let record = super::unpack(&packages, &tree)?;
    say("unpacking the source ...");
    if source.exists() {
        fs::remove_dir_all(&source).map_err(Error::at("removing", &source))?;
    }
    fs::create_dir(&source).map_err(Error::at("creating", &source))?;
    let archive = tree.join("usr/src").join(format!("{package}.tar.xz"));
    let unpack = ["--extract", "--strip-components=1", "--exclude", SUPERFLUOUS, "--file"];
    run(Command::new("tar").args(unpack).arg(&archive).arg("--directory").arg(&source))?;
    let version = compile(&source)?;
    let image = partial.join(kit::KERNEL);
    run(Command::new("strip").arg("--strip-debug").arg("-o").arg(&image).arg(source.join("vmlinux")))?;
    let modules = partial.join(kit::MODULES).join(version);
    fs::create_dir_all(&modules).map_err(Error::at("creating", &modules))?;
    let list = source.join("modules.builtin");
    fs::copy(&list, modules.join("modules.builtin")).map_err(Error::at("copying", &list))?;
    for (path, text) in [(modules.join("modules.dep"), ""), (partial.join("packages.txt"), &record)] {
        fs::write(&path, text).map_err(Error::at("writing", &path))?;
    }
    remove(partial, &["packages", "tree", "source", "apt"])
}

/// Builds the kernel in `source`, and returns its release.
fn compile(source: &Path) -> Result<String, Error> {
    let fragment = source.join("farlane.config");
    fs::write(&fragment, CONFIGURATION).map_err(Error::at("writing", &fragment))?;
    make(source, &["tinyconfig"])?;
    let merge = ["scripts/kconfig/merge_config.sh", "-m", ".config", "farlane.config"];
    run(Command::new("sh").args(merge).current_dir(source))?;
    make(source, &["olddefconfig"])?;
    let path = source.join(".config");
    let config = fs::read_to_string(&path).map_err(Error::at("reading", &path))?;
    let wanted = CONFIGURATION.lines().filter(|line| line.ends_with("=y"));
    let lost: Vec<&str> = wanted.filter(|line| !config.lines().any(|has| has == *line)).collect();
    if !lost.is_empty() {
        return Err(Error::unavailable(format!("this kernel can't have {}", lost.join(", "))));
    }
    say("compiling the kernel ...");
    let jobs = format!("-j{}", thread::available_parallelism().map_or(1, usize::from));
    make(source, &[&jobs, "vmlinux"])?;
    let output = Command::new("make").args(["-s", "kernelrelease"]).current_dir(source).output();
    let output = output.map_err(Error::at("running make in", source))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn make(source: &Path, arguments: &[&str]) -> Result<(), Error> {
    let output = Command::new("make").args(arguments).current_dir(source).output();
    let output = output.map_err(Error::at("running make in", source))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said.lines().take(COMPLAINT_LINES_MAX).collect();
    Err(Error::unavailable(format!("make {} failed:\n{}", arguments.join(" "), lines.join("\n"))))
}
