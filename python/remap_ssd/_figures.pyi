# mypy: disable-error-code="override"
"""Types of figures and names of columns, from the records of the simulator: written by `python/tests/figures.py`."""

from typing import Literal, Optional, TypedDict, overload

from ._results import Record, Values

class MappingCost(Record):
    kind: str
    table_bytes: int
    extension_entries: int
    extension_room: int
    merges_switch: int
    merges_partial: int
    merges_full: int
    merge_pages: int
    merge_pads: int
    unshared: int
    cache_bytes: int
    cache_peak_bytes: int
    cache_hits: int
    cache_misses: int
    table_reads: int
    table_pages: int
    @overload
    def __getitem__(self, name: Literal["kind"]) -> str: ...
    @overload
    def __getitem__(self, name: Literal["table_bytes", "extension_entries", "extension_room", "merges_switch", "merges_partial", "merges_full", "merge_pages", "merge_pads", "unshared", "cache_bytes", "cache_peak_bytes", "cache_hits", "cache_misses", "table_reads", "table_pages"]) -> int: ...

class WriteBufferUse(Record):
    bytes: int
    hits: int
    overwritten: int
    deallocated: int
    remapped: int
    written_back: int
    pages_left: int
    def __getitem__(self, name: Literal["bytes", "hits", "overwritten", "deallocated", "remapped", "written_back", "pages_left"]) -> int: ...

class Demotions(Record):
    counter_full: int
    nvram_full: int
    watermark: int
    degree_full: int
    unhinted: int
    unaligned: int
    partial_unit: int
    def __getitem__(self, name: Literal["counter_full", "nvram_full", "watermark", "degree_full", "unhinted", "unaligned", "partial_unit"]) -> int: ...

class Percentiles(Record):
    count: int
    mean: Optional[float]
    p50: Optional[float]
    p90: Optional[float]
    p99: Optional[float]
    p999: Optional[float]
    p9999: Optional[float]
    max: Optional[float]
    @overload
    def __getitem__(self, name: Literal["count"]) -> int: ...
    @overload
    def __getitem__(self, name: Literal["mean", "p50", "p90", "p99", "p999", "p9999", "max"]) -> Optional[float]: ...

class Sample(TypedDict):
    at_s: float
    bandwidth_mib_s: float
    written_mib_s: float
    iops: float
    gc_runs: int
    gc_pages_s: float
    write_amplification: float
    free_superblocks: int
    demotions: int
    nvram_used: float
    backlog: Optional[int]
    usable_pages: int

class WearOut(Record):
    host_bytes: int
    first_retired_bytes: Optional[int]
    read_only: bool
    blocks_retired: int
    block_erases: int
    usable_pages: int
    @overload
    def __getitem__(self, name: Literal["host_bytes", "blocks_retired", "block_erases", "usable_pages"]) -> int: ...
    @overload
    def __getitem__(self, name: Literal["first_retired_bytes"]) -> Optional[int]: ...
    @overload
    def __getitem__(self, name: Literal["read_only"]) -> bool: ...

class SurvivalClass(TypedDict):
    references: int
    died: int
    lived: int
    lived_shared: int
    alive: int
    alive_age: int

class Accounting(Record):
    submitted: int
    reads: int
    writes: int
    read_modify_writes: int
    trims: int
    remaps: int
    flushes: int
    refused: Values
    skipped: int
    @overload
    def __getitem__(self, name: Literal["submitted", "reads", "writes", "read_modify_writes", "trims", "remaps", "flushes", "skipped"]) -> int: ...
    @overload
    def __getitem__(self, name: Literal["refused"]) -> Values: ...

class PercentilesCi95(Record):
    mean: Optional[float]
    p50: Optional[float]
    p90: Optional[float]
    p99: Optional[float]
    p999: Optional[float]
    def __getitem__(self, name: Literal["mean", "p50", "p90", "p99", "p999"]) -> Optional[float]: ...

