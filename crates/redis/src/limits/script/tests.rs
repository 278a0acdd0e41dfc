//! For random calls, limits and times, the scripts compute the same numbers as the meter of the domain.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};

use podium_domain::limits::{Ask, Meter, Refusal, Terms, TokenEstimate};
use podium_domain::policy::Tier;
use podium_domain::pool::{AccountLimits, Limits, Rates, Worker};
use podium_domain::usage::Usage;
use podium_harness::Redis;
use podium_ports::limiter::{Allowance, Patience, Quota, RefusalReason, Settlement};
use podium_testkit::a_pool;
use podium_testkit::limiter::Caller;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseResult, TestRunner};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Pipeline, Value};
use tokio::runtime::Handle;

use super::*;
use crate::limits::extender::EACH_EVERY;

/// Replaces Redis's clock. Keys do not expire by that clock: a slow machine must not change the numbers.
const CLOCK: &str = r"
local now = tonumber(table.remove(ARGV))
local redis = {
  call = function(command, ...)
    if command == 'PEXPIRE' then return 1 end
    return redis.call(command, ...)
  end,
}
";
/// So long that nothing expires.
const LONG: Duration = Duration::from_hours(1_000);
const ASK_AGAIN_MS_MAX: u64 = 700;

#[derive(Clone, Debug)]
enum Command {
    /// Several calls at once.
    Ask(Vec<(u8, (u64, u64))>),
    /// Several at once.
    Settle(Vec<Ending>),
    Wait {
        ms: u64,
    },
}

#[derive(Clone, Debug)]
struct Ending {
    which: usize,
    outcome: u8,
    usage: Option<(u64, u64)>,
    first_token_ms: Option<u64>,
    quota: Quota,
}

#[derive(Clone, Debug)]
struct Case {
    limits: [Option<u64>; 6],
    in_flight_max: u32,
    /// All calls fail.
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

fn tokens() -> impl Strategy<Value = (u64, u64)> {
    (0..400_u64, 0..900_u64)
}

fn ending() -> impl Strategy<Value = Ending> {
    let fields = (0..64_usize, 0..12_u8, prop::option::of(tokens()), prop::option::of(0..4_000_u64), quota());
    fields.prop_map(|(which, outcome, usage, first_token_ms, quota)| Ending {
        which,
        outcome,
        usage,
        first_token_ms,
        quota,
    })
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        5 => prop::collection::vec((0..12_u8, tokens()), 1..4).prop_map(Command::Ask),
        4 => prop::collection::vec(ending(), 1..3).prop_map(Command::Settle),
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
    times: Times,
    connection: MultiplexedConnection,
    keys: WorkerKeys,
    worker: Worker,
    fails: bool,
    now: u64,
    /// Calls in flight.
    held: Vec<(String, Settled)>,
    next: usize,
    meters: (Meter, Meter),
    /// The commands for Redis and the expected answers.
    pipeline: Pipeline,
    expected: Vec<Value>,
}

#[expect(clippy::cast_precision_loss, reason = "they are small")]
fn float(number: u64) -> f64 {
    number as f64
}

impl Subject {
    /// Sends a command to Redis at once.
    async fn say(&mut self, words: &[&str]) {
        let mut command = redis::cmd(words[0]);
        let _: Value = command.arg(&words[1..]).query_async(&mut self.connection).await.unwrap();
    }

    /// One script call decides on all of them, in their order.
    fn ask(&mut self, callers: &[(u8, (u64, u64))]) {
        let callers = callers.iter().map(|(caller, (input, output_max))| Caller {
            tenant: podium_domain::ids::TenantId::new(["a", "b", "c", "d"][usize::from(caller % 4)]).unwrap(),
            tier: if caller.is_multiple_of(3) { Tier::Mini } else { Tier::Ultra },
            estimate: TokenEstimate { input: *input, output_max: *output_max },
            // One of them does not ask again.
            patience: if *caller == 7 { Patience::Leaves } else { Patience::Waits },
            ..Caller::new((*caller).into())
        });
        self.ask_as(&callers.collect::<Vec<_>>());
    }

    fn ask_as(&mut self, callers: &[Caller]) {
        let worker = self.worker.clone();
        let requests: Vec<_> = callers.iter().map(|caller| caller.request(&worker)).collect();
        let ids: Vec<_> =
            (0..).map(|number| format!("lease-{}", self.next + number)).take(requests.len()).collect();
        self.next += requests.len();
        let asked: Vec<_> =
            ids.iter().zip(&requests).map(|(id, request)| AskedCall::new(id, request)).collect();
        let mut command = self.scripts.acquire_command(&self.keys, self.times, &asked);
        command.arg(self.now);
        self.pipeline.add_command(command);
        let answers = ids.into_iter().zip(&requests).flat_map(|(id, request)| self.expect(id, request));
        let answers = answers.map(|number| Value::Int(number.try_into().unwrap())).collect();
        self.expected.push(Value::Array(answers));
    }

