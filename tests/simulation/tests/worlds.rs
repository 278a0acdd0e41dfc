//! Tests many worlds for violations, worlds that break a promise, and that a seed repeats to the byte.
#![expect(clippy::unwrap_used, reason = "a test's failure is a panic")]

use std::collections::BTreeMap;

use podium_simulation::{Invariant, Mutation, Report, Settings, Tracing, command, simulate};

/// Worlds of each quarter of the sweep. Four tests share it, so that all cores work on it. With the workspace's profile, which
/// optimizes our crates slightly, a core runs 15 to 30 worlds a second.
const SEEDS: u64 = 500;
/// Most seeds until a broken promise must be caught.
const SEEDS_TO_CATCH: u64 = 60;

fn world(seed: u64) -> Report {
    simulate(seed, Settings::default()).unwrap()
}

/// Runs seeds, and panics with the command that repeats each failed one.
fn all_hold(seeds: impl Iterator<Item = u64>) -> BTreeMap<&'static str, u64> {
    let (mut counts, mut failures) = (BTreeMap::new(), Vec::new());
    for report in seeds.map(world) {
        for (what, count) in report.counts {
            *counts.entry(what).or_default() += count;
        }
        if let Some(violation) = report.violation {
            failures.push(format!("{violation}\n    {}", command(report.seed, None)));
        }
    }
    assert!(failures.is_empty(), "{} seeds failed:\n{}", failures.len(), failures.join("\n"));
    counts
}

/// Kinds of incidents that the first quarter must contain. A simulation without these events proves nothing.
const EXPECTED: [&str; 72] = [
    "abandoned with steps begun",
    "abandoned without a plan",
    "abandoned without an answer",
    "answer diverged",
    "answer lost",
    "answered from the cache",
    "attempt failed",
    "attempt handed back",
    "attempt lost",
    "attempt unused",
    "begun early",
    "begun further",
    "booked",
    "broken answer not repeated",
    "cache unreachable",
    "cache wiped",
    "claimed with a result",
    "client never sent results",
    "client reconnected",
    "completed by a substitute",
    "conductor fault",
    "conflict",
    "delivery lost",
    "disowned",
    "dispatched by another node",
    "fell back",
    "found that a claim was lost",
    "kept by another planner",
    "lane full",
    "limited",
    "limiter did not answer",
    "limiter unreachable",
    "message lost",
    "message repeated",
    "no capacity for a call",
    "node died",
    "node froze",
    "over budget",
    "paused by its vendor",
    "planned at once",
    "planned the same",
    "queue unreachable",
    "queue wiped",
    "read by an old version",
    "refused",
    "rejected over budget",
    "request id repeated",
    "request lost",
    "round before seen",
    "row locked",
    "run cancelled",
    "run succeeded",
    "run too expensive",
    "run too late",
    "results given",
    "results refused",
    "run without an answer",
    "run without results",
    "second round",
    "signal lost",
    "skipped a step",
    "store unreachable",
    "superseded",
    "taken from a backlog",
    "third round",
    "vendor fault",
    "waited for the end",
    "waited for tool calls",
    "wall clock off",
    "watcher saw a restart",
    "went round a breaker",
    "wire cut",
];

#[test]
fn no_invariant_is_violated_in_the_first_quarter() {
    let counts = all_hold(0..SEEDS);
    let missing: Vec<_> = EXPECTED.iter().filter(|what| !counts.contains_key(*what)).collect();
    assert!(missing.is_empty(), "{missing:?} never happened in {SEEDS} worlds");
}

#[test]
fn no_invariant_is_violated_in_the_second_quarter() {
    all_hold(SEEDS..2 * SEEDS);
}

#[test]
fn no_invariant_is_violated_in_the_third_quarter() {
    all_hold(2 * SEEDS..3 * SEEDS);
}

#[test]
fn no_invariant_is_violated_in_the_fourth_quarter() {
    all_hold(3 * SEEDS..4 * SEEDS);
}

#[test]
fn a_seed_gives_the_same_bytes_twice() {
    let settings = Settings { tracing: Tracing::Keep, ..Settings::default() };
    for seed in 0..30 {
        let (first, second) = (simulate(seed, settings).unwrap(), simulate(seed, settings).unwrap());
        let differing = first.trace.lines().zip(second.trace.lines()).enumerate().find(|(_, (a, b))| a != b);
        if let Some((line, (first, second))) = differing {
            panic!("seed {seed}, line {}:\n{first}\n{second}", line + 1);
        }
        assert_eq!((first.trace.len(), first.trace_hash), (second.trace.len(), second.trace_hash));
        assert!(first.trace.lines().count() > 100, "seed {seed} has a history");
        assert_eq!(first.lasted, world(seed).lasted, "tracing changes nothing in seed {seed}");
    }
}

