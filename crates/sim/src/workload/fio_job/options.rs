//! The options of fio, and their meaning for a simulated device.
//!
//! Invariants: an unlisted option is refused, so that none is dropped silently; a value that is
//! fio's default is never refused. Source: the manual page fio(1) and `fio --cmdhelp`, both of fio
//! 3.33. Absent: the effects of simulated options (`draft`).

/// Meaning of an option for a simulated device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Simulated.
    Simulated,
    /// Affects how fio does its work, its measurements and logs, or its duration. The requests stay
    /// the same.
    LeftOut,
    /// Changes the load in a way that is not simulated, except with these values.
    Fixed(&'static [&'static str]),
}

/// Engines that wait for each request: fio keeps one in flight, regardless of `iodepth`.
const SYNCHRONOUS: &[&str] = &[
    "psync", "sync", "vsync", "pvsync", "pvsync2", "mmap", "splice", "libpmem", "dev-dax",
];

/// Engines that keep `iodepth` requests in flight.
const ASYNCHRONOUS: &[&str] = &[
    "libaio",
    "io_uring",
    "io_uring_cmd",
    "posixaio",
    "solarisaio",
    "windowsaio",
    "libblkio",
    "xnvme",
];

/// Returns true if an engine waits for each request; `None` for an engine that reads and writes no
/// disk.
pub(super) fn is_synchronous(engine: &str) -> Option<bool> {
    if SYNCHRONOUS.contains(&engine) {
        Some(true)
    } else if ASYNCHRONOUS.contains(&engine) {
        Some(false)
    } else {
        None
    }
}

/// Other names of options.
const ALIASES: &[(&str, &str)] = &[
    ("readwrite", "rw"),
    ("blocksize", "bs"),
    ("blockalign", "ba"),
    ("blocksize_range", "bsrange"),
    ("blocksize_unaligned", "bs_unaligned"),
    ("iodepth_batch_submit", "iodepth_batch"),
    ("iodepth_batch_complete", "iodepth_batch_complete_min"),
    ("io_limit", "io_size"),
    ("fill_fs", "fill_device"),
    ("fileoffset", "offset"),
    ("nr_files", "nrfiles"),
];

/// Returns the canonical name of an option.
pub(super) fn canonical(key: &str) -> &str {
    let mut aliases = ALIASES.iter();
    aliases
        .find(|(alias, _)| *alias == key)
        .map_or(key, |(_, name)| name)
}

const SIMULATED: &[&str] = &[
    "rw",
    "rwmixread",
    "rwmixwrite",
    "bs",
    "bsrange",
    "ba",
    "random_distribution",
    "ioengine",
    "iodepth",
    "iodepth_low",
    "numjobs",
    "loops",
    "io_size",
    "number_ios",
    "dedupe_percentage",
    "zero_buffers",
    "buffer_pattern",
    "scramble_buffers",
    "refill_buffers",
    "buffer_compress_percentage",
];

/// Options that change the load, except with the values listed.
const FIXED: &[(&str, &[&str])] = &[
    // The requests, and their order.
    ("bssplit", &[]),
    ("bs_unaligned", &["0"]),
    ("rw_sequencer", &["sequential", "identical"]),
    ("percentage_random", &["100", "100,100", "100,100,100"]),
    ("offset", &["0"]),
    ("offset_increment", &["0"]),
    ("offset_align", &["0"]),
    ("nrfiles", &["1"]),
    ("opendir", &[]),
    ("file_append", &["0"]),
    ("fill_device", &["0"]),
    ("trim_percentage", &["0"]),
    ("verify", &["0", "none"]),
    ("verify_only", &["0"]),
    ("read_iolog", &[]),
    ("profile", &[]),
    ("zonemode", &["none"]),
    ("zonesize", &["0"]),
    ("zonecapacity", &["0"]),
    ("zonerange", &["0"]),
    ("zoneskip", &["0"]),
    ("kb_base", &["1024"]),
    // Their times.
    ("iodepth_batch", &["1"]),
    ("iodepth_batch_complete_min", &["1"]),
    ("iodepth_batch_complete_max", &["0", "1"]),
    ("thinktime", &["0"]),
    ("rate", &["0"]),
    ("rate_iops", &["0"]),
    ("flow", &["0"]),
    ("latency_target", &["0"]),
    // Flushes, and writes that must be durable.
    ("fsync", &["0"]),
    ("fdatasync", &["0"]),
    ("write_barrier", &["0"]),
    ("sync_file_range", &[]),
    ("sync", &["none", "0"]),
    ("atomic", &["0"]),
    // Their contents.
    ("dedupe_mode", &["repeat"]),
];

