//! Both servers over real sockets, with an engine behind them whose workers are scripted.

#[cfg(test)]
mod bounds;
#[cfg(test)]
mod connections;
#[cfg(test)]
mod front;
#[cfg(test)]
mod house;
#[cfg(test)]
mod idempotency;
#[cfg(test)]
mod leaving;
#[cfg(test)]
mod outer;
#[cfg(test)]
mod runs;
#[cfg(test)]
mod shapes;
