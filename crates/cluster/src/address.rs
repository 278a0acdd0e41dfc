//! Addresses with the passwords that settings only point at. What these functions return is not to be printed.

use std::fmt::Write as _;

use podium_setup::settings::SecretRef;
use secrecy::ExposeSecret as _;

use crate::error::ClusterError;

/// A URL with the password of its user put in. `key` names the setting that says where it is.
pub(crate) fn with_password(
    url: &str,
    key: &'static str,
    password: Option<&SecretRef>,
) -> Result<String, ClusterError> {
    let Some(password) = password else {
        return Ok(url.to_owned());
    };
    let secret = password.resolve().map_err(|source| ClusterError::Secret { key, source })?;
    Ok(insert(url, secret.expose_secret()))
}

fn insert(url: &str, password: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (user, place) = rest.split_once('@').unwrap_or(("", rest));
    format!("{scheme}://{user}:{}@{place}", percent_encoded(password))
}

/// All but letters and digits: right in every part of a URL.
fn percent_encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_goes_to_its_user_and_breaks_nothing() {
        assert_eq!(
            insert("postgres://podium@db:5432/podium", "p@ss:/?"),
            "postgres://podium:p%40ss%3A%2F%3F@db:5432/podium"
        );
        assert_eq!(insert("redis://cache:6379", "x y"), "redis://:x%20y@cache:6379");
    }
}
