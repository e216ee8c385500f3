//! Texts that do harm where they are read or quoted: files that are too long or too deep, escape
//! sequences, and numbers beyond every limit. Each is answered with a short error.

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::support::farlane;

/// The most bytes of an error.
const ERROR_MAX: usize = 5_000;

/// Checks that it is a refusal: short, and harmless for a terminal. Returns its words.
fn refusal(output: &Output, why: &str) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(matches!(output.status.code(), Some(1 | 2)), "{why}: {:?} {text:.2000}", output.status);
    assert!(text.len() < ERROR_MAX && output.stdout.len() < ERROR_MAX, "{why}: {} B", text.len());
    assert!(!text.contains(|one: char| one.is_control() && one != '\n'), "{why}: {text:?}");
    assert!(!text.contains('\u{202e}'), "{why}: {text:?}");
    text
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> String {
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Everything that reads a file that people write.
fn readers(path: &str) -> Vec<Vec<&str>> {
    vec![
        vec!["check", path],
        vec!["export", "--config", path],
        vec!["record", "--config", path],
        vec!["target", "--config", path],
        vec!["sim", path],
        vec!["emulate", path, "--connect", "127.0.0.1:1"],
        vec!["bench", "tcp://127.0.0.1:1", "--timeout", "1ms", "--job", path],
        vec!["tsn", "check", "--plan", path],
        vec!["export", "--ram", "1MiB", "--listen", "127.0.0.1:0", "--allow-file", path],
    ]
}

#[test]
fn hostile_files_are_refused_in_few_words_by_every_command_that_reads_one() {
    let folder = tempfile::tempdir().unwrap();
    let deep = 100_000;
    let texts: Vec<(&str, Vec<u8>)> = vec![
        ("long", [b"a = \"", "x".repeat(50_000_000).as_bytes(), b"\""].concat()),
        ("words", [b"[export]\nram = \"", "x y ".repeat(200_000).as_bytes(), b"\""].concat()),
        ("key", format!("[export]\n{} = 1", "x".repeat(900_000)).into_bytes()),
        ("arrays", format!("a = {}{}", "[".repeat(deep), "]".repeat(deep)).into_bytes()),
        ("tables", format!("a = {}1{}", "{a=".repeat(deep), "}".repeat(deep)).into_bytes()),
        ("dots", format!("{}a = 1", "a.".repeat(deep)).into_bytes()),
        ("header", format!("[{}a]", "a.".repeat(deep)).into_bytes()),
        ("number", b"[export]\nram = 99999999999999999999999999".to_vec()),
        ("nul", b"[export]\nram = \"\0\"".to_vec()),
        ("escaped", b"[export]\nram = \"\\u001b[31m\\u0007\\u202e\"".to_vec()),
        ("escapes", b"[export]\n\"\x1b[31mred\x1b]0;title\x07\" = 1".to_vec()),
        ("bytes", b"\xff\xfe\x00[export]".to_vec()),
        ("twice", b"[export]\nram = 1\nram = 2\n[export]".to_vec()),
        ("date", b"[export]\nram = 1979-05-27T07:32:00Z".to_vec()),
        ("end", b"[export]\nram = \"\"\"".to_vec()),
    ];
    for (name, bytes) in texts {
        let path = write(folder.path(), name, &bytes);
        for reader in readers(&path) {
            refusal(&farlane(&reader), &format!("{name}: {}", reader[0]));
        }
    }
}

#[test]
fn a_file_without_end_is_not_read_to_its_end() {
    for reader in readers("/dev/zero") {
        refusal(&farlane(&reader), reader[0]);
    }
}

#[test]
fn words_of_the_command_line_are_quoted_in_part_and_without_escapes() {
    let (long, red) = ("x y ".repeat(20_000), "\u{1b}[31mred\u{1b}]0;title\u{7}\u{202e}");
    for word in [long.as_str(), red] {
        for line in [
            &["export", "--ram", word][..],
            &["export", word],
            &[word],
            &["check", word],
            &["verify", word],
            &["identify", word],
            &["identify", &format!("nvme-tcp://127.0.0.1:1/{word}")],
            &["bench", "tcp://127.0.0.1:1", "--rw", word],
            &["target", "--nqn", word, "--ram", "1MiB"],
            &["status", "--control", word],
        ] {
            refusal(&farlane(line), line[0]);
            let json = [line, &["--json"]].concat();
            refusal(&farlane(&json), line[0]);
        }
    }
}

#[test]
fn every_limit_is_answered_with_the_value_and_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, to) = (folder.path().join("s"), folder.path().join("r"));
    let (socket, to) = (socket.to_str().unwrap(), to.to_str().unwrap());
    let many = |count: usize, words: &[&'static str]| words.repeat(count);
    let namespaces = many(1_025, &["--ram", "4KiB"]);
    let nqn = "nqn.2026-01.io.farlane:many";
    let state = write(folder.path(), "state", b"");
    fs::remove_file(&state).unwrap();
    let urls: Vec<_> = (1..=33).map(|port| format!("tcp://127.0.0.1:{port}")).collect();
    let urls: Vec<_> = urls.iter().map(String::as_str).collect();
    let paths = (1..=17).map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",");
    let paths = format!("nvme-tcp://{paths}/{nqn}");
    let listed = format!("[[subsystem]]\nnqn = \"{nqn}\"\n")
        + &"[[subsystem.namespace]]\nram = \"4KiB\"\n".repeat(1_025);
    let target = write(folder.path(), "target.toml", listed.as_bytes());
    let options = format!("[export]\nlisten = \"127.0.0.1:0\"\nram = [{}]", "\"4KiB\",".repeat(1_025));
    let options = write(folder.path(), "export.toml", options.as_bytes());
    let most = "18446744073709551615";
    let lines: Vec<(Vec<&str>, &str)> = vec![
        ([&["export", "--listen", "127.0.0.1:0"], &namespaces[..]].concat(), "1024"),
        ([&["device", "--vfio-user", socket], &namespaces[..]].concat(), "1024"),
        ([&["device", "--vfio-user", socket, "--state", &state], &namespaces[2..]].concat(), "1024"),
        ([&["target", "--nqn", nqn, "--listen", "127.0.0.1:0"], &namespaces[..]].concat(), "1024"),
        (vec!["target", "--config", &target], "1024"),
        (vec!["check", &target], "1024"),
        (vec!["export", "--config", &options], "1024"),
        ([&["lspci", "--timeout", "1s"], &urls[..]].concat(), "32"),
        (vec!["identify", "--timeout", "1s", &paths], "16"),
        (vec!["device", "--vfio-user", socket, "--pool", "32TiB"], "17592186044416"),
        (vec!["device", "--vfio-user", socket, "--ram", "32TiB"], "17592186044416"),
        (vec!["record", "--from", "generate:1MB", "--to", to, "--ring", most], "--chunk"),
        (vec!["record", "--from", "generate:1MB", "--to", to, "--buffer", most], "2147483648"),
        ([&["record", "--to", to], &many(65, &["--from", "generate:1MB"])[..]].concat(), "64"),
    ];
    for (line, limit) in lines {
        let words = refusal(&farlane(&line), &line[..2.min(line.len())].join(" "));
        assert!(words.contains(limit), "{limit}: {words}");
    }
    // The largest size is no fault: the recording ends earlier.
    let line = ["record", "--from", "generate:1MB", "--to", to, "--size", most, "--for", "10ms"];
    assert!(farlane(&line).status.success());
}
