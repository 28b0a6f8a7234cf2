//! Counters as JSON: the result of `PRAGMA remap_ssd_statistics`.

use crate::database::DatabaseCounters;
use crate::journal::JournalCounters;
use crate::wal::WalCounters;
use remap_ssd_store::Store;
use serde_json::{Value, json};

/// Counters of a store in this process.
pub(crate) fn of_store(store: &dyn Store) -> Value {
    let done = store.statistics();
    json!({"store": {
        "pages_shared": done.pages_shared,
        "pages_copied": done.pages_copied,
        "copied_because": done.copied_because,
        "pages_written": done.pages_written,
        "pages_read_to_write": done.pages_read_to_write,
        "pages_read": done.pages_read,
        "pages_found_in_memory": done.pages_found,
        "pages_discarded": done.pages_discarded,
        "pages_metadata": done.pages_metadata,
        "syncs": done.syncs,
    }})
}

/// Counters of a connection's log.
pub(crate) fn of_wal(done: &WalCounters) -> Value {
    json!({
        "frames_stamped": done.frames_stamped,
        "frames_raw": done.frames_raw,
        "header_pages": done.header_pages,
        "headers_alone": done.headers_alone,
        "pages_alone": done.pages_alone,
        "pages": done.pages,
        "runs": done.runs,
    })
}

/// Counters of a connection's journals.
pub(crate) fn of_journal(done: &JournalCounters) -> Value {
    json!({
        "images_copied": done.images_copied,
        "images_not_equal": done.images_not_equal,
        "images_not_shareable": done.images_not_shareable,
        "metadata_pages": done.metadata_pages,
        "invalidations": done.invalidations,
        "images_bad": done.images_bad,
    })
}

/// Adds counters: in most modes each transaction has its own journal.
pub(crate) fn sum(a: &JournalCounters, b: &JournalCounters) -> JournalCounters {
    JournalCounters {
        images_copied: a.images_copied + b.images_copied,
        images_not_equal: a.images_not_equal + b.images_not_equal,
        images_not_shareable: a.images_not_shareable + b.images_not_shareable,
        metadata_pages: a.metadata_pages + b.metadata_pages,
        invalidations: a.invalidations + b.invalidations,
        images_bad: a.images_bad + b.images_bad,
    }
}

/// Counters of a database.
pub(crate) fn of_database(counters: &DatabaseCounters) -> Value {
    json!({
        "pages_shared": counters.pages_shared,
        "pages_shared_with_others": counters.pages_shared_with_others,
        "pages_written": counters.pages_written,
        "pages_written_in_checkpoints": counters.pages_written_in_checkpoints,
    })
}
