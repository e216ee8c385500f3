//! `farlane observe ui`: the clients that may ask, the answers, and that no request ends it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::running::{Running, wait_until};
use crate::support::schema::holds;
use crate::support::{Export, FARLANE, fail, json as printed, succeed};
use serde_json::{Value, json};

/// A running page.
struct Page {
    process: Export,
    /// The part of its address that is a secret.
    token: String,
}

/// An answer: its status, its head, and its body.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Page {
    fn start(files: &[&Path]) -> Self {
        let mut command = Command::new(&*FARLANE);
        command.args(["observe", "ui", "--json"]).args(files).stdin(Stdio::null());
        let process = Export::of(command);
        let url = process.announcement["url"].as_str().unwrap().to_owned();
        let token = url.rsplit('/').nth(1).unwrap().to_owned();
        assert_eq!(url, format!("http://{}/{token}/", process.address));
        Self { process, token }
    }

    /// Sends these bytes, and returns what comes back until the connection ends.
    fn send(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(&self.process.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        // Who is refused early may not be read to the end.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    }

    fn request(&self, head: &str, body: &[u8]) -> Answer {
        let bytes = self.send(&[head.as_bytes(), body].concat());
        let end = bytes.windows(4).position(|end| end == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("{head}: {}", String::from_utf8_lossy(&bytes)));
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head, body: bytes[end + 4..].to_vec() }
    }

    /// Asks for the resource behind the token.
    fn get(&self, path: &str) -> Answer {
        let (token, host) = (&self.token, &self.process.address);
        self.request(
            &format!("GET /{token}/{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"),
            b"",
        )
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        let (token, host, body) = (&self.token, &self.process.address, body.to_string());
        let length = body.len();
        let head = format!(
            "POST /{token}/{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
        );
        self.request(&head, body.as_bytes())
    }

    /// Asks a question that has an answer, and holds it against its schema.
    fn ask(&self, question: &str, name: &str) -> Value {
        let answer = self.get(&format!("api/{question}"));
        assert_eq!(answer.status, 200, "{question}: {answer:?}");
        let answer = answer.json();
        holds(name, &answer);
        answer
    }

    /// Asks a question that is refused with this status. Returns why.
    fn refused(&self, question: &str, status: u16) -> String {
        let answer = self.get(&format!("api/{question}"));
        assert_eq!(answer.status, status, "{question}: {answer:?}");
        let answer = answer.json();
        holds("ui/error", &answer);
        answer["error"]["message"].as_str().unwrap().to_owned()
    }

    /// Waits until all captures are read. Returns the list of them.
    fn captures(&self) -> Value {
        let mut captures = Value::Null;
        wait_until("the captures are read", || {
            captures = self.ask("captures", "ui/captures");
            captures["captures"].as_array().unwrap().iter().all(|one| one["state"] != "reading")
        });
        captures["captures"].clone()
    }
}

/// A capture of a load on a far SSD.
fn captured(folder: &Path, name: &str, load: &[&str]) -> PathBuf {
    let far = Export::start(&["--ram", "16MiB"]);
    let path = folder.join(name);
    let (url, file) = (far.url(), path.to_str().unwrap());
    // At this rate the file keeps up on any machine.
    succeed(
        &[&["bench", &url, "--runtime", "300ms", "--rate_iops", "500", "--capture", file], load].concat(),
    );
    path
}

