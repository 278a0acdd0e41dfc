//! Fair queuing: decides which of the waiting calls goes first.
//!
//! Start-time fair queuing in two levels: tiers by weight, and the tenants of a tier equally. Each tier and tenant has a tag that
//! grows with the service it was granted. The smallest tag goes first; among equal tags the caller that came first. Callers are
//! not queued, they ask again. So there is one *turn*: a refused caller takes it unless a caller that goes before holds it, and
//! later callers leave capacity to its holder. It expires if its holder does not ask again as agreed.
//!
//! Goyal, Vin and Cheng, "Start-time Fair Queuing", 1996.

use std::collections::BTreeMap;

use super::tier_index;
use crate::policy::Tier;

/// The share of `mini` relative to `ultra` while calls of both wait; `ultra` keeps a fifth.
///
/// It is the root of 16, because a run of `ultra` takes about 16 times as long as one of `mini`. With equally many callers of
/// both, this minimises the sum of the waits, each relative to the length of its run.
pub const MINI_WEIGHT: f64 = 4.0;

/// Most tenants of a scope whose tags are kept. Tags without effect are dropped first; a tenant beyond the bound counts as new.
pub const GROUPS_MAX: usize = 256;

/// Most callers of a scope that are counted as waiting, in each tier.
pub const WAITING_MAX: usize = 1024;

const WEIGHTS: [f64; 2] = [MINI_WEIGHT, 1.0];

/// The tags and the turn of one scope.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turns {
    /// The tag of the tier that was served last.
    pub(super) tiers_now: f64,
    pub(super) tiers: [f64; 2],
    /// The tag of the tenant that was served last, by tier.
    pub(super) groups_now: [f64; 2],
    pub(super) groups: BTreeMap<(usize, String), f64>,
    pub(super) turn: Option<Turn>,
    /// By tier: callers that were asked to come back, and when they expire.
    pub(super) waiting: [BTreeMap<String, f64>; 2],
}

/// The turn and its holder.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Turn {
    pub(super) who: String,
    pub(super) tier: usize,
    pub(super) tenant: String,
    /// Milliseconds of service that later callers must leave to it.
    pub(super) need_ms: f64,
    pub(super) until: f64,
}

/// A caller that asks for a permit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller<'a> {
    pub(super) who: &'a str,
    pub(super) tier: usize,
    pub(super) tenant: &'a str,
}

impl<'a> Caller<'a> {
    pub(super) fn new(who: &'a str, tier: Tier, tenant: &'a str) -> Self {
        Self { who, tier: tier_index(tier), tenant }
    }
}

impl Turns {
    fn tier_tag(&self, tier: usize) -> f64 {
        self.tiers[tier].max(self.tiers_now)
    }

    fn group_tag(&self, tier: usize, tenant: &str) -> f64 {
        let own = self.groups.get(&(tier, tenant.to_owned())).copied().unwrap_or_default();
        own.max(self.groups_now[tier])
    }

    fn goes_before(&self, caller: Caller<'_>, turn: &Turn) -> bool {
        if caller.tier == turn.tier {
            let (own, other) =
                (self.group_tag(caller.tier, caller.tenant), self.group_tag(turn.tier, &turn.tenant));
            let came_first = !caller.who.is_empty() && caller.who < turn.who.as_str();
            return own < other || (own <= other && came_first);
        }
        let (own, other) = (self.tier_tag(caller.tier), self.tier_tag(turn.tier));
        own < other || (own <= other && caller.tier < turn.tier)
    }

    /// The service that a caller must leave to the holder of the turn, in milliseconds.
    pub(super) fn left_by(&self, now: f64, caller: Caller<'_>) -> Option<f64> {
        let turn = self.turn.as_ref().filter(|turn| turn.until > now && turn.who != caller.who)?;
        (!self.goes_before(caller, turn)).then_some(turn.need_ms)
    }

    /// Whether the caller may take the turn.
    pub(super) fn may_take(&self, now: f64, caller: Caller<'_>) -> bool {
        self.left_by(now, caller).is_none()
    }

    /// The number of callers that wait in a tier, including `who`.
    pub(super) fn waiting(&mut self, now: f64, caller: Caller<'_>) -> usize {
        let waiting = &mut self.waiting[caller.tier];
        waiting.retain(|_, until| *until > now);
        waiting.len() + usize::from(!waiting.contains_key(caller.who))
    }

    /// Records that the caller was asked to come back by `until`.
    pub(super) fn wait(&mut self, caller: Caller<'_>, until: f64, turn: Option<f64>) {
        let waiting = &mut self.waiting[caller.tier];
        if waiting.len() < WAITING_MAX || waiting.contains_key(caller.who) {
            waiting.insert(caller.who.to_owned(), until);
        }
        if let Some(need_ms) = turn {
            let (who, tenant) = (caller.who.to_owned(), caller.tenant.to_owned());
            self.turn = Some(Turn { who, tier: caller.tier, tenant, need_ms, until });
        }
    }

    /// Records that the caller was granted this many milliseconds of service.
    pub(super) fn grant(&mut self, caller: Caller<'_>, service_ms: f64) {
        let Caller { who, tier, tenant } = caller;
        self.tiers_now = self.tier_tag(tier);
        self.tiers[tier] = self.tiers_now + service_ms / WEIGHTS[tier];
        let now = self.group_tag(tier, tenant);
        self.groups_now[tier] = now;
        if self.groups.len() >= GROUPS_MAX {
            let groups_now = self.groups_now;
            self.groups.retain(|(tier, _), tag| *tag > groups_now[*tier]);
        }
        let key = (tier, tenant.to_owned());
        if self.groups.len() < GROUPS_MAX || self.groups.contains_key(&key) {
            self.groups.insert(key, now + service_ms);
        }
        self.waiting[tier].remove(who);
        if self.turn.as_ref().is_some_and(|turn| turn.who == who) {
            self.turn = None;
        }
    }
}
