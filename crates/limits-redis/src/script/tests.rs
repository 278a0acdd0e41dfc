//! For random calls, limits and times, the scripts come to the same numbers as the domain's own meter.

use std::sync::atomic::{AtomicU64, Ordering};

use podium_domain::limits::{Ask, Drawn, Meter, Refusal, Terms, TokenEstimate};
use podium_domain::policy::Tier;
use podium_domain::pool::{AccountLimits, Limits, Rates, Worker};
use podium_domain::usage::Usage;
use podium_harness::Redis;
use podium_ports::limiter::{Allowance, Quota, Settlement, Why};
use podium_testkit::a_pool;
use podium_testkit::limiter::Caller;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseResult, TestRunner};
use redis::aio::MultiplexedConnection;
use tokio::runtime::Handle;

use super::*;

/// In place of Redis's clock.
const CLOCK: &str = "local now = tonumber(table.remove(ARGV))";
/// Long enough that nothing runs out.
const LONG: Duration = Duration::from_hours(1_000);
const ASK_AGAIN_MS_MAX: u64 = 700;

#[derive(Clone, Debug)]
enum Command {
    Ask { caller: u8, estimate: (u64, u64) },
    Settle { which: usize, outcome: u8, usage: Option<(u64, u64)>, first_token_ms: Option<u64>, quota: Quota },
    Wait { ms: u64 },
}

#[derive(Clone, Debug)]
struct Case {
    limits: [Option<u64>; 6],
    in_flight_max: u32,
    /// Its vendor has nothing but trouble.
    fails: bool,
    commands: Vec<Command>,
}

fn quota() -> impl Strategy<Value = Quota> {
    let allowance = || {
        let limit = prop::option::of(prop_oneof![Just(0), 1..3_000_u64]);
        (limit, prop::option::of(0..50_u64)).prop_map(|(limit, remaining)| Allowance { limit, remaining })
    };
    prop_oneof![
        4 => Just(Quota::default()),
        1 => (allowance(), allowance(), allowance(), allowance()).prop_map(
            |(requests, tokens, input_tokens, output_tokens)| Quota { requests, tokens, input_tokens, output_tokens }
        ),
    ]
}

