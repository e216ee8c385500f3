//! apt with a state of its own: lists, cache and sources are below one directory. It does not touch
//! the machine's state, and needs no privilege. Packages are downloaded and never installed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::say;
use super::sources::Mirror;
use crate::Error;

/// The Debian release of guests, regardless of the machine's release.
pub(super) const RELEASE: &str = "trixie";
/// The suite with QEMU 11: the release's own QEMU lacks `vfio-user-pci`.
pub(super) const BACKPORTS: &str = "trixie-backports";

/// The archive's keys on a Debian machine, which sign later releases, too.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// How often a running download reports its progress.
const PROGRESS: Duration = Duration::from_secs(5);
/// Number of lines of apt's complaint that are passed on.
const COMPLAINT_LINES_MAX: usize = 8;

/// An apt state of our own.
pub(super) struct Apt {
    root: PathBuf,
}

impl Apt {
    /// Prepares the state below `root`. An existing state is used again, with its downloads.
    pub(super) fn prepare(root: PathBuf, mirror: &Mirror) -> Result<Self, Error> {
        for directory in ["lists/partial", "etc/preferences.d", "etc/apt.conf.d", "cache", "log"] {
            let path = root.join(directory);
            fs::create_dir_all(&path).map_err(Error::at("creating", &path))?;
        }
        let apt = Self { root };
        let keyring = Some(PathBuf::from(KEYRING)).filter(|path| path.exists()).or(mirror.keyring.clone());
        let signed = keyring.map_or(String::new(), |path| format!("[signed-by={}] ", path.display()));
        let sources: String =
            [RELEASE, BACKPORTS].map(|suite| format!("deb {signed}{} {suite} main\n", mirror.uri)).concat();
        apt.write("sources.list", &sources)?;
        apt.write("status", "")?;
        // The machine's settings for reaching archives (proxies, time-outs) apply to us as well.
        // Its actions after an update and its further indexes do not.
        let machine = Command::new("apt-config").args(["dump", "Acquire"]).output();
        let machine = machine.map_err(|error| Error::unavailable(format!("apt-config: {error}")))?;
        let machine = String::from_utf8_lossy(&machine.stdout).into_owned();
        let acquire: String = machine
            .lines()
            .filter(|line| line.starts_with("Acquire::") && !line.starts_with("Acquire::IndexTargets"))
            .flat_map(|line| [line, "\n"])
            .collect();
        apt.write("apt.conf", &(acquire + &apt.settings()))?;
        Ok(apt)
    }

    fn settings(&self) -> String {
        let root = self.root.display();
        format!(
            "Dir \"{root}\";\nDir::Etc \"{root}/etc\";\nDir::Etc::sourcelist \"{root}/sources.list\";\n\
            Dir::State \"{root}\";\nDir::State::lists \"{root}/lists\";\nDir::State::status \"{root}/status\";\n\
            Dir::Cache \"{root}/cache\";\nDir::Log \"{root}/log\";\n\
            APT::Architecture \"amd64\";\nAPT::Architectures {{ \"amd64\"; }};\nAPT::Install-Recommends \"false\";\n\
            APT::Sandbox::User \"\";\nAcquire::Languages \"none\";\nAcquire::Retries \"1\";\n\
            Acquire::http::Timeout \"20\";\n"
        )
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        let path = self.root.join(name);
        fs::write(&path, text).map_err(Error::at("writing", &path))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", self.root.join("apt.conf")).env("LC_ALL", "C").stdin(Stdio::null());
        command
    }

    /// Fetches the lists of packages.
    pub(super) fn update(&self) -> Result<(), Error> {
        let mut command = self.command("apt-get");
        // Without this option, apt only warns of an unreachable archive.
        command.args(["update", "-o", "APT::Update::Error-Mode=any"]);
        self.run(command, "fetching the lists of packages", &self.root.join("lists"))
    }

    /// Downloads `packages` and all that they depend on into `directory`, preferring `release`.
    /// Removes versions of an earlier attempt that the archive has replaced since.
    pub(super) fn download(&self, release: &str, packages: &[&str], directory: &Path) -> Result<(), Error> {
        let partial = directory.join("partial");
        fs::create_dir_all(&partial).map_err(Error::at("creating", &partial))?;
        let mut command = self.command("apt-get");
        command
            .args(["install", "--yes", "--download-only", "--target-release", release, "-o"])
            .arg(format!("Dir::Cache::archives={}", directory.display()))
            .args(packages);
        self.run(command, &format!("downloading {}", packages.join(", ")), directory)?;
        let mut tidy = self.command("apt-get");
        tidy.args(["autoclean", "-o"]).arg(format!("Dir::Cache::archives={}", directory.display()));
        super::run(&mut tidy)
    }

    /// Downloads packages into `directory`, without their dependencies.
    pub(super) fn download_alone(&self, packages: &[String], directory: &Path) -> Result<(), Error> {
        fs::create_dir_all(directory).map_err(Error::at("creating", directory))?;
        let mut command = self.command("apt-get");
        command.arg("download").args(packages).current_dir(directory);
        self.run(command, &format!("downloading {}", packages.join(", ")), directory)
    }

    /// The dependencies of `package` in `release`, without versions: the packages that a
    /// metapackage stands for today.
    pub(super) fn needs(&self, release: &str, package: &str) -> Result<Vec<String>, Error> {
        let mut command = self.command("apt-cache");
        command.args([
            "-o",
            &format!("APT::Default-Release={release}"),
            "show",
            "--no-all-versions",
            package,
        ]);
        let output = command.output();
        let output = output.map_err(|error| Error::unavailable(format!("apt-cache: {error}")))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let depends = text.lines().find_map(|line| line.strip_prefix("Depends: "));
        let names = depends.into_iter().flat_map(|list| list.split([',', '|']));
        let names: Vec<String> =
            names.filter_map(|name| name.split_whitespace().next()).map(str::to_owned).collect();
        if names.is_empty() {
            return Err(Error::unavailable(format!("{release} has no package {package} any more")));
        }
        Ok(names)
    }

    /// Runs a command to its end, reports the growth of `growing` in bytes, and turns a failure
    /// into an error with its reason.
    fn run(&self, mut command: Command, doing: &str, growing: &Path) -> Result<(), Error> {
        say(&format!("{doing} ..."));
        let log = self.root.join("output");
        let output = File::create(&log).map_err(Error::at("creating", &log))?;
        let errors = output.try_clone().map_err(Error::at("opening", &log))?;
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command.stdout(output).stderr(errors).spawn().map_err(|error| {
            Error::unavailable(format!("{program}: {error} (apt is needed to fetch a guest)"))
        })?;
        let mut told = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().map_err(Error::io(format!("waiting for {program}")))? {
                break status;
            }
            thread::sleep(Duration::from_millis(50));
            if told.elapsed() >= PROGRESS {
                told = Instant::now();
                say(&format!("{doing}: {} MB so far", size_of(growing) / 1_000_000));
            }
        };
        if status.success() {
            return Ok(());
        }
        let text = fs::read_to_string(&log).unwrap_or_default();
        let complaint: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("E:") || line.starts_with("Err:") || line.starts_with("W:"))
            .take(COMPLAINT_LINES_MAX)
            .collect();
        Err(Error::unavailable(format!("{doing} failed ({status}): {}", complaint.join("; "))))
    }
}

/// Size in bytes of all files in a directory and below.
fn size_of(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    entries
        .filter_map(|entry| {
            let metadata = entry.metadata().ok()?;
            Some(if metadata.is_dir() { size_of(&entry.path()) } else { metadata.len() })
        })
        .sum()
}
