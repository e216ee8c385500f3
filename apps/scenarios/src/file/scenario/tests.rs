//! Scenarios that are played, and the messages about invalid scenarios.

use engine::Instant;
use network_models::Chance;

use super::*;
use crate::test_bench::{Mixed, Source};

const SMALL: &str =
    "[link]\nlatency = \"1ms\"\nrate = \"1Gbit/s\"\n\n[[task]]\nkind = \"read\"\ncount = 20\n";

fn play(text: &str) -> Played {
    let scenario = Scenario::parse(text).unwrap();
    scenario.play(1, false).unwrap()
}

fn mean(outcome: &Outcome) -> Nanos {
    let sum = outcome.times.iter().fold(0, |sum, time| sum + time.get());
    Nanos::new(sum / outcome.times.len() as u64)
}

#[test]
fn the_same_seed_plays_the_same_and_a_mistake_is_reported_with_its_line() {
    let scenario = Scenario::parse(SMALL).unwrap();
    let [one, other] = [1, 1].map(|seed| scenario.play(seed, true).unwrap());
    assert_eq!((one.digest, one.events), (other.digest, other.events));
    assert_eq!(one.tasks[0].outcome.times.len(), 20);
    assert!(one.tasks[0].outcome.times.iter().all(|time| *time > Nanos::from_millis(4)));
    assert_ne!(scenario.play(2, false).unwrap().digest, one.digest);
    let error = Scenario::parse(&SMALL.replace("\"read\"", "\"erase\"")).unwrap_err();
    assert!(error.starts_with("line 6, kind: expected 'config-read'"), "{error}");
}

#[test]
fn the_names_of_the_results_are_known_before_they_are() {
    let task = "[[task]]\nkind = \"read\"\nname = \"one\"\ncount = 2\n";
    let text = format!("{task}[[workload]]\nname = \"two\"\nrw = \"write\"\ncount = 2\n");
    for text in [text.as_str(), LOADS] {
        let names = Scenario::parse(text).unwrap().result_names();
        let played = play(text);
        assert!(!played.tasks.is_empty());
        assert!(played.tasks.iter().all(|task| names.contains(&task.name)), "{names:?}");
    }
    assert_eq!(Scenario::parse(task).unwrap().result_names(), ["one"]);
}

const WHOLE: &str = r#"
[host]
memory_read = "1us"
memory_read_first = "3us"
completion_size = 64
submit = "2us"
complete_read = "5us"
complete_write = "6us"
completion_timeout = "3500ms"

[ssd]
capacity = "64MiB"

[link]
latency = "100us"

[[workload]]
name = "mixed"
rw = "randrw"
mix = "70%"
bs = "8KiB"
iodepth = 4
numjobs = 2
count = 100
offset = "1MiB"
size = "2MiB"

[[workload]]
rw = "write"
bs = "16KiB"
rate = 1000
runtime = "50ms"

[[fault]]
kind = "change"
at = "10ms"
lasts = "5ms"
rate = "10Mbit/s"
"#;

#[test]
fn a_file_says_what_the_host_is_and_what_it_does() {
    let scenario = Scenario::parse(WHOLE).unwrap();
    let host = scenario.setup.host;
    assert_eq!((host.memory_read, host.memory_read_first), (Nanos::from_micros(1), Nanos::from_micros(3)));
    assert_eq!((host.completion_size, host.submit), (64, Nanos::from_micros(2)));
    assert_eq!((host.complete_read, host.complete_write), (Nanos::from_micros(5), Nanos::from_micros(6)));
    assert_eq!(scenario.setup.timeout.longest(), Nanos::from_millis(3_500));
    assert_eq!((scenario.setup.namespace_bytes, scenario.setup.queue_entries), (64 << 20, 128));
    let Source::Mixed(mixed) = &scenario.workloads[0].jobs[1].source else { panic!("{scenario:?}") };
    let expected = Mixed {
        reads: Chance::percent(70),
        bytes: 8 << 10,
        random: true,
        offset: 1 << 20,
        region: 2 << 20,
        count: 100,
        runtime: None,
        interval: None,
    };
    assert_eq!((*mixed, scenario.workloads[0].jobs.len()), (expected, 2));
    assert!(matches!(scenario.faults[..], [(When::At(_), Trouble::Behave(..))]));
}