fn command() -> impl Strategy<Value = Command> {
    let tokens = || (0..400_u64, 0..900_u64);
    prop_oneof![
        5 => (0..12_u8, tokens()).prop_map(|(caller, estimate)| Command::Ask { caller, estimate }),
        4 => (0..64_usize, 0..12_u8, prop::option::of(tokens()), prop::option::of(0..4_000_u64), quota()).prop_map(
            |(which, outcome, usage, first_token_ms, quota)| Command::Settle { which, outcome, usage, first_token_ms, quota }
        ),
        3 => prop_oneof![0..50_u64, 0..2_000_u64, 0..40_000_u64].prop_map(|ms| Command::Wait { ms }),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let limit = || prop::option::of(prop_oneof![1..100_u64, 100..60_000_u64]);
    let limits = [limit(), limit(), limit(), limit(), limit(), limit()];
    (limits, 1..6_u32, prop::bool::weighted(0.3), prop::collection::vec(command(), 0..80))
        .prop_map(|(limits, in_flight_max, fails, commands)| Case { limits, in_flight_max, fails, commands })
}

fn a_worker(case: &Case) -> Worker {
    let [requests, tokens, input, output, account_requests, account_tokens] = case.limits;
    let rates = Rates {
        requests_per_minute: requests,
        tokens_per_minute: tokens,
        input_tokens_per_minute: input,
        output_tokens_per_minute: output,
    };
    let account_rates = Rates {
        requests_per_minute: account_requests,
        tokens_per_minute: account_tokens,
        ..Rates::default()
    };
    let account = AccountLimits { in_flight_max: None, rates: account_rates };
    let worker = a_pool().workers()[0].clone();
    let limits = Limits { in_flight_max: case.in_flight_max, rates, account, ..worker.limits };
    Worker { limits, ..worker }
}

fn outcome(number: u8) -> Outcome {
    match number {
        0 => Outcome::Unknown,
        1 => Outcome::NotSent,
        2 => Outcome::Refused,
        3 => Outcome::Limited { retry_after: None },
        4 => Outcome::Limited { retry_after: Some(Duration::from_millis(1_234)) },
        5 => Outcome::Overloaded,
        6..=8 => Outcome::Failed,
        _ => Outcome::Answered,
    }
}

struct Subject {
    scripts: Scripts,
    connection: MultiplexedConnection,
    place: Place,
    worker: Worker,
    fails: bool,
    now: u64,
    /// Calls under way, with what is known of them.
    held: Vec<(String, Settled)>,
    next: u64,
    meters: (Meter, Meter),
}

#[expect(clippy::cast_precision_loss, reason = "they are small")]
fn float(number: u64) -> f64 {
    number as f64
}

impl Subject {
    async fn ask(&mut self, caller: u8, estimate: (u64, u64)) -> TestCaseResult {
        let estimate = TokenEstimate { input: estimate.0, output_max: estimate.1 };
        let tier = if caller.is_multiple_of(3) { Tier::Mini } else { Tier::Ultra };
        let tenant = ["a", "b", "c", "d"][usize::from(caller % 4)];
        let caller = Caller {
            tenant: podium_domain::ids::TenantId::new(tenant).unwrap(),
            tier,
            estimate,
            ..Caller::new(caller.into())
        };
        let wish = caller.wish(&self.worker);
        self.next += 1;
        let id = format!("lease-{}", self.next);
        let times =
            Times { lease_ttl: LONG, kept: LONG, ask_again_max: Duration::from_millis(ASK_AGAIN_MS_MAX) };
        let (keys, arguments) = acquire_arguments(&self.place, times, &id, &wish);
        let mut call = self.scripts.acquire.prepare_invoke();
        call.key(keys).arg(arguments).arg(self.now);
        let answer: Acquired = call.invoke_async(&mut self.connection).await.unwrap();

        let takes = self.meters.0.expects(estimate);
        let limits = &self.worker.limits;
        let mut scopes = vec![(&mut self.meters.0, Terms::of_worker(limits))];
        scopes.extend(Terms::of_account(&limits.account).map(|terms| (&mut self.meters.1, terms)));
        let who = wish.who();
        let ask = Ask { who: &who, tier, tenant, takes, ask_again_ms_max: float(ASK_AGAIN_MS_MAX) };
        let asked = Meter::ask(float(self.now), &mut scopes, &ask);
        let expected = match asked {
            Ok(probes) => {
                let Drawn { input, output } = takes;
                (1, whole(input), whole(output), u64::from(probes))
            }
            Err(Refusal { why, after, spread }) => {
                let why = match why {
                    Why::Busy => 1,
                    Why::Rate => 2,
                    Why::Blocked => 3,
                    Why::Broken | Why::Away => 4,
                };
                (0, why, whole((after * 1e3).ceil()), whole((spread * 1e3).floor()))
            }
        };
        prop_assert_eq!(answer, expected);
        if let Ok(probes) = asked {
            let settlement = Settlement::default();
            self.held.push((id, Settled { reserved: Some(takes), estimate, probes, settlement }));
        }
        Ok(())
    }

    /// Twice, of which one does nothing.
    async fn settle(&mut self, which: usize, settlement: Settlement) -> TestCaseResult {
        if self.held.is_empty() {
            return Ok(());
        }
        let (id, settled) = self.held.remove(which % self.held.len());
        let settled = Settled { settlement, ..settled };
        let ended = [(id, settled)];
        for expected in [1, 0] {
            let mut command = self.scripts.settle_command(&self.place, LONG, &ended);
            command.arg(self.now);
            let count: u64 = command.query_async(&mut self.connection).await.unwrap();
            prop_assert_eq!(count, expected);
        }
        let (now, limits) = (float(self.now), &self.worker.limits);
        self.meters.0.settle_worker(now, &Terms::of_worker(limits), &settled);
        if let Some(terms) = Terms::of_account(&limits.account) {
            self.meters.1.settle_account(now, &terms, &settled);
        }
        Ok(())
    }

    async fn follows_the_meter(mut self, commands: Vec<Command>) -> TestCaseResult {
        for command in commands {
            match command {
                Command::Wait { ms } => self.now += ms,
                Command::Ask { caller, estimate } => self.ask(caller, estimate).await?,
                Command::Settle { which, outcome: number, usage, first_token_ms, quota } => {
                    let usage = usage.map(|(prompt_tokens, completion_tokens)| Usage {
                        prompt_tokens,
                        completion_tokens,
                        ..Usage::default()
                    });
                    let first_token = first_token_ms.map(Duration::from_millis);
                    let outcome = if self.fails && number > 1 { Outcome::Failed } else { outcome(number) };
                    let settlement = Settlement { outcome, usage, first_token, quota };
                    self.settle(which, settlement).await?;
                }
            }
        }
        Ok(())
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is whole and positive")]
fn whole(number: f64) -> u64 {
    number as u64
}

fn wait_for<T>(work: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| Handle::current().block_on(work))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scripts_come_to_the_numbers_of_the_meter() {
    let redis = Redis::start().await.unwrap();
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    Scripts::with_clock(CLOCK).settle.load_async(&mut connection).await.unwrap();
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
    let cases = AtomicU64::new(0);
    let run = |case: Case| {
        let number = cases.fetch_add(1, Ordering::Relaxed);
        let worker = a_worker(&case);
        let subject = Subject {
            scripts: Scripts::with_clock(CLOCK),
            connection: connection.clone(),
            place: Place::of(&format!("case-{number}"), &worker),
            worker,
            fails: case.fails,
            // Redis removes keys by its own clock, so the time has to be near to it, and later.
            now: 1_000_000_000_000_000,
            held: Vec::new(),
            next: 0,
            meters: Default::default(),
        };
        wait_for(subject.follows_the_meter(case.commands))
    };
    runner.run(&case(), run).unwrap();
}
