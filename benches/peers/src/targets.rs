//! The performance targets, and whether they are met. The other stores have their usual durability,
//! as in the first table of the report.

use std::fmt::Write;

use crate::report::{Report, number};
use crate::spec::*;
use crate::stores::{KVSTORE, LMDB, SNKV, SNKV_CHECKPOINTED, SQLITE};

/// Returns a list of all targets with the measured values.
pub fn targets(report: &Report) -> String {
    let mut targets = Targets { report, out: String::new(), counts: [0; 3] };
    targets.keep();
    targets.reach();
    targets.grow();
    let [met, missed, unknown] = targets.counts;
    let _ = writeln!(targets.out, "{met} met, {missed} missed, {unknown} not measured");
    targets.out
}

struct Targets<'a, 'b> {
    report: &'a Report<'b>,
    out: String,
    /// Met, missed, not measured.
    counts: [usize; 3],
}

impl Targets<'_, '_> {
    /// Targets that were met earlier and must stay met.
    fn keep(&mut self) {
        self.title("Kept");
        self.of_peer(LMDB, GET, 1.4);
        self.of_snkv(false, GET, 0.7);
        self.of_own(GET_TTL, GET, 1.1);
        self.of_peer(LMDB, EXISTS, 1.2);
        self.of_peer(LMDB, MISS, 1.2);
        self.at_most(WAL, 32.0, "MB");
        self.at_most(BIG_FILE, 1.1, "x the data");
        self.of_peer(LMDB, BIG_GET, 1.6);
        self.at_least("two threads, own handles", self.quotient(THREADS_1, THREADS_2), 1.7, "x one thread");
        self.at_most(STALE, 0.0, "of 200");
        self.at_most(PURGE_NOTHING, 3000.0, "ns");
        self.at_most(MEMORY, 12.0, "MB");
    }

    fn reach(&mut self) {
        self.title("New");
        self.at_most(OVERWRITE, 11_000.0, "ns");
        self.of_snkv(true, OVERWRITE, 0.45);
        self.at_most(&percentile(OVERWRITE, "p50"), 6000.0, "ns");
        self.at_most(&percentile(OVERWRITE, "p99.9"), 300_000.0, "ns");
        self.at_most(&percentile(OVERWRITE, "max"), 15_000_000.0, "ns");
        self.at_most(PUT_TTL, 33_000.0, "ns");
        self.of_snkv(false, PUT_TTL, 0.75);
        self.at_most(&percentile(PUT_TTL, "p50"), 15_000.0, "ns");
        self.at_most(&percentile(PUT_TTL, "p99.9"), 1_000_000.0, "ns");
        self.of_peer(LMDB, MIXED, 0.6);
        self.of_peer(LMDB, DELETE, 0.5);
        self.of_peer(LMDB, OVERWRITE_TRANSACTION, 2.0);
        self.of_peer(LMDB, DELETE_TRANSACTION, 2.0);
        let lmdb = self.report.value(LMDB, OVERWRITE_TRANSACTION);
        self.factor(OVERWRITE_BATCH, 2.0, "LMDB in one transaction", lmdb);
        self.elsewhere("put_many of 10 000 (Python)", "<= 2 x LMDB");
        self.of_snkv(true, LOAD, 0.75);
        self.of_snkv(false, LOAD_TTL, 0.8);
        self.of_snkv(false, FSYNC_P50, 0.65);
        self.of_snkv(false, PURGE, 0.7);
        self.of_snkv(false, GET_EXPIRED, 0.7);
        self.of_own(GET_UNHELD, GET, 1.6);
        self.of_peer(LMDB, PREFIX, 1.0);
        self.of_peer(LMDB, SCAN, 1.0);
        self.of_own(SCAN_TTL, SCAN, 1.2);
        self.of_own(PREFIX_TTL, PREFIX, 1.2);
        self.at_most(FETCH, 25.0, "ns");
        self.elsewhere("items(), per row (Python)", "<= 130 ns");
        self.at_most(HOT, 300.0, "ns");
        self.at_most(OPEN, 150_000.0, "ns");
        self.at_least("reads/s beside a writing process", self.quotient(ALONE, BESIDE), 0.5, "x alone");
        self.at_most(LIBRARY, 1.7, "MB");
        for workload in [YCSB_A, YCSB_B, YCSB_C, YCSB_F, SESSION] {
            self.ahead(SNKV_CHECKPOINTED, workload);
            self.ahead(SQLITE, workload);
        }
    }

