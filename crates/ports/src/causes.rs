//! Errors with their causes, as text for people.

use std::error::Error;

/// The messages of an error's causes, the nearest one first. A cause is left out if the message before it ends with the same words:
/// some libraries print the cause of an error in its own message, too.
pub fn causes(error: &dyn Error) -> Vec<String> {
    let mut before = error.to_string();
    let mut messages = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        let message = cause.to_string();
        if !before.ends_with(&message) {
            messages.push(message.clone());
        }
        before = message;
        next = cause.source();
    }
    messages
}

/// An error and its causes in one line.
pub fn with_causes(error: &dyn Error) -> String {
    causes(error).iter().fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BoxError;

    /// An error whose message is given, whatever its cause is.
    #[derive(Debug, thiserror::Error)]
    #[error("{message}")]
    struct Caused {
        message: &'static str,
        #[source]
        source: Option<BoxError>,
    }

    fn caused(messages: &[&'static str]) -> Option<BoxError> {
        let (message, causes) = messages.split_first()?;
        Some(Box::new(Caused { message, source: caused(causes) }))
    }

    #[test]
    fn a_cause_that_was_printed_with_the_error_is_not_repeated() {
        for (messages, expected) in [
            (&["no rows"][..], "no rows"),
            (&["cannot open", "refused"], "cannot open: refused"),
            (
                &[
                    "cannot migrate",
                    "while migrating: from database: denied",
                    "from database: denied",
                    "denied",
                ],
                "cannot migrate: while migrating: from database: denied",
            ),
            (&["cannot open", "no file", "no disk"], "cannot open: no file: no disk"),
        ] {
            let error = caused(messages).unwrap();
            assert_eq!(with_causes(&*error), expected);
        }
    }
}
