//! Programs for file systems: run without a shell, for a limited time, with limited words.

use std::fs;
use std::io::{self, Read as _, Seek as _};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::kernel::MachineError;

/// Where programs are looked for.
const PATH: &str = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin";
/// The most bytes of a program's words that are kept.
const SAID_MAX: u64 = 4096;
/// How often the end of a program is looked for.
const EVERY: Duration = Duration::from_millis(20);

/// How a program has ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// Its status.
    pub(super) status: ExitStatus,
    /// Its output and its errors.
    pub(super) said: String,
}

impl Ended {
    /// The error that the program's end is.
    pub(super) fn failed(&self, what: &str) -> MachineError {
        let said = self.said.trim().replace('\n', "; ");
        MachineError::Program { what: what.to_owned(), said: format!("{}: {said}", self.status) }
    }
}

/// Runs a program until it ends, or for so long.
pub(super) fn run(program: &str, arguments: &[&str], limit: Duration) -> Result<Ended, MachineError> {
    let what = format!("running {program}");
    let tried = || MachineError::at(what.clone());
    // A file takes any number of words without stopping the program.
    let file = unnamed().map_err(tried())?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("PATH", PATH).env("LC_ALL", "C").stdin(Stdio::null());
    command.stdout(file.try_clone().map_err(tried())?).stderr(file.try_clone().map_err(tried())?);
    let mut child = command.spawn().map_err(|error| {
        let is_missing = error.kind() == io::ErrorKind::NotFound;
        let hint = if is_missing { ": install e2fsprogs, xfsprogs and util-linux" } else { "" };
        MachineError::Kernel { what: format!("{what}{hint}"), source: error }
    })?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(tried())? {
            break status;
        }
        if begun.elapsed() > limit {
            let _ = child.kill();
            let _ = child.wait();
            return Err(MachineError::Program { what, said: format!("it has not ended within {limit:?}") });
        }
        thread::sleep(EVERY);
    };
    Ok(Ended { status, said: last_words(file).map_err(tried())? })
}

/// A file without a name.
fn unnamed() -> io::Result<fs::File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    Ok(rustix::fs::memfd_create("farlane-csi", flags)?.into())
}

fn last_words(mut file: fs::File) -> io::Result<String> {
    let length = file.metadata()?.len();
    file.seek(io::SeekFrom::Start(length.saturating_sub(SAID_MAX)))?;
    let mut said = Vec::new();
    file.take(SAID_MAX).read_to_end(&mut said)?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn programs_end_fail_hang_and_are_missing() {
        let said = run("echo", &["a b", "$HOME"], LIMIT).unwrap();
        assert!(said.status.success());
        assert_eq!(said.said, "a b $HOME\n");
        let failed = run("ls", &["/nonexistent"], LIMIT).unwrap().failed("listing").to_string();
        assert!(
            failed.starts_with("listing: exit status: 2: ") && failed.contains("/nonexistent"),
            "{failed}"
        );
        let hung = run("sleep", &["100"], Duration::from_millis(100)).unwrap_err().to_string();
        assert!(hung.contains("sleep") && hung.contains("has not ended within 100ms"), "{hung}");
        let missing = run("mkfs.nothing", &[], LIMIT).unwrap_err().to_string();
        assert!(missing.contains("mkfs.nothing") && missing.contains("install"), "{missing}");
    }

    #[test]
    fn only_the_last_words_are_kept() {
        let said = run("seq", &["1", "100000"], LIMIT).unwrap().said;
        assert!(said.len() <= 4096 && said.ends_with("100000\n"), "{said}");
    }
}
