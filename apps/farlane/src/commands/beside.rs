//! Words that start a program of their own, which is beside this one: `farlane fleet` and `farlane
//! gateware`.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::error::Error;

/// A word, the program that it starts, and the description of that program where it is missing.
pub(crate) struct Beside {
    word: &'static str,
    program: &'static str,
    missing: &'static str,
}

const BESIDE: [Beside; 2] = [
    Beside {
        word: crate::args::overview::FLEET,
        program: "farlane-fleet",
        missing: "the program farlane-fleet, which belongs beside farlane (cargo build --package farlane-fleetd)",
    },
    // Circuits are for engineers who have the sources, so `--help` does not list the word.
    Beside {
        word: "gateware",
        program: "farlane-gateware",
        missing: "the program farlane-gateware, which belongs beside farlane (cargo build --package farlane-gateware)",
    },
];

impl Beside {
    /// The program that `word` starts, if it starts any.
    pub(crate) fn of(word: &OsStr) -> Option<&'static Self> {
        BESIDE.iter().find(|beside| word == beside.word)
    }

    /// Becomes the program, with the words behind its own. Returns if there is no such program.
    pub(crate) fn run(&self, words: &[OsString]) -> Error {
        let beside = std::env::current_exe().ok().map(|this| this.with_file_name(self.program));
        let path = beside.filter(|path| path.exists()).unwrap_or_else(|| PathBuf::from(self.program));
        let error = Command::new(&path).args(words).exec();
        Error::Child { what: self.missing, error }
    }
}