class Ci95(Record):
    bandwidth_mib_s: Optional[float]
    iops: Optional[float]
    requests_per_s: Optional[float]
    write_amplification: Optional[float]
    flash_pages: Optional[float]
    gc_pages: Optional[float]
    erases: Optional[float]
    latency_us: PercentilesCi95
    read_latency_us: PercentilesCi95
    remap_latency_us: PercentilesCi95
    @overload
    def __getitem__(self, name: Literal["bandwidth_mib_s", "iops", "requests_per_s", "write_amplification", "flash_pages", "gc_pages", "erases"]) -> Optional[float]: ...
    @overload
    def __getitem__(self, name: Literal["latency_us", "read_latency_us", "remap_latency_us"]) -> PercentilesCi95: ...

class Steadiness(Record):
    warm_up_pages: int
    is_steady: Optional[bool]
    is_precise: Optional[bool]
    @overload
    def __getitem__(self, name: Literal["warm_up_pages"]) -> int: ...
    @overload
    def __getitem__(self, name: Literal["is_steady", "is_precise"]) -> Optional[bool]: ...

class OpenLoop(Record):
    bound: Optional[int]
    offered_per_s: float
    response_us: Percentiles
    read_response_us: Percentiles
    write_response_us: Percentiles
    backlog_mean: float
    backlog_max: int
    backlog_end: int
    @overload
    def __getitem__(self, name: Literal["bound"]) -> Optional[int]: ...
    @overload
    def __getitem__(self, name: Literal["offered_per_s", "backlog_mean"]) -> float: ...
    @overload
    def __getitem__(self, name: Literal["response_us", "read_response_us", "write_response_us"]) -> Percentiles: ...
    @overload
    def __getitem__(self, name: Literal["backlog_max", "backlog_end"]) -> int: ...

class Utilisation(Record):
    program_suspensions: int
    erase_suspensions: int
    copybacks: Optional[int]
    dies: float
    dies_reading: float
    dies_programming: float
    dies_erasing: float
    dies_suspending: float
    dies_transferring: float
    dies_waiting: float
    dies_for_host: float
    dies_for_collection: float
    dies_for_metadata: float
    planes: float
    channels: float
    cores: float
    link_in: float
    link_out: float
    nvram_stores: float
    nvram_clears: float
    nvram_scans: float
    @overload
    def __getitem__(self, name: Literal["program_suspensions", "erase_suspensions"]) -> int: ...
    @overload
    def __getitem__(self, name: Literal["copybacks"]) -> Optional[int]: ...
    @overload
    def __getitem__(self, name: Literal["dies", "dies_reading", "dies_programming", "dies_erasing", "dies_suspending", "dies_transferring", "dies_waiting", "dies_for_host", "dies_for_collection", "dies_for_metadata", "planes", "channels", "cores", "link_in", "link_out", "nvram_stores", "nvram_clears", "nvram_scans"]) -> float: ...

class LatencyCauses(Record):
    total: float
    queue: float
    collection: float
    array: float
    transfer: float
    channel: float
    suspension: float
    ordering: float
    nvram: float
    controller: float
    retry: float
    def __getitem__(self, name: Literal["total", "queue", "collection", "array", "transfer", "channel", "suspension", "ordering", "nvram", "controller", "retry"]) -> float: ...

class ReadErrors(Record):
    retries_per_read: float
    soft: int
    uncorrectable: int
    lost: int
    by_retries: list[int]
    @overload
    def __getitem__(self, name: Literal["retries_per_read"]) -> float: ...
    @overload
    def __getitem__(self, name: Literal["soft", "uncorrectable", "lost"]) -> int: ...
    @overload
    def __getitem__(self, name: Literal["by_retries"]) -> list[int]: ...

class IndirectionCost(Record):
    unit_bytes: int
    whole_writes: int
    read_modify_writes: int
    merged_in_buffer: int
    copied_units: int
    kept_pages: int
    def __getitem__(self, name: Literal["unit_bytes", "whole_writes", "read_modify_writes", "merged_in_buffer", "copied_units", "kept_pages"]) -> int: ...

class SlcCost(Record):
    superblocks: int
    room_pages: int
    free_superblocks: int
    host_pages: int
    past_pages: int
    folded_pages: int
    died_pages: int
    erases: int
    erase_mean: float
    other_erase_mean: float
    endurance_cycles: int
    @overload
    def __getitem__(self, name: Literal["superblocks", "room_pages", "free_superblocks", "host_pages", "past_pages", "folded_pages", "died_pages", "erases", "endurance_cycles"]) -> int: ...
    @overload
    def __getitem__(self, name: Literal["erase_mean", "other_erase_mean"]) -> float: ...

