//! `farlane record` with each kind of source, and what the source is given.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Child, ChildStderr, Command, Stdio};

use crate::support::FARLANE;
use crate::support::running::signal;
use serde_json::Value;

/// `farlane record`, killed when dropped.
pub(crate) struct Recorder {
    child: Child,
    errors: BufReader<ChildStderr>,
    /// It has the recording `a.rec`.
    directory: tempfile::TempDir,
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Recorder {
    /// Records these sources, with more options.
    pub(crate) fn start(sources: &[&str], more: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.rec").to_str().unwrap().to_owned();
        let mut command = Command::new(&*FARLANE);
        command.args(["record", "--to", &path]).args(more);
        for source in sources {
            command.args(["--from", source]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        Self { child, errors, directory }
    }

    /// The text behind `words` in the next line on standard error that has them.
    pub(crate) fn said(&mut self, words: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.errors.read_line(&mut line).unwrap(), 0, "the recorder ended");
            if let Some((_, rest)) = line.trim().split_once(words) {
                return rest.to_owned();
            }
        }
    }

    /// Sends datagrams to the source that announces its address next, from one socket.
    pub(crate) fn send(&mut self, datagrams: &[Vec<u8>]) {
        let address = self.said("receiving datagrams at ");
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for datagram in datagrams {
            assert_eq!(socket.send_to(datagram, &address).unwrap(), datagram.len());
        }
    }

    /// Writes to the recorder's standard input, and ends it.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.child.stdin.take().unwrap().write_all(bytes).unwrap();
    }

    /// Asks the recorder to end. Returns its output.
    pub(crate) fn stop(mut self) -> (String, tempfile::TempDir) {
        signal(self.child.id(), "INT");
        self.wait()
    }

    /// Waits for the end of the sources. Returns what the recorder printed.
    pub(crate) fn wait(&mut self) -> (String, tempfile::TempDir) {
        let mut said = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        (said, std::mem::replace(&mut self.directory, tempfile::tempdir().unwrap()))
    }
}

/// The last line of what a recorder printed as JSON.
pub(crate) fn last(said: &str) -> Value {
    serde_json::from_str(said.lines().last().unwrap()).unwrap()
}

/// Records `bytes` from a source of bytes. Returns the folder with the recording `a.rec`.
pub(crate) fn record_bytes(kind: &str, bytes: &[u8]) -> tempfile::TempDir {
    let outside = tempfile::tempdir().unwrap();
    let path = outside.path().join("source").to_str().unwrap().to_owned();
    let mut recorder;
    match kind {
        "file" => {
            std::fs::write(&path, bytes).unwrap();
            recorder = Recorder::start(&[&format!("file:{path}")], &["--chunk", "16k"]);
        }
        "named pipe" => {
            assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
            recorder = Recorder::start(&[&format!("file:{path}")], &["--chunk", "16k"]);
            std::fs::write(&path, bytes).unwrap();
        }
        "standard input" => {
            recorder = Recorder::start(&["-"], &["--chunk", "16k"]);
            recorder.write(bytes);
        }
        "tcp-listen" => {
            recorder = Recorder::start(&["tcp-listen://127.0.0.1:0"], &["--chunk", "16k"]);
            let address = recorder.said("waiting for a connection at ");
            TcpStream::connect(address).unwrap().write_all(bytes).unwrap();
        }
        "tcp-connect" => {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let from = format!("tcp-connect://{}", listener.local_addr().unwrap());
            recorder = Recorder::start(&[&from], &["--chunk", "16k"]);
            listener.accept().unwrap().0.write_all(bytes).unwrap();
        }
        "generate" => {
            let size = bytes.len().to_string();
            recorder = Recorder::start(&["generate:1GB"], &["--chunk", "16k", "--size", &size]);
        }
        _ => unreachable!("{kind}"),
    }
    recorder.wait().1
}

/// RTP (RFC 3550, section 5.1).
pub(crate) fn rtp(number: u64) -> Vec<u8> {
    let [.., high, low] = number.to_be_bytes();
    [&[0x80, 96, high, low, 0, 0, 0, 1, 1, 2, 3, 4][..], &number.to_be_bytes().repeat(60)].concat()
}

/// VITA 49 data with a stream identifier (ANSI/VITA 49.2, section 5.1.1), of 40 bytes.
pub(crate) fn vita49(number: u64) -> Vec<u8> {
    let count = u8::try_from(number % 16).unwrap();
    [&[0x10, count, 0, 10, 0, 0, 0, 42][..], &number.to_be_bytes().repeat(4)].concat()
}

/// A block of a camera with leader, payload and trailer in one (GigE Vision 2.0, section 24.3).
pub(crate) fn gvsp(number: u64) -> Vec<u8> {
    let [.., high, low] = number.to_be_bytes();
    [&[0, 0, high, low, 4, 0, 0, 0][..], &number.to_be_bytes().repeat(50)].concat()
}

/// SPEAD-64-40: heaps of one packet with 96 bytes, numbered in steps of 4.
pub(crate) fn spead(number: u64) -> Vec<u8> {
    let items = [1 << 40 | (number * 4), 2 << 40 | 96, 3 << 40, 4 << 40 | 96];
    let items = items.map(|item: u64| (1 << 63 | item).to_be_bytes()).concat();
    [&[0x53, 4, 3, 5, 0, 0, 0, 4][..], &items, &number.to_be_bytes().repeat(12)].concat()
}

/// A number of 4 bytes at byte 2, lowest first, that grows by 16.
pub(crate) fn field(number: u64) -> Vec<u8> {
    let number = u32::try_from(number * 16).unwrap();
    [&[5; 2][..], &number.to_le_bytes(), &[6; 14]].concat()
}
