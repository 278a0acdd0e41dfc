//! For random commands, the scripts do what a set with a bound does.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use podium_harness::Redis;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseResult, TestRunner};
use redis::aio::MultiplexedConnection;
use tokio::runtime::Handle;

use super::*;

const LONG: Duration = Duration::from_hours(1);
/// A lease that has run out when the next script runs.
const NONE: Duration = Duration::ZERO;

#[derive(Clone, Debug)]
enum Command {
    Acquire {
        id: u8,
        in_flight_max: usize,
    },
    /// Extends the first, gives back the second.
    Keep {
        held: BTreeSet<u8>,
        given_back: BTreeSet<u8>,
    },
    /// Lets time pass until these have run out.
    RunOut {
        ids: BTreeSet<u8>,
    },
    Flush,
}

fn command() -> impl Strategy<Value = Command> {
    let id = 0..8_u8;
    let ids = || prop::collection::btree_set(0..8_u8, 0..4);
    prop_oneof![
        6 => (id, 0..5_usize).prop_map(|(id, in_flight_max)| Command::Acquire { id, in_flight_max }),
        3 => (ids(), ids()).prop_map(|(held, given_back)| Command::Keep {
            given_back: &given_back - &held,
            held,
        }),
        1 => ids().prop_map(|ids| Command::RunOut { ids }),
        1 => Just(Command::Flush),
    ]
}

struct Subject {
    scripts: Scripts,
    connection: MultiplexedConnection,
    key: String,
}

impl Subject {
    async fn keep(&mut self, ttl: Duration, held: &BTreeSet<u8>, given_back: &BTreeSet<u8>) -> usize {
        let texts = |ids: &BTreeSet<u8>| ids.iter().map(u8::to_string).collect::<Vec<_>>();
        let command = self.scripts.keep_command(&self.key, ttl, &texts(held), &texts(given_back));
        command.query_async(&mut self.connection).await.unwrap()
    }

    async fn acquire(&mut self, id: u8, in_flight_max: usize) -> Acquired {
        let mut call = self.scripts.acquire.key(&self.key);
        call.arg(id).arg(milliseconds(LONG)).arg(in_flight_max);
        call.invoke_async(&mut self.connection).await.unwrap()
    }

    async fn follows_the_model(mut self, commands: Vec<Command>) -> TestCaseResult {
        let mut model = BTreeSet::new();
        for command in commands {
            match command {
                Command::Acquire { id, in_flight_max } => {
                    let granted = model.contains(&id) || model.len() < in_flight_max;
                    let (answer, first_out_ms) = self.acquire(id, in_flight_max).await;
                    prop_assert_eq!(answer == 1, granted);
                    if granted {
                        model.insert(id);
                    } else if model.is_empty() {
                        prop_assert_eq!(first_out_ms, 0);
                    } else {
                        prop_assert!(first_out_ms > 0 && first_out_ms <= milliseconds(LONG));
                    }
                }
                Command::Keep { held, given_back } => {
                    model = &(&model | &held) - &given_back;
                    prop_assert_eq!(self.keep(LONG, &held, &given_back).await, model.len());
                }
                Command::RunOut { ids } => {
                    model = &model - &ids;
                    self.keep(NONE, &ids, &BTreeSet::new()).await;
                }
                Command::Flush => {
                    model.clear();
                    let _: i64 =
                        redis::cmd("DEL").arg(&self.key).query_async(&mut self.connection).await.unwrap();
                }
            }
            let left: i64 =
                redis::cmd("PTTL").arg(&self.key).query_async(&mut self.connection).await.unwrap();
            prop_assert_ne!(left, -1, "the key goes with its last lease");
        }
        Ok(())
    }
}

fn wait_for<T>(work: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| Handle::current().block_on(work))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scripts_do_what_a_set_with_a_bound_does() {
    let redis = Redis::start().await.unwrap();
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    Scripts::new().keep.load_async(&mut connection).await.unwrap();
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
    let cases = AtomicU64::new(0);
    let run = |commands: Vec<Command>| {
        let key = cases.fetch_add(1, Ordering::Relaxed).to_string();
        let subject = Subject { scripts: Scripts::new(), connection: connection.clone(), key };
        wait_for(subject.follows_the_model(commands))
    };
    runner.run(&prop::collection::vec(command(), 0..40), run).unwrap();
}
