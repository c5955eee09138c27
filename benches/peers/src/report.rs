//! The table, the targets and the CSV files.

use std::fmt::Write;
use std::path::Path;

use crate::measure::{Results, median};
use crate::spec::*;
use crate::stores::{KVSTORE, LMDB, SNKV, SNKV_CHECKPOINTED, SQLITE};

/// Median values, and for SNKV, where it was not measured, an estimate.
pub struct Report<'a> {
    pub results: &'a Results,
    pub stores: Vec<&'static str>,
}

impl Report<'_> {
    fn value(&self, store: &str, workload: &str) -> Option<f64> {
        self.results.median(store, workload)
    }

    fn snkv(&self, checkpointed: bool, workload: &str) -> Option<(f64, bool)> {
        let store = if checkpointed { SNKV_CHECKPOINTED } else { SNKV };
        if let Some(value) = self.value(store, workload) {
            return Some((value, false));
        }
        let [snkv, with_checkpoints, sqlite] = WORKLOADS.iter().find(|w| w.name == workload)?.then;
        let then = if checkpointed { with_checkpoints } else { snkv };
        let now = self.value(SQLITE, workload)?;
        (then > 0.0 && sqlite > 0.0).then_some((then * now / sqlite, true))
    }

    pub fn table(&self) -> String {
        let mut out = String::new();
        let estimated = !self.stores.contains(&SNKV);
        let _ = write!(out, "{:<44}{:>7}{:>11}", "", "unit", KVSTORE);
        let peers: Vec<&str> = self.stores.iter().copied().filter(|store| *store != KVSTORE).collect();
        for peer in &peers {
            let _ = write!(out, "{peer:>19}");
        }
        let _ =
            writeln!(out, "{}", if estimated { format!("{:>19}", "SNKV, estimated") } else { String::new() });
        for Workload { name, unit, .. } in WORKLOADS {
            let ours = self.value(KVSTORE, name);
            let mut cells = String::new();
            let mut any = ours.is_some();
            for peer in &peers {
                let value = self.value(peer, name);
                any |= value.is_some();
                let _ = write!(cells, "{:>19}", value.map_or("-".into(), |value| with_ratio(ours, value)));
            }
            if estimated && let Some((value, true)) = self.snkv(false, name) {
                let _ = write!(cells, "{:>19}", with_ratio(ours, value));
            }
            if any {
                let ours = ours.map_or("-".into(), number);
                let _ = writeln!(out, "{name:<44}{unit:>7}{ours:>11}{cells}");
            }
        }
        for (what, workload) in [("mean", FSYNC), ("p50", FSYNC_P50)] {
            if let Some(floor) = self.value(FLOOR, workload) {
                let _ = writeln!(out, "{:<44}{:>7}{:>11}", format!("{FLOOR}, {what}"), "ns", number(floor));
            }
        }
        let growth: Vec<u64> = [10_000, 100_000, 1_000_000, 10_000_000]
            .into_iter()
            .filter(|n| GROWTH.iter().any(|(name, _)| self.results.median_at(KVSTORE, name, *n).is_some()))
            .collect();
        if !growth.is_empty() {
            let _ = write!(out, "\n{:<44}{:>7}", "kvstore, by number of keys", "unit");
            for n in &growth {
                let _ = write!(out, "{n:>11}");
            }
            for (name, unit) in GROWTH {
                let _ = write!(out, "\n{:<44}{unit:>7}", name.trim_start_matches("growth: "));
                for n in &growth {
                    let value = self.results.median_at(KVSTORE, name, *n);
                    let _ = write!(out, "{:>11}", value.map_or("-".into(), number));
                }
            }
            out.push('\n');
        }
        out
    }

    /// Each target with what was measured, and whether it is met.
    pub fn targets(&self) -> String {
        let mut targets = Targets { report: self, out: String::new(), counts: [0; 3] };
        let t = &mut targets;
        let lmdb = |t: &mut Targets, workload, factor| t.of_peer(LMDB, workload, factor);
        lmdb(t, GET, 1.4);
        t.of_snkv(false, GET, 0.5);
        t.of_own(GET_TTL, GET, 1.1);
        t.at_most(HOT, 350.0, "ns");
        lmdb(t, EXISTS, 1.4);
        lmdb(t, MISS, 1.4);
        lmdb(t, SCAN, 1.0);
        lmdb(t, PREFIX, 1.0);
        t.of_own(SCAN_TTL, SCAN, 1.15);
        t.of_own(PREFIX_TTL, PREFIX, 1.15);
        lmdb(t, LOAD, 2.2);
        t.of_snkv(true, LOAD, 0.8);
        t.of_snkv(false, LOAD_TTL, 0.6);
        lmdb(t, OVERWRITE, 0.65);
        t.of_snkv(true, OVERWRITE, 0.5);
        t.at_most("overwrite, auto, p50", 9000.0, "ns");
        t.at_most(WAL, 32.0, "MB");
        t.of_snkv(false, PUT_TTL, 0.4);
        t.of_snkv(false, FSYNC_P50, 1.0);
        t.of_peer(FLOOR, FSYNC_P50, 2.0);
        lmdb(t, MIXED, 0.8);
        t.of_snkv(false, PURGE, 0.35);
        t.at_most(PURGE_NOTHING, 3000.0, "ns");
        t.at_most(OPEN, 250_000.0, "ns");
        t.at_most(OPEN_TTL, 250_000.0, "ns");
        t.at_most(BIG_FILE, 1.1, "x the data");
        lmdb(t, BIG_GET, 1.6);
        lmdb(t, BIG_OVERWRITE, 1.0);
        t.at_least("two threads, own handles", self.quotient(THREADS_1, THREADS_2), 1.7, "x one thread");
        t.at_most(STALE, 0.0, "of 200");
        t.at_least("reads/s beside a writing process", self.quotient(ALONE, BESIDE), 0.7, "x alone");
        t.at_most(LIBRARY, 1.5, "MB");
        t.at_most(MEMORY, 12.0, "MB");
        let [met, missed, unknown] = targets.counts;
        let _ = writeln!(targets.out, "{met} met, {missed} missed, {unknown} not measured");
        targets.out
    }

    fn quotient(&self, a: &str, b: &str) -> Option<f64> {
        Some(self.value(KVSTORE, a)? / self.value(KVSTORE, b)?)
    }

    /// `rounds.csv` has every measured value, `summary.csv` the medians; charts.py reads the second.
    pub fn csv(&self, folder: &Path) -> std::io::Result<()> {
        let (mut rounds, mut summary) = (
            "workload,unit,keys,store,round,value\n".to_string(),
            "workload,unit,keys,store,estimated,median,kvstore_ratio\n".to_string(),
        );
        let all = WORKLOADS.iter().map(|w| (w.name, w.unit));
        for (workload, unit) in all.chain(GROWTH.iter().copied()) {
            for (what, values) in self.results.values.iter().filter(|(what, _)| what.workload == workload) {
                let start = format!("\"{workload}\",{unit},{},{}", what.n, what.store);
                for (round, value) in values.iter().enumerate() {
                    let _ = writeln!(rounds, "{start},{round},{value:.3}");
                }
                let (value, ours) = (median(values), self.results.median_at(KVSTORE, workload, what.n));
                let ratio = ours.map_or(String::new(), |ours| format!("{:.4}", ours / value));
                let _ = writeln!(summary, "{start},no,{value:.3},{ratio}");
            }
            for (checkpointed, store) in [(false, SNKV), (true, SNKV_CHECKPOINTED)] {
                if let Some((value, true)) = self.snkv(checkpointed, workload) {
                    let ours = self.value(KVSTORE, workload);
                    let ratio = ours.map_or(String::new(), |ours| format!("{:.4}", ours / value));
                    let _ = writeln!(summary, "\"{workload}\",{unit},0,{store},yes,{value:.3},{ratio}");
                }
            }
        }
        std::fs::write(folder.join("rounds.csv"), rounds)?;
        std::fs::write(folder.join("summary.csv"), summary)
    }
}

