//! The engine over a real SQLite store and the in-process queue; vendors and conductor are scripted.

#[cfg(test)]
mod answers;
#[cfg(test)]
mod budgets;
#[cfg(test)]
mod chain;
#[cfg(test)]
mod conductors;
#[cfg(test)]
mod course;
#[cfg(test)]
mod duties;
#[cfg(test)]
mod early;
#[cfg(test)]
mod estimates;
#[cfg(test)]
mod failed_steps;
#[cfg(test)]
mod fallback;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod forms;
#[cfg(test)]
mod grace;
#[cfg(test)]
mod guarded;
#[cfg(test)]
#[cfg(test)]
mod house;
#[cfg(test)]
mod leases;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod messages;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod outage;
#[cfg(test)]
mod paid_plans;
#[cfg(test)]
mod panics;
#[cfg(test)]
mod planning;
#[cfg(test)]
mod pool_change;
#[cfg(test)]
mod prices;
#[cfg(test)]
mod refused;
#[cfg(test)]
mod retention;
#[cfg(test)]
mod rounds;
#[cfg(test)]
mod sampling;
#[cfg(test)]
mod settling;
#[cfg(test)]
mod step_cache;
#[cfg(test)]
mod streaming;
#[cfg(test)]
mod suspension;
#[cfg(test)]
mod throttle;
#[cfg(test)]
mod tools;
#[cfg(test)]
mod traces;
#[cfg(test)]
mod trouble;
#[cfg(test)]
mod window;