/// Options that do not change the requests, and those that only modify an option above.
const LEFT_OUT: &str = "
    description name wait_for filename lockfile directory filename_format unique_filename size
    filesize file_service_type openfiles fallocate fadvise_hint direct buffered overwrite
    allow_file_create allow_mounted_write create_serialize create_fsync create_on_open create_only
    pre_read invalidate end_fsync fsync_on_close unlink unlink_each_loop write_hint

    runtime timeout time_based ramp_time startdelay exitall exit_what exitall_on_error stonewall
    wait_for_previous new_group thread steadystate ss steadystate_duration ss_dur
    steadystate_ramp_time ss_ramp continue_on_error ignore_error error_dump max_latency

    randrepeat allrandrepeat randseed norandommap random_generator serialize_overlap io_submit_mode
    buffer_compress_chunk dedupe_working_set_percentage dedupe_global

    do_verify verify_interval verify_offset verify_pattern verify_fatal verify_dump verify_async
    verify_async_cpus verify_backlog verify_backlog_batch experimental_verify verify_state_load
    verify_state_save trim_verify_zero trim_backlog trim_backlog_batch write_iolog
    read_iolog_chunked replay_no_stall replay_redirect replay_scale replay_align replay_time_scale
    replay_skip merge_blktrace_file merge_blktrace_scalars merge_blktrace_iters

    read_beyond_wp max_open_zones job_max_open_zones ignore_zone_limits zone_reset_threshold
    zone_reset_frequency thinktime_spin thinktime_blocks thinktime_blocks_type thinktime_iotime
    rate_min ratemin rate_iops_min rate_process rate_cycle ratecycle rate_ignore_thinktime
    latency_window latency_percentile latency_run flow_id flow_sleep

    clocksource mem iomem hugepage-size lockmem nice prio prioclass cpumask cpus_allowed
    cpus_allowed_policy numa_cpu_nodes numa_mem_policy cgroup cgroup_nodelete cgroup_weight uid gid
    exec_prerun exec_postrun ioscheduler

    per_job_logs write_bw_log bwavgtime write_lat_log write_iops_log iopsavgtime log_entries
    log_avg_msec log_hist_msec log_hist_coarseness write_hist_log log_max_value log_offset log_prio
    log_compression log_compression_cpus log_store_compressed log_unix_epoch log_alternate_epoch
    log_alternate_epoch_clock_id block_error_percentiles group_reporting stats clat_percentiles
    lat_percentiles slat_percentiles percentile_list significant_figures disk_util gtod_reduce
    disable_lat disable_clat disable_slat disable_bw_measurement disable_bw gtod_cpu
    unified_rw_reporting unit_base

    userspace_reap hipri hipri_percentage fixedbufs registerfiles sqthread_poll sqthread_poll_cpu
    nonvectored uncached nowait force_async cmd_type cmdprio cmdprio_percentage cmdprio_class
    cmdprio_bssplit libblkio_driver libblkio_path xnvme_async xnvme_sync
";

/// Returns the meaning of an option; `None` if it is unknown.
pub(super) fn meaning(name: &str) -> Option<Meaning> {
    if SIMULATED.contains(&name) {
        return Some(Meaning::Simulated);
    }

    let mut fixed = FIXED.iter();
    if let Some((_, values)) = fixed.find(|(fixed, _)| *fixed == name) {
        return Some(Meaning::Fixed(values));
    }

    let mut left_out = LEFT_OUT.split_whitespace();
    left_out
        .any(|known| known == name)
        .then_some(Meaning::LeftOut)
}
