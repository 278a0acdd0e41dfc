//! Both servers over real sockets, with an engine behind them whose workers are scripted.

#[cfg(test)]
mod bounds;
#[cfg(test)]
mod connections;
#[cfg(test)]
mod disconnect;
#[cfg(test)]
mod idempotency;
#[cfg(test)]
mod layers;
#[cfg(test)]
mod request_checks;
#[cfg(test)]
mod runs;
#[cfg(test)]
mod shapes;
#[cfg(test)]
mod test_server;
