//! The options that a job file's parameters become.

use std::collections::BTreeSet;

use super::*;
use crate::args::{Amount, RandomDistribution, RateProcess, Sequencer, Sizes, Workload, ZoneMode};

const FILE: &str = "; two jobs\n[global]\nioengine=libaio\nbs=4k\ntime_based\nruntime=2\n\n\
                    [first]\nrw=randread\niodepth=8\n[second]\nstonewall\nrw=randrw\nbssplit=4k/50:64k/50\nrwmixwrite=30\n";

fn given() -> Vec<OsString> {
    ["farlane", "bench", "tcp://far:1", "--iodepth", "2"].map(OsString::from).to_vec()
}

fn read(text: &str) -> Result<(Vec<Planned>, Vec<String>), String> {
    let variable = |name: &str| if name == "BS" { "16k".to_owned() } else { String::new() };
    jobs(&given(), &sections(text, variable)?)
}

/// The arguments of the one job with these parameters.
fn one(parameters: &str) -> BenchArgs {
    let text = format!("[a]\n{}", parameters.replace(' ', "\n"));
    read(&text).unwrap_or_else(|why| panic!("{parameters}: {why}")).0.remove(0).args
}

#[test]
fn a_job_has_its_parameters_those_of_all_jobs_and_what_the_command_line_says() {
    let (jobs, without) = read(FILE).unwrap();
    let (first, second) = (&jobs[0].args, &jobs[1].args);
    assert_eq!((first.bs.or(0)[0], first.iodepth, first.runtime.as_secs()), (4096, 2, 2));
    assert_eq!(first.name.as_deref(), Some("first"));
    assert_eq!((second.rwmixread, second.bssplit.unwrap().or(Sizes::one(1))[0].longest()), (70, 65_536));
    assert_eq!(without, ["ioengine"]);
}

#[test]
fn a_job_ends_with_its_bytes_unless_it_is_time_based() {
    let job =
        read("[a]\nrw=randwrite ; a comment\nsize=1m # another\nverify=crc32c").unwrap().0.remove(0).args;
    assert!(job.ends_with_size && job.runtime == WITHOUT_END && job.verify);
    assert_eq!(job.size, Some(Amount::Bytes(1 << 20)));
    let job = one("runtime=1M rwmixread=70 rwmixwrite=20 time_based=0");
    assert_eq!((job.runtime.as_secs(), job.rwmixread, job.ends_with_size), (60, 80, true));
    let job = one("runtime=3 time_based size=1m");
    assert_eq!((job.runtime.as_secs(), job.ends_with_size), (3, false));
    let job = one("io_size=8m size=1m");
    assert_eq!((job.io_size, job.ends_with_size), (Some(Amount::Bytes(8 << 20)), false));
    // As in fio, which warns: without a time, there is nothing to base the job on.
    let (jobs, without) = read("[a]\ntime_based").unwrap();
    assert!(jobs[0].args.ends_with_size && without[0].starts_with("time_based"), "{without:?}");
    assert!(one("time_based runtime=0").ends_with_size);
}

#[test]
fn jobs_run_together_unless_one_waits() {
    let text = "[a]\nrw=read\n[b]\nrw=write\nexitall\n[c]\nstonewall\n[d]\nnew_group\nwait_for=c\nexitall\n\
                exit_what=all\n[e]\nwait_for_previous\nexitall=0\nexit_what=stonewall\n";
    let jobs = read(text).unwrap().0;
    let of: Vec<_> = jobs.iter().map(|job| (job.phase, job.group, job.after.clone(), job.ends)).collect();
    assert_eq!(of[..2], [(0, 0, vec![], None), (0, 0, vec![], Some(Scope::Group))]);
    assert_eq!(of[2..], [(1, 1, vec![], None), (1, 2, vec![2], Some(Scope::All)), (2, 3, vec![], None)]);
    assert!(read("[a]\nwait_for=b\n[b]\n").is_err(), "a job can't wait for a later one");
}

