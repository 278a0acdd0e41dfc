//! What is asked of the model's endpoint beside the question, and can be done without. Some models refuse a call that names a
//! temperature, servers differ in the schemas that they know, and a pool file may promise too much: what a refusal is about is
//! learnt at the first one and not asked for again.

use std::sync::atomic::{AtomicBool, Ordering};

use podium_domain::pool::{Feature, Worker};
use podium_ports::vendor::VendorError;

use super::form::PlanForm;

/// What is asked for in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) temperature: bool,
    pub(super) seed: bool,
    pub(super) form: PlanForm,
}

/// What the endpoint takes, as far as is known.
#[derive(Debug)]
pub(super) struct Wishes {
    temperature: AtomicBool,
    seed: AtomicBool,
    held_to_form: AtomicBool,
    form: PlanForm,
}

impl Wishes {
    /// What the model is said to take.
    pub(super) fn of(model: &Worker) -> Self {
        let form = PlanForm::of(model);
        Self {
            temperature: AtomicBool::new(model.takes(Feature::Temperature)),
            seed: AtomicBool::new(model.takes(Feature::Seed)),
            held_to_form: AtomicBool::new(form != PlanForm::Asked),
            form,
        }
    }

    /// What to ask for now.
    pub(super) fn now(&self) -> Asked {
        Asked {
            temperature: self.temperature.load(Ordering::Relaxed),
            seed: self.seed.load(Ordering::Relaxed),
            form: self.form(),
        }
    }

    /// The form to ask for now.
    pub(super) fn form(&self) -> PlanForm {
        if self.held_to_form.load(Ordering::Relaxed) { self.form } else { PlanForm::Asked }
    }

    /// Whether the error is a refusal of something in `asked`, which is not asked for any more.
    pub(super) fn gives_up(&self, asked: Asked, error: &VendorError) -> bool {
        let VendorError::Rejected { status: 400 | 422, message, .. } = error else { return false };
        let message = message.to_ascii_lowercase();
        let names = |words: &[&str]| words.iter().any(|word| message.contains(word));
        let wish = if asked.temperature && names(&["temperature"]) {
            &self.temperature
        } else if asked.seed && names(&["seed"]) {
            &self.seed
        } else if asked.form != PlanForm::Asked
            && names(&["response_format", "schema", "structured", "regex", "grammar"])
        {
            &self.held_to_form
        } else {
            return false;
        };
        wish.store(false, Ordering::Relaxed);
        tracing::warn!(
            error = error as &dyn std::error::Error,
            "the conductor is asked without what it refuses"
        );
        true
    }
}
