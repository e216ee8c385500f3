//! Compiles the protocol of CSI, without `protoc`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto/csi.proto");
    let files = protox::compile(["proto/csi.proto"], ["proto"])?;
    // The clients are for the tests.
    tonic_prost_build::configure().emit_rerun_if_changed(false).compile_fds(files)?;
    Ok(())
}