/// One line for each word: a parameter and its option.
#[test]
fn each_word_becomes_its_option() {
    type Check = fn(&BenchArgs) -> bool;
    let words: &[(&str, Check)] = &[
        ("rw=readwrite", |args| args.rw.workload == Workload::Rw),
        ("readwrite=randtrim", |args| args.rw.workload == Workload::RandTrim),
        ("rw=read:-8k", |args| args.rw.number == Some(-8192)),
        ("rw=randread:8 rw_sequencer=identical", |args| {
            (args.rw.number, args.load.rw_sequencer) == (Some(8), Sequencer::Identical)
        }),
        ("bs=4k,8k", |args| args.bs.0 == [Some(4096), Some(8192), Some(8192)]),
        ("blocksize=512,512,16384", |args| args.bs.0[2] == Some(16_384)),
        ("bs=${BS}", |args| args.bs.0[0] == Some(16_384)),
        ("bs=64k bssplit=64k/40:1024k/60,1024k/100", |args| {
            args.bssplit.is_some_and(|each| each.0[1].is_some_and(|sizes| sizes.shortest() == 1 << 20))
        }),
        ("bs=4k bsrange=4k-16k", |args| {
            args.bsrange.is_some_and(|each| each.0[0] == Some(Sizes::range(4096, 16_384)))
        }),
        ("bsrange=4k-16k bs=8k", |args| args.bsrange.is_none() && args.bs.0[0] == Some(8192)),
        ("blockalign=4k", |args| args.load.blockalign == Some(4096)),
        ("ba=8k", |args| args.load.blockalign == Some(8192)),
        ("iodepth_low=4", |args| args.load.iodepth_low == 4),
        ("iodepth_batch_complete=2", |args| args.load.iodepth_batch_complete_min == 2),
        ("iodepth_batch_complete_min=3", |args| args.load.iodepth_batch_complete_min == 3),
        ("numjobs=3", |args| args.numjobs == 3),
        ("rwmixread=10", |args| args.rwmixread == 10),
        ("size=50%", |args| args.size == Some(Amount::Percent(50))),
        ("io_limit=25%", |args| args.io_size == Some(Amount::Percent(25))),
        ("filesize=1m nrfiles=3", |args| args.size == Some(Amount::Bytes(3 << 20)) && args.io_size.is_none()),
        ("filesize=1m size=8m", |args| {
            (args.size, args.io_size) == (Some(Amount::Bytes(1 << 20)), Some(Amount::Bytes(8 << 20)))
        }),
        ("filesize=1m size=8m io_size=2m", |args| args.io_size == Some(Amount::Bytes(2 << 20))),
        ("offset=25%", |args| args.load.offset == Amount::Percent(25)),
        ("offset_increment=1g", |args| args.load.offset_increment == Amount::Bytes(1 << 30)),
        ("number_ios=7", |args| args.load.number_ios == Some(7)),
        ("norandommap", |args| args.load.norandommap),
        ("randseed=9", |args| args.seed == 9),
        ("randrepeat=0", |args| args.seed != 1),
        ("randrepeat=1", |args| args.seed == 1),
        ("percentage_random=40", |args| {
            args.load.percentage_random.is_some_and(|each| each.or(0) == [40; 3])
        }),
        ("percentage_sequential=40", |args| {
            args.load.percentage_random.is_some_and(|each| each.or(0) == [60; 3])
        }),
        ("random_distribution=zipf:0.5", |args| {
            args.load.random_distribution == RandomDistribution::Zipf(0.5)
        }),
        ("random_sequence_stride=1", |args| args.load.random_sequence_stride),
        ("zonemode=strided zonesize=256m zoneskip=2g zonerange=1m", |args| {
            let load = &args.load;
            (load.zonemode, load.zonesize, load.zoneskip, load.zonerange)
                == (ZoneMode::Strided, Some(256 << 20), 2 << 30, Some(1 << 20))
        }),
        ("rate=1m,500k", |args| args.load.rate.is_some_and(|each| each.or(0) == [1 << 20, 512_000, 512_000])),
        ("rate_iops=300,,", |args| args.load.rate_iops.is_some_and(|each| each.0 == [Some(300), None, None])),
        ("rate_process=poisson", |args| args.load.rate_process == RateProcess::Poisson),
        ("thinktime=2000 thinktime_blocks=4", |args| {
            (args.load.thinktime, args.load.thinktime_blocks) == (Duration::from_millis(2), 4)
        }),
        ("thinktime=1s", |args| args.load.thinktime.as_secs() == 1),
        ("flow=8 flow_id=3", |args| (args.load.flow, args.load.flow_id) == (Some(8), 3)),
        ("startdelay=4", |args| args.load.startdelay.as_secs() == 4),
        ("ramp_time=5s", |args| args.load.ramp_time.as_secs() == 5),
        ("timeout=60", |args| args.runtime.as_secs() == 60),
        ("loops=5", |args| args.load.loops == 5),
        ("ss=iops:10% ss_dur=30s ss_ramp=10 steadystate_check_interval=2", |args| {
            let load = &args.load;
            load.steadystate.is_some_and(|criterion| criterion.to_string() == "iops:10%")
                && [load.steadystate_duration, load.steadystate_ramp_time, load.steadystate_check_interval]
                    == [30, 10, 2].map(Duration::from_secs)
        }),
        ("fsync=32", |args| args.load.fsync == 32),
        ("fdatasync=8", |args| args.load.fsync == 8),
        ("end_fsync", |args| args.load.end_fsync),
        ("fsync_on_close=1", |args| args.load.end_fsync),
        ("end_syncfs=1", |args| args.load.end_fsync),
        ("sync=dsync", |args| args.load.writefua),
        ("sync=none", |args| !args.load.writefua),
        ("writefua=1 readfua=1", |args| args.load.writefua && args.load.readfua),
        ("rw=randtrim num_range=8", |args| args.load.num_range == 8),
        ("zero_buffers", |args| args.load.contents.zero_buffers),
        ("buffer_pattern=0x0102", |args| {
            args.load.contents.buffer_pattern.as_ref().is_some_and(|bytes| bytes.0 == [1, 2])
        }),
        ("refill_buffers", |args| args.load.contents.refill_buffers),
        ("buffer_compress_percentage=50", |args| args.load.contents.buffer_compress_percentage == Some(50)),
        ("verify=md5", |args| args.verify && args.load.contents.do_verify),
        ("verify=0", |args| !args.verify),
        ("verify=meta do_verify=0 verify_fatal=1", |args| {
            args.verify && !args.load.contents.do_verify && args.load.contents.verify_fatal
        }),
        ("verify=crc64 verify_backlog=8 verify_backlog_batch=4", |args| {
            let contents = &args.load.contents;
            (contents.verify_backlog, contents.verify_backlog_batch) == (8, 4)
        }),
        ("percentile_list=99.0:99.9,100", |args| {
            args.percentile_list.as_ref().is_some_and(|list| list.0 == [99.0, 99.9, 100.0])
        }),
        ("name=shown", |args| args.name.as_deref() == Some("shown")),
        ("write_mode=write sg_write_mode=write", |_| true),
        ("fdp=0 trim_percentage=0 zonemode=none", |_| true),
    ];
    for (parameters, check) in words {
        assert!(check(&one(parameters)), "{parameters}");
    }
    // Each parameter with a meaning is above, or is refused below.
    let used: BTreeSet<_> = words
        .iter()
        .flat_map(|(parameters, _)| parameters.split(' '))
        .map(|one| words::canonical(one.split('=').next().unwrap_or_default()))
        .collect();
    let elsewhere = [
        "iodepth",
        "runtime",
        "time_based",
        "stonewall",
        "wait_for",
        "exitall",
        "exit_what",
        "rwmixwrite",
        "new_group",
        "kb_base",
    ];
    for (word, means) in words::WORDS {
        let is_refused = matches!(means, Means::Refused(_));
        assert!(used.contains(word) || is_refused || elsewhere.contains(word), "{word} is not tested");
        if is_refused {
            let why = read(&format!("[a]\n{word}=1")).map(|_| ()).unwrap_err();
            assert!(why.starts_with(&format!("line 2, {word}: ")), "{word}: {why}");
        }
    }
}

