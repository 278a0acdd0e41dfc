//! Requests about runs and tenants of other cells: a gateway forwards them to a gateway of that cell, byte for byte.
//!
//! The caller's headers are forwarded too, so the other gateway authenticates the caller again and knows its deadline and its
//! trace. A request is forwarded once: a gateway that would forward it again rejects it, because the gateways disagree about
//! the cells.

mod guarded_body;
mod upstream;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::{HeaderMap, request};
use axum::response::Response;
use bytes::Bytes;
use podium_api::{ApiError, ErrorCode};
use podium_domain::cells::{Cell, CellId, Cells};
use podium_domain::ids::{RunId, TenantId};
use podium_ports::causes::with_causes;

use crate::connections::Protocol;
use crate::error_mapping;
use upstream::{Upstream, Wanted, client_config};

pub(crate) use guarded_body::{GuardedBody, LastFrames};
pub use upstream::{CellIdentity, CellTls, ConnectorError};

/// The header of a forwarded request: the number of the cell that it was forwarded to.
const FORWARDED_TO: &str = "x-podium-cell";

/// Finds the cell of a request. Clones share their connections.
#[derive(Clone)]
pub struct CellRouter(Arc<Inner>);

struct Inner {
    own: CellId,
    cells: Cells,
    /// All cells except this one.
    others: BTreeMap<CellId, OtherCell>,
}

/// Another cell's gateways.
pub(crate) struct OtherCell {
    id: CellId,
    http: Upstream,
    grpc: Upstream,
}

impl CellRouter {
    /// A router for a gateway of the cell `own`. Does not connect yet.
    pub fn new(own: CellId, cells: Cells, tls: &CellTls) -> Result<Self, ConnectorError> {
        let is_https = |address: &String| address.starts_with("https:");
        let has_https =
            cells.iter().any(|(id, cell)| id != own && cell.http.iter().chain(&cell.grpc).any(is_https));
        let tls = client_config(tls, has_https)?;
        let other = |(id, cell): (CellId, &Cell)| {
            let http = Upstream::new(&cell.http, Protocol::Http, tls.clone())?;
            let grpc = Upstream::new(&cell.grpc, Protocol::Grpc, tls.clone())?;
            Ok::<_, ConnectorError>((id, OtherCell { id, http, grpc }))
        };
        let others =
            cells.iter().filter(|(id, _)| *id != own).map(other).collect::<Result<_, ConnectorError>>()?;
        Ok(Self(Arc::new(Inner { own, cells, others })))
    }

    /// The other cell that has a run; none if this cell has it.
    pub(crate) fn of_run(&self, id: RunId, headers: &HeaderMap) -> Result<Option<&OtherCell>, ApiError> {
        let cell = id.cell();
        if self.0.cells.get(cell).is_none() && cell != self.0.own {
            return Err(error_mapping::unknown_run(id));
        }
        self.other_cell(cell, headers, || format!("run {id}"))
    }

    /// The other cell of a tenant; none if this cell is the tenant's.
    pub(crate) fn of_tenant(
        &self,
        tenant: &TenantId,
        headers: &HeaderMap,
    ) -> Result<Option<&OtherCell>, ApiError> {
        self.other_cell(self.0.cells.of_tenant(tenant), headers, || format!("tenant {tenant}"))
    }

    /// The cell that has a run, if it is another one of the configured cells.
    pub(crate) fn cell_elsewhere(&self, id: RunId) -> Option<CellId> {
        self.0.others.get(&id.cell()).map(|other| other.id)
    }

    fn other_cell(
        &self,
        cell: CellId,
        headers: &HeaderMap,
        whose: impl FnOnce() -> String,
    ) -> Result<Option<&OtherCell>, ApiError> {
        let Some(other) = self.0.others.get(&cell) else { return Ok(None) };
        if !headers.contains_key(FORWARDED_TO) {
            return Ok(Some(other));
        }
        let (whose, own) = (whose(), self.0.own);
        tracing::warn!(%own, %cell, %whose, "a request was forwarded to a gateway of the wrong cell");
        let message = format!(
            "a gateway of cell {own} got a forwarded request for {whose}, which belongs to cell {cell}; the gateways' \
             `cells` files differ"
        );
        Err(ApiError::new(ErrorCode::Unavailable, message))
    }
}

impl OtherCell {
    /// Forwards a request and returns the other gateway's response as soon as it begins.
    pub(crate) async fn forward(
        &self,
        head: request::Parts,
        body: Bytes,
        protocol: Protocol,
    ) -> Result<Response, ApiError> {
        let upstream = match protocol {
            Protocol::Http => &self.http,
            Protocol::Grpc => &self.grpc,
        };
        self.send(upstream, head, body, Wanted::Response).await
    }

    /// Asks the other gateway for a WebSocket. If it agrees, the status is 101 and the response can be upgraded.
    pub(crate) async fn open_socket(&self, head: request::Parts) -> Result<Response, ApiError> {
        self.send(&self.http, head, Bytes::new(), Wanted::WebSocket).await
    }

    async fn send(
        &self,
        upstream: &Upstream,
        mut head: request::Parts,
        body: Bytes,
        wanted: Wanted,
    ) -> Result<Response, ApiError> {
        head.headers.insert(FORWARDED_TO, self.id.number().into());
        upstream.send(&head, body, wanted).await.map_err(|error| {
            let cell = self.id;
            tracing::warn!(%cell, error = with_causes(&error), "a request could not be forwarded");
            ApiError::new(
                ErrorCode::Unavailable,
                format!("cell {cell} is unreachable: {error}; try again later"),
            )
        })
    }

    /// The error for a response that breaks off.
    pub(crate) fn broke_off(&self) -> ApiError {
        let message = format!("the response of cell {} broke off; the run goes on there", self.id);
        ApiError::new(ErrorCode::Unavailable, message)
    }
}