class Energy(Record):
    joules: float
    joules_per_gib: Optional[float]
    @overload
    def __getitem__(self, name: Literal["joules"]) -> float: ...
    @overload
    def __getitem__(self, name: Literal["joules_per_gib"]) -> Optional[float]: ...

class AgingReport(Record):
    filled: int
    remapped: int
    overwritten: int
    nvram_used: float
    nvram_valid: float
    @overload
    def __getitem__(self, name: Literal["filled", "remapped", "overwritten"]) -> int: ...
    @overload
    def __getitem__(self, name: Literal["nvram_used", "nvram_valid"]) -> float: ...

class RecoveryReport(Record):
    head_pages: int
    tail_pages: int
    oob_pages: int
    bitmap_pages: int
    translation_pages: int
    log_pages: int
    nvram_bytes: int
    records: int
    superblocks: int
    mapped: int
    lost: int
    aborted: int
    saved_pages: int
    def __getitem__(self, name: Literal["head_pages", "tail_pages", "oob_pages", "bitmap_pages", "translation_pages", "log_pages", "nvram_bytes", "records", "superblocks", "mapped", "lost", "aborted", "saved_pages"]) -> int: ...

class RunSummary(Record):
    scheme: str
    gc_policy: str
    mapping: MappingCost
    write_buffer: Optional[WriteBufferUse]
    bandwidth_mib_s: float
    iops: float
    requests_per_s: Optional[float]
    write_amplification: Optional[float]
    host_pages: int
    flash_pages: int
    gc_pages: int
    gc_zoned_pages: int
    remaps: int
    demotions: Demotions
    erases: int
    latency_us: Percentiles
    seconds_simulated: float
    read_latency_us: Percentiles
    remap_latency_us: Percentiles
    host_programs: int
    metadata_pages: int
    log_pages: int
    write_amplification_data: Optional[float]
    lost_references: int
    dedup_hits: int
    dedup_missed: int
    latency_cdf: list[list[float]]
    samples: list[Sample]
    nvram_bytes_written: int
    nvram_life_years: Optional[float]
    nvram_used: float
    nvram_valid: float
    nvram_room_bytes: int
    nvram_heads_bytes: int
    nvram_reserve_bytes: int
    largest_group_bytes: int
    l2p_bytes: int
    p2l_bytes: int
    p2l_lookup_s: float
    gc_runs: int
    refresh_runs: int
    refresh_pages: int
    erase_mean: float
    erase_max: int
    erase_spread: int
    lifetime_years: Optional[float]
    endurance_cycles: int
    life_tb_written: Optional[float]
    drive_writes_per_day: Optional[float]
    wear_out: WearOut
    survival: list[SurvivalClass]
    requests: Accounting
    ci95: Ci95
    steady: Steadiness
    arrivals: Optional[OpenLoop]
    utilisation: Optional[Utilisation]
    latency_causes_us: Optional[LatencyCauses]
    read_latency_causes_us: Optional[LatencyCauses]
    read_errors: Optional[ReadErrors]
    indirection: Optional[IndirectionCost]
    slc: Optional[SlcCost]
    energy: Optional[Energy]
    aging: Optional[AgingReport]
    recovery: Optional[RecoveryReport]
    @overload
    def __getitem__(self, name: Literal["scheme", "gc_policy"]) -> str: ...
    @overload
    def __getitem__(self, name: Literal["mapping"]) -> MappingCost: ...
    @overload
    def __getitem__(self, name: Literal["write_buffer"]) -> Optional[WriteBufferUse]: ...
    @overload
    def __getitem__(self, name: Literal["bandwidth_mib_s", "iops", "seconds_simulated", "nvram_used", "nvram_valid", "p2l_lookup_s", "erase_mean"]) -> float: ...
    @overload
    def __getitem__(self, name: Literal["requests_per_s", "write_amplification", "write_amplification_data", "nvram_life_years", "lifetime_years", "life_tb_written", "drive_writes_per_day"]) -> Optional[float]: ...
    @overload
    def __getitem__(self, name: Literal["host_pages", "flash_pages", "gc_pages", "gc_zoned_pages", "remaps", "erases", "host_programs", "metadata_pages", "log_pages", "lost_references", "dedup_hits", "dedup_missed", "nvram_bytes_written", "nvram_room_bytes", "nvram_heads_bytes", "nvram_reserve_bytes", "largest_group_bytes", "l2p_bytes", "p2l_bytes", "gc_runs", "refresh_runs", "refresh_pages", "erase_max", "erase_spread", "endurance_cycles"]) -> int: ...
    @overload
    def __getitem__(self, name: Literal["demotions"]) -> Demotions: ...
    @overload
    def __getitem__(self, name: Literal["latency_us", "read_latency_us", "remap_latency_us"]) -> Percentiles: ...
    @overload
    def __getitem__(self, name: Literal["latency_cdf"]) -> list[list[float]]: ...
    @overload
    def __getitem__(self, name: Literal["samples"]) -> list[Sample]: ...
    @overload
    def __getitem__(self, name: Literal["wear_out"]) -> WearOut: ...
    @overload
    def __getitem__(self, name: Literal["survival"]) -> list[SurvivalClass]: ...
    @overload
    def __getitem__(self, name: Literal["requests"]) -> Accounting: ...
    @overload
    def __getitem__(self, name: Literal["ci95"]) -> Ci95: ...
    @overload
    def __getitem__(self, name: Literal["steady"]) -> Steadiness: ...
    @overload
    def __getitem__(self, name: Literal["arrivals"]) -> Optional[OpenLoop]: ...
    @overload
    def __getitem__(self, name: Literal["utilisation"]) -> Optional[Utilisation]: ...
    @overload
    def __getitem__(self, name: Literal["latency_causes_us", "read_latency_causes_us"]) -> Optional[LatencyCauses]: ...
    @overload
    def __getitem__(self, name: Literal["read_errors"]) -> Optional[ReadErrors]: ...
    @overload
    def __getitem__(self, name: Literal["indirection"]) -> Optional[IndirectionCost]: ...
    @overload
    def __getitem__(self, name: Literal["slc"]) -> Optional[SlcCost]: ...
    @overload
    def __getitem__(self, name: Literal["energy"]) -> Optional[Energy]: ...
    @overload
    def __getitem__(self, name: Literal["aging"]) -> Optional[AgingReport]: ...
    @overload
    def __getitem__(self, name: Literal["recovery"]) -> Optional[RecoveryReport]: ...

