//! Whole plans by the conductor that ships: what a person waits for.

use std::num::{NonZeroU16, NonZeroUsize};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::future::try_join_all;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::token::LlamaToken;
use podium_domain::ids::RunId;
use podium_domain::policy::{Effort, Policy, Tier};
use podium_domain::pool::Pool;
use podium_domain::time::Timestamp;
use podium_llama::bundle::Bundle;
use podium_llama::{LlamaConductor, LlamaOptions};
use podium_ports::conductor::{Asker, Conductor, PlanOutcome, PlanRequest};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::bare::{Buffers, backend, model_params, params};
use crate::child::Order;
use crate::tables::median;

/// Questions of one step and of several, in the words that the bundle was trained on.
const QUESTIONS: [&str; 8] = [
    "Take the number of days between 3 March 2024 and 17 May 2025, multiply it by 12, and write the result in words.",
    "What is 17 times 23?",
    "Write 4096 in words.",
    "How many days are there between 1 January 2023 and 9 June 2024?",
    "Add 15 to the number of days between 2 May 2021 and 7 July 2021.",
    "Multiply 12 by 14 and write the result in words.",
    "What is 900 minus 455?",
    "Take the number of days between 5 May 2020 and 6 June 2022 and add 100.",
];
/// So often each question is asked.
const TIMES: usize = 5;

fn conductor(order: &Order) -> Result<LlamaConductor> {
    let bundle = Bundle::open(&order.model)?;
    let pool = Pool::parse(
        &std::fs::read_to_string("pools/demo.toml").context("run this in the project's folder")?,
    )?;
    let options = LlamaOptions {
        sequences_max: NonZeroU16::new(order.sequences).context("at least one sequence")?,
        threads: NonZeroUsize::new(order.threads.into()),
        hardware: order.hardware(),
        ..LlamaOptions::default()
    };
    Ok(LlamaConductor::open(&bundle, &pool, options)?)
}

async fn plan(conductor: &LlamaConductor, question: &str) -> Result<PlanOutcome> {
    let request = PlanRequest {
        asker: Asker::nobody(RunId::least_at(Timestamp::default())),
        question: question.to_owned(),
        policy: Policy::new(Tier::Ultra, Effort::Medium),
        earlier: None,
        seed: 0,
        asked_at: Timestamp::default(),
        time_max: Duration::from_mins(1),
    };
    Ok(conductor.plan(&request, &|_| {}, &CancellationToken::new()).await?)
}

fn ms_since(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64() * 1e3
}

/// One plan after another.
pub(crate) fn plan_ms(order: &Order) -> Result<f64> {
    Runtime::new()?.block_on(async {
        let conductor = conductor(order)?;
        let mut times = Vec::new();
        for question in [QUESTIONS; TIMES].concat() {
            let begin = Instant::now();
            plan(&conductor, question).await?;
            times.push(ms_since(begin));
        }
        conductor.shut_down().await;
        Ok(median(times))
    })
}

/// Eight plans asked for together, until the last is there.
pub(crate) fn plans_together_ms(order: &Order) -> Result<f64> {
    Runtime::new()?.block_on(async {
        let conductor = conductor(order)?;
        let mut times = Vec::new();
        for _ in 0..TIMES * 2 {
            let begin = Instant::now();
            try_join_all(QUESTIONS.map(|question| plan(&conductor, question))).await?;
            times.push(ms_since(begin));
        }
        conductor.shut_down().await;
        Ok(median(times))
    })
}

/// The same text by the likeliest tokens alone, one after another: nothing is checked, nothing is skipped.
pub(crate) fn plan_bare_ms(order: &Order) -> Result<f64> {
    let bundle = Bundle::open(&order.model)?;
    let backend = backend()?;
    let model = LlamaModel::load_from_file(&backend, bundle.weights(), &model_params(order)?)?;
    let context_tokens = bundle.manifest().sampling.context_tokens;
    let params = params(1, order.threads, Buffers::One).with_n_ctx(std::num::NonZeroU32::new(context_tokens));
    let mut context = model.new_context(&backend, params)?;
    let mut batch = LlamaBatch::new(context_tokens as usize, 1);
    let mut times = Vec::new();
    for question in [QUESTIONS; TIMES].concat() {
        let begin = Instant::now();
        context.clear_kv_cache_seq(None, None, None)?;
        let prompt = format!("<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n");
        let mut tokens = model.vocab().tokenize(prompt.as_bytes(), false, true);
        let mut position = 0;
        for _ in 0..400 {
            batch.clear();
            for (number, token) in (1..).zip(&tokens) {
                batch.add(*token, position, &[0], number == tokens.len())?;
                position += 1;
            }
            context.decode(&mut batch)?;
            let logits = context.get_logits_ith(batch.n_tokens() - 1);
            let likeliest = (0..).zip(logits).reduce(|best, next| if next.1 > best.1 { next } else { best });
            let token = LlamaToken::new(likeliest.context("no logits")?.0);
            if model.vocab().is_eog(token) {
                break;
            }
            tokens = vec![token];
        }
        times.push(ms_since(begin));
    }
    Ok(median(times))
}
