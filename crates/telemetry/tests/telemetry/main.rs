//! What is measured reaches those who are interested.

#[cfg(test)]
mod collector;
