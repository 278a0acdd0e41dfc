//! Headers and body fields that the pool adds to each call.

use std::collections::BTreeMap;

use podium_domain::ids::VendorId;
use podium_domain::pool::{Extras, HeaderText, SecretRef};
use podium_ports::vendor::VendorError;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};

use crate::keys::{KeySource, Secret};

/// The extra headers and body fields of one worker's calls.
#[derive(Debug, Default)]
pub(crate) struct Additions {
    headers: BTreeMap<String, Header>,
    body: Map<String, Value>,
}

#[derive(Debug)]
enum Header {
    Plain(String),
    Secret(SecretRef, Secret),
}

impl Additions {
    /// Merges several entries; a later entry wins.
    pub(crate) fn find<'e>(entries: impl IntoIterator<Item = &'e Extras>, source: &dyn KeySource) -> Self {
        let mut additions = Self::default();
        for extras in entries {
            for (name, text) in &extras.headers {
                let header = match text {
                    HeaderText::Plain(text) => Header::Plain(text.clone()),
                    HeaderText::Secret(secret) => {
                        Header::Secret(secret.clone(), Secret::find(secret, source))
                    }
                };
                additions.headers.insert(name.clone(), header);
            }
            let mut body = extras.body.clone();
            fill(&mut body, &additions.body);
            additions.body = body;
        }
        additions
    }

    /// Headers whose secret is missing, each with the place where it should be.
    pub(crate) fn missing(&self) -> impl Iterator<Item = (&str, String)> {
        self.headers.iter().filter_map(|(name, header)| match header {
            Header::Plain(_) => None,
            Header::Secret(_, secret) => Some((name.as_str(), secret.missing()?)),
        })
    }

    /// The headers with the current values of their secrets, and those secrets (so that errors can hide them).
    pub(crate) async fn headers(
        &self,
        vendor: &VendorId,
    ) -> Result<(HeaderMap, Vec<SecretString>), VendorError> {
        let misconfigured =
            |message: String| VendorError::Misconfigured { vendor: vendor.as_str().to_owned(), message };
        let mut headers = HeaderMap::new();
        let mut secrets = Vec::new();
        for (name, header) in &self.headers {
            let value = match header {
                Header::Plain(text) => HeaderValue::try_from(text.as_str()).ok(),
                Header::Secret(at, secret) => {
                    let secret = secret.read().await;
                    let secret =
                        secret.ok_or_else(|| misconfigured(format!("{at} of header {name} is empty")))?;
                    let value = HeaderValue::try_from(secret.expose_secret()).ok().map(|mut value| {
                        value.set_sensitive(true);
                        value
                    });
                    secrets.push(secret);
                    value
                }
            };
            let unfit =
                || misconfigured(format!("header {name} has a character that is invalid in a header"));
            let value = value.ok_or_else(unfit)?;
            headers.insert(HeaderName::try_from(name.as_str()).map_err(|_| unfit())?, value);
        }
        Ok((headers, secrets))
    }

    /// Adds the pool's fields to a JSON body. Fields that the body sets itself stay.
    pub(crate) fn body(&self, body: Vec<u8>) -> serde_json::Result<Vec<u8>> {
        if self.body.is_empty() {
            return Ok(body);
        }
        let mut fields: Map<String, Value> = serde_json::from_slice(&body)?;
        fill(&mut fields, &self.body);
        serde_json::to_vec(&fields)
    }
}

/// Adds the entries that `fields` lacks; objects are merged recursively.
fn fill(fields: &mut Map<String, Value>, more: &Map<String, Value>) {
    for (name, value) in more {
        match (fields.get_mut(name), value) {
            (Some(Value::Object(inner)), Value::Object(more)) => fill(inner, more),
            (Some(_), _) => {}
            (None, value) => {
                fields.insert(name.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn extras(body: &Value) -> Extras {
        Extras { body: body.as_object().unwrap().clone(), ..Extras::default() }
    }

    #[test]
    fn request_fields_override_worker_and_vendor_fields() {
        let vendor = extras(&json!({ "service_tier": "flex", "options": { "num_ctx": 1, "seed": 2 } }));
        let worker = extras(&json!({ "options": { "num_ctx": 8 }, "temperature": 0.5 }));
        let additions = Additions::find([&vendor, &worker], &BTreeMap::new());
        let body = additions.body(br#"{"model":"m","temperature":1.0}"#.to_vec()).unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        let expected = json!({
            "model": "m", "temperature": 1.0, "service_tier": "flex", "options": { "num_ctx": 8, "seed": 2 },
        });
        assert_eq!(body, expected);
    }
}
