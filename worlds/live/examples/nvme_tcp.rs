//! A program that uses an NVMe/TCP subsystem. It reads the first block of the first namespace
//! twice, and prints how the block begins.
//!
//! ```text
//! cargo run --package farlane-live --example nvme_tcp 127.0.0.1:4420 nqn.2014-08.org.example:disk
//! ```

use std::error::Error;

use engine::Nanos;
use live::drivers::fabrics::initiator::{Attachment, DigestUse, Options};
use nvme_fabrics::host::{self, multipath};
use nvme_fabrics::wire::HostId;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(name)) = (arguments.next(), arguments.next()) else {
        return Err("give an address and a subsystem's NQN".into());
    };
    let host = "nqn.2014-08.org.example:embedder".parse()?;
    let options = Options {
        association: host::Config::new(name.parse()?, host, HostId(*b"an example's id.")),
        multipath: multipath::Config::default(),
        header_digest: DigestUse::Preferred,
        data_digest: DigestUse::Preferred,
        spin: Nanos::from_micros(100),
    };
    // One path, with all addresses of its name. Several paths would be several such lists.
    let mut subsystem = Attachment::connect(vec![live::carrier::tcp::resolve(&address)?], &options)?;
    subsystem.wait_ready(Nanos::from_secs(10))?;
    let identity = subsystem.identity().ok_or("the controller has told nothing")?;
    let namespace = *identity.namespaces.first().ok_or("the subsystem has no namespace")?;
    println!("namespace {}: {} blocks of {} B", namespace.id, namespace.blocks, namespace.block_bytes);
    for _ in 0..2 {
        let block = subsystem.read(namespace.id, 0, 1)?;
        println!("block 0 begins with {:02x?}", &block[..block.len().min(16)]);
    }
    subsystem.close()?;
    Ok(())
}
