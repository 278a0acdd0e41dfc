//! A simulator, and pools that use it in each wire format.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use podium_domain::pool::Pool;
use podium_vendor_sim::{Behaviour, Options, Running, ScriptedFault, VendorSim};
use podium_vendors::HttpVendors;

use crate::authority::Authority;
use crate::cases::{Case, Trouble};

pub(crate) const FORMATS: [&str; 4] = ["openai-chat", "openai-responses", "anthropic", "gemini"];
/// The answer is the question, in more than seven pieces.
pub(crate) const QUESTION: &str =
    "A question of more than seven tokens, so that some are left after trouble in its middle.";

/// Whether the vendor streams its answer; a stream is always requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    Streamed,
    Whole,
}

impl Delivery {
    pub(crate) const BOTH: [Self; 2] = [Self::Streamed, Self::Whole];
}

pub(crate) struct House {
    pub(crate) sim: Running,
    pub(crate) authority: Authority,
}

impl House {
    pub(crate) async fn new() -> Self {
        let sim = VendorSim::start(Options::loopback(7)).await.unwrap();
        let authority = Authority::before(sim.addr()).await;
        Self { sim, authority }
    }

    /// Makes the next `calls` calls show the fault, and answers unstreamed if required.
    pub(crate) fn script(&self, case: &Case, delivery: Delivery, calls: u32) {
        let faults = match case.trouble {
            Trouble::Scripted(fault) => vec![ScriptedFault::next_calls(fault, calls)],
            Trouble::Refused | Trouble::NoTls | Trouble::Tls(_) => Vec::new(),
        };
        let never_streams = delivery == Delivery::Whole;
        self.sim
            .set_behaviour("sim-echo", Behaviour { faults, never_streams, ..Behaviour::default() })
            .unwrap();
    }

    /// A worker in each format that shows the fault, and one without faults.
    pub(crate) fn pool(&self, case: &Case) -> Pool {
        let (scheme, address) = match case.trouble {
            Trouble::Scripted(_) => ("http", self.sim.addr().to_string()),
            Trouble::NoTls => ("https", self.sim.addr().to_string()),
            Trouble::Tls(kind) => ("https", self.authority.listener(kind).to_string()),
            Trouble::Refused => ("http", unused_address()),
        };
        let mut toml = "schema = 1\nname = \"faults\"\nversion = \"1\"\n".to_owned();
        for format in FORMATS {
            let path = if format == "gemini" { "/v1beta" } else { "/v1" };
            // Short compared with the others, but long enough for a successful call on a busy machine.
            let limits = ["connect_ms_max", "first_byte_ms_max", "idle_ms_max", "call_ms_max"].map(|limit| {
                let milliseconds = if limit == case.short_limit { 1_500 } else { 120_000 };
                format!("{limit} = {milliseconds}")
            });
            write!(
                toml,
                r#"
                [[vendors]]
                id = "{format}"
                api = "{format}"
                base_url = "{scheme}://{address}{path}"
                [[workers]]
                id = "{format}"
                vendor = "{format}"
                model = "sim-echo"
                description = "repeats its question"
                context_tokens = 65536
                output_tokens_max = 16384
                usd_per_million_tokens = {{ input = 1.0, output = 1.0 }}
                limits = {{ {} }}
                "#,
                limits.join(", ")
            )
            .unwrap();
        }
        Pool::parse(&toml).unwrap()
    }

    /// Adapters that trust the test authority only.
    pub(crate) fn vendors(&self, pool: &Pool) -> HttpVendors {
        let trusted = Some(self.authority.certificate());
        temp_env::with_var("SSL_CERT_FILE", trusted, || HttpVendors::new(pool, &BTreeMap::new()).unwrap())
    }
}

/// An address of this machine without a listener.
fn unused_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}