#[test]
fn workloads_run_side_by_side() {
    let played = play(WHOLE);
    let names: Vec<_> = played.tasks.iter().map(|done| done.name.as_str()).collect();
    assert_eq!(names, ["mixed read", "mixed write", "write write"]);
    let [reads, writes, paced] = &played.tasks[..] else { panic!("{names:?}") };
    assert_eq!(reads.outcome.times.len() + writes.outcome.times.len(), 200);
    assert!(reads.outcome.times.len().abs_diff(140) < 30, "{}", reads.outcome.times.len());
    // One command begins each ms for 50 ms, however long commands take.
    assert_eq!((paced.outcome.times.len(), paced.outcome.bytes), (50, 50 * 16384));
    assert!(paced.outcome.ended - paced.outcome.began > Nanos::from_millis(49));
    assert!(reads.outcome.began == paced.outcome.began && reads.outcome.failed == 0);
}

#[test]
fn a_rate_that_is_too_much_makes_commands_wait() {
    let text = "[[workload]]\nrw = \"randread\"\ncount = 200\nrate = 100000\n";
    let late = &play(text).tasks[0].outcome;
    // Commands come 10 µs apart and take 90 µs each, so the last one waits for 199 others.
    assert!(*late.times.last().unwrap() > Nanos::from_millis(10), "{:?}", late.times.last());
    let early = &play(&text.replace("100000", "1000")).tasks[0].outcome;
    assert!(mean(early) < Nanos::from_micros(150), "{}", mean(early));
}

#[test]
fn a_slower_host_is_slower() {
    let text = "[[task]]\nkind = \"write\"\ncount = 50\n";
    let [usual, slow] = ["", "[host]\nmemory_read_first = \"50us\"\n"]
        .map(|host| mean(&play(&format!("{host}{text}")).tasks[0].outcome));
    // The first page is waited for; before, it took 6.7 µs.
    assert!(slow > usual + Nanos::from_micros(40) && slow < usual + Nanos::from_micros(50), "{usual} {slow}");
}

#[test]
fn faults_happen_after_the_tasks_begin() {
    let longest = |fault: &str| {
        let played = play(&format!("{SMALL}gap = \"1ms\"\n{fault}"));
        let outcome = &played.tasks[0].outcome;
        assert_eq!((outcome.times.len(), outcome.failed), (20, 0));
        *outcome.times.iter().max().unwrap()
    };
    let usual = longest("");
    assert!(usual < Nanos::from_millis(7), "{usual}");
    let fault = |rest: &str| longest(&format!("[[fault]]\n{rest}"));
    let held = fault("kind = \"hold\"\nat = \"30ms\"\nlasts = \"80ms\"\n");
    assert!(held > Nanos::from_millis(60) && held < Nanos::from_millis(500), "{held}");
    let paused = fault("kind = \"pause\"\nat = \"30ms\"\nlasts = \"80ms\"\n");
    assert!(paused > Nanos::from_millis(60) && paused < Nanos::from_millis(500), "{paused}");
    let down = fault("kind = \"down\"\nat = \"30ms\"\nlasts = \"80ms\"\n");
    assert!(down > Nanos::from_millis(60), "{down}");
    // The tunnel dials again and goes on where it was.
    let cut = fault("kind = \"cut\"\nevery = \"20ms\"\n");
    assert!(cut > usual, "{cut}");
    let slow = fault("kind = \"change\"\nat = \"0us\"\nlasts = \"1s\"\ndelay = \"10ms\"\n");
    assert!(slow > Nanos::from_millis(20), "{slow}");
}

