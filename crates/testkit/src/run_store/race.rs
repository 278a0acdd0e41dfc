//! Two handles concurrently.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use futures::join;
use podium_domain::ids::RequestId;
use podium_domain::run::{RunSpec, TaskRef};
use podium_ports::clock::Ids;
use podium_ports::store::{Appended, Unwritten};

use super::StoreFixture;
use crate::builders::{Driven, a_spec};
use crate::ids::SeededIds;

const PLAN: TaskRef = TaskRef::Plan { round: 0 };
const CLAIMS: usize = 200;

pub(crate) async fn concurrent_creates_with_one_request_id_give_one_run(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let request_id = RequestId::new("once").expect("it is a request id");
    let spec = RunSpec { request_id: Some(request_id), ..a_spec() };
    let runs: Vec<_> = (0..16).map(|_| Driven::accept(ids.run_id(spec.accepted_at), spec.clone())).collect();
    let racers = runs.iter().enumerate().map(|(index, run)| {
        let handle = Arc::clone(if index % 2 == 0 { &store.first } else { &store.second });
        let commit = run.clone().commit();
        async move { handle.append(&[commit]).await.unwrap().remove(0).unwrap() }
    });
    let created = join_all(racers).await;
    let new: Vec<_> = created.iter().zip(&runs).filter(|(created, _)| **created == Appended::New).collect();
    assert_eq!(new.len(), 1, "{created:?}");
    let winner = new[0].1.id();
    assert!(
        created
            .iter()
            .all(|created| matches!(created, Appended::New) || *created == Appended::Existing(winner))
    );
    let loaded = store.first.load(&runs.iter().map(Driven::id).collect::<Vec<_>>()).await.unwrap();
    assert_eq!(loaded.into_iter().flatten().map(|run| run.id()).collect::<Vec<_>>(), [winner]);
}

pub(crate) async fn one_of_two_racing_claims_wins_each_time(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut runs: Vec<_> = (0..CLAIMS).map(|_| Driven::accepted(&ids)).collect();
    let creates: Vec<_> = runs.iter_mut().map(Driven::commit).collect();
    store.first.append(&creates).await.unwrap();
    let races = runs.into_iter().map(|run| async {
        let (mut left, mut right) = (run.clone(), run);
        left.claim(PLAN, &ids);
        right.claim(PLAN, &ids);
        let commits = ([left.commit()], [right.commit()]);
        let (first, second) = join!(store.first.append(&commits.0), store.second.append(&commits.1));
        let winner = match (first.unwrap().as_slice(), second.unwrap().as_slice()) {
            ([Ok(Appended::New)], [Err(Unwritten::Conflict)]) => left,
            ([Err(Unwritten::Conflict)], [Ok(Appended::New)]) => right,
            answers => unreachable!("the handles were answered {answers:?}"),
        };
        assert_eq!(store.load(winner.id()).await, Some(winner.run));
    });
    assert_eq!(join_all(races).await.len(), CLAIMS);
}

pub(crate) async fn two_sweepers_share_the_ready_tasks(store: &StoreFixture) {
    let ids = SeededIds::new(1);
    let mut runs: Vec<_> = (0..40).map(|_| Driven::accepted(&ids)).collect();
    let creates: Vec<_> = runs.iter_mut().map(Driven::commit).collect();
    store.first.append(&creates).await.unwrap();
    let now = a_spec().accepted_at.after(store.dispatch_grace);
    let again_at = now.after(Duration::from_mins(1));
    let sweeps = (0..8).map(|index| {
        let handle = Arc::clone(if index % 2 == 0 { &store.first } else { &store.second });
        async move { handle.due(now, again_at, 10, &[]).await.unwrap().ready }
    });
    let told: Vec<_> = join_all(sweeps).await.into_iter().flatten().collect();
    assert_eq!(told.len(), 40, "each is returned once");
    assert_eq!(told.into_iter().collect::<BTreeSet<_>>().len(), 40);
}
