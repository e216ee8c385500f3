//! The meaning of each parameter of fio here.

/// The meaning of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Means {
    /// It changes nothing at a namespace.
    Nothing,
    /// The option of that name, with the value as it is.
    Plain(&'static str),
    /// The option, with sizes in bytes.
    Sizes(&'static str),
    /// The option, with a time whose unit is a second.
    Seconds(&'static str),
    /// The option, with a time whose unit is a microsecond.
    Micros(&'static str),
    /// The option, with 1 or 0.
    Switch(&'static str),
    /// Something that more than one parameter, or job, decides.
    Own,
    /// Nothing if it is off. The feature that it asks for does not exist here.
    Refused(&'static str),
}

/// Other names of parameters.
const ALIASES: [(&str, &str); 23] = [
    ("readwrite", "rw"),
    ("blocksize", "bs"),
    ("blocksize_range", "bsrange"),
    ("blockalign", "ba"),
    ("io_limit", "io_size"),
    ("fill_fs", "fill_device"),
    ("fileoffset", "offset"),
    ("allrandrepeat", "randrepeat"),
    ("nr_files", "nrfiles"),
    ("timeout", "runtime"),
    ("wait_for_previous", "stonewall"),
    ("threads", "thread"),
    ("ss", "steadystate"),
    ("ss_dur", "steadystate_duration"),
    ("ss_ramp", "steadystate_ramp_time"),
    ("ss_interval", "steadystate_check_interval"),
    ("ratemin", "rate_min"),
    ("ratecycle", "rate_cycle"),
    ("iomem", "mem"),
    ("mem_align", "iomem_align"),
    ("disable_bw", "disable_bw_measurement"),
    ("blocksize_unaligned", "bs_unaligned"),
    ("verify_pattern_interval", "verify_interval"),
];

/// Parameters of fio's process, its engine, the operating system, files, memory, and reports.
const NOTHING: &str = " ioengine filename directory filename_format unique_filename lockfile opendir nrfiles openfiles \
    file_service_type fallocate fadvise_hint filetype file_size_low create_serialize create_fsync \
    create_on_open create_only allow_file_create allow_mounted_write pre_read overwrite unlink unlink_each_loop \
    invalidate direct buffered atomic thread description group_reporting stats per_job_logs \
    numa_cpu_nodes numa_mem_policy cpumask cpus_allowed cpus_allowed_policy nice prio prioclass priohint comm \
    cgroup cgroup_nodelete cgroup_weight uid gid lockmem mem iomem_align hugepage-size gpu_dev_id gpu_dev_ids \
    ioscheduler clocksource job_start_clock_id gtod_cpu gtod_reduce disable_lat disable_clat disable_slat \
    disable_bw_measurement clat_percentiles lat_percentiles slat_percentiles significant_figures disk_util \
    unified_rw_reporting unit_base block_error_percentiles bwavgtime iopsavgtime write_bw_log write_lat_log \
    write_iops_log write_hist_log write_iolog log_entries log_avg_msec log_hist_msec log_hist_coarseness \
    log_window_value log_offset log_prio log_issue_time log_compression log_compression_cpus log_store_compressed \
    write_hint scramble_buffers softrandommap random_generator rwmixcycle iodepth_batch iodepth_batch_submit \
    iodepth_batch_complete_max io_submit_mode thinktime_spin thinkcycles thinktime_blocks_type flow_sleep \
    flow_watermark rate_cycle latency_window latency_percentile latency_run sync_file_range fill_device \
    continue_on_error ignore_error error_dump verify_pattern verify_interval verify_offset verify_dump \
    verify_async verify_async_cpus verify_header_seed verify_write_sequence experimental_verify verifysort \
    verifysort_nr verify_state_save verify_policy cmdprio cmdprio_percentage cmdprio_class cmdprio_hint \
    cmdprio_bssplit cmd_type nonvectored registerfiles fixedbufs hipri hipri_percentage sqthread_poll \
    sqthread_poll_cpu uncached nowait force_async userspace_reap skip_bad hostname port protocol listen pingpong \
    ttl nodelay interface verb pool cont conf clientname clustername busy_poll rbdname uri volume brick namenode \
    chunk_size svc svcl object_class chunk_sz https rocm_io cuda_io cpuload cpumode cpuchunks exit_on_io_done \
    program arguments grace_time std_redirect donorname inplace stat_type clat_percentile ";

/// Beginnings of names of parameters that an engine has for itself.
const NOTHING_PREFIXES: [&str; 7] =
    ["http_", "libblkio_", "nfs_", "xnvme_", "replay_", "merge_blktrace_", "zonecap"];

const ZONED: &str = "zoned namespaces have commands of their own, which are not sent here";
const DEDUPE: &str = "contents that repeat by a share are not made here";
const PLACEMENT: &str = "commands have no directives here (placement, streams)";
const PROTECTION: &str = "the namespace's format determines protection information, without --pi options";
const TRIMS: &str = "trims within a load of reads and writes are not made; rw=trimwrite and randtrim are";
const PRECONDITION: &str = "conditioning by over-provisioning is not done here";

/// Parameters with a meaning.
pub(super) const WORDS: &[(&str, Means)] = &[
    ("rw", Means::Own),
    ("rw_sequencer", Means::Plain("--rw_sequencer")),
    ("bs", Means::Sizes("--bs")),
    ("bssplit", Means::Sizes("--bssplit")),
    ("bsrange", Means::Sizes("--bsrange")),
    ("ba", Means::Sizes("--blockalign")),
    ("iodepth", Means::Plain("--iodepth")),
    ("iodepth_low", Means::Plain("--iodepth_low")),
    ("iodepth_batch_complete", Means::Plain("--iodepth_batch_complete_min")),
    ("iodepth_batch_complete_min", Means::Plain("--iodepth_batch_complete_min")),
    ("numjobs", Means::Plain("--numjobs")),
    ("rwmixread", Means::Plain("--rwmixread")),
    ("rwmixwrite", Means::Own),
    ("size", Means::Own),
    ("io_size", Means::Own),
    ("filesize", Means::Own),
    ("offset", Means::Sizes("--offset")),
    ("offset_increment", Means::Sizes("--offset_increment")),
    ("number_ios", Means::Plain("--number_ios")),
    ("norandommap", Means::Switch("--norandommap")),
    ("randrepeat", Means::Own),
    ("randseed", Means::Plain("--seed")),
    ("percentage_random", Means::Plain("--percentage_random")),
    ("percentage_sequential", Means::Own),
    ("random_distribution", Means::Plain("--random_distribution")),
    ("random_sequence_stride", Means::Switch("--random_sequence_stride")),
    ("zonemode", Means::Plain("--zonemode")),
    ("zonesize", Means::Sizes("--zonesize")),
    ("zonerange", Means::Sizes("--zonerange")),
    ("zoneskip", Means::Sizes("--zoneskip")),
    ("rate", Means::Sizes("--rate")),
    ("rate_iops", Means::Sizes("--rate_iops")),
    ("rate_process", Means::Plain("--rate_process")),
    ("thinktime", Means::Micros("--thinktime")),
    ("thinktime_blocks", Means::Plain("--thinktime_blocks")),
    ("flow", Means::Plain("--flow")),
    ("flow_id", Means::Plain("--flow_id")),
    ("startdelay", Means::Seconds("--startdelay")),
    ("ramp_time", Means::Seconds("--ramp_time")),
    ("runtime", Means::Own),
    ("time_based", Means::Own),
    ("loops", Means::Plain("--loops")),
    ("stonewall", Means::Own),
    ("wait_for", Means::Own),
    ("exitall", Means::Own),
    ("exit_what", Means::Own),
    ("new_group", Means::Own),
    ("kb_base", Means::Own),
    ("name", Means::Own),
    ("fsync", Means::Plain("--fsync")),
    ("fdatasync", Means::Plain("--fsync")),
    ("end_fsync", Means::Switch("--end_fsync")),
    ("fsync_on_close", Means::Switch("--end_fsync")),
    ("end_syncfs", Means::Switch("--end_fsync")),
    ("sync", Means::Own),
    ("writefua", Means::Switch("--writefua")),
    ("readfua", Means::Switch("--readfua")),
    ("num_range", Means::Plain("--num_range")),
    ("zero_buffers", Means::Switch("--zero_buffers")),
    ("buffer_pattern", Means::Plain("--buffer_pattern")),
    ("refill_buffers", Means::Switch("--refill_buffers")),
    ("buffer_compress_percentage", Means::Plain("--buffer_compress_percentage")),
    ("verify", Means::Own),
    ("do_verify", Means::Switch("--do_verify")),
    ("verify_backlog", Means::Plain("--verify_backlog")),
    ("verify_backlog_batch", Means::Plain("--verify_backlog_batch")),
    ("verify_fatal", Means::Switch("--verify_fatal")),
    ("percentile_list", Means::Own),
    ("write_mode", Means::Own),
    ("sg_write_mode", Means::Own),
    ("max_open_zones", Means::Refused(ZONED)),
    ("job_max_open_zones", Means::Refused(ZONED)),
    ("read_beyond_wp", Means::Refused(ZONED)),
    ("ignore_zone_limits", Means::Refused(ZONED)),
    ("zone_reset_threshold", Means::Refused(ZONED)),
    ("zone_reset_frequency", Means::Refused(ZONED)),
    ("dedupe_percentage", Means::Refused(DEDUPE)),
    ("dedupe_global", Means::Refused(DEDUPE)),
    ("dedupe_mode", Means::Refused(DEDUPE)),
    ("dedupe_working_set_percentage", Means::Refused(DEDUPE)),
    ("fdp", Means::Refused(PLACEMENT)),
    ("fdp_pli", Means::Refused(PLACEMENT)),
    ("fdp_pli_select", Means::Refused(PLACEMENT)),
    ("dataplacement", Means::Refused(PLACEMENT)),
    ("plids", Means::Refused(PLACEMENT)),
    ("plid_select", Means::Refused(PLACEMENT)),
    ("pi_act", Means::Refused(PROTECTION)),
    ("pi_chk", Means::Refused(PROTECTION)),
    ("apptag", Means::Refused(PROTECTION)),
    ("apptag_mask", Means::Refused(PROTECTION)),
    ("md_per_io_size", Means::Refused(PROTECTION)),
    ("steadystate", Means::Plain("--steadystate")),
    ("steadystate_duration", Means::Seconds("--steadystate_duration")),
    ("steadystate_ramp_time", Means::Seconds("--steadystate_ramp_time")),
    ("steadystate_check_interval", Means::Seconds("--steadystate_check_interval")),
    ("trim_percentage", Means::Refused(TRIMS)),
    ("trim_verify_zero", Means::Refused(TRIMS)),
    ("trim_backlog", Means::Refused(TRIMS)),
    ("trim_backlog_batch", Means::Refused(TRIMS)),
    ("sprandom", Means::Refused(PRECONDITION)),
    ("spr_op", Means::Refused(PRECONDITION)),
    ("spr_num_regions", Means::Refused(PRECONDITION)),
    ("spr_cs", Means::Refused(PRECONDITION)),
    ("latency_target", Means::Refused("no depth is looked for that keeps a latency; iodepth gives one")),
    ("max_latency", Means::Refused("no job ends because of one slow operation")),
    ("rate_min", Means::Refused("no job ends because it is slower than a rate")),
    ("rate_iops_min", Means::Refused("no job ends because it is slower than a rate")),
    ("rate_ignore_thinktime", Means::Refused("a rate continues while a job pauses")),
    ("thinktime_iotime", Means::Refused("a pause comes after thinktime_blocks operations, not after a time")),
    ("verify_only", Means::Refused("verification covers only data that the run itself has written")),
    ("verify_state_load", Means::Refused("verification covers only data that the run itself has written")),
    (
        "read_iolog",
        Means::Refused(
            "operations of a log are not replayed here; farlane recording replay sends recordings",
        ),
    ),
    ("exec_prerun", Means::Refused("no programs are run from a job file")),
    ("exec_postrun", Means::Refused("no programs are run from a job file")),
    ("serialize_overlap", Means::Refused("operations without verify may overlap")),
    ("bs_unaligned", Means::Refused("operations have whole blocks")),
    ("bs_is_seq_rand", Means::Refused("lengths are those of reads, writes and trims")),
    ("write_barrier", Means::Refused("fsync sends a Flush after so many writes")),
    ("file_append", Means::Refused("a namespace has no end to append to")),
];

/// Engines with another purpose than to read and write a device, each with that purpose.
const OTHER_ENGINES: [(&str, &str); 17] = [
    ("net", "moves data between processes"),
    ("netsplice", "moves data between processes"),
    ("rdma", "moves data between processes"),
    ("librpma", "moves data between processes"),
    ("cpuio", "uses the processor and no device"),
    ("exec", "runs programs"),
    ("filecreate", "creates files"),
    ("filestat", "asks for files"),
    ("filedelete", "deletes files"),
    ("dircreate", "creates directories"),
    ("dirstat", "asks for directories"),
    ("dirdelete", "deletes directories"),
    ("e4defrag", "defragments files"),
    ("falloc", "allocates space for files"),
    ("ftruncate", "truncates files"),
    ("page_fault", "uses memory and no device"),
    ("librpma_apm_server", "moves data between processes"),
];

/// The one name of a parameter with several.
pub(super) fn canonical(key: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == key).map_or(key, |(_, name)| name)
}

/// The meaning of a parameter; none if fio lacks it, or if it is unknown here.
pub(super) fn meaning(key: &str) -> Option<Means> {
    let known = WORDS.iter().find(|(word, _)| *word == key).map(|(_, means)| *means);
    let is_nothing = || {
        !key.contains(' ') && NOTHING.contains(&format!(" {key} "))
            || NOTHING_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
    };
    known.or_else(|| is_nothing().then_some(Means::Nothing))
}

/// Why jobs of an engine can't run on a namespace; none if they can.
pub(super) fn refusal_of_engine(engine: &str) -> Option<String> {
    let (_, what) = OTHER_ENGINES.iter().find(|(name, _)| *name == engine)?;
    Some(format!(
        "the engine '{engine}' {what}; expected an engine that reads and writes a device, such as libaio"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_has_two_meanings() {
        for (at, (word, _)) in WORDS.iter().enumerate() {
            assert!(!NOTHING.contains(&format!(" {word} ")), "{word} has a meaning, and none");
            assert!(WORDS[..at].iter().all(|(other, _)| other != word), "{word} twice");
            assert_eq!(canonical(word), *word, "{word} is an alias");
        }
        for (alias, name) in ALIASES {
            assert!(meaning(name).is_some(), "{alias} means nothing known: {name}");
        }
    }

    #[test]
    fn words_mean_something_nothing_or_are_unknown() {
        assert_eq!(meaning("bs"), Some(Means::Sizes("--bs")));
        assert_eq!(
            (meaning("gtod_reduce"), meaning("http_mode")),
            (Some(Means::Nothing), Some(Means::Nothing))
        );
        assert!(matches!(meaning("zone_reset_threshold"), Some(Means::Refused(_))));
        assert_eq!((meaning("odd"), meaning("stat"), meaning("nice prio")), (None, None, None));
        assert!(refusal_of_engine("cpuio").is_some() && refusal_of_engine("io_uring").is_none());
    }
}