#[test]
fn what_failed_has_no_time_and_moved_no_bytes() {
    let fault = "[[fault]]\nkind = \"down\"\nat = \"8ms\"\nlasts = \"100s\"\n";
    let outcome = &play(&format!("{SMALL}depth = 4\n{fault}")).tasks[0].outcome;
    let succeeded = outcome.times.len() as u64;
    assert!(outcome.failed > 0);
    assert_eq!((succeeded + outcome.failed, outcome.bytes), (20, succeeded * 4096));
}

#[test]
fn a_link_that_is_down_for_long_fails_commands_and_not_the_run() {
    let fault = "[[fault]]\nkind = \"down\"\nat = \"20ms\"\nlasts = \"100s\"\n";
    let scenario = Scenario::parse(&format!("{SMALL}{fault}")).unwrap();
    match scenario.play(1, false) {
        Ok(played) => assert!(played.tasks[0].outcome.times.len() < 21),
        Err(error) => assert!(error.contains("does not end"), "{error}"),
    }
}

#[test]
fn a_trace_is_played_at_its_times() {
    let directory = std::env::temp_dir().join(format!("farlane-trace-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let trace = "at,op,offset,length\n0us,write,0,4KiB\n1ms,read,0,4KiB\n1ms,flush,,\n40ms,read,8KiB,512B\n";
    std::fs::write(directory.join("small.csv"), trace).unwrap();
    let text = "[[workload]]\ntrace = \"small.csv\"\n";
    let scenario = Scenario::parse_in(text, &directory).unwrap();
    let played = scenario.play(1, true).unwrap();
    let counts: Vec<_> =
        played.tasks.iter().map(|done| (done.name.as_str(), done.outcome.times.len())).collect();
    assert_eq!(counts, [("small.csv read", 2), ("small.csv write", 1), ("small.csv flush", 1)]);
    let read = &played.tasks[0].outcome;
    assert!(read.ended - read.began > Nanos::from_millis(40) && read.ended > Instant::ZERO);
    assert!(!played.seen.is_empty());
    std::fs::write(directory.join("small.csv"), trace.replace("8KiB,512B", "8KiB,1B")).unwrap();
    let error = Scenario::parse_in(text, &directory).unwrap_err();
    assert!(error.starts_with("line 2, trace: small.csv: line 5, length: expected a multiple"), "{error}");
    std::fs::remove_dir_all(&directory).unwrap();
    let error = Scenario::parse_in(text, &directory).unwrap_err();
    assert!(error.starts_with("line 2, trace: small.csv: "), "{error}");
}

#[test]
fn a_mistake_is_reported_with_its_line_and_key() {
    for (good, bad, line, key, expected) in [
        ("completion_size = 64", "completion_size = 100", "5", "completion_size", "64, 128 or 256"),
        ("\"3500ms\"", "\"1s\"", "9", "completion_timeout", "the longest time of a range"),
        ("\"64MiB\"", "\"1B\"", "12", "capacity", "1MiB to 16GiB"),
        ("\"randrw\"", "\"trim\"", "19", "rw", "'read' or 'write'"),
        ("rw = \"randrw\"\n", "", "17", "rw", "or trace, a file"),
        ("\"randrw\"", "\"randread\"", "20", "mix", "'rw' or 'randrw'"),
        ("\"8KiB\"", "\"1000\"", "21", "bs", "multiple of 512B"),
        ("\"8KiB\"", "\"1MiB\"", "21", "bs", "512B to 128KiB"),
        ("iodepth = 4", "iodepth = 0", "22", "iodepth", "1 to 1024"),
        ("iodepth = 4", "iodepth = 1024", "17", "iodepth", "1023 commands at a time"),
        ("size = \"2MiB\"", "size = \"64MiB\"", "26", "size", "no end behind"),
        ("rate = 1000", "rate = 0", "31", "rate", "1 to 100000000"),
        ("rate = 1000", "trace = \"x\"", "28", "rw", "the trace sets that itself"),
        ("kind = \"change\"", "kind = \"rain\"", "35", "kind", "'cut' or 'hold'"),
        ("at = \"10ms\"\n", "", "34", "at", "either at"),
        ("lasts = \"5ms\"\n", "", "34", "lasts", "how long"),
        ("rate = \"10Mbit/s\"\n", "", "34", "change", "one of loss"),
        ("kind = \"change\"", "kind = \"hold\"", "34", "rate", "kind = 'change'"),
        ("[link]\nlatency = \"100us\"\n", "", "32", "fault", "a [link]"),
    ] {
        assert!(WHOLE.contains(good), "{good}");
        let error = Scenario::parse(&WHOLE.replace(good, bad)).map(|_| ()).unwrap_err();
        let all = [format!("line {line}"), key.to_owned(), expected.to_owned()];
        assert!(all.iter().all(|part| error.contains(part)), "{bad}: {error}");
    }
    let error = Scenario::parse("seed = 1\n").map(|_| ()).unwrap_err();
    assert!(error.contains("a [[task]], a [[workload]] or a [[load]] at least"), "{error}");
}

#[test]
fn a_link_is_played_with_tasks_of_the_callers() {
    let link = "[link]\nlatency = \"1ms\"\n";
    assert!(Scenario::parse(link).unwrap_err().contains("[[task]]"));
    let reads = Task::ConfigReads { count: 10, gap: Nanos::ZERO };
    let scenario = Scenario::with_tasks(link, &[("reads", reads)]).unwrap();
    let played = scenario.play(1, false).unwrap();
    assert_eq!((played.tasks.len(), played.tasks[0].name.as_str()), (1, "reads"));
    assert!(played.tasks[0].outcome.times.iter().all(|time| *time > Nanos::from_millis(2)));
}

#[test]
fn a_task_may_be_deeper_than_the_one_before() {
    let shallow = "[[task]]\nkind = \"read\"\ncount = 20\n";
    let deep = "[[task]]\nkind = \"write\"\ndepth = 32\ncount = 200\n";
    for tasks in [[shallow, deep], [deep, shallow]] {
        let played = play(&tasks.concat());
        let times: Vec<_> = played.tasks.iter().map(|done| done.outcome.times.len()).collect();
        assert_eq!(times.iter().sum::<usize>(), 220, "{times:?}");
    }
}

const LOADS: &str = r#"
[ssd]
model = "tlc"
capacity = "20GiB"
page = "32KiB"
block_rows = 128
spare = "1GiB"
read_rate = "3000MB"
write_rate = "2000MB"
channel_rate = "900MB"
aged = "at-random"

[[load]]
name = "mixed"
rw = "randrw"
mix = "30%"
bs = "4KiB"
queues = 2
iodepth = 4
count = 5000
size = "1GiB"

[[load]]
rw = "write"
rate = "100MB"
offset = "1GiB"
runtime = "20ms"
"#;

#[test]
fn loads_of_an_ssd_alone_have_every_key() {
    let scenario = Scenario::parse(LOADS).unwrap();
    let ssd = &scenario.setup.ssd;
    assert_eq!((ssd.capacity, ssd.page, ssd.block_rows, ssd.spare), (20 << 30, 32 << 10, 128, 1 << 30));
    assert_eq!(
        (ssd.read_rate, ssd.write_rate, ssd.channel_rate),
        (3_000_000_000, 2_000_000_000, 900_000_000)
    );
    assert_eq!(scenario.setup.aged, Some(true));
    let [(_, mixed), (_, writer)] = &scenario.loads[..] else { panic!("two loads") };
    assert_eq!((mixed.reads, mixed.random, mixed.length, mixed.queues, mixed.depth), (30, true, 4096, 2, 4));
    assert_eq!((mixed.count, mixed.span, mixed.rate, mixed.runtime), (5_000, 1 << 30, None, None));
    assert_eq!((writer.reads, writer.length, writer.offset, writer.span), (0, 128 << 10, 1 << 30, 19 << 30));
    assert_eq!((writer.rate, writer.runtime), (Some(100_000_000), Some(Nanos::from_millis(20))));
}

#[test]
fn loads_play_the_same_with_a_time_line_and_without() {
    let scenario = Scenario::parse(LOADS).unwrap();
    let played = scenario.play(1, false).unwrap();
    let names: Vec<_> = played.tasks.iter().map(|task| task.name.as_str()).collect();
    assert_eq!(names, ["mixed read", "mixed write", "write write"]);
    let count = |number: usize| played.tasks[number].outcome.times.len();
    assert_eq!(count(0) + count(1), 5_000);
    assert!((1_300..1_700).contains(&count(0)), "{} reads", count(0));
    // 20 ms at 100 MB/s, in commands of 128 KiB.
    assert_eq!(count(2), 16);
    let (again, timeline) = scenario.timeline(1).unwrap();
    assert_eq!((again.digest, again.events), (played.digest, 5_016));
    let ended: u64 = timeline.rows().map(|row| row.reads.commands + row.writes.commands).sum();
    assert_eq!(ended, 5_016);
    assert_ne!(scenario.play(2, false).unwrap().digest, played.digest);
}

#[test]
fn a_time_line_has_every_read_and_write_of_a_host() {
    for (text, reads, writes) in [(SMALL, 20, 0), (WHOLE, 0, 0)] {
        let scenario = Scenario::parse(text).unwrap();
        let (played, timeline) = scenario.timeline(1).unwrap();
        let count = |kind: Kind| {
            let its = played.tasks.iter().filter(|task| task.kind == Some(kind));
            its.map(|task| task.outcome.times.len() as u64).sum::<u64>()
        };
        let sum =
            |value: fn(&crate::timeline::Row) -> u64| timeline.rows().map(|row| value(&row)).sum::<u64>();
        let (read, written) = (sum(|row| row.reads.commands), sum(|row| row.writes.commands));
        assert_eq!((read, written), (count(Kind::Read), count(Kind::Write)));
        assert!(read + written > 0 && read >= reads && written >= writes, "{read} {written}");
        // The host's boot is not part of it.
        assert!(timeline.rows().next().is_some_and(|row| row.at == Nanos::ZERO));
        let length = timeline.interval() * timeline.rows().count() as u64;
        let took = played.tasks.iter().map(|task| task.outcome.ended - task.outcome.began).max().unwrap();
        assert!(length >= took && length < took * 3, "{length} for {took}");
    }
}

#[test]
fn wrong_loads_are_reported_with_their_place() {
    for (part, by, words) in [
        ("\"randrw\"", "\"erase\"", "rw: expected 'read'"),
        ("\"4KiB\"", "\"2MiB\"", "bs: expected 512B to 1MiB, not 2097152"),
        ("\"4KiB\"", "\"1000B\"", "bs: expected a multiple of 512B"),
        ("queues = 2", "queues = 0", "queues: expected 1 to 64, not 0"),
        ("iodepth = 4", "iodepth = 5000", "iodepth: expected 1 to 1024, not 5000"),
        ("count = 5000", "count = 0", "count: expected 1 to 100000000, not 0"),
        ("\"100MB\"", "\"0B\"", "rate: expected bytes a second"),
        ("size = \"1GiB\"", "size = \"30GiB\"", "size: expected 8192 bytes at least"),
        ("size = \"1GiB\"", "size = \"4KiB\"", "size: expected 8192 bytes at least"),
        ("\"20GiB\"", "\"1B\"", "capacity: expected 1MiB to 64TiB"),
        ("\"32KiB\"", "\"5000B\"", "page: expected 4KiB to 1MiB"),
        ("spare = \"1GiB\"", "spare = \"65537GiB\"", "spare: expected 64TiB at most"),
        ("block_rows = 128", "block_rows = 0", "block_rows: expected 1 to 65536"),
        ("\"900MB\"", "\"1B\"", "channel_rate: expected bytes a second"),
        ("\"3000MB\"", "\"1000001MB\"", "read_rate: expected bytes a second"),
        ("\"at-random\"", "\"old\"", "aged: expected 'new'"),
        ("[ssd]", "[link]\nlatency = \"1ms\"\n[ssd]", "link: expected no [link]"),
        ("[[load]]", "[[task]]\nkind = \"read\"\n[[load]]", "load: expected no [[task]]"),
    ] {
        let error = Scenario::parse(&LOADS.replacen(part, by, 1)).unwrap_err();
        assert!(error.starts_with("line ") && error.contains(words), "{part} by {by}: {error}");
    }
    let error = Scenario::parse(&"[[load]]\nrw = \"read\"\n".repeat(17)).unwrap_err();
    assert!(error.contains("16 loads at most"), "{error}");
    let error = Scenario::parse(LOADS).unwrap().play(1, true).unwrap_err();
    assert!(error.contains("no packets"), "{error}");
}

const FABRIC: &str = "[fabric]\nkind = \"rdma\"\nmedium = \"memory\"\n\n[[link.hop]]\nkind = \"infiniband\"\n\
    speed = \"fdr\"\ncable = \"3m\"\n\n[[task]]\nkind = \"read\"\ncount = 20\n";

#[test]
fn a_fabric_plays_and_its_keys_change_what_they_say() {
    let median = |text: &str| {
        let played = play(text);
        assert_eq!(played.tasks[0].outcome.failed, 0);
        assert_eq!(play(text).digest, played.digest);
        mean(&played.tasks[0].outcome).get()
    };
    let with = |key: &str| median(&FABRIC.replace("\n\n[[link", &format!("\n{key}\n\n[[link")));
    let usual = median(FABRIC);
    assert_eq!(usual - with("polled = true"), 2 * 2_500);
    assert_eq!(usual - with("host = { polled = true }"), 2_500);
    assert_eq!(with("interrupt = \"4us\"") - usual, 2 * 1_450);
    assert_eq!(with("software = \"1us\"") - usual, 4 * 623);
    assert!(with("card = { inline = \"256B\" }") < usual - 1_000);
    assert!(with("card = { mtu = 1024 }") < usual, "smaller packets leave before all data are fetched");
    let faster = median(&FABRIC.replace("fdr", "ndr"));
    assert!(faster < usual - 400, "{faster} of {usual}");
    let ethernet = |hop: &str| {
        median(&FABRIC.replace(
            "kind = \"infiniband\"\nspeed = \"fdr\"",
            &format!("kind = \"{hop}\"\nrate = \"100Gbit/s\""),
        ))
    };
    // Nothing is lost, so it does not matter how that is prevented.
    assert!(ethernet("pfc").abs_diff(ethernet("ethernet")) < 100);
}

#[test]
fn keys_that_a_fabric_lacks_are_reported_with_their_line() {
    for (from, to, expected) in [
        ("\"rdma\"", "\"fc\"", "line 2, kind: expected 'rdma' or 'tcp', not 'fc'"),
        (
            "\"fdr\"",
            "\"qdr\"",
            "line 7, speed: expected the speed of the port: 'fdr', 'edr', 'hdr' or 'ndr', not 'qdr'",
        ),
        (
            "\"read\"",
            "\"config-read\"",
            "line 11, kind: expected 'read' or 'write': a [fabric] has no configuration",
        ),
        ("cable = \"3m\"", "buffer = \"1KiB\"", "line 8, buffer: expected 10KiB to 1GiB, not 1024"),
        (
            "[[task]]",
            "[switch]\nlookahead = true\n\n[[task]]",
            "line 1, fabric: expected no [host] and no [switch]",
        ),
        (
            "\n\n[[link",
            "\ncard = { mtu = 5 }\n\n[[link",
            "line 4, mtu: expected 256, 512, 1024, 2048 or 4096, not 5",
        ),
        ("count = 20", "depth = 64", ""),
    ] {
        let result = Scenario::parse(&FABRIC.replace(from, to)).err().unwrap_or_default();
        assert!(result.starts_with(expected) && result.is_empty() == expected.is_empty(), "{result}");
    }
    let traced = Scenario::parse(FABRIC).unwrap().play(1, true).unwrap_err();
    assert!(traced.contains("a trace could show"), "{traced}");
}
