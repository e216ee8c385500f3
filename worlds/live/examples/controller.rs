//! A program that uses the controller at a URL, for example of an NVMe/TCP subsystem. It reads the
//! first block of the first namespace twice, and prints how the block begins.
//!
//! ```text
//! cargo run --package farlane-live --example controller \
//!     nvme-tcp://127.0.0.1:4420/nqn.2014-08.org.example:disk
//! ```

use std::error::Error;

use engine::Nanos;
use live::client::{Controller, Options, Url};

fn main() -> Result<(), Box<dyn Error>> {
    let url: Url = std::env::args().nth(1).ok_or("give a URL")?.parse()?;
    let options = Options { spin: Nanos::from_micros(100), ..Options::new("example") };
    let mut controller = Controller::open(&url.resolve()?, &options)?;
    controller.wait_ready(Nanos::from_secs(10))?;
    let identity = controller.identity().ok_or("the controller has not reported its identity")?;
    let namespace = *identity.namespaces.first().ok_or("the controller has no namespace")?;
    println!("namespace {}: {} blocks of {} B", namespace.id, namespace.blocks, namespace.block_bytes);
    for _ in 0..2 {
        let block = controller.read(namespace.id, 0, 1)?;
        println!("block 0 begins with {:02x?}", &block[..block.len().min(16)]);
    }
    controller.close()?;
    Ok(())
}
