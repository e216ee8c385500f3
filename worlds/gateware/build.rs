//! Compiles the circuits of `gateware/rtl`: Verilator turns each model into C++, and the C++
//! compiler turns that and the model's shim into a library.
//!
//! The environment's FARLANE_MUTANT names a define of the sources: a fault that tests must find.
//!
//! Without Verilator the crate is empty, and a warning says so. Then the rest of the workspace
//! builds all the same.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The circuits: folder, top module and parameters. `gateware/rtl/FOLDER/TOP.f` lists the sources,
/// packages first, and `shim/TOP.cpp` is the model's shim.
const MODELS: [(&str, &str, &[&str]); 4] = [
    ("common", "crc32c_beat", &[]),
    ("niq", "niq", &[]),
    ("streamer", "streamer", &[]),
    // Every payload that a host or a device may set, and as much in flight as makes sense of it.
    (
        "tunnel",
        "tunnel_port",
        &[
            "-GMaxPayload=4096",
            "-GReplayFrames=256",
            "-GReplayBeats=16384",
            "-GMainItems=512",
            "-GMainBeats=8192",
            "-GSideItems=64",
            "-GSideBeats=1024",
        ],
    ),
];

fn main() {
    println!("cargo:rustc-check-cfg=cfg(verilated)");
    println!("cargo:rerun-if-env-changed=VERILATOR");
    println!("cargo:rerun-if-env-changed=FARLANE_MUTANT");
    let verilator = env::var("VERILATOR").unwrap_or_else(|_| "verilator".to_owned());
    let Some(root) = verilator_root(&verilator) else {
        println!(
            "cargo:warning=no circuits: the program verilator was not found; install Debian's package verilator"
        );
        return;
    };
    println!("cargo:rustc-cfg=verilated");
    let rtl = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../gateware/rtl");
    println!("cargo:rerun-if-changed={}", rtl.display());
    println!("cargo:rerun-if-changed=shim");
    let out = PathBuf::from(env::var("OUT_DIR").expect("Cargo names the folder for what a build makes"));
    for (place, top, parameters) in MODELS {
        let folder = out.join(top);
        verilate(&verilator, &rtl.join(place).join(format!("{top}.f")), top, parameters, &folder);
        let mut files = written(&folder);
        files.push(PathBuf::from(format!("shim/{top}.cpp")));
        compile(compiler(&root).include(&folder), top, &files, &out);
    }
    // Behind the models, which use it.
    let files = ["verilated.cpp", "verilated_threads.cpp"].map(|file| root.join("include").join(file));
    compile(&mut compiler(&root), "verilated", &files, &out);
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=stdc++");
}

/// Has `files` compiled into a library for the circuit `top`, unless the library in `out` is of the
/// same files: a change of one circuit compiles none but that one.
fn compile(build: &mut cc::Build, top: &str, files: &[PathBuf], out: &Path) {
    let (name, mark) = (format!("circuit_{top}"), out.join(format!("{top}.mark")));
    let mut hasher = DefaultHasher::new();
    let headers = fs::read_dir(out.join(top)).into_iter().flatten().flatten().map(|entry| entry.path());
    let headers = headers.filter(|path| path.extension().is_some_and(|extension| extension == "h"));
    let shared = ["shim/shim.h", "build.rs"].map(PathBuf::from);
    let mut all: Vec<PathBuf> = headers.chain(files.iter().cloned()).chain(shared).collect();
    all.sort();
    for file in all {
        (&file, fs::read(&file).unwrap_or_default()).hash(&mut hasher);
    }
    let now = hasher.finish().to_string();
    let library = out.join(format!("lib{name}.a"));
    if library.exists() && fs::read_to_string(&mark).is_ok_and(|before| before == now) {
        println!("cargo:rustc-link-lib=static={name}");
        return;
    }
    build.files(files).cpp_link_stdlib(None).compile(&name);
    fs::write(mark, now).expect("Cargo's folder can be written to");
}

/// The folder that has Verilator's own headers, if the program is there.
fn verilator_root(verilator: &str) -> Option<PathBuf> {
    let output = Command::new(verilator).args(["--getenv", "VERILATOR_ROOT"]).output().ok()?;
    let root = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(root.trim()))
}

/// The C++ compiler, with what all models share.
fn compiler(root: &Path) -> cc::Build {
    let include = root.join("include");
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").opt_level(2).debug(false).warnings(false);
    build.include(&include).include(include.join("vltstd"));
    for switch in
        ["VM_COVERAGE", "VM_SC", "VM_TRACE", "VM_TRACE_FST", "VM_TRACE_VCD", "VL_IGNORE_UNKNOWN_ARCH"]
    {
        build.define(switch, "0");
    }
    build
}

/// Has Verilator write the C++ of the circuit `top`, whose sources are in `list`, into `folder`.
/// Warnings are errors.
fn verilate(verilator: &str, list: &Path, top: &str, parameters: &[&str], folder: &Path) {
    // Files of an earlier run, which had other parts, would be compiled as well.
    let _ = fs::remove_dir_all(folder);
    let status = Command::new(verilator)
        .args(["--cc", "-Wall", "-O3", "--x-assign", "fast", "--x-initial", "fast", "--assert"])
        .args(["--top-module", top, "--prefix", &format!("V{top}"), "--Mdir"])
        .arg(folder)
        .args(parameters)
        .args(env::var("FARLANE_MUTANT").ok().map(|mutant| format!("-D{mutant}")))
        .arg("-F")
        .arg(list)
        .status();
    let passed = status.as_ref().is_ok_and(std::process::ExitStatus::success);
    assert!(passed, "{verilator} refuses the circuit {top}: {status:?}");
}

/// The C++ files in `folder`, in an order that is always the same.
fn written(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("Verilator has made the folder");
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "cpp"));
    files.sort();
    files
}
