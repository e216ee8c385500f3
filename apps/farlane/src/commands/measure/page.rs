//! The report as a page in one file.

use super::filtered;
use super::picture;
use super::report::{Device, Report, Sampled, What, size};

const STYLE: &str = "
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
thead th { border-bottom-width: 2px; }
.bar { display: inline-block; height: .8em; background: #0072b2; vertical-align: baseline; }
svg { max-width: 100%; height: auto; background: #fff; border-radius: .4rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; }
dt { opacity: .7; } dd { margin: 0; overflow-wrap: anywhere; }
";

/// Text that stands for itself in a page.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn micros(nanos: f64) -> String {
    format!("{:.3}", nanos / 1e3)
}

fn row(what: What, sampled: &Sampled) -> String {
    let latency = &sampled.latency;
    let kept = filtered(latency);
    let quantile = |share: f64| micros(latency.quantile(share).get() as f64);
    let cells = [
        size(what.bytes()),
        what.depth().to_string(),
        latency.count().to_string(),
        micros(latency.mean()),
        micros(latency.deviation()),
        quantile(0.5),
        quantile(0.9),
        quantile(0.99),
        quantile(0.999),
        quantile(1.0),
        micros(kept.mean()),
        micros(kept.deviation()),
        (latency.count() - kept.count()).to_string(),
    ];
    let cells = cells.map(|cell| format!("<td>{cell}</td>")).concat();
    format!("<tr><td>{}</td>{cells}</tr>\n", what.operation())
}

fn device(report: &Report, device: &Device) -> String {
    const HEAD: [&str; 14] = [
        "",
        "size",
        "depth",
        "samples",
        "mean",
        "deviation",
        "median",
        "p90",
        "p99",
        "p99.9",
        "max",
        "filtered mean",
        "deviation",
        "left out",
    ];
    let head = HEAD.map(|name| format!("<th scope=\"col\">{name}</th>")).concat();
    let rows = report.rows().filter(|(other, ..)| std::ptr::eq(*other, device));
    let rows: String = rows.map(|(_, what, sampled)| row(what, sampled)).collect();
    let mut text = format!(
        "<h2>{}</h2>\n<p>{}. Times in µs.</p>\n<div class=\"wide\"><table><thead><tr>{head}</tr></thead>\n\
         <tbody>\n{rows}</tbody></table></div>\n",
        escape(&device.url.to_string()),
        escape(&device.name)
    );
    let Some(hops) = device.hops.as_ref().filter(|hops| !hops.times.is_empty()) else { return text };
    let pictured = hops.pictured();
    let longest = pictured.iter().map(|hop| hop.length.get()).max().unwrap_or(1).max(1) as f64;
    text += "<h3>A 4 KiB read, hop by hop, without lookahead (medians)</h3>\n<div class=\"wide\"><table><tbody>\n";
    for hop in pictured {
        let length = hop.length.get() as f64;
        text += &format!(
            "<tr><td>{}: {}</td><td>{}</td><td style=\"text-align:left\"><span class=\"bar\" \
             style=\"width:{:.1}rem\"></span></td></tr>\n",
            escape(&hop.place),
            escape(&hop.name),
            micros(length),
            length / longest * 20.0
        );
    }
    text += "</tbody></table></div>\n";
    if let Some(error) = hops.clock_error {
        text += &format!(
            "<p>One way through the tunnel is as exact as the clocks of both ends are aligned: ± {error}.</p>\n"
        );
    }
    text
}

/// The report as HTML. The page needs nothing else.
pub(super) fn html(report: &Report) -> String {
    let machine = report.machine.iter();
    let machine: String =
        machine.map(|(key, value)| format!("<dt>{key}</dt><dd>{}</dd>\n", escape(value))).collect();
    let devices: String = report.devices.iter().map(|one| device(report, one)).collect();
    let early = report.early.sentence();
    let early = early.map(|sentence| format!("<p>{}</p>\n", escape(&sentence))).unwrap_or_default();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Latency, measured by Farlane</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <h1>Latency</h1>\n{early}<p>{}</p>\n<div class=\"wide\">{}</div>\n{devices}\
         <h2>Where this was measured</h2>\n<dl>\n{machine}</dl>\n</body>\n</html>\n",
        escape(&report.method),
        picture::draw(report).svg()
    )
}
