//! QEMU as a child process that does not outlive its owner.

use std::io;
use std::process::{ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Interval between two checks whether the child has ended.
const POLL: Duration = Duration::from_millis(10);

/// A running child, which is killed and waited for on drop.
#[derive(Debug)]
pub(crate) struct Process {
    kill: Option<Sender<()>>,
    warden: Option<JoinHandle<()>>,
    ended: Receiver<String>,
    status: Option<String>,
    /// The child's process id.
    pub(crate) id: u32,
}

/// The child's pipes that the command has requested.
pub(crate) struct Pipes {
    pub(crate) stdout: Option<ChildStdout>,
    pub(crate) stderr: Option<ChildStderr>,
}

impl Process {
    /// Starts `command` from a thread that stays until the child has ended. QEMU ends with the
    /// *thread* that started it, but a test's thread may hand its guest to another thread.
    pub(crate) fn start(mut command: Command) -> io::Result<(Self, Pipes)> {
        let (kill, killed) = mpsc::channel::<()>();
        let (started, start) = mpsc::channel();
        let (tell_ended, ended) = mpsc::channel();
        let warden = thread::spawn(move || {
            let mut child = match command.spawn() {
                Ok(child) => child,
                Err(error) => {
                    let _ = started.send(Err(error));
                    return;
                }
            };
            let pipes = Pipes { stdout: child.stdout.take(), stderr: child.stderr.take() };
            // If the receiver is gone, `kill` was dropped as well.
            let _ = started.send(Ok((child.id(), pipes)));
            let status = loop {
                match child.try_wait() {
                    Ok(Some(status)) => break Ok(status),
                    Ok(None) => {}
                    Err(error) => break Err(error),
                }
                if !matches!(killed.recv_timeout(POLL), Err(RecvTimeoutError::Timeout)) {
                    // The child may have ended at this moment.
                    let _ = child.kill();
                    break child.wait();
                }
            };
            let _ = tell_ended.send(describe(status));
        });
        let (id, pipes) = match start.recv() {
            Ok(result) => result?,
            Err(_) => return Err(io::Error::other("the thread that starts processes has died")),
        };
        Ok((Self { kill: Some(kill), warden: Some(warden), ended, status: None, id }, pipes))
    }

    /// Whether the child has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.wait(Duration::ZERO).is_some()
    }

    /// Waits up to `limit` for the child's end, and returns how the child ended.
    pub(crate) fn wait(&mut self, limit: Duration) -> Option<&str> {
        if self.status.is_none() {
            self.status = self.ended.recv_timeout(limit).ok();
        }
        self.status.as_deref()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.kill.take());
        if let Some(warden) = self.warden.take() {
            // A warden that panicked has ended, so there is nothing to wait for.
            let _ = warden.join();
        }
    }
}

fn describe(status: io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => status.to_string(),
        Err(error) => format!("its status could not be read: {error}"),
    }
}

/// Gives a command an empty input, and pipes for everything that it writes.
pub(crate) fn captured(command: &mut Command) {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
}
