//! The findings of a diagnosis: what was checked, what is wrong, and what to do. Also the checks that every program has: the machine,
//! the pool.

mod machine;
mod workers;

use std::fmt;

use serde::Serialize;

pub use machine::check_machine;
pub use workers::check_workers;

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing is wrong.
    Ok,
    /// The process works, but not as well as it could, or may fail later.
    Warning,
    /// The process does not start, or cannot do its job.
    Error,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How serious it is.
    pub severity: Severity,
    /// The part that was checked, such as `postgres`.
    pub part: &'static str,
    /// The state of that part. Never contains a secret.
    pub found: String,
    /// What to do; `None` if nothing is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

/// The results of all checks, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings(Vec<Finding>);

#[derive(Serialize)]
struct Document<'a> {
    program: &'a str,
    version: &'a str,
    /// The worst of the findings.
    severity: Severity,
    findings: &'a [Finding],
}

impl Findings {
    /// Adds a part that works.
    pub fn ok(&mut self, part: &'static str, found: impl Into<String>) {
        self.0.push(Finding { severity: Severity::Ok, part, found: found.into(), advice: None });
    }

    /// Adds a part that may fail later.
    pub fn warning(&mut self, part: &'static str, found: impl Into<String>, advice: impl Into<String>) {
        self.add(Severity::Warning, part, found.into(), advice.into());
    }

    /// Adds a part that does not work.
    pub fn error(&mut self, part: &'static str, found: impl Into<String>, advice: impl Into<String>) {
        self.add(Severity::Error, part, found.into(), advice.into());
    }

    fn add(&mut self, severity: Severity, part: &'static str, found: String, advice: String) {
        self.0.push(Finding { severity, part, found, advice: Some(advice) });
    }

    /// All findings.
    pub fn all(&self) -> &[Finding] {
        &self.0
    }

    /// The most serious of them; [`Severity::Ok`] if there are none.
    pub fn worst(&self) -> Severity {
        self.0.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok)
    }

    /// One JSON document with all findings.
    pub fn json(&self, program: &str, version: &str) -> String {
        let document = Document { program, version, severity: self.worst(), findings: &self.0 };
        // The document has strings and lists only, so it can always be written.
        serde_json::to_string_pretty(&document).unwrap_or_default()
    }
}

/// A line for each finding, its advice below it, and a line that counts them.
impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Finding { severity, part, found, advice } in &self.0 {
            let word = match severity {
                Severity::Ok => "ok",
                Severity::Warning => "warning",
                Severity::Error => "ERROR",
            };
            writeln!(f, "{word:<8} {part:<12} {found}")?;
            if let Some(advice) = advice {
                writeln!(f, "{:<21} -> {advice}", "")?;
            }
        }
        let count = |severity| self.0.iter().filter(|finding| finding.severity == severity).count();
        write!(f, "{} checks, ", self.0.len())?;
        write!(f, "{} errors, {} warnings", count(Severity::Error), count(Severity::Warning))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_shown_as_text_and_as_json() {
        let mut findings = Findings::default();
        assert_eq!(findings.worst(), Severity::Ok);
        findings.ok("settings", "valid");
        findings.warning("disk", "5 GiB are free", "free some");
        assert_eq!(findings.worst(), Severity::Warning);
        findings.error("redis", "unreachable", "start it");
        assert_eq!(findings.worst(), Severity::Error);
        let text = findings.to_string();
        assert!(text.starts_with("ok       settings     valid\nwarning  disk "), "{text}");
        assert!(text.contains("-> start it\n") && text.ends_with("3 checks, 1 errors, 1 warnings"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&findings.json("podium-x", "1.2.3")).unwrap();
        assert_eq!(json["severity"], "error");
        assert_eq!(json["findings"][0].get("advice"), None);
        assert_eq!(json["findings"][2]["advice"], "start it");
    }
}
