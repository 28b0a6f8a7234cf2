//! `bench`: its contract.

use crate::kit::run;

#[test]
fn the_bench_says_all_it_promises() {
    let results = run(&["bench", "--quick", "--json"]).ok().json();
    let fields = [
        "page_ops_per_s",
        "page_ops_per_s_no_dedup",
        "programs_per_s",
        "host_pages_per_s",
        "bare_page_ops_per_s",
        "recovery_pages_per_s",
        "nvram_bytes",
        "aging_s",
    ];
    for field in fields {
        assert!(results[field].as_f64().is_some_and(|value| value > 0.0), "{field}: {results}");
    }
    if cfg!(target_os = "linux") {
        let (full, bare) =
            (results["bytes_per_page"].as_f64().unwrap(), results["bytes_per_page_no_dedup"].as_f64().unwrap());
        assert!(bare > 0.0 && bare < full, "{bare} {full}");
    }
}
