//! Retired workers: those that a changed pool file no longer has, but that steps of earlier runs name.

use std::collections::BTreeSet;

use super::{Pool, WORKERS_MAX, Worker};
use crate::ids::WorkerId;

impl Pool {
    /// This pool as the successor of `earlier`: workers that it lacks are retired. Steps of earlier runs still call them, and nothing
    /// new is planned for them. Of all retired workers, the last [`WORKERS_MAX`] are kept.
    #[must_use]
    pub fn succeeding(mut self, earlier: &Self) -> Self {
        let mut known: BTreeSet<WorkerId> = self.workers.iter().map(|worker| worker.id.clone()).collect();
        for worker in earlier.workers_and_retired() {
            if self.retired.len() < WORKERS_MAX && known.insert(worker.id.clone()) {
                if self.vendor(&worker.vendor).is_none() {
                    self.vendors.extend(earlier.vendor(&worker.vendor).cloned());
                }
                self.retired.push(worker.clone());
            }
        }
        self
    }

    /// The worker with that id, retired or not: for a step that was planned before.
    pub fn worker_or_retired(&self, id: &WorkerId) -> Option<&Worker> {
        self.workers_and_retired().find(|worker| worker.id == *id)
    }

    /// All workers, the retired ones last.
    pub fn workers_and_retired(&self) -> impl Iterator<Item = &Worker> {
        self.workers.iter().chain(&self.retired)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(version: u32, workers: &[(&str, &str)]) -> Pool {
        let vendors: BTreeSet<_> = workers.iter().map(|(_, vendor)| vendor).collect();
        let vendors = vendors.iter().map(|id| {
            format!("{{ id = \"{id}\", api = \"openai-chat\", base_url = \"http://127.0.0.1:{version}\" }}")
        });
        let vendors = vendors.collect::<Vec<_>>().join(", ");
        let workers = workers.iter().map(|(id, vendor)| {
            format!(
                "[[workers]]\nid = \"{id}\"\nvendor = \"{vendor}\"\nmodel = \"m\"\ndescription = \"does things\"\n\
                 context_tokens = 8192\nusd_per_million_tokens = {{ input = 1.0, output = 2.0 }}\n"
            )
        });
        let workers = workers.collect::<Vec<_>>().concat();
        let toml =
            format!("schema = 1\nname = \"n\"\nversion = \"{version}\"\nvendors = [{vendors}]\n{workers}");
        Pool::parse(&toml).unwrap()
    }

    fn ids<'p>(workers: impl IntoIterator<Item = &'p Worker>) -> Vec<&'p str> {
        workers.into_iter().map(|worker| worker.id.as_str()).collect()
    }

    #[test]
    fn a_removed_worker_is_retired_with_its_vendor() {
        let first = pool(1, &[("a", "v"), ("b", "w")]);
        let second = pool(2, &[("a", "v"), ("c", "v")]).succeeding(&first);
        assert_eq!(second.version(), "n-2");
        assert_eq!(ids(second.workers()), ["a", "c"]);
        let b = WorkerId::new("b").unwrap();
        assert_eq!(second.worker(&b), None, "nothing new is planned for it");
        assert_eq!(second.worker_or_retired(&b).unwrap().vendor.as_str(), "w");
        assert_eq!(second.vendors().iter().map(|vendor| vendor.id.as_str()).collect::<Vec<_>>(), ["v", "w"]);
        assert_eq!(second.vendors()[0].base_url, "http://127.0.0.1:2", "the new file's vendor counts");
        assert!(second.arranged(&[b]).is_err());
    }

    #[test]
    fn a_retired_worker_stays_known_until_it_returns() {
        let first = pool(1, &[("a", "v"), ("b", "w")]);
        let second = pool(2, &[("a", "v")]).succeeding(&first);
        let third = pool(3, &[("c", "v")]).succeeding(&second);
        assert_eq!(ids(third.workers_and_retired()), ["c", "a", "b"]);
        let fourth = pool(4, &[("b", "v")]).succeeding(&third);
        assert_eq!(ids(fourth.workers_and_retired()), ["b", "c", "a"]);
        assert_eq!(fourth.vendors().len(), 1, "no retired worker needs the other vendor");
    }

    #[test]
    fn the_retired_workers_are_bounded() {
        let mut last = pool(1, &[("a", "v")]);
        for version in 2..100 {
            let id = format!("w{version}");
            last = pool(version, &[(&id, "v")]).succeeding(&last);
        }
        let all: Vec<_> = last.workers_and_retired().collect();
        assert_eq!(all.len(), 1 + WORKERS_MAX);
        assert_eq!(ids(all)[..3], ["w99", "w98", "w97"], "the last removed are kept");
    }
}
