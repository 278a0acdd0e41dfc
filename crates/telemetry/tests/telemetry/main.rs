//! Tests of the metrics exports.

#[cfg(test)]
mod collector;
