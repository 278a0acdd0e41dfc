//! Tests of the exports of metrics, traces and log lines.

#[cfg(test)]
mod collector;
#[cfg(test)]
mod protocols;
#[cfg(test)]
mod traces;
