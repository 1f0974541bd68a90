//! Judges the outcome of the workflow demo, and formats it.
//!
//! Not here: running it (`play`).

use std::time::Duration;

use serde_json::{Value, json};

use super::play::{RequestOutcome, WorkflowOutcome};
use crate::table::{self, Column, count, number, whole};
use crate::workflow::provision::millis;

const COLUMNS: [Column; 10] = [
    whole("RUN"),
    whole("REQUEST"),
    whole("WANTED"),
    number("REUSED"),
    number("STARTED"),
    number("CREATED"),
    number("ASSIGNED"),
    number("LISTENING"),
    number("JOB"),
    number("JOBS"),
];

/// The report of a demo.
#[derive(Debug)]
pub(super) struct WorkflowReport {
    outcome: WorkflowOutcome,
    /// The pretended time of a boot.
    boot: Duration,
    /// The number of machines that the demo ended.
    machines: usize,
    /// The duration of the demo.
    took: Duration,
}

/// The times of a cold and a warm request.
struct Ratio {
    cold: Duration,
    warm: Duration,
}

impl Ratio {
    fn with_boot(&self) -> f64 {
        self.cold.as_secs_f64() / self.warm.as_secs_f64()
    }

    fn without(&self, boot: Duration) -> f64 {
        self.cold.saturating_sub(boot).as_secs_f64() / self.warm.as_secs_f64()
    }
}

impl WorkflowReport {
    /// The report of this outcome.
    pub(super) fn new(
        outcome: WorkflowOutcome,
        boot: Duration,
        machines: usize,
        took: Duration,
    ) -> Self {
        Self { outcome, boot, machines, took }
    }

    /// The differences from the expected outcome.
    pub(super) fn wrong(&self) -> Vec<String> {
        let rows = self.outcome.rows.iter().flat_map(wrong_with);
        let created: u32 = self.outcome.rows.iter().map(|row| row.tiers.created).sum();
        let machines = u32::try_from(self.machines).unwrap_or(u32::MAX);
        let lost = (created != machines).then(|| {
            format!("{created} machines were created, and {machines} ended with the demo")
        });
        rows.chain(lost).chain(self.outcome.violations.iter().cloned()).collect()
    }

    /// The times until the last machine listened; `None` if either run is missing.
    fn ratio(&self) -> Option<Ratio> {
        let of = |word| self.outcome.rows.iter().find(|row| row.run == word);
        Some(Ratio { cold: of("cold")?.listening, warm: of("warm")?.listening })
    }

    /// The text for people.
    pub(super) fn text(&self) -> String {
        let rows: Vec<_> = self.outcome.rows.iter().map(row).collect();
        let mut lines = table::lines(&COLUMNS, &rows, table::NARROWEST);
        let boot = self.boot.as_secs_f64();
        lines.push(format!(
            "\nTimes are in ms from the request's beginning: until every assignment was stored, \
             until the\nlast machine listened, and until the first job started.\n\
             A new machine pretends to boot for {boot} s: a model's number, and most of the time of \
             a\ncold request here."
        ));
        if let Some(ratio) = self.ratio() {
            let (warm, cold) = (ratio.warm.as_millis(), ratio.cold.as_millis());
            lines.push(format!(
                "Warm to cold, until all listen: 1 : {:.1} ({warm} ms to {cold} ms); without the \
                 pretended boot 1 : {:.1}.",
                ratio.with_boot(),
                ratio.without(self.boot)
            ));
        }
        let WorkflowOutcome { records, violations, .. } = &self.outcome;
        lines.push(format!(
            "ledger verify: {}, {}. {}, all gone; {:.1} s in all.",
            count(*records, "record"),
            count(violations.len(), "violation"),
            count(self.machines, "machine"),
            self.took.as_secs_f64()
        ));
        lines.join("\n")
    }

    /// The object for programs.
    pub(super) fn json(&self) -> Value {
        let rows: Vec<Value> = self.outcome.rows.iter().map(object).collect();
        json!({
            "requests": rows,
            "pretended_boot_ms": millis(self.boot),
            "cold_to_warm": self.ratio().map(|ratio| ratio.with_boot()),
            "cold_to_warm_without_boot": self.ratio().map(|ratio| ratio.without(self.boot)),
            "records": self.outcome.records,
            "violations": self.outcome.violations,
            "machines": self.machines,
            "took_ms": millis(self.took),
            "wrong": self.wrong(),
        })
    }
}

