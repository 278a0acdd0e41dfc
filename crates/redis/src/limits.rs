//! Limits of workers, shared by many executors through Redis.
//!
//! **What is counted.** For each worker of a vendor's account, and for the account: calls in flight, requests and tokens a
//! minute, and how the vendor fares. A permit is a lease: a member of a sorted set, scored with when it runs out by Redis's own
//! clock, so that no two processes need to agree on the time. All else that a decision needs is one packed value. One Lua script
//! decides, atomically, and grants or refuses; all keys of a vendor's account have one hash tag. Calls of one worker that are
//! asked for while Redis has not answered yet are decided by the next script together, one after the other.
//!
//! **Who keeps it.** One task for each process, the [`Extender`], extends all leases that are held and takes back those that
//! were dropped, both in one pipeline. A permit that is dropped waits for nothing: it leaves a note for the extender. The
//! permits of a process that died come back when their leases run out.
//!
//! **What Redis may lose.** Everything, at any time. An extension adds what it does not find, so after a flush or a restart the
//! bound holds again as soon as each process has extended once: within [`Options::extend_every`], or
//! [`Options::probe_every`] after Redis was away. Until then at most twice the bound is in flight. The same holds after a jump
//! of Redis's clock. A request that a lost connection took along may leave a lease that nobody holds until it runs out: too
//! little is granted then, never too much. A process that was stopped for longer than [`Options::lease_ttl`] goes on with
//! calls whose room others may have taken: a limiter cannot end a call.
//!
//! **When Redis is unreachable** (or late, loading, a replica, out of memory), [`Options::away`] says what happens; nothing is ever
//! granted without a limit. Each process registers in Redis, so each knows how many share the limits: without Redis it goes on
//! with that part of them, by meters of its own that were kept all along. The limiter says so ([`RedisLimiter::standing`]) and
//! only asks whether Redis is reachable again; the permits that are held by then are put back first.
//!
//! **Several servers.** With [`SeveralRedisLimiters`] each vendor's account is counted on one of several servers. Each server has a
//! limiter of its own, so one that is unreachable concerns its own vendors only.

mod batching;
mod extender;
mod keys;
mod leases;
mod limiter;
mod link;
mod members;
mod meters;
mod options;
mod redis_state;
mod script;
mod several;

pub use extender::Extender;
pub use limiter::RedisLimiter;
pub use options::{Away, OpenError, Options};
pub use redis_state::{Standing, State};
pub use several::{Server, SeveralRedisLimiters};
