//! Tests both servers over real sockets, with an engine whose workers are scripted.

#[cfg(test)]
mod bounds;
#[cfg(test)]
mod cells;
#[cfg(test)]
mod connections;
#[cfg(test)]
mod disconnect;
#[cfg(test)]
mod formats;
#[cfg(test)]
mod grpc_conversations;
#[cfg(test)]
mod idempotency;
#[cfg(test)]
mod layers;
#[cfg(test)]
mod lifetime;
#[cfg(test)]
mod max;
#[cfg(test)]
mod messages;
#[cfg(test)]
mod models;
mod openapi;
#[cfg(test)]
mod progress;
#[cfg(test)]
mod reasoning;
#[cfg(test)]
mod request_checks;
#[cfg(test)]
mod request_metrics;
#[cfg(test)]
mod responses;
#[cfg(test)]
mod runs;
#[cfg(test)]
mod test_server;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod tools;
#[cfg(test)]
mod traces;