Column = Literal["key", "program_version", "sources", "option.scheme", "option.preset", "option.config", "option.scale", "option.log_size", "option.dedup", "option.gc", "option.mapping", "option.workload", "option.duplicates", "option.content", "option.trace", "option.job", "option.format", "option.fold", "option.skip_bad", "option.blkparse_action", "option.flushes", "option.repeat", "option.no_aging", "option.aging", "option.writes", "option.steady", "option.precision", "option.seed", "option.arrivals", "option.queue_depth", "option.until_death", "option.survival", "option.geometry.channels", "option.geometry.dies", "option.geometry.superblocks", "option.geometry.pages_per_block", "option.geometry.superblock_dies", "option.geometry.planes", "option.geometry.page_bytes", "option.geometry.cell_bits", "option.geometry.one_shot", "option.geometry.indirection_bytes", "option.flash.read_ns", "option.flash.program_ns", "option.flash.erase_ns", "option.flash.transfer_ns", "option.flash.channel_mts", "option.flash.channel_bytes", "option.flash.spare_bytes", "option.flash.flush_ns", "option.flash.endurance", "option.flash.slc_read_ns", "option.flash.slc_program_ns", "option.flash.slc_endurance", "option.nvram.read_ns", "option.nvram.write_ns", "option.nvram.endurance", "option.hash.latency_ns", "option.hash.interval_ns", "option.link.mib_s", "option.link.command_ns", "option.link.write_saves_ns", "option.controller.firmware_ns", "option.controller.page_ns", "option.controller.cores", "option.background.lookup_stalls_dies", "option.background.idle_after_ns", "option.timing.engine", "option.timing.data_first", "option.timing.program_patience_ns", "option.timing.collection_patience_ns", "option.timing.metadata_patience_ns", "option.timing.read_command_ns", "option.timing.program_command_ns", "option.timing.erase_command_ns", "option.timing.read_plane_ns", "option.timing.program_plane_ns", "option.timing.erase_plane_ns", "option.timing.independent_planes", "option.timing.part_saves_ns", "option.timing.buffer_units", "option.timing.two_step", "option.timing.whole_reads", "option.timing.dies_per_chip", "option.timing.cache_read", "option.timing.cache_program", "option.timing.cache_busy_ns", "option.timing.copybacks", "option.timing.suspend_ns", "option.timing.resume_ns", "option.timing.suspend_least_ns", "option.timing.resume_to_suspend_ns", "option.timing.suspensions", "option.timing.erase_suspend_ns", "option.timing.erase_suspensions", "option.energy.read_nj", "option.energy.program_nj", "option.energy.erase_nj", "option.energy.transfer_nj", "option.errors.rate", "option.errors.wear", "option.errors.wear_power", "option.errors.erase_cycles", "option.errors.retention", "option.errors.age_days", "option.errors.writes_per_day", "option.errors.disturb", "option.errors.spread", "option.errors.seed", "option.errors.codeword_bits", "option.errors.correctable_bits", "option.errors.decode_ns", "option.errors.retry_rates", "option.errors.retry_ns", "option.errors.soft_rate", "option.errors.soft_ns", "option.firmware.lpns", "option.firmware.scheme", "option.firmware.log_bytes", "option.firmware.segment_bytes", "option.firmware.entry", "option.firmware.mapping", "option.firmware.block_pages", "option.firmware.extension", "option.firmware.dedup", "option.firmware.count_max", "option.firmware.watermark", "option.firmware.gc_policy", "option.firmware.gc_choices", "option.firmware.gc_mode", "option.firmware.gc_free", "option.firmware.gc_garbage", "option.firmware.gc_at_once", "option.firmware.die_by_lpn", "option.firmware.gc_joins_host", "option.firmware.power_loss_protection", "option.firmware.wear_gap", "option.firmware.refresh_reads", "option.firmware.refresh_writes", "option.firmware.mapping_cache_bytes", "option.firmware.write_buffer_bytes", "option.firmware.untorn_bytes", "option.firmware.buffered_remaps", "option.firmware.slc_share", "option.firmware.slc_dynamic", "option.firmware.slc_fold_free", "option.firmware.slc_fold_garbage", "option.firmware.dealloc_slots", "option.firmware.fs_files", "option.firmware.fs_blocks", "option.firmware.fingerprint", "option.firmware.pebble.degree", "option.firmware.local-flash.cache_pages", "option.firmware.shadow-oob.energy_pages", "gc_policy", "mapping.kind", "mapping.table_bytes", "mapping.extension_entries", "mapping.extension_room", "mapping.merges_switch", "mapping.merges_partial", "mapping.merges_full", "mapping.merge_pages", "mapping.merge_pads", "mapping.unshared", "mapping.cache_bytes", "mapping.cache_peak_bytes", "mapping.cache_hits", "mapping.cache_misses", "mapping.table_reads", "mapping.table_pages", "write_buffer.bytes", "write_buffer.hits", "write_buffer.overwritten", "write_buffer.deallocated", "write_buffer.remapped", "write_buffer.written_back", "write_buffer.pages_left", "bandwidth_mib_s", "iops", "requests_per_s", "write_amplification", "host_pages", "flash_pages", "gc_pages", "gc_zoned_pages", "remaps", "demotions.counter_full", "demotions.nvram_full", "demotions.watermark", "demotions.degree_full", "demotions.unhinted", "demotions.unaligned", "demotions.partial_unit", "erases", "latency_us.count", "latency_us.mean", "latency_us.p50", "latency_us.p90", "latency_us.p99", "latency_us.p999", "latency_us.p9999", "latency_us.max", "seconds_simulated", "read_latency_us.count", "read_latency_us.mean", "read_latency_us.p50", "read_latency_us.p90", "read_latency_us.p99", "read_latency_us.p999", "read_latency_us.p9999", "read_latency_us.max", "remap_latency_us.count", "remap_latency_us.mean", "remap_latency_us.p50", "remap_latency_us.p90", "remap_latency_us.p99", "remap_latency_us.p999", "remap_latency_us.p9999", "remap_latency_us.max", "host_programs", "metadata_pages", "log_pages", "write_amplification_data", "lost_references", "dedup_hits", "dedup_missed", "nvram_bytes_written", "nvram_life_years", "nvram_used", "nvram_valid", "nvram_room_bytes", "nvram_heads_bytes", "nvram_reserve_bytes", "largest_group_bytes", "l2p_bytes", "p2l_bytes", "p2l_lookup_s", "gc_runs", "refresh_runs", "refresh_pages", "erase_mean", "erase_max", "erase_spread", "lifetime_years", "endurance_cycles", "life_tb_written", "drive_writes_per_day", "wear_out.host_bytes", "wear_out.first_retired_bytes", "wear_out.read_only", "wear_out.blocks_retired", "wear_out.block_erases", "wear_out.usable_pages", "requests.submitted", "requests.reads", "requests.writes", "requests.read_modify_writes", "requests.trims", "requests.remaps", "requests.flushes", "requests.skipped", "ci95.bandwidth_mib_s", "ci95.iops", "ci95.requests_per_s", "ci95.write_amplification", "ci95.flash_pages", "ci95.gc_pages", "ci95.erases", "ci95.latency_us.mean", "ci95.latency_us.p50", "ci95.latency_us.p90", "ci95.latency_us.p99", "ci95.latency_us.p999", "ci95.read_latency_us.mean", "ci95.read_latency_us.p50", "ci95.read_latency_us.p90", "ci95.read_latency_us.p99", "ci95.read_latency_us.p999", "ci95.remap_latency_us.mean", "ci95.remap_latency_us.p50", "ci95.remap_latency_us.p90", "ci95.remap_latency_us.p99", "ci95.remap_latency_us.p999", "steady.warm_up_pages", "steady.is_steady", "steady.is_precise", "arrivals.bound", "arrivals.offered_per_s", "arrivals.response_us.count", "arrivals.response_us.mean", "arrivals.response_us.p50", "arrivals.response_us.p90", "arrivals.response_us.p99", "arrivals.response_us.p999", "arrivals.response_us.p9999", "arrivals.response_us.max", "arrivals.read_response_us.count", "arrivals.read_response_us.mean", "arrivals.read_response_us.p50", "arrivals.read_response_us.p90", "arrivals.read_response_us.p99", "arrivals.read_response_us.p999", "arrivals.read_response_us.p9999", "arrivals.read_response_us.max", "arrivals.write_response_us.count", "arrivals.write_response_us.mean", "arrivals.write_response_us.p50", "arrivals.write_response_us.p90", "arrivals.write_response_us.p99", "arrivals.write_response_us.p999", "arrivals.write_response_us.p9999", "arrivals.write_response_us.max", "arrivals.backlog_mean", "arrivals.backlog_max", "arrivals.backlog_end", "utilisation.program_suspensions", "utilisation.erase_suspensions", "utilisation.copybacks", "utilisation.dies", "utilisation.dies_reading", "utilisation.dies_programming", "utilisation.dies_erasing", "utilisation.dies_suspending", "utilisation.dies_transferring", "utilisation.dies_waiting", "utilisation.dies_for_host", "utilisation.dies_for_collection", "utilisation.dies_for_metadata", "utilisation.planes", "utilisation.channels", "utilisation.cores", "utilisation.link_in", "utilisation.link_out", "utilisation.nvram_stores", "utilisation.nvram_clears", "utilisation.nvram_scans", "latency_causes_us.total", "latency_causes_us.queue", "latency_causes_us.collection", "latency_causes_us.array", "latency_causes_us.transfer", "latency_causes_us.channel", "latency_causes_us.suspension", "latency_causes_us.ordering", "latency_causes_us.nvram", "latency_causes_us.controller", "latency_causes_us.retry", "read_latency_causes_us.total", "read_latency_causes_us.queue", "read_latency_causes_us.collection", "read_latency_causes_us.array", "read_latency_causes_us.transfer", "read_latency_causes_us.channel", "read_latency_causes_us.suspension", "read_latency_causes_us.ordering", "read_latency_causes_us.nvram", "read_latency_causes_us.controller", "read_latency_causes_us.retry", "read_errors.retries_per_read", "read_errors.soft", "read_errors.uncorrectable", "read_errors.lost", "indirection.unit_bytes", "indirection.whole_writes", "indirection.read_modify_writes", "indirection.merged_in_buffer", "indirection.copied_units", "indirection.kept_pages", "slc.superblocks", "slc.room_pages", "slc.free_superblocks", "slc.host_pages", "slc.past_pages", "slc.folded_pages", "slc.died_pages", "slc.erases", "slc.erase_mean", "slc.other_erase_mean", "slc.endurance_cycles", "energy.joules", "energy.joules_per_gib", "aging.filled", "aging.remapped", "aging.overwritten", "aging.nvram_used", "aging.nvram_valid", "recovery.head_pages", "recovery.tail_pages", "recovery.oob_pages", "recovery.bitmap_pages", "recovery.translation_pages", "recovery.log_pages", "recovery.nvram_bytes", "recovery.records", "recovery.superblocks", "recovery.mapped", "recovery.lost", "recovery.aborted", "recovery.saved_pages", "run", "scheme"]