/// Whether a broken promise is caught as a violation of `invariant` within [`SEEDS_TO_CATCH`] seeds.
fn is_caught(mutation: Mutation, invariant: Invariant) -> bool {
    let settings = Settings { mutation: Some(mutation), ..Settings::default() };
    let mut violations = (0..SEEDS_TO_CATCH).filter_map(|seed| simulate(seed, settings).unwrap().violation);
    violations.any(|violation| violation.invariant == invariant)
}

#[test]
fn a_store_that_forgets_versions_is_caught() {
    assert!(is_caught(Mutation::ForgetVersion, Invariant::Log));
}

#[test]
fn a_limiter_that_ignores_its_limit_is_caught() {
    assert!(is_caught(Mutation::ForgetLimit, Invariant::Limit));
}

#[test]
fn a_limiter_that_ignores_a_vendors_pause_is_caught() {
    assert!(is_caught(Mutation::ForgetPause, Invariant::Limit));
}

#[test]
fn a_node_that_trusts_a_wrong_clock_is_caught() {
    assert!(is_caught(Mutation::TrustClock, Invariant::Clock));
}

#[test]
fn runs_that_no_node_can_read_are_caught() {
    assert!(is_caught(Mutation::UnreadableRuns, Invariant::Ends));
}

#[test]
fn a_store_that_forgets_request_ids_is_caught() {
    assert!(is_caught(Mutation::ForgetRequestId, Invariant::RequestId));
}

#[test]
fn a_store_that_lies_about_commits_is_caught() {
    assert!(is_caught(Mutation::LyingCommit, Invariant::Claim));
}

#[test]
fn a_store_that_hides_due_tasks_is_caught() {
    assert!(is_caught(Mutation::BlindSweep, Invariant::Ends));
}

#[test]
fn a_store_that_keeps_the_leases_of_dead_processes_is_caught() {
    assert!(is_caught(Mutation::KeepLeases, Invariant::Ends));
}

#[test]
fn a_store_that_changes_outputs_is_caught() {
    assert!(is_caught(Mutation::ChangeOutput, Invariant::Log));
}

#[test]
fn a_store_that_misreads_outputs_is_caught() {
    assert!(is_caught(Mutation::MisreadOutput, Invariant::Log));
}

#[test]
fn a_store_with_stale_costs_is_caught() {
    assert!(is_caught(Mutation::StaleCost, Invariant::Cost));
}

#[test]
fn a_store_that_loses_a_run_is_caught() {
    assert!(is_caught(Mutation::LoseRun, Invariant::Ends));
}

#[test]
fn a_store_that_ignores_caps_is_caught() {
    assert!(is_caught(Mutation::ForgetCap, Invariant::Budget));
}

#[test]
fn a_store_that_keeps_reservations_is_caught() {
    assert!(is_caught(Mutation::ForgetBooking, Invariant::Budget));
}

#[test]
fn a_cache_that_answers_with_another_output_is_caught() {
    assert!(is_caught(Mutation::MixOutputs, Invariant::Output));
}

#[test]
fn a_queue_that_ignores_acks_is_caught() {
    assert!(is_caught(Mutation::DeafQueue, Invariant::Rest));
}

#[test]
fn a_live_stream_that_mixes_attempts_is_caught() {
    assert!(is_caught(Mutation::MixFrames, Invariant::Stream));
}

#[test]
fn a_plan_without_its_access_lists_is_caught() {
    assert!(is_caught(Mutation::BlindPlan, Invariant::Sight));
}

#[test]
fn a_prompt_that_loses_an_output_is_caught() {
    assert!(is_caught(Mutation::MuddlePrompt, Invariant::Sight));
}

#[test]
fn an_output_of_another_call_is_caught() {
    assert!(is_caught(Mutation::SwapAnswer, Invariant::Output));
}

#[test]
fn a_repeated_call_after_text_is_caught() {
    assert!(is_caught(Mutation::DenyText, Invariant::Once));
}

#[test]
fn a_muddled_tool_result_is_caught() {
    assert!(is_caught(Mutation::MuddleResult, Invariant::Turns));
}

#[test]
fn a_panic_is_caught() {
    assert!(is_caught(Mutation::Panic, Invariant::NoPanic));
}
