//! Objects of clients besides runs, such as conversations, and the secret of the deployment.

use async_trait::async_trait;
use podium_domain::ids::TenantId;
use podium_domain::time::Timestamp;

use crate::store::StoreError;

/// An object: a document that the store does not interpret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Counts its changes, from 1.
    pub version: u64,
    /// The document. It must not contain the character NUL.
    pub body: String,
}

/// Stores objects. An object that was not changed for as long as ended runs are kept is removed with them.
#[async_trait]
pub trait Objects: Send + Sync {
    /// A secret of 32 bytes that all processes of the store share. It is created with the store and never changes.
    async fn secret(&self) -> Result<[u8; 32], StoreError>;

    /// The object of a tenant with this id.
    async fn find_object(&self, tenant: &TenantId, id: &str) -> Result<Option<Object>, StoreError>;

    /// Stores the version of an object that follows `after`; 0 stands for an object that does not exist. Returns false, and stores
    /// nothing, if the object has another version. So a caller that repeats a call whose reply it lost may get false.
    async fn put_object(
        &self,
        tenant: &TenantId,
        id: &str,
        after: u64,
        body: &str,
        at: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Removes an object. Returns whether there was one.
    async fn remove_object(&self, tenant: &TenantId, id: &str) -> Result<bool, StoreError>;
}
