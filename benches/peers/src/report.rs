//! The tables and the CSV files.

use std::fmt::Write;
use std::path::Path;

use crate::measure::{Results, median};
use crate::spec::*;
use crate::store::Kind;
use crate::stores::{KVSTORE, SNKV, SNKV_CHECKPOINTED, SQLITE};

/// Median values, and for SNKV, where it was not measured, an estimate.
pub struct Report<'a> {
    pub results: &'a Results,
    pub kinds: &'a [Kind],
}

impl Report<'_> {
    pub fn value(&self, store: &str, workload: &str) -> Option<f64> {
        self.results.median(store, workload)
    }

    /// SNKV's value, and whether it is an estimate.
    pub fn snkv(&self, checkpointed: bool, workload: &str) -> Option<(f64, bool)> {
        let store = if checkpointed { SNKV_CHECKPOINTED } else { SNKV };
        if let Some(value) = self.value(store, workload) {
            return Some((value, false));
        }
        // The recorded figure for puts with fsync has no percentiles, so one value stands for both.
        let name = if workload == FSYNC_P50 { FSYNC } else { workload };
        let [snkv, with_checkpoints, sqlite] = WORKLOADS.iter().find(|w| w.name == name)?.then;
        let then = if checkpointed { with_checkpoints } else { snkv };
        let now = self.value(SQLITE, workload)?;
        (then > 0.0 && sqlite > 0.0).then_some((then * now / sqlite, true))
    }

    /// Returns, for each store, what may be lost at a power cut.
    pub fn promises(&self) -> String {
        let line = |kind: &Kind| format!("{:<11}{}\n", kind.name, kind.promise);
        self.kinds.iter().map(line).collect()
    }

    /// Table of all workloads, with each store in its usual configuration.
    pub fn table(&self) -> String {
        let stores: Vec<&Kind> =
            self.kinds.iter().filter(|kind| !kind.writes_only || kind.name == SNKV_CHECKPOINTED).collect();
        let mut out = self.rows(&stores, |_| true, &str::to_string, !self.has(SNKV));
        for (what, workload) in [("mean", FSYNC), ("p50", FSYNC_P50)] {
            if let Some(floor) = self.value(FLOOR, workload) {
                let _ = writeln!(out, "{:<44}{:>7}{:>11}", format!("{FLOOR}, {what}"), "ns", number(floor));
            }
        }
        out
    }

    /// The writes, and only stores that promise at least what kvstore does.
    pub fn table_of_equals(&self) -> String {
        let stores: Vec<&Kind> = self.kinds.iter().filter(|kind| kind.keeps).collect();
        self.rows(&stores, |workload| workload.writes, &str::to_string, false)
    }

    /// The writes of all stores, each with the work that the store has postponed.
    pub fn table_of_settled(&self) -> String {
        self.rows(&self.kinds.iter().collect::<Vec<_>>(), |workload| workload.writes, &settled, false)
    }

    fn has(&self, store: &str) -> bool {
        self.kinds.iter().any(|kind| kind.name == store)
    }

    /// `named` returns the name of the values of a workload.
    fn rows(
        &self,
        stores: &[&Kind],
        chosen: impl Fn(&Workload) -> bool,
        named: &dyn Fn(&str) -> String,
        estimated: bool,
    ) -> String {
        let mut out = String::new();
        let _ = write!(out, "{:<44}{:>7}{:>11}", "", "unit", KVSTORE);
        let peers: Vec<&Kind> = stores.iter().copied().filter(|kind| kind.name != KVSTORE).collect();
        for peer in &peers {
            let _ = write!(out, "{:>19}", peer.name);
        }
        let _ =
            writeln!(out, "{}", if estimated { format!("{:>19}", "SNKV, estimated") } else { String::new() });
        let mut marked = false;
        for Workload { name, unit, .. } in WORKLOADS.iter().filter(|workload| chosen(workload)) {
            let values = named(name);
            let ours = self.value(KVSTORE, &values);
            let mut cells = String::new();
            let mut any = ours.is_some();
            for peer in &peers {
                let value = self.value(peer.name, &values);
                any |= value.is_some();
                let mark = if *name == SESSION && !peer.ttl { "*" } else { "" };
                marked |= value.is_some() && !mark.is_empty();
                let text = value.map_or("-".into(), |value| mark.to_string() + &with_ratio(ours, value));
                let _ = write!(cells, "{text:>19}");
            }
            if estimated && let Some((value, true)) = self.snkv(false, name) {
                let _ = write!(cells, "{:>19}", with_ratio(ours, value));
            }
            if any {
                let ours = ours.map_or("-".into(), number);
                let _ = writeln!(out, "{name:<44}{unit:>7}{ours:>11}{cells}");
            }
        }
        if marked {
            out.push_str(
                "* without expiry: the value is read and written back, and nothing is ever removed\n",
            );
        }
        out
    }

    /// Table of percentiles of the single operations, for each writing workload and store.
    pub fn percentiles(&self) -> String {
        let mut out = format!("{:<44}{:>11}", "ns", "mean");
        for which in PERCENTILES {
            let _ = write!(out, "{which:>14}");
        }
        out.push('\n');
        for Workload { name, .. } in WORKLOADS.iter().filter(|workload| workload.percentiles) {
            let mut title = Some(name);
            for kind in self.kinds {
                let Some(mean) = self.value(kind.name, name) else { continue };
                if let Some(title) = title.take() {
                    let _ = writeln!(out, "{title}");
                }
                let mark = if *name == SESSION && !kind.ttl { "*" } else { "" };
                let _ = write!(out, "    {:<40}{:>11}", format!("{}{mark}", kind.name), number(mean));
                for which in PERCENTILES {
                    let value = self.value(kind.name, &percentile(name, which));
                    let _ = write!(out, "{:>14}", value.map_or("-".into(), number));
                }
                out.push('\n');
            }
        }
        out
    }

    /// How costs grow with the numbers of keys and of families.
    pub fn growth(&self) -> String {
        let counts = FAMILY_COUNTS.map(|count| count as u64);
        let mut out = String::new();
        self.grown(&mut out, "by number of keys", GROWTH, &[10_000, 100_000, 1_000_000, 10_000_000], KVSTORE);
        self.grown(&mut out, "by number of families", FAMILIES, &counts, KVSTORE);
        self.grown(&mut out, "by number of families", FAMILIES, &counts, SNKV);
        out
    }

    fn grown(&self, out: &mut String, by: &str, rows: &[(&str, &str)], numbers: &[u64], store: &str) {
        let at = |workload: &str, n: u64| self.results.median_at(store, workload, n);
        let measured = |n: &u64| rows.iter().any(|(name, _)| at(name, *n).is_some());
        let numbers: Vec<u64> = numbers.iter().copied().filter(measured).collect();
        if numbers.is_empty() {
            return;
        }
        if !out.is_empty() {
            out.push('\n');
        }
        let _ = write!(out, "{:<44}{:>7}", format!("{store}, {by}"), "unit");
        for n in &numbers {
            let _ = write!(out, "{n:>13}");
        }
        out.push('\n');
        for (name, unit) in rows {
            let values: Vec<Option<f64>> = numbers.iter().map(|n| at(name, *n)).collect();
            if values.iter().any(Option::is_some) {
                let short = name.split_once(": ").map_or(*name, |(_, short)| short);
                let _ = write!(out, "{short:<44}{unit:>7}");
                for value in values {
                    let _ = write!(out, "{:>13}", value.map_or("-".into(), number));
                }
                out.push('\n');
            }
        }
    }

    /// `rounds.csv` has every measured value, `summary.csv` the medians; charts.py reads the second.
    pub fn csv(&self, folder: &Path) -> std::io::Result<()> {
        let (mut rounds, mut summary) = (
            "workload,unit,keys,store,round,value\n".to_string(),
            "workload,unit,keys,store,estimated,keeps,median,kvstore_ratio\n".to_string(),
        );
        let keeps = |store: &str| {
            if self.kinds.iter().any(|kind| kind.name == store && kind.keeps) { "yes" } else { "no" }
        };
        let all = WORKLOADS.iter().flat_map(|w| {
            let which: &[&str] = if w.percentiles { &PERCENTILES } else { &[] };
            let more = which.iter().map(|which| percentile(w.name, which));
            std::iter::once(w.name.to_string()).chain(more).map(|name| (name, w.unit))
        });
        let grown = GROWTH.iter().chain(FAMILIES).map(|(name, unit)| ((*name).to_string(), *unit));
        for (workload, unit) in all.chain(grown) {
            for (what, values) in self.results.values.iter().filter(|(what, _)| what.workload == workload) {
                let start = format!("\"{workload}\",{unit},{},{}", what.n, what.store);
                for (round, value) in values.iter().enumerate() {
                    let _ = writeln!(rounds, "{start},{round},{value:.3}");
                }
                let (value, ours) = (median(values), self.results.median_at(KVSTORE, &workload, what.n));
                let ratio = ours.map_or(String::new(), |ours| format!("{:.4}", ours / value));
                let _ = writeln!(summary, "{start},no,{},{value:.3},{ratio}", keeps(what.store));
            }
            for (checkpointed, store) in [(false, SNKV), (true, SNKV_CHECKPOINTED)] {
                if let Some((value, true)) = self.snkv(checkpointed, &workload) {
                    let ours = self.value(KVSTORE, &workload);
                    let ratio = ours.map_or(String::new(), |ours| format!("{:.4}", ours / value));
                    let keeps = if checkpointed { "yes" } else { "no" };
                    let _ =
                        writeln!(summary, "\"{workload}\",{unit},0,{store},yes,{keeps},{value:.3},{ratio}");
                }
            }
        }
        std::fs::write(folder.join("rounds.csv"), rounds)?;
        std::fs::write(folder.join("summary.csv"), summary)
    }
}

fn with_ratio(ours: Option<f64>, value: f64) -> String {
    match ours {
        Some(ours) if value > 0.0 => format!("{} ({:.2})", number(value), ours / value),
        _ => number(value),
    }
}

/// Formats a value with three significant digits and a separator between thousands.
pub fn number(value: f64) -> String {
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