    /// The meter's answer to a call, in the form of the script's answer. A granted call is held.
    fn expect(&mut self, id: String, request: &CallRequest<'_>) -> Acquired {
        let CallRequest { estimate, tier, .. } = *request;
        let takes = self.meters.0.expects(estimate);
        let limits = &self.worker.limits;
        let mut scopes = vec![(&mut self.meters.0, Terms::of_worker(limits))];
        scopes.extend(Terms::of_account(&limits.account).map(|terms| (&mut self.meters.1, terms)));
        let who = request.who();
        let tenant = request.tenant.as_str();
        let ask = Ask { who: &who, tier, tenant, takes, ask_again_ms_max: float(ASK_AGAIN_MS_MAX) };
        match Meter::ask(float(self.now), &mut scopes, &ask) {
            Ok(granted) => {
                let settlement = Settlement::default();
                let settled = Settled { reserved: Some(takes), estimate, granted: Some(granted), settlement };
                self.held.push((id, settled));
                [1, whole(takes.input), whole(takes.output), u64::from(granted.probes), granted.number]
            }
            Err(Refusal { why, after, spread }) => {
                let why = match why {
                    RefusalReason::Busy => 1,
                    RefusalReason::Rate => 2,
                    RefusalReason::Blocked => 3,
                    RefusalReason::Broken | RefusalReason::Unreachable => 4,
                };
                [0, why, whole((after * 1e3).ceil()), whole((spread * 1e3).floor()), 0]
            }
        }
    }

    /// Settles all of them at once, and again, which has no effect.
    fn settle(&mut self, endings: &[(usize, Settlement)]) {
        let mut ended = Vec::new();
        for (which, settlement) in endings {
            if !self.held.is_empty() {
                let (id, settled) = self.held.remove(which % self.held.len());
                ended.push((id, Settled { settlement: *settlement, ..settled }));
            }
        }
        for expected in [ended.len(), 0] {
            let mut command = self.scripts.settle_command(&self.keys, self.times, &ended);
            command.arg(self.now);
            self.pipeline.add_command(command);
            self.expected.push(Value::Int(expected.try_into().unwrap()));
        }
        let (now, limits) = (float(self.now), &self.worker.limits);
        for (_, settled) in &ended {
            self.meters.0.settle_worker(now, &Terms::of_worker(limits), settled);
            if let Some(terms) = Terms::of_account(&limits.account) {
                self.meters.1.settle_account(now, &terms, settled);
            }
        }
    }

    /// Sends all commands and compares the answers.
    async fn check(&mut self) -> TestCaseResult {
        if self.expected.is_empty() {
            return Ok(());
        }
        let pipeline = mem::take(&mut self.pipeline);
        let answers: Vec<Value> = pipeline.query_async(&mut self.connection).await.unwrap();
        prop_assert_eq!(answers, mem::take(&mut self.expected));
        Ok(())
    }

    fn ending(&self, ending: &Ending) -> (usize, Settlement) {
        let usage = ending.usage.map(|(prompt_tokens, completion_tokens)| Usage {
            prompt_tokens,
            completion_tokens,
            ..Usage::default()
        });
        let first_token = ending.first_token_ms.map(Duration::from_millis);
        let outcome =
            if self.fails && ending.outcome > 1 { Outcome::Failed } else { outcome(ending.outcome) };
        (ending.which, Settlement { outcome, usage, first_token, quota: ending.quota })
    }