#[test]
fn requests_without_the_token_or_under_another_name_get_no_answer() {
    let page = Page::start(&[]);
    let (token, host) = (&page.token, &page.process.address);
    let port = host.rsplit(':').next().unwrap();
    let get = |path: &str, host: &str| {
        page.request(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"), b"").status
    };
    assert_eq!(get(&format!("/{token}/"), host), 200);
    assert_eq!(get(&format!("/{token}/"), &format!("localhost:{port}")), 200);
    let mut other = token.clone().into_bytes();
    let last = other.last_mut().unwrap();
    *last = if *last == b'0' { b'1' } else { b'0' };
    let other = String::from_utf8(other).unwrap();
    let short = &token[1..];
    for path in [
        "/",
        "/api/captures",
        "//api/captures",
        &format!("/{other}/"),
        &format!("/{short}/"),
        &format!("/{other}/api/captures"),
        &format!("/{token}"),
        &format!("/?token={token}"),
    ] {
        assert_eq!(get(path, host), 403, "{path}");
    }
    for name in ["evil.example", &format!("evil.example:{port}"), "localhost.evil.example", ""] {
        assert_eq!(get(&format!("/{token}/"), name), 421, "{name}");
        assert_eq!(get(&format!("/{token}/api/captures"), name), 421, "{name}");
    }
    let two =
        format!("GET /{token}/ HTTP/1.1\r\nHost: {host}\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
    assert_ne!(page.request(&two, b"").status, 200);
    let none = format!("GET /{token}/ HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert_ne!(page.request(&none, b"").status, 200);
    for method in ["PUT", "DELETE", "OPTIONS", "TRACE"] {
        let head =
            format!("{method} /{token}/api/captures HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let answer = page.request(&head, b"");
        assert_eq!(answer.status, 405, "{method}");
        assert!(!answer.head.to_lowercase().contains("access-control"), "{}", answer.head);
    }
    let second = Page::start(&[]);
    assert_ne!(second.token, page.token);
}

#[test]
fn each_answer_forbids_what_the_page_does_not_need() {
    let page = Page::start(&[]);
    for path in ["", "style.css", "app/main.js", "api/captures", "api/nothing", "nothing"] {
        let answer = page.get(path);
        let head = answer.head.to_lowercase();
        for words in [
            "content-security-policy: default-src 'none'; script-src 'self'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
            "frame-ancestors 'none'",
        ] {
            assert!(head.contains(words), "{path}: {words} is not in {head}");
        }
        assert!(!head.contains("access-control") && !head.contains("set-cookie"), "{head}");
    }
    let page_itself = String::from_utf8(page.get("").body).unwrap();
    for part in page_itself.split(['"']).filter(|part| part.ends_with(".js") || part.ends_with(".css")) {
        assert_eq!(page.get(part).status, 200, "{part}");
    }
    for path in
        ["../Cargo.toml", "app/../../Cargo.toml", "%2e%2e/Cargo.toml", "/etc/passwd", "vendor/README.md"]
    {
        assert_eq!(page.get(path).status, 404, "{path}");
    }
}

#[test]
fn what_is_answered_is_what_the_schemas_say_and_adds_up() {
    let folder = tempfile::tempdir().unwrap();
    let first = captured(folder.path(), "first.pcapng", &["--rw", "randread", "--bs", "4k"]);
    let second =
        captured(folder.path(), "second.pcapng", &["--rw", "randwrite", "--bs", "16k", "--iodepth", "4"]);
    let page = Page::start(&[&first, &second]);
    let captures = page.captures();
    for (number, path) in [&first, &second].into_iter().enumerate() {
        assert_eq!(captures[number]["state"], "ready", "{captures}");
        let summary = &captures[number]["summary"];
        let mut stats = printed(&["observe", "trace", "stats", path.to_str().unwrap(), "--json"]);
        stats.as_object_mut().unwrap().remove("schema_version");
        assert_eq!(summary["statistics"], stats);
        commands_are_those_of_trace(&page, number, path, summary);
        frames_are_those_of_trace(&page, number, path, summary);
        series_add_up(&page, number, summary);
    }
    let kinds = page.ask("captures/0/kinds", "ui/kinds");
    for kind in kinds["kinds"].as_array().unwrap() {
        let name = kind["command"].as_str().unwrap().replace(' ', "%20");
        for of in ["latency", "whole", "completion"] {
            let histogram = page.ask(&format!("histogram?captures=0&kind={name}&of={of}"), "ui/histogram");
            let counts =
                histogram["counts"][0].as_array().unwrap().iter().map(|count| count.as_u64().unwrap());
            assert_eq!(json!(counts.sum::<u64>()), histogram["times_ns"][0]["count"], "{histogram}");
        }
        let shares = kind["steps"].as_array().unwrap().iter().map(|step| step["share"].as_f64().unwrap());
        assert!((shares.sum::<f64>() - 1.0).abs() < 0.02, "{kind}");
    }
    let compared = page.ask("compare?captures=0,1", "trace-compare");
    let trace = printed(&[
        "observe",
        "trace",
        "compare",
        first.to_str().unwrap(),
        second.to_str().unwrap(),
        "--json",
    ]);
    assert_eq!(compared, trace);
    page.ask("histogram?captures=0,1&kind=admin:%20Identify", "ui/histogram");
    page.ask("histogram?captures=0&kind=Read&three_sigma=1", "ui/histogram");
    page.ask("live", "ui/live");
    page.ask("scenarios", "ui/scenarios");
    questions_with_wrong_values_are_refused(&page);
}

/// Commands are listed in each order, filtered, and shown one by one, as `trace` prints them.
fn commands_are_those_of_trace(page: &Page, number: usize, path: &Path, summary: &Value) {
    let count = summary["commands"].as_u64().unwrap();
    // A busy machine carries out few in the time of the load.
    assert!(count > 10, "{summary}");
    for sort in ["number", "begun", "kind", "queue", "lba", "bytes", "packets", "latency", "whole"] {
        let key = match sort {
            "latency" | "whole" | "begun" => format!("{sort}_ns"),
            other => other.to_owned(),
        };
        let list = |more: &str| {
            page.ask(&format!("captures/{number}/commands?sort={sort}&limit=1000{more}"), "ui/commands")
        };
        let values = |list: &Value| -> Vec<Option<u64>> {
            list["rows"].as_array().unwrap().iter().map(|row| row[&key].as_u64()).collect()
        };
        let up = list("");
        assert_eq!((up["commands"].as_u64(), up["matched"].as_u64()), (Some(count), Some(count)));
        // Unknown values come last.
        let known = |value: &Option<u64>| value.unwrap_or(u64::MAX);
        assert!(values(&up).is_sorted_by_key(known), "{sort}");
        let mut down = values(&list("&descending=1"));
        down.reverse();
        assert_eq!(down, values(&up), "{sort}");
        let part = list("&offset=7");
        assert_eq!(part["rows"].as_array().unwrap(), &up["rows"].as_array().unwrap()[7..], "{sort}");
    }
    let all = page.ask(&format!("captures/{number}/commands?sort=number&limit=1000"), "ui/commands");
    let rows = all["rows"].as_array().unwrap();
    let row = &rows[rows.len() / 2];
    for (name, key) in
        [("kind", "kind"), ("queue", "queue"), ("lba", "lba"), ("longer", "latency_ns"), ("from", "begun_ns")]
    {
        let value = row[key].as_u64().unwrap();
        let found = page.ask(&format!("captures/{number}/commands?{name}={value}&limit=1000"), "ui/commands");
        let found = found["rows"].as_array().unwrap();
        assert!(found.iter().any(|one| one == row), "{name}={value}");
        let fits = |one: &Value| {
            let of = one[key].as_u64().unwrap_or(u64::MAX);
            match name {
                "longer" | "from" => of >= value,
                "lba" => of <= value && value < of + one["blocks"].as_u64().unwrap(),
                _ => of == value,
            }
        };
        assert!(found.iter().all(fits), "{name}={value}: {found:?}");
        assert_eq!(
            found.len(),
            rows.iter().filter(|one| one[key].is_u64() && fits(one)).count(),
            "{name}={value}"
        );
    }
    for place in [1, 3, count / 2, count] {
        let one = page.ask(&format!("captures/{number}/commands/{place}"), "ui/command");
        let reported = printed(&[
            "observe",
            "trace",
            "chain",
            path.to_str().unwrap(),
            "--command",
            &place.to_string(),
            "--json",
        ]);
        for key in
            ["command", "queue", "id", "nsid", "lba", "blocks", "bytes", "status", "latency_ns", "whole_ns"]
        {
            assert_eq!(one[key], reported[key], "{place}: {key}");
        }
        let hops = one["steps"].as_array().unwrap().iter();
        let hops: Vec<_> = hops
            .map(|hop| json!({ "step": hop["step"], "ns": hop["ns"], "packets": hop["packets"] }))
            .collect();
        assert_eq!(json!(hops), reported["hops"], "{place}");
        let frames = one["frames"].as_array().unwrap();
        assert_eq!(frames.len() as u64, one["packets"].as_u64().unwrap(), "{one}");
        // Each step begins with the first of its frames, and ends with the last.
        for step in one["steps"].as_array().unwrap() {
            let own = frames.iter().filter(|frame| frame["step"] == step["step"]);
            let times: Vec<_> = own
                .map(|frame| frame["at_ns"].as_u64().unwrap() - one["begun_ns"].as_u64().unwrap())
                .collect();
            let ends = [step["first_ns"].as_u64().unwrap(), step["last_ns"].as_u64().unwrap()];
            assert_eq!([*times.iter().min().unwrap(), *times.iter().max().unwrap()], ends, "{step}");
        }
    }
}

/// Frames are those that `trace show` prints, from any number and time on.
fn frames_are_those_of_trace(page: &Page, number: usize, path: &Path, summary: &Value) {
    let text = succeed(&["observe", "trace", "show", path.to_str().unwrap(), "--json"]);
    let reported: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let count = summary["frames"].as_u64().unwrap();
    assert_eq!(reported.len() as u64, count);
    for from in [0, 1, 127, 128, 129, count / 2, count - 1] {
        let list = page.ask(&format!("captures/{number}/frames?from={from}&limit=300"), "ui/frames");
        for (row, expected) in
            list["rows"].as_array().unwrap().iter().zip(&reported[usize::try_from(from).unwrap()..])
        {
            assert_eq!(row["number"].as_u64().unwrap() + 1, expected["number"].as_u64().unwrap());
            assert_eq!(
                (&row["at_ns"], &row["text"], &row["direction"]),
                (&expected["at_ns"], &expected["tlp"], &expected["direction"])
            );
        }
        let at = reported[usize::try_from(from).unwrap()]["at_ns"].as_u64().unwrap();
        let list = page.ask(&format!("captures/{number}/frames?at={at}&limit=1"), "ui/frames");
        assert!(list["rows"][0]["at_ns"].as_u64().unwrap() >= at, "{list}");
        let one = page.ask(&format!("captures/{number}/frames/{from}"), "ui/frame");
        assert_eq!(one["text"], reported[usize::try_from(from).unwrap()]["tlp"]);
        let length = one["hex"].as_str().unwrap().len() / 2;
        for field in one["fields"].as_array().unwrap() {
            let [start, end] = [0, 1].map(|at| field["bytes"][at].as_u64().unwrap());
            assert!(start < end && end <= length as u64, "{field} of {length}");
        }
    }
    let end = page.ask(&format!("captures/{number}/frames?from={count}"), "ui/frames");
    assert_eq!(end["rows"], json!([]));
    // The entry of the first command is an Identify, and says so.
    let one = page.ask(&format!("captures/{number}/commands/1"), "ui/command");
    let entry = one["frames"].as_array().unwrap().iter().find(|frame| frame["step"] == "entry").unwrap();
    let entry = page.ask(&format!("captures/{number}/frames/{}?step=entry", entry["number"]), "ui/frame");
    let id = format!("{:#06x}", one["id"].as_u64().unwrap());
    let rows = entry["meaning"]["rows"].as_array().unwrap();
    assert!(
        rows.iter().any(|row| row["name"] == "identifier (CID)" && row["value"] == id.as_str()),
        "{entry}"
    );
}

/// However many bins there are, they hold each packet, byte and command once.
fn series_add_up(page: &Page, number: usize, summary: &Value) {
    let count = summary["frames"].as_f64().unwrap();
    let span = summary["span_ns"].as_u64().unwrap() + 1;
    let sum = |value: &Value| value.as_array().unwrap().iter().map(|one| one.as_f64().unwrap()).sum::<f64>();
    for bins in [1, 7, 600, 4096] {
        let series = page.ask(&format!("captures/{number}/series?bins={bins}"), "ui/series");
        let frames: f64 = series["frames"].as_object().unwrap().values().map(sum).sum();
        assert!((frames - count).abs() < 1.0, "{bins}: {frames} of {count}");
        let bytes = sum(&series["bytes_down"]) + sum(&series["bytes_up"]);
        assert!((bytes - summary["statistics"]["bytes"].as_f64().unwrap()).abs() < 100.0, "{bins}: {bytes}");
        assert_eq!(sum(&series["commands"]), summary["commands"].as_f64().unwrap(), "{bins}");
        // The sum of depths is the sum of latencies.
        let all = page.ask(&format!("captures/{number}/commands?limit=1000"), "ui/commands");
        let latencies = all["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["latency_ns"].as_f64().unwrap())
            .sum::<f64>();
        let depth = sum(&series["depth"]) * series["width_ns"].as_f64().unwrap();
        let tolerance = 0.001 * series["width_ns"].as_f64().unwrap() * f64::from(bins) + 0.01 * latencies;
        assert!((depth - latencies).abs() <= tolerance, "{bins}: {depth}, not {latencies}");
    }
    // A part has its contents, exactly.
    let (from, to) = (span / 3, span / 2);
    let part = page.ask(&format!("captures/{number}/series?from={from}&to={to}&bins=50"), "ui/series");
    assert_eq!(part["exact"], true);
    let frames: f64 = part["frames"].as_object().unwrap().values().map(sum).sum();
    let list = page.ask(&format!("captures/{number}/frames?at={from}&limit=500"), "ui/frames");
    let within =
        list["rows"].as_array().unwrap().iter().filter(|row| row["at_ns"].as_u64().unwrap() < to).count();
    assert!(within == 500 || frames == f64::from(u32::try_from(within).unwrap()), "{frames}, not {within}");
}

fn questions_with_wrong_values_are_refused(page: &Page) {
    for question in [
        "captures/2/kinds",
        "captures/0",
        "captures/0/nothing",
        "nothing",
        "captures/0/frames/99999999",
        "captures/0/commands/0",
        "captures/0/commands/99999999",
        "histogram?kind=Fly",
        "histogram?kind=Read&of=flight",
        "captures/0/kinds/",
        "",
    ] {
        page.refused(question, 404);
    }
    for (question, words) in [
        ("captures/x/kinds", "a whole number"),
        ("captures/-1/kinds", "a whole number"),
        ("captures/0/frames/1e3", "a whole number"),
        ("captures/0/series?bins=0", "from 1 to 4096"),
        ("captures/0/series?bins=4097", "from 1 to 4096"),
        ("captures/0/series?from=5&to=5", "more than from"),
        ("captures/0/series?to=99999999999999999999", "whole number"),
        ("captures/0/commands?limit=1001", "from 1 to 1000"),
        ("captures/0/commands?sort=beauty", "one of number, begun"),
        ("captures/0/commands?lba=-1", "whole number"),
        ("captures/0/frames?limit=501", "from 1 to 500"),
        ("captures/0/frames/0?step=dance", "one of command capsule"),
        ("compare?captures=0", "two numbers"),
        ("compare?captures=0,1,0", "two numbers"),
        ("histogram?captures=0", "the name of a command"),
    ] {
        let why = page.refused(question, 400);
        assert!(why.contains(words), "{question}: {why}");
    }
}

#[test]
fn a_scenario_is_played_with_changed_values() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("own.toml");
    std::fs::write(
        &file,
        "# A link of 1 ms.\n[link]\nlatency = \"1ms\"\n[[task]]\nkind = \"config-read\"\ncount = 20\n",
    )
    .unwrap();
    let page = Page::start(&[&file]);
    let list = page.ask("scenarios", "ui/scenarios");
    assert_eq!(list["scenarios"][0]["name"], "own");
    assert_eq!(list["scenarios"][0]["values"][0], json!({ "path": "link.latency", "value": "1ms" }));
    let median = |set: Value| {
        let answer = page.post("api/scenarios/0", &json!({ "set": set }));
        assert_eq!(answer.status, 200, "{answer:?}");
        let answer = answer.json();
        holds("ui/played", &answer);
        assert_eq!(answer["operations"][0]["task"], answer["tasks"][0]["task"]);
        answer["tasks"][0]["p50_ns"].as_u64().unwrap()
    };
    let (one, three) = (median(json!({})), median(json!({ "link.latency": "3ms" })));
    assert!(
        (3_990_000..4_010_000).contains(&(three - one)),
        "a round trip of 2 ms more, twice: {one}, {three}"
    );
    for (body, words) in [
        (json!({ "set": { "link.latency": "far" } }), "latency"),
        (json!({ "set": { "task.7.count": 1 } }), "task.7"),
        (json!({ "set": { "link": [1] } }), "expected"),
        (json!({ "set": { "fly": 1 } }), "fly"),
        (json!({ "percentile": 101 }), "0 to 100"),
        (json!({ "other": 1 }), "other"),
        (json!(7), "invalid"),
    ] {
        let answer = page.post("api/scenarios/0", &body);
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
        let why = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(why.contains(words), "{body}: {why}");
    }
    assert_eq!(page.post("api/scenarios/99", &json!({})).status, 404);
    assert_eq!(page.post("api/captures", &json!({})).status, 404);
    let long = page.post("api/scenarios/0", &json!({ "set": { "x": "y".repeat(70_000) } }));
    assert_eq!(long.status, 400, "a body of more than 64 KiB");
}

#[test]
fn whatever_is_asked_the_page_goes_on() {
    let page = Page::start(&[]);
    let token = &page.token;
    let mut long = format!("GET /{token}/ HTTP/1.1\r\nHost: localhost\r\n");
    for number in 0..5_000 {
        let _ = write!(long, "X-{number}: {}\r\n", "y".repeat(100));
    }
    let path = "a".repeat(100_000);
    let garbage: Vec<Vec<u8>> = vec![
        b"\r\n\r\n\r\n\r\n".to_vec(),
        (0..=255).cycle().take(100_000).collect(),
        b"GET / HTTP/9.9\r\n\r\n".to_vec(),
        b"GET\r\n\r\n".to_vec(),
        b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n".to_vec(),
        format!("GET /{token}/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes(),
        format!("POST /{token}/api/scenarios/0 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n").into_bytes(),
        format!("POST /{token}/api/scenarios/0 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n").into_bytes(),
        format!("GET /{token}/api/%00%ff%zz?%%%=&&&=%ff HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").into_bytes(),
        long.into_bytes(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
    ];
    for bytes in &garbage {
        let answer = page.send(bytes);
        let status =
            String::from_utf8_lossy(&answer).split(' ').nth(1).and_then(|status| status.parse::<u16>().ok());
        assert!(status.is_none_or(|status| status >= 400), "{:?}", String::from_utf8_lossy(&answer));
        assert_eq!(
            page.get("").status,
            200,
            "after {:?}",
            String::from_utf8_lossy(&bytes[..bytes.len().min(80)])
        );
    }
    // Silent connections do not hold up other clients.
    let silent: Vec<_> = (0..40).map(|_| TcpStream::connect(&page.process.address).unwrap()).collect();
    assert_eq!(page.get("api/captures").status, 200);
    drop(silent);
}

#[test]
fn files_that_are_no_captures_or_broken_ones_are_reported_and_end_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(captured(folder.path(), "whole.pcapng", &[])).unwrap();
    let of = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let mut changed = whole.clone();
    for place in (400..changed.len()).step_by(997) {
        changed[place] ^= 0xff;
    }
    let files = [
        of("empty", b""),
        of("noise", &(0..=255).cycle().take(50_000).collect::<Vec<u8>>()),
        of("cut", &whole[..whole.len() / 2]),
        of("changed", &changed),
        of("good", &whole),
    ];
    let page = Page::start(&files.each_ref().map(PathBuf::as_path));
    let captures = page.captures();
    let states: Vec<_> =
        captures.as_array().unwrap().iter().map(|one| one["state"].as_str().unwrap()).collect();
    assert_eq!(
        (states[0], states[1], states[2], states[4]),
        ("failed", "failed", "ready", "ready"),
        "{captures}"
    );
    assert!(captures[2]["summary"]["broken"].as_str().unwrap().contains("at byte"), "{captures}");
    assert!(captures[4]["summary"]["broken"].is_null(), "{captures}");
    let why = page.refused("captures/0/kinds", 409);
    assert!(why.contains("empty"), "{why}");
    for number in [2, 3] {
        for question in ["kinds", "series", "commands", "frames", "commands/1", "frames/0", "frames/50"] {
            let status = page.get(&format!("api/captures/{number}/{question}")).status;
            assert!([200, 404, 409].contains(&status), "{number} {question}: {status}");
        }
    }
    // A file that changes meanwhile is refused, and does no harm.
    std::fs::write(&files[4], &whole[..1000]).unwrap();
    let status = page.get("api/captures/4/frames/200").status;
    assert!([404, 409, 500].contains(&status), "{status}");
    assert_eq!(page.get("api/captures/4/commands").status, 200);
}

#[test]
fn wrong_arguments_are_refused_before_there_is_a_page() {
    let missing = fail(&["observe", "ui", "nowhere.pcapng"]);
    assert!(missing.contains("nowhere.pcapng"), "{missing}");
    let missing = fail(&["observe", "ui", "nowhere.toml"]);
    assert!(missing.contains("nowhere.toml"), "{missing}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused = fail(&["observe", "ui", "--listen", &address]);
    assert!(refused.contains(&address) && refused.contains("in use"), "{refused}");
}

#[test]
fn captures_of_an_ssd_are_shown() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures/nettlp-p4600");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("SKIPPED: there are no captures in {}", folder.display());
        return;
    };
    let files: BTreeSet<_> = entries.map(|entry| entry.unwrap().path()).collect();
    let page = Page::start(&files.iter().map(PathBuf::as_path).collect::<Vec<_>>());
    for (number, capture) in page.captures().as_array().unwrap().iter().enumerate() {
        assert_eq!(
            (&capture["state"], &capture["summary"]["commands"]),
            (&json!("ready"), &json!(1)),
            "{capture}"
        );
        let one = page.ask(&format!("captures/{number}/commands/1"), "ui/command");
        let known = one["frames_known"].as_u64().unwrap();
        assert_eq!(known, one["packets"].as_u64().unwrap(), "{one}");
        let shown = one["frames"].as_array().unwrap().len() as u64;
        assert_eq!(shown, known.min(512), "{}", capture["name"]);
        if known > 512 {
            let rest = page.ask(&format!("captures/{number}/commands/1?packets_from=512"), "ui/command");
            assert_ne!(rest["frames"][0], one["frames"][0]);
        }
    }
}

/// A capture of a target that takes a load by `scheme`.
fn captured_at_a_target(folder: &Path, scheme: &str, ports: &[&str]) -> PathBuf {
    const NQN: &str = "nqn.2026-01.io.farlane:shown";
    let (control, path) = (folder.join(format!("{scheme}.control")), folder.join(scheme));
    let mut command = Command::new(&*FARLANE);
    command.args(["target", "--json", "--nqn", NQN, "--ram", "16MiB"]).args(ports);
    command.arg("--control").arg(&control);
    let target = Export::of(command);
    let [control, file] = [&control, &path].map(|path| path.to_str().unwrap());
    let capture = Running::start(&["observe", "capture", control, "--out", file, "--json"]);
    wait_until("the capture", || {
        let status = printed(&["observe", "capture", control, "--status", "--json"]);
        status["captures"].as_array().unwrap().len() == 1
    });
    let url = format!("{scheme}://{}/{NQN}", target.address);
    let load = ["--rw", "randrw", "--bs", "4k", "--rate_iops", "500", "--runtime", "300ms", "--json"];
    assert_eq!(printed(&[&["bench", &url][..], &load].concat())["errors"], 0);
    capture.signal("INT");
    capture.json();
    path
}

/// Each command of a fabric has its entry and its response, and each PDU its fields at its bytes.
#[test]
fn commands_over_a_network_are_shown_down_to_the_fields_of_their_pdus() {
    let folder = tempfile::tempdir().unwrap();
    let tcp = captured_at_a_target(folder.path(), "nvme-tcp", &["--listen", "127.0.0.1:0"]);
    let iwarp = captured_at_a_target(folder.path(), "nvme-rdma", &["--rdma", "iwarp,127.0.0.1:0"]);
    let page = Page::start(&[&tcp, &iwarp]);
    page.captures();
    let names = [["CapsuleCmd: ", "CapsuleResp: "], ["Send: ", "Send"]];
    for (number, names) in names.iter().enumerate() {
        let list = page.ask(&format!("captures/{number}/commands?limit=200"), "ui/commands");
        let rows = list["rows"].as_array().unwrap();
        assert!(rows.len() > 20, "{list}");
        for row in rows {
            let one = page.ask(&format!("captures/{number}/commands/{}", row["number"]), "ui/command");
            let id = format!("{:#06x}", one["id"].as_u64().unwrap());
            for (step, name) in ["command capsule", "completion"].into_iter().zip(names) {
                let frames = one["frames"].as_array().unwrap();
                // A completion of NVMe/TCP may be the flag of the last data.
                let Some(frame) = frames.iter().find(|frame| frame["step"] == step) else { continue };
                let text = frame["text"].as_str().unwrap();
                let question =
                    format!("captures/{number}/frames/{}?step={step}&id={}", frame["number"], one["id"]);
                let whole = page.ask(&question.replace(' ', "%20"), "ui/frame");
                assert_eq!(whole["text"], text, "the list and the frame say the same");
                let length = whole["hex"].as_str().unwrap().len() / 2;
                let fields = whole["fields"].as_array().unwrap();
                for field in fields.iter().filter(|field| field["bytes"].is_array()) {
                    let [start, end] = [0, 1].map(|at| field["bytes"][at].as_u64().unwrap());
                    assert!(start <= end, "{field}");
                    assert!(whole["hidden_bytes"] != 0 || end <= length as u64, "{field} of {length}");
                }
                let is_flag = text.contains("C2HData") && whole["meaning"].is_null();
                assert!(text.contains(name.trim_end_matches(": ")) || is_flag, "{text}");
                let rows = whole["meaning"]["rows"].as_array().cloned().unwrap_or_default();
                let has_id =
                    rows.iter().any(|row| row["name"] == "identifier (CID)" && row["value"] == id.as_str());
                assert!(has_id || is_flag, "{step} of {one}: {whole}");
            }
        }
    }
}

/// The index has the data for a view of a whole capture: the file may be gone.
#[test]
fn a_long_capture_is_answered_without_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.pcapng");
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/tcp-1g.toml");
    succeed(&["model", "sim", scenario, "--capture", path.to_str().unwrap()]);
    let page = Page::start(&[&path]);
    let captures = page.captures();
    let count = captures[0]["summary"]["frames"].as_f64().unwrap();
    // More than a chart reads again.
    assert!(count > 32_768.0, "{captures}");
    let one = page.ask("captures/0/commands/1000", "ui/command");
    std::fs::remove_file(&path).unwrap();
    let series = page.ask("captures/0/series?bins=1000", "ui/series");
    let of_class =
        |value: &Value| value.as_array().unwrap().iter().map(|one| one.as_f64().unwrap()).sum::<f64>();
    let frames: f64 = series["frames"].as_object().unwrap().values().map(of_class).sum();
    assert!(series["exact"] == false && (frames - count).abs() < 1.0, "{frames} of {count}");
    let kind = one["kind"].as_u64().unwrap();
    page.ask(&format!("captures/0/commands?kind={kind}&sort=latency&descending=1"), "ui/commands");
    page.ask("captures/0/kinds", "ui/kinds");
    page.ask("histogram?kind=Read", "ui/histogram");
    for question in ["captures/0/frames", "captures/0/frames/9", "captures/0/commands/1000"] {
        let why = page.refused(question, 500);
        assert!(why.contains("long.pcapng"), "{why}");
    }
}