#[test]
fn units_are_those_of_kb_base() {
    assert_eq!(one("size=4k").size, Some(Amount::Bytes(4096)));
    assert_eq!(one("size=4kib").size, Some(Amount::Bytes(4000)));
    assert_eq!(one("kb_base=1000 size=4k").size, Some(Amount::Bytes(4000)));
    assert_eq!(one("kb_base=1000 size=4kib").size, Some(Amount::Bytes(4096)));
    assert!(read("[a]\nkb_base=7\nsize=4k").is_err());
}

#[test]
fn what_is_not_understood_is_named() {
    for (text, words) in [
        ("bs=4k", "there is no job"),
        ("[a]\nodd=1", "line 2, odd: farlane bench has no such parameter"),
        ("[a]\nzonemode=zbd", "line 2, zonemode"),
        ("[a]\nrw=fly", "line 2, rw: invalid value 'fly'"),
        ("[a]\nrwmixwrite=200", "line 2, rwmixwrite"),
        ("[a]\nodd=1\nrwmixwrite=200", "line 2, odd"),
        ("[a]\nodd=1\nrwmixwrite=200", "line 3, rwmixwrite"),
        // Two that the parser refuses are both named.
        ("[a]\nbs=four\nnumjobs=0", "line 2, bs"),
        ("[a]\nrw=fly\nnumjobs=0", "line 3, numjobs"),
        ("[a]\nioengine=cpuio", "line 2, ioengine: the engine 'cpuio'"),
        ("[a]\nverify=crc33", "line 2, verify"),
        ("[a]\nbssplit=4k/50:8k/50\nverify=md5", "[a]: the argument '--bssplit"),
        ("[a]\nexit_what=some", "line 2, exit_what"),
        ("[a]\nfilesize=4k-8k", "line 2, filesize"),
        ("[a]\nsync=odd", "line 2, sync"),
        ("[a]\nwrite_mode=zeroes", "line 2, write_mode"),
        ("[a]\nruntime=1-5", "line 2, runtime"),
    ] {
        let why = read(text).map(|_| ()).unwrap_err();
        assert!(why.contains(words), "{text}: {why}");
    }
    // A parameter of all jobs is named once.
    let why = read("[global]\nodd=1\n[a]\n[b]\n").map(|_| ()).unwrap_err();
    assert_eq!(why.lines().count(), 1, "{why}");
}

#[test]
fn the_name_of_the_file_leaves_the_command_line() {
    for words in [&["farlane", "bench", "--job", "a", "u"][..], &["farlane", "bench", "--job=a", "u"]] {
        let left = without_option(words.iter().map(OsString::from));
        assert_eq!(left, ["farlane", "bench", "u"]);
    }
}

#[test]
fn one_length_of_the_command_line_stands_for_all_lengths() {
    let given: Vec<_> = ["farlane", "bench", "--bssplit=4k/100"].map(OsString::from).to_vec();
    for option in ["--bs", "--bsrange", "--bssplit"] {
        assert!(is_given(&given, option), "{option}");
    }
    assert!(!is_given(&given, "--size") && !is_given(&given, "--b"));
}
