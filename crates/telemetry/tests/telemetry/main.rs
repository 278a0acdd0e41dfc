//! Tests of the exports of metrics and traces.

#[cfg(test)]
mod collector;
#[cfg(test)]
mod traces;
