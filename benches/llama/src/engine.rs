//! The engine's figures.

use std::num::{NonZeroU16, NonZeroUsize};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use podium_bundle::prompt::DESCRIBED_PROMPT;
use podium_domain::conversation::{Message, Role};
use podium_domain::policy::Tier;
use podium_llama::Sampling;
use podium_llama::engine::{Completion, Engine, EngineOptions, HiddenStates, Pending, Request};
use podium_llama::grammar::{MayKeepAnswer, PlanShape};
use podium_llama::prompt::{Prompt, Template};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::child::{Figure, Order};
use crate::tables::median;

/// Tokens of a sequence, in both worlds.
pub(crate) const CONTEXT_TOKENS: u32 = 2048;
/// Tokens of each prompt where speed is taken, about.
pub(crate) const PROMPT_TOKENS: i32 = 16;
/// Tokens that each sequence writes before its time is taken.
pub(crate) const WARM_UP_TOKENS: u32 = 8;
/// So many plans are written, and so many requests wait, at most.
const WAITING: usize = 2_000;

fn load(order: &Order, waiting_max: usize) -> Result<Engine> {
    let options = EngineOptions {
        name: "bench".to_owned(),
        weights: order.model.clone(),
        adapter: None,
        context_tokens: CONTEXT_TOKENS,
        sequences_max: NonZeroU16::new(order.sequences).context("at least one sequence")?,
        waiting_max: NonZeroUsize::new(waiting_max).context("at least one may wait")?,
        threads: NonZeroUsize::new(order.threads.into()),
        hardware: order.hardware(),
        hidden_states: HiddenStates::NotReadable,
    };
    Ok(Engine::load(options)?)
}

fn request(prompt: Prompt) -> Result<Request> {
    Ok(Request {
        prompt,
        tier: Tier::Ultra,
        shape: PlanShape::new(0..4, 5, MayKeepAnswer::No)?,
        sampling: Sampling { temperature: 0.0, top_p: 1.0, seed: 0 },
        reasoning_tokens_max: 0,
        plan_tokens_max: 1,
        deadline: Instant::now() + Duration::from_hours(1),
        stop: CancellationToken::new(),
    })
}

fn asking(text: &str) -> Prompt {
    Prompt::new(Template::ChatMl, &[Message::new(Role::User, text)], "")
}

/// About 60 tokens; each number another text.
fn question(number: u16) -> String {
    let words = "take the number of days between then and now, add it to what is there, and say what comes out of it; ";
    format!("{number}: {words}{words}{}", "and so on ".repeat(3))
}

async fn all(engine: &Engine, requests: Vec<Request>) -> Result<(f64, Vec<Completion>)> {
    let begin = Instant::now();
    let pending: Vec<Pending> =
        requests.into_iter().map(|request| engine.handle().submit(request)).collect::<Result<_, _>>()?;
    let mut completions = Vec::with_capacity(pending.len());
    for pending in pending {
        completions.push(pending.finish().await?);
    }
    Ok((begin.elapsed().as_secs_f64(), completions))
}

/// The rate at which all sequences together go on: the time of long texts, less that of short ones, which has the prompts and
/// all else in it.
pub(crate) fn tokens_a_second(order: &Order) -> Result<f64> {
    let requests = |tokens: u32| -> Result<Vec<Request>> {
        (0..order.sequences)
            .map(|number| {
                let request = request(asking(&format!("Go on, number {number}.")))?;
                Ok(match order.figure {
                    Figure::Grammar => Request { plan_tokens_max: tokens, ..request },
                    Figure::FreeDrawn => {
                        let sampling = Sampling { temperature: 1.0, top_p: 1.0, seed: number.into() };
                        Request { sampling, reasoning_tokens_max: tokens, ..request }
                    }
                    _ => Request { reasoning_tokens_max: tokens, ..request },
                })
            })
            .collect()
    };
    let written = |completions: &[Completion]| -> u32 {
        completions.iter().filter_map(|completion| u32::try_from(completion.completion_tokens).ok()).sum()
    };
    Runtime::new()?.block_on(async {
        let engine = load(order, WAITING)?;
        all(&engine, requests(1)?).await?;
        let (short, few) = all(&engine, requests(WARM_UP_TOKENS)?).await?;
        let (long, many) = all(&engine, requests(WARM_UP_TOKENS + order.tokens)?).await?;
        engine.shut_down().await;
        let tokens = written(&many) - written(&few);
        let meant = order.tokens * u32::from(order.sequences);
        ensure!(tokens * 10 > meant * 8, "{tokens} tokens were written in place of {meant}: {:?}", many[0]);
        Ok(f64::from(tokens) / (long - short))
    })
}