fn wrong_with(row: &RequestOutcome) -> Vec<String> {
    let RequestOutcome { wanted, tiers, jobs, returned, .. } = row;
    let (id, count) = (wanted.id, wanted.count);
    let mut wrong = Vec::new();
    if *tiers != wanted.expected {
        wrong.push(format!("{id}: {tiers:?} instead of {:?}", wanted.expected));
    }
    if *jobs != count {
        wrong.push(format!("{id}: {jobs} of {count} jobs did their work"));
    }
    if u32::try_from(*returned) != Ok(count) {
        wrong.push(format!("{id}: {returned} of {count} machines are idle again"));
    }
    wrong
}

fn row(row: &RequestOutcome) -> [String; COLUMNS.len()] {
    let RequestOutcome { run, wanted, tiers, jobs, .. } = row;
    let machines = format!("{} {}", wanted.count, wanted.usage.as_str());
    let [reused, started, created] =
        [tiers.reused, tiers.started, tiers.created].map(|number| number.to_string());
    let [assigned, listening, first] =
        [row.assigned, row.listening, row.first_job].map(|time| time.as_millis().to_string());
    let (run, request, done) =
        ((*run).to_owned(), wanted.id.to_owned(), format!("{jobs}/{}", wanted.count));
    [run, request, machines, reused, started, created, assigned, listening, first, done]
}

fn object(row: &RequestOutcome) -> Value {
    json!({
        "run": row.run,
        "request": row.wanted.id,
        "class": "large",
        "usage": row.wanted.usage,
        "requested": row.wanted.count,
        "reused": row.tiers.reused,
        "started": row.tiers.started,
        "created": row.tiers.created,
        "assigned_ms": millis(row.assigned),
        "listening_ms": millis(row.listening),
        "first_job_ms": millis(row.first_job),
        "jobs_done": row.jobs,
        "returned": row.returned,
    })
}

#[cfg(test)]
mod tests {
    use super::super::script::{RUNS, Tiers};
    use super::*;

    fn report() -> WorkflowReport {
        let rows = RUNS.iter().flat_map(|run| {
            run.requests.iter().map(|request| RequestOutcome {
                run: run.name,
                wanted: *request,
                tiers: request.expected,
                assigned: Duration::from_millis(5),
                listening: Duration::from_millis(if run.name == "cold" { 2_300 } else { 100 }),
                first_job: Duration::from_millis(2_400),
                jobs: request.count,
                returned: usize::try_from(request.count).unwrap(),
            })
        });
        let outcome = WorkflowOutcome { rows: rows.collect(), records: 6, violations: Vec::new() };
        WorkflowReport::new(outcome, Duration::from_secs(2), 6, Duration::from_secs(7))
    }

    #[test]
    fn the_expected_outcome_has_no_errors() {
        let report = report();
        assert_eq!(report.wrong(), Vec::<String>::new());
        let text = report.text();
        assert!(text.contains("1 : 23.0 (100 ms to 2300 ms)"), "{text}");
        assert!(text.contains("without the pretended boot 1 : 3.0"), "{text}");
        assert!(text.contains("pretends to boot for 2 s"), "{text}");
    }

    #[test]
    fn every_other_outcome_is_an_error_with_a_name() {
        let mut report = report();
        report.outcome.rows[1].tiers = Tiers { reused: 3, started: 0, created: 1 };
        report.outcome.rows[2].jobs = 3;
        report.outcome.rows[3].returned = 1;
        report.outcome.violations.push("I1: two owners".to_owned());
        let wrong = report.wrong();
        assert_eq!(wrong.len(), 5, "{wrong:?}");
        for (wrong, error) in wrong.iter().zip([
            "2.1.build: Tiers { reused: 3, started: 0, created: 1 }",
            "3.1.build: 3 of 4 jobs",
            "3.1.spot: 1 of 2 machines",
            "7 machines were created, and 6 ended",
            "I1: two owners",
        ]) {
            assert!(wrong.contains(error), "{wrong}");
        }
        assert_eq!(report.json()["wrong"].as_array().map(Vec::len), Some(5));
    }
}
