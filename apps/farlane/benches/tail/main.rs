//! The tail: the far percentiles of 4 KiB commands over bad links, with the transports' remedies
//! one by one and together. The links are emulated between two network namespaces, so the TCP is
//! this machine's own.
//!
//! `make tail`, or `cargo bench -p farlane --bench tail -- [--json] [--link NAME]...
//! [--row NAME]... [--shallow TIME] [--deep TIME]`
//!
//! The benchmark mostly waits for round trips of 20 ms. Enough samples for a steady p99.9 would
//! take hours, so the number of samples is printed beside each figure. Root is needed, as for
//! `farlane model emulate --between`.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop with a panic")]

mod bed;
mod rows;
mod simulated;
#[path = "../support/mod.rs"]
mod support;

use serde_json::{Value, json};

use bed::{Bed, Namespaces};
use rows::{LINKS, Link, ROWS, Row};
use simulated::simulated;

/// The measurements of each row: workloads in fio's words, and their depths.
const CASES: [(&str, u32); 4] = [("randread", 1), ("randwrite", 1), ("randread", 32), ("randwrite", 32)];

/// The benchmark's options, as its command line gives them.
struct Options {
    json: bool,
    links: Vec<String>,
    rows: Vec<String>,
    /// How long each load runs at a depth of 1.
    shallow: String,
    /// How long each load runs at a greater depth.
    deep: String,
}

impl Options {
    fn read() -> Self {
        let (shallow, deep) = ("60s".to_owned(), "15s".to_owned());
        let mut options = Self { json: false, links: Vec::new(), rows: Vec::new(), shallow, deep };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().unwrap_or_else(|| panic!("{argument} wants a value"));
            match argument.as_str() {
                // Cargo passes this option.
                "--bench" => {}
                "--json" => options.json = true,
                "--link" => options.links.push(value()),
                "--row" => options.rows.push(value()),
                "--shallow" => options.shallow = value(),
                "--deep" => options.deep = value(),
                _ => panic!("{argument}? expected --json, --link, --row, --shallow or --deep"),
            }
        }
        options
    }

    fn wants(chosen: &[String], name: &str) -> bool {
        chosen.is_empty() || chosen.iter().any(|one| one == name)
    }
}

fn main() {
    let options = Options::read();
    if let Err(why) = Namespaces::make() {
        return eprintln!("skipped: no network namespaces can be made here: {why}");
    }
    let mut results = Vec::new();
    for link in LINKS.iter().filter(|link| Options::wants(&options.links, link.name)) {
        for row in ROWS.iter().filter(|row| Options::wants(&options.rows, row.name)) {
            if let Some(flag) = row.missing() {
                eprintln!("skipped: {}: this farlane has no {flag}", row.name);
                continue;
            }
            match measure(link, row, &options) {
                Ok(mut measured) => results.append(&mut measured),
                Err(why) => eprintln!("skipped: {} over {}: {why}", row.name, link.name),
            }
        }
    }
    if options.json {
        results.iter().for_each(|result| println!("{result}"));
    } else {
        print(&results);
    }
}

/// Measures one row over one link.
fn measure(link: &Link, row: &Row, options: &Options) -> Result<Vec<Value>, String> {
    let mut results = Vec::new();
    for (workload, depth) in CASES {
        // Each load has a bed of its own, so that no queue or window holds what another load left.
        let bed = Bed::make(link, row)?;
        let runtime = if depth == 1 { &options.shallow } else { &options.deep };
        let depth_words = depth.to_string();
        let bench = bed
            .near(row, &["--rw", workload, "--bs", "4k", "--iodepth", &depth_words, "--runtime", runtime])?;
        let networks = bed.end();
        let late: Vec<_> = networks.iter().map(|network| network["late_ns"]["p99"].clone()).collect();
        let lost =
            |way: &str| networks.iter().filter_map(|network| network[way]["lost"].as_u64()).sum::<u64>();
        let predicted = simulated(link, row, workload, depth).unwrap_or_else(|why| {
            eprintln!("not simulated: {} over {}: {why}", row.name, link.name);
            Value::Null
        });
        let result = json!({
            "link": link.name, "row": row.name, "rw": workload, "iodepth": depth, "runtime": runtime,
            "simulated": predicted,
            "latency_ns": bench["latency_ns"], "iops": bench["iops"],
            "lost": lost("there") + lost("back"), "late_p99_ns": late,
        });
        eprintln!("{}", line(&result));
        results.push(result);
    }
    Ok(results)
}

/// A latency of a result, in milliseconds; `-` if the result does not have it.
fn ms(result: &Value, key: &str) -> String {
    result["latency_ns"][key].as_f64().map_or_else(|| "-".to_owned(), |ns| format!("{:.1}", ns / 1e6))
}

fn line(result: &Value) -> String {
    let [p50, p99, p999, max] = ["p50", "p99", "p999", "max"].map(|key| ms(result, key));
    format!(
        "{} | {} | {} {} | {p50} | {p99} | {p999} | {max} | n {} lost {} late {}",
        result["link"],
        result["row"],
        result["rw"],
        result["iodepth"],
        result["latency_ns"]["count"],
        result["lost"],
        result["late_p99_ns"]
    )
}

/// Prints a table for each link and workload.
fn print(results: &[Value]) {
    for link in &LINKS {
        for (workload, depth) in CASES {
            let rows: Vec<_> = results
                .iter()
                .filter(|result| {
                    result["link"] == link.name && result["rw"] == workload && result["iodepth"] == depth
                })
                .collect();
            if rows.is_empty() {
                continue;
            }
            println!("\n{}; {workload}, depth {depth}; ms\n", link.title);
            println!(
                "| | p50 | p99 | p99.9 | max | a second | commands | frames lost | simulated p50 | p99 | p99.9 | max |"
            );
            println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
            for result in rows {
                let [p50, p99, p999, max] = ["p50", "p99", "p999", "max"].map(|key| ms(result, key));
                let name = result["row"].as_str().unwrap();
                let predicted = ["p50_ns", "p99_ns", "p999_ns", "max_ns"].map(|key| {
                    result["simulated"][key]
                        .as_f64()
                        .map_or_else(String::new, |ns| format!("{:.1}", ns / 1e6))
                });
                println!(
                    "| {name} | {p50} | {p99} | {p999} | {max} | {:.0} | {} | {} | {} |",
                    result["iops"].as_f64().unwrap_or(0.0),
                    result["latency_ns"]["count"],
                    result["lost"],
                    predicted.join(" | ")
                );
            }
        }
    }
}
