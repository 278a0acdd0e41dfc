//! Optional parameters of calls. Some models reject a temperature, servers support different schemas, and a pool file may
//! declare too much. A parameter that the endpoint rejects is not sent again.

use std::sync::atomic::{AtomicBool, Ordering};

use podium_domain::pool::{Feature, Worker};
use podium_ports::vendor::VendorError;

use super::form::PlanForm;

/// The optional parameters of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Requested {
    pub(super) temperature: bool,
    pub(super) seed: bool,
    pub(super) form: PlanForm,
}

/// The parameters that the endpoint accepts, as far as is known.
#[derive(Debug)]
pub(super) struct OptionalParameters {
    temperature: AtomicBool,
    seed: AtomicBool,
    constrained: AtomicBool,
    form: PlanForm,
}

impl OptionalParameters {
    /// Starts with the features that the worker entry declares.
    pub(super) fn of(model: &Worker) -> Self {
        let form = PlanForm::of(model);
        Self {
            temperature: AtomicBool::new(model.takes(Feature::Temperature)),
            seed: AtomicBool::new(model.takes(Feature::Seed)),
            constrained: AtomicBool::new(form != PlanForm::Prompted),
            form,
        }
    }

    /// The parameters to send now.
    pub(super) fn now(&self) -> Requested {
        Requested {
            temperature: self.temperature.load(Ordering::Relaxed),
            seed: self.seed.load(Ordering::Relaxed),
            form: self.form(),
        }
    }

    /// The output constraint to use now.
    pub(super) fn form(&self) -> PlanForm {
        if self.constrained.load(Ordering::Relaxed) { self.form } else { PlanForm::Prompted }
    }

    /// Whether the error rejects one of the `requested` parameters; that one is not sent again.
    pub(super) fn stops_sending(&self, requested: Requested, error: &VendorError) -> bool {
        let VendorError::Rejected { status: 400 | 422, message, .. } = error else { return false };
        let message = message.to_ascii_lowercase();
        let names = |words: &[&str]| words.iter().any(|word| message.contains(word));
        let parameter = if requested.temperature && names(&["temperature"]) {
            &self.temperature
        } else if requested.seed && names(&["seed"]) {
            &self.seed
        } else if requested.form != PlanForm::Prompted
            && names(&["response_format", "schema", "structured", "regex", "grammar"])
        {
            &self.constrained
        } else {
            return false;
        };
        parameter.store(false, Ordering::Relaxed);
        tracing::warn!(
            error = error as &dyn std::error::Error,
            "the endpoint rejected an optional parameter, which is not sent again"
        );
        true
    }
}
