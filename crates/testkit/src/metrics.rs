//! Reads the metrics of a process, and compares them with their reference page.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use opentelemetry::{KeyValue, global};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::{
    AggregatedMetrics, Metric, MetricData, ResourceMetrics, ScopeMetrics,
};
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider, Temporality};

/// The values of one instrument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The kind of instrument: `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// The unit.
    pub unit: String,
    /// The values by attributes: sorted, as `key=value` with commas.
    pub points: BTreeMap<String, Point>,
}

/// The value under one set of attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// The sum, or the last value of a gauge; of seconds, only the whole ones.
    pub value: u64,
    /// The number of values of a histogram.
    pub count: u64,
}

impl Measured {
    /// The value under exactly these attributes, or zero.
    pub fn value(&self, attributes: &str) -> u64 {
        self.points.get(attributes).map_or(0, |point| point.value)
    }

    /// The sum over all attributes.
    pub fn total(&self) -> u64 {
        self.points.values().map(|point| point.value).sum()
    }

    /// The keys of its attributes.
    pub fn keys(&self) -> BTreeSet<String> {
        let attributes = self.points.keys().flat_map(|key| key.split(',')).filter(|key| !key.is_empty());
        attributes.map(|attribute| attribute.split('=').next().unwrap_or_default().to_owned()).collect()
    }
}

/// Collects all metrics of this process from now on.
#[derive(Debug)]
pub struct Meters {
    provider: SdkMeterProvider,
    last: Last,
}

impl Meters {
    /// Becomes the meter of this process. Instruments made before are not measured.
    pub fn start() -> Self {
        let last = Last::default();
        let never = PeriodicReader::builder(last.clone()).with_interval(Duration::from_hours(24)).build();
        let provider = SdkMeterProvider::builder().with_reader(never).build();
        global::set_meter_provider(provider.clone());
        Self { provider, last }
    }

    /// The current values by instrument.
    pub fn read(&self) -> BTreeMap<String, Measured> {
        self.provider.force_flush().unwrap();
        std::mem::take(&mut *self.last.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The latest export.
#[derive(Clone, Debug, Default)]
struct Last(Arc<Mutex<BTreeMap<String, Measured>>>);

impl PushMetricExporter for Last {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        let all = metrics.scope_metrics().flat_map(ScopeMetrics::metrics);
        let read = all.map(|metric| (metric.name().to_owned(), measured(metric))).collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(())
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }

    fn temporality(&self) -> Temporality {
        Temporality::Cumulative
    }
}

fn measured(metric: &Metric) -> Measured {
    let (kind, points) = match metric.data() {
        AggregatedMetrics::U64(data) => points(data, |value| *value),
        AggregatedMetrics::I64(data) => points(data, |value| value.unsigned_abs()),
        AggregatedMetrics::F64(data) => points(data, whole),
    };
    Measured { kind, unit: metric.unit().to_owned(), points }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::trivially_copy_pass_by_ref,
    reason = "seconds that a test takes"
)]
fn whole(seconds: &f64) -> u64 {
    *seconds as u64
}

fn points<T: Copy>(
    data: &MetricData<T>,
    number: impl Fn(&T) -> u64,
) -> (&'static str, BTreeMap<String, Point>) {
    match data {
        MetricData::Gauge(gauge) => {
            let point = |value: T| Point { value: number(&value), count: 0 };
            let points = gauge.data_points().map(|at| (text(at.attributes()), point(at.value())));
            ("gauge", points.collect())
        }
        MetricData::Sum(sum) => {
            let point = |value: T| Point { value: number(&value), count: 0 };
            let points = sum.data_points().map(|at| (text(at.attributes()), point(at.value())));
            ("counter", points.collect())
        }
        MetricData::Histogram(histogram) => {
            let point = |sum: T, count| Point { value: number(&sum), count };
            let points =
                histogram.data_points().map(|at| (text(at.attributes()), point(at.sum(), at.count())));
            ("histogram", points.collect())
        }
        MetricData::ExponentialHistogram(_) => ("exponential histogram", BTreeMap::new()),
    }
}

fn text<'a>(attributes: impl Iterator<Item = &'a KeyValue>) -> String {
    let mut attributes: Vec<_> = attributes.map(|at| format!("{}={}", at.key, at.value)).collect();
    attributes.sort_unstable();
    attributes.join(",")
}

/// The description of an instrument on the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// The kind of instrument.
    pub kind: String,
    /// The unit.
    pub unit: String,
    /// The keys of its attributes.
    pub keys: BTreeSet<String>,
}

impl fmt::Display for Described {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {} by {:?}", self.kind, self.unit, self.keys)
    }
}

impl From<&Measured> for Described {
    fn from(measured: &Measured) -> Self {
        Self { kind: measured.kind.to_owned(), unit: measured.unit.clone(), keys: measured.keys() }
    }
}

/// The tables of one section of the page (`docs/metrics.md`): rows of name, kind, unit, attributes and meaning.
pub fn described(page: &str, section: &str) -> BTreeMap<String, Described> {
    let heading = format!("## {section}");
    let mut sections = page.split_inclusive('\n').skip_while(|line| line.trim_end() != heading);
    assert!(sections.next().is_some(), "the page has no section `{section}`");
    let quoted =
        |cell: &str| -> Vec<String> { cell.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    let row = |line: &str| {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [_, name, kind, unit, attributes, ..] = cells.as_slice() else { return None };
        let [name] = quoted(name).try_into().ok()?;
        let [unit] = quoted(unit).try_into().unwrap();
        let keys = quoted(attributes).into_iter().collect();
        Some((name, Described { kind: (*kind).to_owned(), unit, keys }))
    };
    sections.take_while(|line| !line.starts_with("## ")).filter_map(row).collect()
}

/// Fails unless the metrics of `section` are exactly those on the page.
pub fn assert_described(page: &str, section: &str, measured: &BTreeMap<String, Measured>) {
    let said = described(page, section);
    let done: BTreeMap<_, _> =
        measured.iter().map(|(name, measured)| (name.clone(), Described::from(measured))).collect();
    let lines = |of: &BTreeMap<String, Described>, other: &BTreeMap<String, Described>| -> Vec<String> {
        let differ = of.iter().filter(|(name, described)| other.get(*name) != Some(described));
        differ.map(|(name, described)| format!("{name}: {described}")).collect()
    };
    let (only_said, only_done) = (lines(&said, &done), lines(&done, &said));
    assert!(
        only_said.is_empty() && only_done.is_empty(),
        "section `{section}` of the page says {only_said:#?}, and what is measured is {only_done:#?}"
    );
}
