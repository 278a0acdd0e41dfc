//! The crate's public interface on a model of 260 kB: engine, bundles, conductor; and the shipped conductor.

#[cfg(test)]
mod adapter_file;
#[cfg(test)]
mod adapters;
#[cfg(test)]
mod batch;
#[cfg(test)]
mod conductor;
#[cfg(test)]
mod encoder;
#[cfg(test)]
mod engine;
#[cfg(test)]
mod load;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod nano;
#[cfg(test)]
mod reading;
#[cfg(test)]
mod safety;
#[cfg(test)]
mod support;