/// A real prompt: instructions, examples, a team of eight; then the question.
fn described(question: &str) -> Prompt {
    let workers = [0, 1, 2, 3, 4, 5, 6, 7].map(|number| {
        format!(
            "Model id {number}: a model for all kinds of text. Good at: code, mathematics. ($1.00 in, $4.00 out a million tokens)\n"
        )
    });
    let text = DESCRIBED_PROMPT.replace("{{workers}}", &workers.concat()).replace("{{steps_max}}", "5");
    asking(&text.replace("{{question}}", question))
}

/// How long it takes until each of the requests that come together has its first token.
pub(crate) fn seconds_to_first_tokens(order: &Order) -> Result<f64> {
    let requests = || -> Result<Vec<Request>> {
        (0..order.sequences)
            .map(|number| {
                let prompt = described(&question(number));
                let prompt = if order.figure == Figure::Prefix {
                    prompt.beginning_like(&described(""))
                } else {
                    prompt
                };
                Ok(Request { reasoning_tokens_max: 1, ..request(prompt)? })
            })
            .collect()
    };
    Runtime::new()?.block_on(async {
        let engine = load(order, WAITING)?;
        let (seconds, _) = all(&engine, requests()?).await?;
        engine.shut_down().await;
        Ok(seconds)
    })
}

/// Questions after each other that the first step is waited for.
const FIRST_STEPS: u16 = 7;
/// Most characters of a subtask there: what a model that knows something writes.
const SUBTASK_CHARS_MAX: u16 = 120;
/// Enough for the list of workers and such a subtask, were each of its characters four tokens; the prompt takes about half of
/// the context.
const FIRST_STEP_TOKENS_MAX: u32 = 600;

/// The median time until a plan's first subtask is whole, so that its step can begin; prompts share their beginning.
pub(crate) fn ms_to_first_step(order: &Order) -> Result<f64> {
    Runtime::new()?.block_on(async {
        let engine = load(order, WAITING)?;
        let mut times = Vec::new();
        // The first one computes what they share.
        for number in 0..=FIRST_STEPS {
            let request = request(described(&question(number)).beginning_like(&described("")))?;
            let shape = request.shape.clone().with_subtask_chars_max(SUBTASK_CHARS_MAX)?;
            let begin = Instant::now();
            let mut pending = engine.handle().submit(Request {
                plan_tokens_max: FIRST_STEP_TOKENS_MAX,
                shape,
                ..request
            })?;
            let mut text = String::new();
            while !has_first_subtask(&text) {
                let Some(more) = pending.next_text().await else {
                    bail!("the plan ended before its first subtask: {:?}", pending.finish().await);
                };
                text += &more;
            }
            times.push(begin.elapsed().as_secs_f64() * 1e3);
        }
        engine.shut_down().await;
        times.remove(0);
        Ok(median(times))
    })
}

fn has_first_subtask(plan: &str) -> bool {
    let Some((_, subtask)) = plan.split_once("subtasks = [\"") else { return false };
    let mut is_escaped = false;
    subtask.chars().any(|letter| {
        let closes = letter == '"' && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        closes
    })
}

/// The memory that the process takes for each waiting request.
pub(crate) fn bytes_of_waiting(order: &Order) -> Result<f64> {
    Runtime::new()?.block_on(async {
        let engine = load(order, WAITING)?;
        let endless =
            Request { reasoning_tokens_max: 1000, plan_tokens_max: 1000, ..request(asking("Go on."))? };
        let mut running = engine.handle().submit(endless)?;
        running.next_text().await;
        let submit = |number: usize| -> Result<Pending> {
            let prompt = described(&format!("{number}{}", question(0))).beginning_like(&described(""));
            Ok(engine.handle().submit(request(prompt)?)?)
        };
        // Memory that is taken once for all has been taken.
        let first: Vec<Pending> = (0..WAITING / 10).map(submit).collect::<Result<_>>()?;
        let before = resident_bytes()?;
        let rest: Vec<Pending> = (WAITING / 10..WAITING).map(submit).collect::<Result<_>>()?;
        let grown = resident_bytes()? - before;
        let count = u32::try_from(rest.len())?;
        drop((running, first, rest));
        engine.shut_down().await;
        Ok(grown / f64::from(count))
    })
}

fn resident_bytes() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kilobytes: u32 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(f64::from(kilobytes) * 1024.0)
}