struct Targets<'a, 'b> {
    report: &'a Report<'b>,
    out: String,
    /// Met, missed, not measured.
    counts: [usize; 3],
}

impl Targets<'_, '_> {
    fn line(&mut self, what: &str, target: &str, measured: Option<(String, bool)>) {
        let (text, verdict, which) = match measured {
            Some((text, true)) => (text, "met", 0),
            Some((text, false)) => (text, "MISSED", 1),
            None => (String::new(), "not measured", 2),
        };
        self.counts[which] += 1;
        let _ = writeln!(self.out, "{what:<44}{target:<42}{text:<24}{verdict}");
    }

    fn factor(&mut self, workload: &str, factor: f64, of: &str, other: Option<f64>) {
        let ours = self.report.value(KVSTORE, workload);
        let ratio = ours.zip(other).map(|(ours, other)| ours / other);
        let measured =
            ratio.map(|ratio| (format!("{ratio:.2} ({})", number(ours.unwrap_or(0.0))), ratio <= factor));
        self.line(workload, &format!("<= {factor} x {of}"), measured);
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
        let of = format!("{name}{}", if matches!(value, Some((_, true))) { " (estimated)" } else { "" });
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

fn with_ratio(ours: Option<f64>, value: f64) -> String {
    match ours {
        Some(ours) if value > 0.0 => format!("{} ({:.2})", number(value), ours / value),
        _ => number(value),
    }
}

/// Three digits are enough, and more would be noise; thousands apart.
fn number(value: f64) -> String {
    if value < 100.0 && value.fract() != 0.0 {
        return format!("{value:.*}", if value < 10.0 { 2 } else { 1 });
    }
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}
