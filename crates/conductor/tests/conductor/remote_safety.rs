//! Any output of a remote model ends: with a clear failure after the tries, within bounds of text and time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use podium_conductor::{RemoteConductor, RemoteOptions};
use podium_ports::conductor::{Conductor, ConductorError, PlanOutcome};
use podium_ports::vendor::FinishReason;
use podium_testkit::{Answer, Gate, OpenLimiter, ScriptedVendor, a_pool};
use tokio_util::sync::CancellationToken;

use crate::request;

const KIB: usize = 1 << 10;
/// Tries at a plan.
const TRIES: usize = 3;
/// Most bytes that are read of one output: the bound, and the piece that exceeds it.
const TEXT_BYTES_MAX: usize = 256 * KIB + 64 * KIB;

/// Plans with a model that always returns this answer. Also returns the bytes of output.
async fn planned(answer: Answer) -> (Result<PlanOutcome, ConductorError>, usize, ScriptedVendor) {
    let (vendor, pool) = (ScriptedVendor::new(), Arc::new(a_pool()));
    vendor.otherwise(answer);
    let model = pool.workers()[1].clone();
    let conductor = RemoteConductor::new(
        Arc::new(vendor.clone()),
        Arc::new(OpenLimiter::default()),
        model,
        pool,
        RemoteOptions::default(),
    );
    let bytes = AtomicUsize::new(0);
    let sink = |text: &str| {
        bytes.fetch_add(text.len(), Ordering::Relaxed);
    };
    let result = conductor.plan(&request(), &sink, &CancellationToken::new()).await;
    (result, bytes.into_inner(), vendor)
}

/// A model that repeats one text without end.
fn endless(beginning: &str, again: &str) -> Answer {
    let piece = again.repeat((64 * KIB).div_euclid(again.len()));
    let pieces = std::iter::once(beginning.to_owned()).chain(std::iter::repeat_n(piece, 8));
    Answer::parts(pieces).wait(&Gate::closed())
}

#[tokio::test(start_paused = true)]
async fn an_endless_output_is_stopped_in_each_try_and_is_no_outage() {
    for (beginning, again) in [
        ("", " "),
        ("", "I think. "),
        ("", "model_id = [0]\n"),
        ("model_id = [0", ", 0"),
        ("model_id = [0]\nsubtasks = [\"", "do it and "),
        ("model_id = [0]\nsubtasks = [\"a\"]\naccess_list = [", "["),
        ("<think>", "wait, "),
        ("", "\u{fffd}"),
        ("", "\\"),
        ("{\"reasoning\": \"", "\\u0000"),
    ] {
        let began = tokio::time::Instant::now();
        let (result, bytes, vendor) = planned(endless(beginning, again)).await;
        let error = result.unwrap_err();
        let ConductorError::NoPlan { tries, usage, .. } = &error else { panic!("{again:?}: {error}") };
        assert_eq!((*tries, vendor.calls().len(), vendor.aborted()), (3, TRIES, TRIES), "{again:?}");
        assert!(bytes <= TRIES * (TEXT_BYTES_MAX + beginning.len() + 1), "{again:?}: {bytes} bytes");
        assert!(usage.completion_tokens >= (TRIES * 64 * KIB) as u64, "{again:?}: {usage:?}");
        assert_eq!(began.elapsed(), Duration::ZERO, "{again:?}: no pause");
    }
}

#[tokio::test(start_paused = true)]
async fn an_invalid_plan_is_rejected_however_its_text_ends() {
    let nested = format!("model_id = {}0{}", "[".repeat(10_000), "]".repeat(10_000));
    for text in [
        "",
        " ",
        "I would ask a friend.",
        "model_id = [0",
        "model_id = [0]\nsubtasks = [\"half a subta",
        "model_id = [0]\nsubtasks = [\"a\"]",
        "model_id = [0]\nsubtasks = [\"a\"]\naccess_list = [[",
        "model_id = [99999999999999999999]\nsubtasks = [\"a\"]\naccess_list = [[]]",
        "model_id = [0]\nsubtasks = [\"\"]\naccess_list = [[]]",
        "model_id = [0]\nsubtasks = [\"a\"]\naccess_list = [[0]]",
        "<think>model_id = [0]\nsubtasks = [\"a\"]\naccess_list = [[]]",
        "{\"model_id\": null}",
        &nested,
        &" ".repeat(200 * KIB),
    ] {
        for reason in [FinishReason::Stop, FinishReason::Length, FinishReason::ContentFilter] {
            let (result, ..) = planned(Answer::text(text).finish(reason)).await;
            let error = result.unwrap_err();
            assert!(matches!(error, ConductorError::NoPlan { tries: 3, .. }), "{text:.40?}: {error}");
            assert!(!error.is_retryable() && error.to_string().len() < 2_000, "{text:.40?}: {error}");
        }
    }
}