    async fn follows_the_meter(mut self, commands: Vec<Command>) -> TestCaseResult {
        for command in commands {
            match command {
                Command::Wait { ms } => self.now += ms,
                Command::Ask(callers) => self.ask(&callers),
                Command::Settle(endings) => {
                    let endings: Vec<_> = endings.iter().map(|ending| self.ending(ending)).collect();
                    self.settle(&endings);
                }
            }
        }
        self.check().await
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is whole and positive")]
fn whole(number: f64) -> u64 {
    number as u64
}

fn wait_for<T>(work: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| Handle::current().block_on(work))
}

/// A Redis with the scripts loaded, whose time is an argument.
async fn a_redis() -> (Redis, MultiplexedConnection) {
    let redis = Redis::start().await.unwrap();
    let client = redis::Client::open(redis.url()).unwrap();
    // No time limit: the machine may be busy.
    let patient = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
    let mut connection = client.get_multiplexed_async_connection_with_config(&patient).await.unwrap();
    let scripts = Scripts::with_clock(CLOCK);
    scripts.acquire.load_async(&mut connection).await.unwrap();
    scripts.settle.load_async(&mut connection).await.unwrap();
    (redis, connection)
}

fn subject(number: u64, case: &Case, connection: &MultiplexedConnection) -> Subject {
    let worker = a_worker(case);
    Subject {
        scripts: Scripts::with_clock(CLOCK),
        times: Times {
            lease_ttl: LONG,
            member_ttl: LONG,
            kept: LONG,
            ask_again_max: Duration::from_millis(ASK_AGAIN_MS_MAX),
        },
        connection: connection.clone(),
        keys: WorkerKeys::of(&format!("case-{number}"), &worker),
        worker,
        fails: case.fails,
        // Redis removes keys by its own clock, so the time must be later.
        now: 1_000_000_000_000_000,
        held: Vec::new(),
        next: 0,
        meters: Default::default(),
        pipeline: Pipeline::new(),
        expected: Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scripts_compute_the_numbers_of_the_meter() {
    let (_redis, connection) = a_redis().await;
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
    let cases = AtomicU64::new(0);
    let run = |case: Case| {
        let subject = subject(cases.fetch_add(1, Ordering::Relaxed), &case, &connection);
        wait_for(subject.follows_the_meter(case.commands))
    };
    runner.run(&case(), run).unwrap();
}

/// More tenants than tags; then all of them ask for the capacity that calls release one by one.
#[tokio::test]
async fn with_more_tenants_than_tags_the_numbers_are_the_same() {
    let (_redis, connection) = a_redis().await;
    let mut subject = subject(0, &without_limits_a_minute(700), &connection);
    let callers = |times: usize| -> Vec<Caller> {
        let caller = |number: usize| Caller {
            tenant: podium_domain::ids::TenantId::new(format!("t{}", number % 300)).unwrap(),
            tier: if number.is_multiple_of(7) { Tier::Mini } else { Tier::Ultra },
            ..Caller::new(u128::try_from(number).unwrap())
        };
        (0..300 * times).map(caller).collect()
    };
    for some in callers(3).chunks(23) {
        subject.ask_as(some);
    }
    subject.check().await.unwrap();
    assert_eq!(subject.held.len(), 700);
    for number in 0..300 {
        subject.now += 10;
        let outcome = Outcome::Answered;
        subject.settle(&[(number * 31, Settlement::of(outcome))]);
        for some in callers(3)[number..number + 40].chunks(7) {
            subject.ask_as(some);
        }
    }
    subject.check().await.unwrap();
}

fn without_limits_a_minute(in_flight_max: u32) -> Case {
    Case { limits: [None; 6], in_flight_max, fails: false, commands: Vec::new() }
}

/// The number of calls in flight decides whether an answer raises the limit: the last ones do not.
#[tokio::test]
async fn calls_that_end_together_count_one_after_the_other() {
    let (_redis, connection) = a_redis().await;
    let mut subject = subject(0, &without_limits_a_minute(100), &connection);
    let callers: Vec<_> = (0..10).map(Caller::new).collect();
    subject.ask_as(&callers);
    let mut endings = vec![(0, Settlement::of(Outcome::Overloaded))];
    endings.extend([(0, Settlement::of(Outcome::Answered)); 9]);
    subject.settle(&endings);
    subject.ask_as(&callers);
    subject.check().await.unwrap();
    assert_eq!(subject.held.len(), 7);
}

#[tokio::test]
async fn an_expired_lease_frees_its_capacity_when_it_is_needed() {
    let (_redis, connection) = a_redis().await;
    let mut subject = subject(0, &without_limits_a_minute(2), &connection);
    subject.times.lease_ttl = Duration::from_secs(10);
    let callers = [Caller::new(1), Caller::new(2), Caller::new(3)];
    subject.ask_as(&callers[..2]);
    subject.now += 9_999;
    subject.ask_as(&callers[2..]);
    assert_eq!(subject.held.len(), 2, "the third was refused");
    subject.now += 1;
    subject.meters.0.set_in_flight(0.0);
    subject.ask_as(&callers[2..]);
    subject.check().await.unwrap();
    assert_eq!(subject.held.len(), 3);
}

/// Redis knows that the process of the first lease is alive, and not that of the second.
#[tokio::test]
async fn an_expired_lease_counts_while_its_process_is_alive() {
    let (_redis, connection) = a_redis().await;
    let mut subject = subject(0, &without_limits_a_minute(2), &connection);
    subject.times.lease_ttl = Duration::from_secs(10);
    let [calls, _, _, alive]: [String; 4] = subject.keys.settle_keys().try_into().unwrap();
    let (ends, until) = ((subject.now + 10_000).to_string(), (subject.now + 90_000).to_string());
    subject.say(&["ZADD", &calls, &ends, "living:1", &ends, "dead:1"]).await;
    subject.say(&["ZADD", &alive, &until, "living"]).await;
    subject.now += 10_000;
    subject.meters.0.set_in_flight(1.0);
    subject.ask_as(&[Caller::new(1), Caller::new(2)]);
    subject.check().await.unwrap();
    assert_eq!(subject.held.len(), 1, "one of the two places is free");
    // No process lists it, because its holder does not know it.
    subject.now += 40_000;
    subject.meters.0.set_in_flight(0.0);
    subject.ask_as(&[Caller::new(2)]);
    subject.check().await.unwrap();
    assert_eq!(subject.held.len(), 2);
}

/// Its last call was permitted right before its death.
#[tokio::test]
async fn a_killed_process_frees_all_its_permits_within_one_lease() {
    const LEASE_MS: u64 = 4_000;
    let (_redis, mut connection) = a_redis().await;
    let mut subject = subject(0, &without_limits_a_minute(4), &connection);
    subject.times.lease_ttl = Duration::from_millis(LEASE_MS);
    let [calls, _, _, alive]: [String; 4] = subject.keys.settle_keys().try_into().unwrap();
    subject.scripts.alive.load_async(&mut connection).await.unwrap();
    subject.scripts.keep.load_async(&mut connection).await.unwrap();
    let held = ["killed:1", "killed:2", "killed:3"].map(str::to_owned);
    for beat in 0..10 {
        let mut beats = Pipeline::new();
        let mut says = subject.scripts.alive_command(&alive, subject.times.lease_ttl, "killed");
        beats.add_command(says.arg(subject.now).clone());
        if beat % EACH_EVERY == 0 {
            let mut keeps = subject.scripts.keep_command(&calls, subject.times, &held);
            beats.add_command(keeps.arg(subject.now).clone());
        }
        let _: Vec<Value> = beats.query_async(&mut connection).await.unwrap();
        subject.now += LEASE_MS / 4;
    }
    let ends = (subject.now + LEASE_MS).to_string();
    subject.say(&["ZADD", &calls, &ends, "killed:4"]).await;
    let callers = [1, 2, 3, 4].map(Caller::new);
    subject.now += LEASE_MS * 3 / 4 - 1;
    subject.meters.0.set_in_flight(4.0);
    subject.ask_as(&callers[..1]);
    subject.check().await.unwrap();
    assert_eq!(subject.held.len(), 0, "it may still be alive");
    subject.now += LEASE_MS / 4 + 1;
    subject.meters.0.set_in_flight(0.0);
    subject.ask_as(&callers);
    subject.check().await.unwrap();
    assert_eq!(subject.held.len(), 4);
}

/// Expiries are renewed only when needed; a key that was lost is created without one.
#[tokio::test]
async fn keys_expire_with_their_data() {
    const KEPT_MS: u64 = 40_000;
    let (_redis, connection) = a_redis().await;
    let mut subject = subject(0, &without_limits_a_minute(9), &connection);
    subject.times.lease_ttl = Duration::from_secs(10);
    subject.times.kept = Duration::from_millis(KEPT_MS);
    let tenant = |name: &str| podium_domain::ids::TenantId::new(name).unwrap();
    for (step, ms) in [0, 1, 400, 1_200, 3, 7_000, 1_000, 60_000, 1].into_iter().cycle().take(40).enumerate()
    {
        subject.now += ms;
        let caller = Caller { tenant: tenant(["a", "b"][step % 2]), ..Caller::new(1) };
        let [calls, state, groups, _]: [String; 4] = subject.keys.settle_keys().try_into().unwrap();
        if step == 20 {
            // Redis may evict a key when memory is short.
            subject.check().await.unwrap();
            let _: u64 = redis::cmd("DEL").arg(&groups).query_async(&mut subject.connection).await.unwrap();
        }
        subject.ask_as(&[caller]);
        subject.check().await.unwrap();
        for key in [calls, state, groups] {
            let ends: u64 =
                redis::cmd("PEXPIRETIME").arg(&key).query_async(&mut subject.connection).await.unwrap();
            let left = ends - subject.now;
            assert!((KEPT_MS..=KEPT_MS + KEPT_MS / 8).contains(&left), "{key}: {left} ms at step {step}");
        }
        for _ in 0..step % 3 {
            subject.settle(&[(0, Settlement::default())]);
        }
    }
}
