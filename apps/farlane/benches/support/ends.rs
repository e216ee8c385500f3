//! A far end, an emulated network in front of it, and their users: processes of the program that is
//! measured.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::farlane;

/// A process that listens until this is dropped.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) process: Child,
    /// Address that the process listens on.
    pub(crate) address: String,
}

impl Listening {
    fn start(arguments: &[&str]) -> Self {
        let mut process = farlane()
            .args(arguments)
            .args(["--json", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{arguments:?}: {line}"));
        let address = said["listening"].as_str().unwrap().to_owned();
        // Drain what the process prints further, so that it is not held back.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Self { process, address }
    }

    /// Starts a far end with these options.
    pub(crate) fn export(options: &[&str]) -> Self {
        Self::start(&[&["export"], options].concat())
    }

    /// The far end's URL, without a key.
    pub(crate) fn url(&self) -> String {
        format!("tcp://{}", self.address)
    }

    /// Starts the network of the file `link` in front of `address`.
    pub(crate) fn emulate(link: &Path, address: &str) -> Self {
        Self::start(&["model", "emulate", "--connect", address, "--link", link.to_str().unwrap()])
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A far end, perhaps behind an emulated network.
#[derive(Debug)]
pub(crate) struct Far {
    network: Option<Listening>,
    far: Listening,
}

impl Far {
    /// A far end behind the network of the file `link`, which has all processors to itself.
    pub(crate) fn over(link: &Path, ram: &str) -> Self {
        let far = Listening::export(&["--ram", ram]);
        Self { network: Some(Listening::emulate(link, &far.address)), far }
    }

    /// A far end over loopback, with default options.
    pub(crate) fn behind_nothing(ram: &str) -> Self {
        Self { network: None, far: Listening::export(&["--ram", ram]) }
    }

    /// A far end over loopback, with a processor of its own.
    pub(crate) fn near_by(ram: &str) -> Self {
        Self { network: None, far: Listening::export(&["--ram", ram, "--spin", "10s", "--cpu", "0"]) }
    }

    pub(crate) fn url(&self) -> String {
        format!("tcp://{}", self.network.as_ref().unwrap_or(&self.far).address)
    }

    /// The output of a subcommand that is run with `--json` on the far end, with `arguments`.
    pub(crate) fn ask(&self, subcommand: &str, arguments: &[&str]) -> Value {
        let mut command = farlane();
        command.args([subcommand, &self.url(), "--json"]).args(arguments);
        if self.network.is_none() {
            command.args(["--spin", "10s", "--cpu", "1"]);
        }
        let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().unwrap();
        assert!(output.status.success(), "{command:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// The direction of a raw transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    There,
    Back,
}

/// How long `bytes` take over a plain connection through the network of the file `link`, from the
/// first byte to the last.
pub(crate) fn raw(link: &Path, bytes: u64, way: Way) -> Duration {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let network = Listening::emulate(link, &listener.local_addr().unwrap().to_string());
    let other = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        match way {
            Way::There => take(&stream),
            Way::Back => give(&stream, bytes),
        }
    });
    let stream = TcpStream::connect(&network.address).unwrap();
    let here = match way {
        Way::There => give(&stream, bytes),
        Way::Back => take(&stream),
    };
    // The other end may be waiting for this stream to end.
    drop(stream);
    let there = other.join().unwrap();
    let (begun, ended) = if way == Way::There { (here, there) } else { (there, here) };
    ended - begun
}

/// Sends `bytes` bytes. Returns when the first was sent.
fn give(mut stream: &TcpStream, bytes: u64) -> Instant {
    let (began, block) = (Instant::now(), vec![7; 128 << 10]);
    let mut left = bytes;
    while left > 0 {
        let part = usize::try_from(left).unwrap().min(block.len());
        stream.write_all(&block[..part]).unwrap();
        left -= part as u64;
    }
    stream.shutdown(Shutdown::Write).unwrap();
    // Wait until the other end has everything: a network that loses its connection loses the bytes
    // under way.
    let _ = stream.read(&mut [0]);
    began
}

/// Receives until the stream ends. Returns when it did.
fn take(mut stream: &TcpStream) -> Instant {
    let mut block = vec![0; 128 << 10];
    while stream.read(&mut block).unwrap() > 0 {}
    Instant::now()
}
