//! Names of streams, consumers and subjects.
//!
//! Subjects are `<prefix>.<lane>.<run>.<task>`, where the lane is `<tier>.plan` or `<tier>.step.<vendor>`. Subjects of
//! different lanes never overlap, as streams require.

use std::fmt::Write;

use podium_ports::queue::{Lane, TaskMessage};

/// The subject of a task's messages. All have the same subject, so the stream accepts one at a time.
pub(crate) fn subject(prefix: &str, lane: &Lane, message: &TaskMessage) -> String {
    let task = message.task.to_string().replace('.', "-");
    format!("{prefix}.{}.{}.{task}", tokens(lane, '.'), message.run)
}

/// All subjects of a lane.
pub(crate) fn filter(prefix: &str, lane: &Lane) -> String {
    format!("{prefix}.{}.*.*", tokens(lane, '.'))
}

/// The name of a lane's stream.
pub(crate) fn stream(name: &str, lane: &Lane) -> String {
    format!("{name}-{}", tokens(lane, '-'))
}

fn tokens(lane: &Lane, separator: char) -> String {
    match lane {
        Lane::Plan(tier) => format!("{}{separator}plan", tier.as_str()),
        Lane::Step(tier, vendor) => {
            format!("{}{separator}step{separator}{}", tier.as_str(), token(vendor.as_str()))
        }
    }
}

/// A name as one token of a subject or a stream's name. Letters, digits and `-` are kept, other bytes are escaped. Different
/// names give different tokens.
fn token(name: &str) -> String {
    let mut token = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' {
            token.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(token, "_{byte:02x}");
        }
    }
    token
}

/// Whether a name can be the prefix of a stream's name, which is also a path on the server's disk.
pub(crate) fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !name.is_empty() && name.len() <= 32 && name.chars().all(allowed)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use podium_domain::ids::{NAME_BYTES_MAX, RunId, StepIndex, VendorId};
    use podium_domain::policy::Tier;
    use podium_domain::run::TaskRef;

    use super::*;

    fn lane(vendor: &str) -> Lane {
        Lane::Step(Tier::Ultra, VendorId::new(vendor).unwrap())
    }

    #[test]
    fn a_lanes_filter_matches_its_tasks_subjects() {
        let run: RunId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        let message = TaskMessage::new(run, TaskRef::Step { round: 1, step: StepIndex::new(2) });
        assert_eq!(
            subject("podium.work", &lane("north"), &message),
            "podium.work.ultra.step.north.01890a5d-ac96-774b-bcce-b302099a8057.step-1-2"
        );
        assert_eq!(filter("podium.work", &lane("north")), "podium.work.ultra.step.north.*.*");
        assert_eq!(filter("podium.work", &Lane::Plan(Tier::Mini)), "podium.work.mini.plan.*.*");
        assert_eq!(stream("PODIUM", &Lane::Plan(Tier::Mini)), "PODIUM-mini-plan");
        assert_eq!(stream("PODIUM", &lane("a.b")), "PODIUM-ultra-step-a_2eb");
    }

    #[test]
    fn vendors_have_distinct_and_safe_tokens() {
        let vendors = ["a.b", "a_b", "a-b", "a:b", "a/b", "a_2eb", "A.B", "*", ">", "a b"];
        let vendors: Vec<_> = vendors.iter().filter_map(|name| VendorId::new(*name).ok()).collect();
        let tokens: BTreeSet<_> = vendors.iter().map(|vendor| token(vendor.as_str())).collect();
        assert_eq!(tokens.len(), vendors.len());
        let safe = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        assert!(tokens.iter().all(|token| token.chars().all(safe)), "{tokens:?}");
        let longest = stream(&"x".repeat(32), &lane(&":".repeat(NAME_BYTES_MAX)));
        assert!(longest.len() < 255, "the server creates a folder with this name");
    }
}