    fn grow(&mut self) {
        self.title("How cost grows");
        for workload in [FAMILIES_PURGE_ALL, FAMILIES_NEXT, FAMILIES_CLEANER] {
            let value = self.report.results.median_at(KVSTORE, workload, TARGET_FAMILIES);
            let measured = value.map(|value| (number(value), value <= 1e6));
            self.line(workload, &format!("<= 1 ms with {TARGET_FAMILIES} families"), measured);
        }
    }

    fn title(&mut self, title: &str) {
        let _ = writeln!(self.out, "-- {title}");
    }

    fn line(&mut self, what: &str, target: &str, measured: Option<(String, bool)>) {
        let (text, verdict, which) = match measured {
            Some((text, true)) => (text, "met", 0),
            Some((text, false)) => (text, "MISSED", 1),
            None => (String::new(), "not measured", 2),
        };
        self.counts[which] += 1;
        let _ = writeln!(self.out, "{what:<44}{target:<42}{text:<24}{verdict}");
    }

    fn elsewhere(&mut self, what: &str, target: &str) {
        self.counts[2] += 1;
        let _ = writeln!(self.out, "{what:<44}{target:<42}{:<24}see make bench-python", "");
    }

    fn quotient(&self, a: &str, b: &str) -> Option<f64> {
        Some(self.report.value(KVSTORE, a)? / self.report.value(KVSTORE, b)?)
    }

    fn compare(&mut self, workload: &str, target: &str, other: Option<f64>, is_met: impl Fn(f64) -> bool) {
        let ours = self.report.value(KVSTORE, workload);
        let ratio = ours.zip(other).map(|(ours, other)| ours / other);
        let measured =
            ratio.map(|ratio| (format!("{ratio:.2} ({})", number(ours.unwrap_or(0.0))), is_met(ratio)));
        self.line(workload, target, measured);
    }

    fn factor(&mut self, workload: &str, factor: f64, of: &str, other: Option<f64>) {
        self.compare(workload, &format!("<= {factor} x {of}"), other, |ratio| ratio <= factor);
    }

    fn ahead(&mut self, peer: &str, workload: &str) {
        self.compare(workload, &format!("ahead of {peer}"), self.report.value(peer, workload), |ratio| {
            ratio < 1.0
        });
    }

    fn of_peer(&mut self, peer: &str, workload: &str, factor: f64) {
        self.factor(workload, factor, peer, self.report.value(peer, workload));
    }

    fn of_own(&mut self, workload: &str, other: &str, factor: f64) {
        self.factor(workload, factor, &format!("own {other}"), self.report.value(KVSTORE, other));
    }

    fn of_snkv(&mut self, checkpointed: bool, workload: &str, factor: f64) {
        let name = if checkpointed { SNKV_CHECKPOINTED } else { SNKV };
        let value = self.report.snkv(checkpointed, workload);
        let of = if value.is_some_and(|(_, estimated)| estimated) {
            format!("{name} (estimated)")
        } else {
            name.to_string()
        };
        self.factor(workload, factor, &of, value.map(|(value, _)| value));
    }

    fn at_most(&mut self, workload: &str, most: f64, unit: &str) {
        let measured = self.report.value(KVSTORE, workload).map(|value| (number(value), value <= most));
        self.line(workload, &format!("<= {} {unit}", number(most)), measured);
    }

    fn at_least(&mut self, what: &str, value: Option<f64>, least: f64, unit: &str) {
        let measured = value.map(|value| (format!("{value:.2}"), value >= least));
        self.line(what, &format!(">= {least} {unit}"), measured);
    }
}