Figure = Literal["mapping.table_bytes", "mapping.extension_entries", "mapping.extension_room", "mapping.merges_switch", "mapping.merges_partial", "mapping.merges_full", "mapping.merge_pages", "mapping.merge_pads", "mapping.unshared", "mapping.cache_bytes", "mapping.cache_peak_bytes", "mapping.cache_hits", "mapping.cache_misses", "mapping.table_reads", "mapping.table_pages", "write_buffer.bytes", "write_buffer.hits", "write_buffer.overwritten", "write_buffer.deallocated", "write_buffer.remapped", "write_buffer.written_back", "write_buffer.pages_left", "bandwidth_mib_s", "iops", "requests_per_s", "write_amplification", "host_pages", "flash_pages", "gc_pages", "gc_zoned_pages", "remaps", "demotions.counter_full", "demotions.nvram_full", "demotions.watermark", "demotions.degree_full", "demotions.unhinted", "demotions.unaligned", "demotions.partial_unit", "erases", "latency_us.count", "latency_us.mean", "latency_us.p50", "latency_us.p90", "latency_us.p99", "latency_us.p999", "latency_us.p9999", "latency_us.max", "seconds_simulated", "read_latency_us.count", "read_latency_us.mean", "read_latency_us.p50", "read_latency_us.p90", "read_latency_us.p99", "read_latency_us.p999", "read_latency_us.p9999", "read_latency_us.max", "remap_latency_us.count", "remap_latency_us.mean", "remap_latency_us.p50", "remap_latency_us.p90", "remap_latency_us.p99", "remap_latency_us.p999", "remap_latency_us.p9999", "remap_latency_us.max", "host_programs", "metadata_pages", "log_pages", "write_amplification_data", "lost_references", "dedup_hits", "dedup_missed", "nvram_bytes_written", "nvram_life_years", "nvram_used", "nvram_valid", "nvram_room_bytes", "nvram_heads_bytes", "nvram_reserve_bytes", "largest_group_bytes", "l2p_bytes", "p2l_bytes", "p2l_lookup_s", "gc_runs", "refresh_runs", "refresh_pages", "erase_mean", "erase_max", "erase_spread", "lifetime_years", "endurance_cycles", "life_tb_written", "drive_writes_per_day", "wear_out.host_bytes", "wear_out.first_retired_bytes", "wear_out.blocks_retired", "wear_out.block_erases", "wear_out.usable_pages", "requests.submitted", "requests.reads", "requests.writes", "requests.read_modify_writes", "requests.trims", "requests.remaps", "requests.flushes", "requests.skipped", "ci95.bandwidth_mib_s", "ci95.iops", "ci95.requests_per_s", "ci95.write_amplification", "ci95.flash_pages", "ci95.gc_pages", "ci95.erases", "ci95.latency_us.mean", "ci95.latency_us.p50", "ci95.latency_us.p90", "ci95.latency_us.p99", "ci95.latency_us.p999", "ci95.read_latency_us.mean", "ci95.read_latency_us.p50", "ci95.read_latency_us.p90", "ci95.read_latency_us.p99", "ci95.read_latency_us.p999", "ci95.remap_latency_us.mean", "ci95.remap_latency_us.p50", "ci95.remap_latency_us.p90", "ci95.remap_latency_us.p99", "ci95.remap_latency_us.p999", "steady.warm_up_pages", "arrivals.bound", "arrivals.offered_per_s", "arrivals.response_us.count", "arrivals.response_us.mean", "arrivals.response_us.p50", "arrivals.response_us.p90", "arrivals.response_us.p99", "arrivals.response_us.p999", "arrivals.response_us.p9999", "arrivals.response_us.max", "arrivals.read_response_us.count", "arrivals.read_response_us.mean", "arrivals.read_response_us.p50", "arrivals.read_response_us.p90", "arrivals.read_response_us.p99", "arrivals.read_response_us.p999", "arrivals.read_response_us.p9999", "arrivals.read_response_us.max", "arrivals.write_response_us.count", "arrivals.write_response_us.mean", "arrivals.write_response_us.p50", "arrivals.write_response_us.p90", "arrivals.write_response_us.p99", "arrivals.write_response_us.p999", "arrivals.write_response_us.p9999", "arrivals.write_response_us.max", "arrivals.backlog_mean", "arrivals.backlog_max", "arrivals.backlog_end", "utilisation.program_suspensions", "utilisation.erase_suspensions", "utilisation.copybacks", "utilisation.dies", "utilisation.dies_reading", "utilisation.dies_programming", "utilisation.dies_erasing", "utilisation.dies_suspending", "utilisation.dies_transferring", "utilisation.dies_waiting", "utilisation.dies_for_host", "utilisation.dies_for_collection", "utilisation.dies_for_metadata", "utilisation.planes", "utilisation.channels", "utilisation.cores", "utilisation.link_in", "utilisation.link_out", "utilisation.nvram_stores", "utilisation.nvram_clears", "utilisation.nvram_scans", "latency_causes_us.total", "latency_causes_us.queue", "latency_causes_us.collection", "latency_causes_us.array", "latency_causes_us.transfer", "latency_causes_us.channel", "latency_causes_us.suspension", "latency_causes_us.ordering", "latency_causes_us.nvram", "latency_causes_us.controller", "latency_causes_us.retry", "read_latency_causes_us.total", "read_latency_causes_us.queue", "read_latency_causes_us.collection", "read_latency_causes_us.array", "read_latency_causes_us.transfer", "read_latency_causes_us.channel", "read_latency_causes_us.suspension", "read_latency_causes_us.ordering", "read_latency_causes_us.nvram", "read_latency_causes_us.controller", "read_latency_causes_us.retry", "read_errors.retries_per_read", "read_errors.soft", "read_errors.uncorrectable", "read_errors.lost", "indirection.unit_bytes", "indirection.whole_writes", "indirection.read_modify_writes", "indirection.merged_in_buffer", "indirection.copied_units", "indirection.kept_pages", "slc.superblocks", "slc.room_pages", "slc.free_superblocks", "slc.host_pages", "slc.past_pages", "slc.folded_pages", "slc.died_pages", "slc.erases", "slc.erase_mean", "slc.other_erase_mean", "slc.endurance_cycles", "energy.joules", "energy.joules_per_gib", "aging.filled", "aging.remapped", "aging.overwritten", "aging.nvram_used", "aging.nvram_valid", "recovery.head_pages", "recovery.tail_pages", "recovery.oob_pages", "recovery.bitmap_pages", "recovery.translation_pages", "recovery.log_pages", "recovery.nvram_bytes", "recovery.records", "recovery.superblocks", "recovery.mapped", "recovery.lost", "recovery.aborted", "recovery.saved_pages"]

SampleName = Literal["at_s", "bandwidth_mib_s", "written_mib_s", "iops", "gc_runs", "gc_pages_s", "write_amplification", "free_superblocks", "demotions", "nvram_used", "backlog", "usable_pages"]
