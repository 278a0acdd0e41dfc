//! One log line for each run and one for each attempt that ended, with everything that is known about it except its content.
//!
//! A line has ids, names, counts and times. It has no text of a question, a plan, an answer or a tool call, and no error message, because
//! a message may quote the vendor and the vendor may quote the prompt. `GET /v1/runs/{id}` shows the message.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use podium_domain::ids::{ClaimId, WorkerId};
use podium_domain::run::{Attempt, Run, TaskRef};
use podium_domain::trace::SpanId;
use tracing::info;

/// The target of the lines of runs: `log = "info,podium::run=off"` hides them.
const RUN: &str = "podium::run";
/// The target of the lines of attempts.
const ATTEMPT: &str = "podium::attempt";

/// Logs a run that ended. `took` excludes the time that it was suspended for.
pub(super) fn run_ended(run: &Run, outcome: &'static str, took: Duration) {
    let (spec, usage) = (run.spec(), run.usage());
    info!(
        target: RUN,
        run = %run.id(),
        trace_id = %run.trace_id(),
        tenant = %spec.tenant,
        key = spec.key.as_ref().map(tracing::field::display),
        model = spec.model,
        tier = spec.request.policy.tier.as_str(),
        conductor = spec.conductor,
        pool = spec.pool,
        outcome,
        duration_ms = milliseconds(took),
        rounds = run.rounds().len(),
        steps = run.rounds().iter().map(|round| round.steps.len()).sum::<usize>(),
        attempts = run.tasks().map(|(_, task)| task.attempts.len()).sum::<usize>(),
        workers = %workers_of(run),
        fallbacks = run.fallbacks(),
        input_tokens = usage.prompt_tokens,
        output_tokens = usage.completion_tokens,
        cost_nano_usd = run.cost().nano_usd(),
        wasted_cost_nano_usd = run.wasted_cost().nano_usd(),
        "run ended"
    );
}

/// Logs an attempt at a plan or a step that ended.
pub(super) fn attempt_ended(run: &Run, task: TaskRef, claim: ClaimId, outcome: &'static str) {
    let attempts = run.task(task).map_or(&[][..], |task| task.attempts.as_slice());
    let Some(at) = attempts.iter().position(|attempt| attempt.claim == claim) else { return };
    let attempt = &attempts[at];
    let spec = run.spec();
    info!(
        target: ATTEMPT,
        run = %run.id(),
        trace_id = %run.trace_id(),
        span_id = %SpanId::from(claim),
        tenant = %spec.tenant,
        tier = spec.request.policy.tier.as_str(),
        %task,
        attempt = at + 1,
        worker = attempt.worker.as_ref().map(WorkerId::as_str),
        process = attempt.executor,
        outcome,
        duration_ms = attempt.ended_at.map(|ended| milliseconds(ended.since(attempt.started_at))),
        first_token_ms = attempt.first_token_ms,
        input_tokens = attempt.usage.prompt_tokens,
        output_tokens = attempt.usage.completion_tokens,
        cost_nano_usd = attempt.cost.nano_usd(),
        "attempt ended"
    );
}

/// The workers that a run called, each once.
fn workers_of(run: &Run) -> impl fmt::Display {
    let attempts = run.tasks().flat_map(|(_, task)| &task.attempts);
    let workers: BTreeSet<_> =
        attempts.filter_map(|attempt: &Attempt| attempt.worker.as_ref().map(WorkerId::as_str)).collect();
    workers.into_iter().collect::<Vec<_>>().join(",")
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use podium_domain::ids::StepIndex;
    use podium_ports::clock::Ids as _;
    use podium_testkit::{Driven, SeededIds, a_spec, plan_of};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The log while `work` runs.
    fn logged(work: impl FnOnce()) -> String {
        let written = Written::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false);
        tracing::subscriber::with_default(subscriber.finish(), work);
        String::from_utf8(written.0.lock().unwrap().clone()).unwrap()
    }

    /// A run whose only step fails once, with a message that quotes the prompt, and then answers.
    fn a_run() -> (Run, [ClaimId; 2]) {
        let ids = SeededIds::new(1);
        let spec = a_spec();
        let mut driven = Driven::accept(ids.run_id(spec.accepted_at), spec);
        driven.plan(plan_of(&[("quick", "Look at the sky.", &[])]), &ids);
        let step = TaskRef::Step { round: 0, step: StepIndex::new(0) };
        let failed = driven.claim(step, &ids);
        driven.now = driven.now.after(Duration::from_millis(40));
        let now = driven.now;
        driven.fail(step, failed, Some(now));
        let answered = driven.claim(step, &ids);
        driven.now = driven.now.after(Duration::from_millis(70));
        driven.step_under(0, "It is blue.", answered);
        (driven.run, [failed, answered])
    }

    #[test]
    fn the_line_of_a_run_says_what_it_did_and_cost() {
        let (run, _) = a_run();
        let line = logged(|| run_ended(&run, "succeeded", Duration::from_millis(110)));
        assert_eq!(line.lines().count(), 1, "{line}");
        for part in [
            format!("run={} trace_id={} tenant=acme", run.id(), run.trace_id()),
            "podium::run: run ended".to_owned(),
            r#"tier="ultra""#.to_owned(),
            r#"outcome="succeeded" duration_ms=110 rounds=1 steps=1 attempts=3 workers=quick"#.to_owned(),
            format!("cost_nano_usd={}", run.cost().nano_usd()),
        ] {
            assert!(line.contains(&part), "`{part}` is not in {line}");
        }
    }

    #[test]
    fn the_line_of_an_attempt_names_its_worker_and_span() {
        let (run, [failed, _]) = a_run();
        let step = TaskRef::Step { round: 0, step: StepIndex::new(0) };
        let line = logged(|| attempt_ended(&run, step, failed, "failed"));
        let span = SpanId::from(failed);
        for part in [
            format!("trace_id={} span_id={span}", run.trace_id()),
            r#"task=step.0.0 attempt=1 worker="quick""#.to_owned(),
            r#"outcome="failed" duration_ms=40"#.to_owned(),
        ] {
            assert!(line.contains(&part), "`{part}` is not in {line}");
        }
        assert_eq!(logged(|| attempt_ended(&run, TaskRef::Plan { round: 7 }, failed, "lost")), "");
    }

    #[test]
    fn no_line_has_content() {
        let (run, claims) = a_run();
        let lines = logged(|| {
            run_ended(&run, "succeeded", Duration::ZERO);
            for claim in claims {
                attempt_ended(&run, TaskRef::Step { round: 0, step: StepIndex::new(0) }, claim, "done");
            }
        });
        assert_eq!(lines.lines().count(), 3, "{lines}");
        for content in ["sky", "blue", "scripted\""] {
            assert!(!lines.contains(content), "`{content}` is in {lines}");
        }
    }
}
