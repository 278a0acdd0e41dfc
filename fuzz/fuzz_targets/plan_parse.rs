//! Any bytes as a conductor's text: the stream and the whole-text parser agree, and nothing panics.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use podium_domain::plan::{PlanDraft, PlanPiece, PlanStream};
use podium_domain::policy::{Effort, Policy, Tier};
use podium_domain::pool::Pool;

/// A property test of the domain runs the same code.
#[path = "../../crates/domain/src/plan/tests/exercise.rs"]
mod exercise;

const POOL: &str = r#"
schema = 1
name = "fuzz"
version = "1"

[[vendors]]
id = "local"
api = "openai-chat"
base_url = "http://127.0.0.1:1/v1"

[[workers]]
id = "small"
vendor = "local"
model = "small-model"
description = "a model"
context_tokens = 8192
usd_per_million_tokens = { input = 1.0, output = 1.0 }

[[workers]]
id = "large"
vendor = "local"
model = "large-model"
description = "a model"
context_tokens = 8192
usd_per_million_tokens = { input = 1.0, output = 1.0 }
"#;

static BOUNDS: LazyLock<(Pool, Policy)> = LazyLock::new(|| {
    let pool = Pool::parse(POOL).expect("the pool above is a pool");
    (pool, Policy::new(Tier::Ultra, Effort::Medium))
});

fuzz_target!(|bytes: &[u8]| {
    let (pool, policy) = &*BOUNDS;
    exercise::exercise(bytes, pool, policy);
});
