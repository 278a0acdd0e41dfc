//! Templates of subtasks with `{{ question }}` and `{{ steps_max }}`, rendered by a template engine without side effects.

use std::io;

use minijinja::{Environment, Error, UndefinedBehavior, context};
use podium_domain::plan::SUBTASK_BYTES_MAX;

/// Most template instructions for one subtask.
const FUEL: u64 = 100_000;

/// The names that a template may use.
const NAMES: [&str; 2] = ["question", "steps_max"];

/// The values that templates may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blanks<'a> {
    pub(super) question: &'a str,
    pub(super) steps_max: u16,
}

/// The templates of a workflow, by name.
#[derive(Debug)]
pub(super) struct Templates {
    environment: Environment<'static>,
}

impl Templates {
    pub(super) fn new() -> Self {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_fuel(Some(FUEL));
        Self { environment }
    }

    /// Adds a template under `name`. It must parse, use known names only and render a subtask that is not blank.
    pub(super) fn add(&mut self, name: &str, source: &str) -> Result<(), String> {
        let problem = |error: Error| error.to_string();
        self.environment.add_template_owned(name.to_owned(), source.to_owned()).map_err(problem)?;
        let used = self.environment.get_template(name).map_err(problem)?.undeclared_variables(false);
        let is_known =
            |word: &str| NAMES.contains(&word) || self.environment.globals().any(|(name, _)| name == word);
        let mut unknown: Vec<_> = used.iter().map(String::as_str).filter(|word| !is_known(word)).collect();
        if !unknown.is_empty() {
            unknown.sort_unstable();
            return Err(format!(
                "uses unknown names `{}`; the known ones are `{}`",
                unknown.join("`, `"),
                NAMES.join("`, `")
            ));
        }
        let sample = Blanks { question: "Why?", steps_max: 1 };
        if self.fill(name, sample)?.trim().is_empty() {
            return Err("is blank".to_owned());
        }
        Ok(())
    }

    /// Renders the template called `name`. The inserted values are not rendered again.
    pub(super) fn fill(&self, name: &str, blanks: Blanks<'_>) -> Result<String, String> {
        let template = self.environment.get_template(name).map_err(|error| error.to_string())?;
        let values = context! { question => blanks.question, steps_max => blanks.steps_max };
        let mut text = BoundedText::default();
        match template.render_captured_to(values, &mut text) {
            Ok(_) => String::from_utf8(text.bytes).map_err(|error| error.to_string()),
            Err(_) if text.is_full => Err(format!("renders more than {SUBTASK_BYTES_MAX} bytes")),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// A writer that accepts at most as many bytes as a subtask may have.
#[derive(Default)]
struct BoundedText {
    bytes: Vec<u8>,
    is_full: bool,
}

impl io::Write for BoundedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > SUBTASK_BYTES_MAX {
            self.is_full = true;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
