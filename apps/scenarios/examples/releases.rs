//! Writes the page *NVMe over 5G, release by release* to standard output.
//!
//! `cargo run --profile demo -p farlane-scenarios --example releases`; four numbers behind `--`
//! replace the replications, register reads, commands and MiB of [`Effort::FULL`].

#![allow(missing_docs, reason = "a program that is run by hand")]

use scenarios::releases::{Effort, page};

fn main() -> Result<(), String> {
    let numbers =
        std::env::args().skip(1).map(|word| word.parse::<u64>().map_err(|error| format!("{word}: {error}")));
    let effort = match numbers.collect::<Result<Vec<_>, _>>()?[..] {
        [] => Effort::FULL,
        [replications, registers, commands, file_mib] => {
            Effort { replications, registers, commands, file_mib }
        }
        _ => return Err("expected replications, register reads, commands and MiB, or nothing".to_owned()),
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    print!("{}", page(effort, threads)?);
    Ok(())
}
