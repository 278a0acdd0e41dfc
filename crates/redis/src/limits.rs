//! A limiter whose limits many executors share through Redis.
//!
//! **State in Redis.** For each worker of a vendor's account, and for the account: calls in flight, requests and tokens per
//! minute, and the health of the vendor. A permit is a lease: a member of a sorted set whose score is its expiry by Redis's own
//! clock, so processes need not agree on the time. The other inputs of a decision are one packed value. One Lua script decides
//! atomically; all keys of a vendor's account have one hash tag. Requests for one worker that arrive while a script call is under
//! way are decided by the next script call, in their order.
//!
//! **Leases.** One task per process, the [`Extender`], tells Redis that the process is alive while it holds permits, whatever their
//! number, and releases the leases of dropped permits, in one pipeline. Every eighth time it names all leases. Dropping a permit never
//! waits: it leaves a note for the extender. A lease whose end has passed counts while its process is alive.
//!
//! **Lost data.** Redis may lose everything at any time. A process that Redis does not know to be alive names all its leases, so after
//! a flush or a restart the bound holds again once each process has done so: within [`Options::extend_every`], or
//! [`Options::probe_every`] after Redis was unreachable. Until then at most twice the bound is in flight. The same holds after a
//! jump of Redis's clock. A request that is lost with its connection may leave a lease without a holder, for at most five times
//! `lease_ttl`: then too little is granted, never too much. A process that was suspended for longer than [`Options::lease_ttl`] continues calls
//! whose capacity others may have taken: a limiter cannot end a call.
//!
//! **If Redis is unreachable** (or late, loading, a replica, out of memory), [`Options::away`] decides what is granted; nothing
//! is granted without a limit. Each process registers in Redis, so each knows how many share the limits. Without Redis it grants
//! its part of them, by its own meters, which it also updates while Redis is reachable. [`RedisLimiter::state`] reports this.
//! When Redis is reachable again, the leases of held permits are restored before anything else is granted.
//!
//! **Several servers.** With [`SeveralRedisLimiters`] each vendor's account is counted on one of several servers. Each server has
//! a separate limiter, so an unreachable server affects only its own vendors.

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
pub use redis_state::State;
pub use several::{Server, SeveralRedisLimiters};
